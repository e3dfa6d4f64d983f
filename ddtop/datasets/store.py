"""Datasets on this machine: fetched once, kept as JSON lines beside what they are, and checked whenever they are read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from ddtop.datasets import readers
from ddtop.datasets.item import Item, count_by_group, digest, items_of, lines_of
from ddtop.datasets.sources import FILE, Source, source_of
from ddtop.errors import UsageError
from ddtop.paths import cache_dir

MAX_BYTES = 2 << 30
"""Of a source's file; the largest known one has 0.7 GB."""
TIMEOUT_S = 60.0
Progress = Callable[[int, int | None], None]
"""Bytes that came, and how many there are if that is known."""


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a dataset is: kept beside it, in recordings and in reports."""

    name: str
    revision: str = ""
    sha256: str
    """Of the source's file."""
    licence: str = ""
    shareable: bool = True
    origin: str = ""
    """URL or path it was read from."""
    items_sha256: str = ""
    """Of the JSON lines made of it."""


class Dataset(msgspec.Struct, frozen=True):
    """All items of a dataset."""

    about: About
    items: tuple[Item, ...]

    @property
    def groups(self) -> dict[str, int]:
        """{group: prompts}."""
        return count_by_group(self.items)


def folder_of(name: str) -> Path:
    """Where a fetched dataset is kept."""
    return cache_dir() / "datasets" / name.replace(":", "--")


def load(name: str, folder: Path | None = None) -> Dataset:
    """The dataset `name`, from this machine alone. `folder`: what `file:` paths are relative to. Raises UsageError."""
    if name.startswith(FILE):
        return _own(name, folder)
    source = source_of(name)
    kept = folder_of(name)
    try:
        about = msgspec.json.decode((kept / "about.json").read_bytes(), type=About)
        data = (kept / "items.jsonl").read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"the dataset {name} is not on this machine", do=source.how or f"ddtop dataset fetch {name}"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"the dataset {name} cannot be read: {error}", do=f"ddtop dataset fetch {name}"
        ) from error
    if digest(data) != about.items_sha256:
        raise UsageError(
            f"the dataset {name} is not as it was fetched: wrong SHA-256 of {kept / 'items.jsonl'}",
            means="it was changed or damaged; results would not be those of this dataset",
            do=f"ddtop dataset fetch {name}",
        )
    return Dataset(about, items_of(data.decode(), name))


def _own(name: str, folder: Path | None) -> Dataset:
    path = Path(name.removeprefix(FILE)).expanduser()
    path = path if path.is_absolute() else (folder or Path()) / path
    data = _read_file(path)
    items = readers.read(data, readers.own, path.name)
    return Dataset(About(name=name, revision="", sha256=digest(data), origin=str(path)), items)


def _read_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} is larger than {MAX_BYTES >> 30} GiB", do="cut it to what is needed")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", do="check the path") from error


def fetch(source: Source, given: Path | None = None, tell: Progress | None = None) -> Dataset:
    """Bring a dataset to this machine: from its source, or from a file that is already here (`given`). What was kept before
    stays until the new one is whole. Raises UsageError."""
    if given is not None:
        data, origin = _read_file(given), str(given)
    elif source.url:
        data, origin = _download(source, tell), source.url
    else:
        raise UsageError(f"{source.name} cannot be fetched whole", do=source.how)
    found = digest(data)
    if source.sha256 and found != source.sha256:
        raise UsageError(
            f"{source.name}: wrong SHA-256 of {origin}: found {found}, expected {source.sha256}",
            means=f"it is not the file of revision {source.revision}, or it is damaged; nothing was kept",
            do=f'fetch it again, or use it as a file of your own: dataset = "{FILE}PATH"',
        )
    items = readers.read(data, source.reader, source.name, skip=source.skip)
    lines = lines_of(items).encode()
    about = About(
        name=source.name,
        revision=source.revision,
        sha256=found,
        licence=source.licence,
        shareable=source.shareable,
        origin=origin,
        items_sha256=digest(lines),
    )
    kept = folder_of(source.name)
    kept.mkdir(parents=True, exist_ok=True)
    _write(kept / "items.jsonl", lines)
    _write(kept / "about.json", msgspec.json.format(msgspec.json.encode(about), indent=2))
    return Dataset(about, items)


def _write(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(temporary).replace(path)


def _download(source: Source, tell: Progress | None) -> bytes:
    import httpx

    data = bytearray()
    try:
        with httpx.stream("GET", source.url, follow_redirects=True, timeout=TIMEOUT_S) as response:
            response.raise_for_status()
            length = response.headers.get("content-length", "")
            whole = int(length) if length.isdecimal() else None
            for part in response.iter_bytes():
                data += part
                if len(data) > MAX_BYTES:
                    raise UsageError(f"{source.url} is larger than {MAX_BYTES >> 30} GiB", do="report it")
                if tell is not None:
                    tell(len(data), whole)
    except httpx.HTTPStatusError as error:
        raise UsageError(
            f"{source.name} cannot be fetched: HTTP {error.response.status_code} from {source.url}",
            do=_by_hand(source),
        ) from error
    except httpx.HTTPError as error:
        raise UsageError(
            f"{source.name} cannot be fetched: no connection to {httpx.URL(source.url).host}: "
            f"{str(error) or type(error).__name__}",
            means="this machine may have no way to the internet; the GPU host needs none",
            do=_by_hand(source),
        ) from error
    return bytes(data)


def _by_hand(source: Source) -> str:
    return (
        f"on a machine with internet: curl -LO {source.url}; then here: ddtop dataset fetch {source.name} --from FILE. "
        'A file of your own needs no fetching: dataset = "file:mine.jsonl"'
    )
