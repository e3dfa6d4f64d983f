"""`ddtop dataset`: what is known, what is on this machine, and what is in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddtop.datasets.item import Item
from ddtop.datasets.sources import FILE, SOURCES, source_of
from ddtop.datasets.store import Dataset, fetch, folder_of, load
from ddtop.errors import UsageError, plain
from ddtop.words import many

SHOWN = 72
"""Characters of a prompt that `show` prints."""


def list_datasets(*, as_json: bool = False) -> str:
    """Every known dataset, one a line: whether it is here, its name, what it is, its licence."""
    here = {source.name: (folder_of(source.name) / "about.json").is_file() for source in SOURCES}
    if as_json:
        return _json(
            [
                {
                    "name": s.name,
                    "here": here[s.name],
                    "what": s.what,
                    "licence": s.licence,
                    "revision": s.revision,
                    "sha256": s.sha256 or None,
                    "url": s.url or None,
                }
                for s in SOURCES
            ]
        )
    wide = max(len(source.name) for source in SOURCES)
    lines = [
        f"{'fetched' if here[s.name] else '-':8} {s.name:{wide}}  {s.what}\n{'':{wide + 11}}{s.licence}"
        for s in SOURCES
    ]
    return "\n".join(
        [*lines, "", f"ddtop dataset fetch NAME brings one here. {FILE}PATH is a file of your own."]
    )


def fetch_dataset(name: str, given: Path | None = None) -> str:
    """What was fetched, with its licence. Raises UsageError."""
    if name.startswith(FILE):
        raise UsageError(
            "a file of your own is not fetched",
            do=f"ddtop dataset show {name}, or dataset = {name!r} in a plan",
        )
    source = source_of(name)
    if sys.stderr.isatty() and given is None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=None)

            def tell(done: int, whole: int | None) -> None:
                bar.update(task, completed=done, total=whole)

            found = fetch(source, given, tell)
    else:
        found = fetch(source, given)
    return "\n".join([*_about(found), f"kept in  {folder_of(name)}"])


def show_dataset(name: str, *, as_json: bool = False) -> str:
    """What is in a dataset. Raises UsageError."""
    found = load(name, Path())
    if as_json:
        return _json(
            {**msgspec.to_builtins(found.about), "prompts": len(found.items), "groups": found.groups}
        )
    first: dict[str, Item] = {}
    for item in found.items:
        first.setdefault(item.group, item)
    wide = max(map(len, first))
    lines = [
        f"  {group:{wide}}  {count:6,}  {_turns(found.items, group)}{_short(first[group].text)}"
        for group, count in found.groups.items()
    ]
    return "\n".join([*_about(found), f"groups   {len(lines)}, with the first prompt of each:", *lines])


def _about(found: Dataset) -> list[str]:
    about = found.about
    return [
        f"dataset  {about.name}: {many(len(found.items), 'prompt')} in {many(len(found.groups), 'group')}",
        f"licence  {about.licence or 'unknown: it is a file of your own'}"
        + ("" if about.shareable else "; recordings and bundles do not carry its texts"),
        f"revision {about.revision or 'n/a'}",
        f"SHA-256  {about.sha256}",
        f"from     {about.origin}",
    ]


def _turns(items: Sequence[Item], group: str) -> str:
    most = max(1 + len(item.turns) for item in items if item.group == group)
    return f"up to {most} turns  " if most > 1 else ""


def _short(text: str) -> str:
    line = plain(" ".join(text.split()))
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
