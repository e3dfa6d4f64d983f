"""Which weight files a model has and must have, from a list of entries. Pure: no file is touched here."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .weight_files import Head, is_weight

SHARD = re.compile(r"^(?P<stem>.{0,200}?)[-_.](?P<i>\d{1,6})-of-(?P<n>\d{1,6})(?P<ext>\.[A-Za-z0-9]{2,12})$")
_RANK = re.compile(r"^rank(\d{1,5})\.engine$")
_MARKER = re.compile(
    r"(\.incomplete|\.partial|\.part|\.tmp|\.crdownload|\.aria2|\.~tmp~|\.ddtop-part)$"
    r"|(^|/)\.(?=.+\.[A-Za-z0-9]{6}$).*\.(safetensors|gguf|bin|json|pth|pt)\.[A-Za-z0-9]{6}$"
    r"|(^|/)(\.ddtop-part|\.~tmp~|\.rsync-partial|\._____temp)/"
    r"|\.(safetensors|gguf|bin|pth|pt)\.[0-9a-fA-F]{8}$"
)


class Entry(NamedTuple):
    """One entry of a model directory. `path` as listed; `kind` f, d or l; `size` in bytes (of a link: its own);
    `sized` False: a bare name, whose size is not known; `blocks` 512-byte blocks allocated; `age_s` since the last write; `head` what the first bytes say."""

    path: str
    kind: str = "f"
    size: int = 0
    target: Optional[str] = None
    blocks: Optional[int] = None
    age_s: Optional[float] = None
    head: Optional[Head] = None
    sized: bool = True


class Weights(NamedTuple):
    """The weight files of one model: by base name, links followed."""

    root: str
    files: Dict[str, Entry]
    dangling: List[str]
    other: Dict[str, Entry]
    outside: List[str]


def is_marker(path: str) -> bool:
    """Whether a file is a half-done download or copy (HF `.incomplete`, rsync's and others' temporary
    names)."""
    return bool(_MARKER.search(path))


def collect(entries: Iterable[Entry], wanted_revision: Optional[str] = None) -> Weights:
    """Weight files of the model, by base name. In a Hugging Face cache: those of one snapshot, through its
    links
    (a link's own size is not the shard's); a link without its blob is dangling, and `outside` where nothing of the folder
    that it points into is there."""
    table = {posixpath.normpath(e.path): e for e in entries}
    snapshots = sorted({m.group(1) for p in table for m in [re.match(r"^(.*?snapshots/[^/]+)/", p)] if m})
    root = ""
    if snapshots:
        wanted = [s for s in snapshots if wanted_revision and s.endswith("/" + wanted_revision)]
        root = (wanted or [max(snapshots, key=lambda s: sum(p.startswith(s + "/") for p in table))])[0]
    files: Dict[str, Entry] = {}
    other: Dict[str, Entry] = {}
    dangling: List[str] = []
    outside: List[str] = []
    folders = {posixpath.dirname(p) for p in table}
    for path, entry in table.items():
        if entry.kind == "d" or is_marker(path) or (root and not path.startswith(root + "/")):
            continue
        if not root and "/blobs/" in "/" + path:
            continue
        base = posixpath.basename(path)
        real = _follow(path, entry, table)
        if real is None:
            dangling.append(base)
            if posixpath.dirname(_target(path, entry)) not in folders:
                outside.append(base)
        elif is_weight(base):
            if base not in files or real.size > files[base].size:
                files[base] = real
        else:
            other.setdefault(base, real)
    return Weights(root, files, dangling, other, outside)


def _target(path: str, entry: Entry) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.target or ""))


def _follow(path: str, entry: Entry, table: Dict[str, Entry]) -> Optional[Entry]:
    for _ in range(10):
        if entry.kind != "l":
            return entry
        if not entry.target:
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.target))
        found = table.get(path)
        if found is None:
            return None
        entry = found
    return None


def expected_names(
    files: Dict[str, Entry], dangling: Sequence[str], index: Optional[Dict[str, Any]]
) -> Tuple[List[str], List[Tuple[str, int]]]:
    """Every shard there must be, and the (stem, count) families that the names tell.

    From the index where there is one, else from `-of-N` in the names (the index may not have been fetched yet),
    else just what is there.
    """
    families: Dict[Tuple[str, str, int], Tuple[int, int]] = {}
    for name in [*files, *dangling]:
        found = SHARD.match(name)
        if found and is_weight(name):
            key = (name[: found.start("i")], found.group("ext"), int(found.group("n")))
            families[key] = (len(found.group("i")), len(found.group("n")))
    counts = [(stem + "*" + ext, n) for stem, ext, n in families]
    if index is not None:
        return list(index["shards"]), counts
    if families:
        # The largest family is the model; others are a vision part, another precision, or leftovers.
        (stem, ext, n), (wide_i, wide_n) = max(families.items(), key=lambda kv: kv[0][2])
        n = min(n, 100000)
        first = 0 if any(int(m.group("i")) == 0 for m in map(SHARD.match, files) if m) else 1
        # Some count 0 to N-1, gpt-oss counts 0 to N.
        last = max(
            (int(m.group("i")) for m in map(SHARD.match, files) if m and int(m.group("n")) == n), default=0
        )
        numbers = range(first, n + 1 if last >= n else n + first)
        return [f"{stem}{i:0{wide_i}d}-of-{n:0{wide_n}d}{ext}" for i in numbers], counts
    ranks = [int(m.group(1)) for n in [*files, *dangling] for m in [_RANK.match(n)] if m]
    if ranks and max(ranks) < 10000:
        return [f"rank{i}.engine" for i in range(max(ranks) + 1)], counts  # a part between them is missing
    return sorted({*files, *[d for d in dangling if is_weight(d)]}), counts
