"""The catalogue of failure signatures: startup.toml, signatures.toml and families.toml, compiled once, matched line by line.

The fast path is literal: a signature's regex is only tried on a line that holds one of its anchors.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import tomli

from ddtop.engines.log.grammar import clip, speaks

_FILES = ("startup.toml", "signatures.toml", "families.toml")
"""In this order: an exact row of an engine's start-up code wins over a general one, and that over a family's."""
ROLES = ("cause", "consequence", "pointer", "warning", "marker")


@dataclass(frozen=True, slots=True)
class Signature:
    """One row of signatures.toml; see its head for the meaning of `role` and `anchors`."""

    id: str
    engine: str
    phase: tuple[str, ...]
    role: str
    anchors: tuple[str, ...]
    regex: re.Pattern[str]
    cause: str
    advice: str
    """Empty where the cause's own advice (causes.toml) is as exact."""
    sample: str
    source: str


@dataclass(frozen=True, slots=True)
class Match:
    """A signature found in a line, with the regex's named groups (only those that took part)."""

    signature: Signature
    groups: dict[str, str] = field(default_factory=dict)


@functools.cache
def load_catalogue() -> tuple[Signature, ...]:
    """All signatures of the packaged catalogue, in file order. Read once."""
    folder = resources.files("ddtop.sources.log")
    tables = [tomli.loads(folder.joinpath(name).read_text("utf-8")) for name in _FILES]
    rows: list[dict[str, Any]] = [row for table in tables for row in table["signature"]]
    return tuple(
        Signature(
            row["id"],
            row["engine"],
            tuple(row["phase"]),
            row["role"],
            tuple(row["anchors"]),
            re.compile(row["regex"]),
            row["cause"],
            row.get("advice", ""),
            row["sample"],
            row["source"],
        )
        for row in rows
    )


@functools.cache
def anchor_table() -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Every anchor with the positions (in the catalogue) of the signatures it may stand for."""
    table: dict[str, list[int]] = {}
    for position, signature in enumerate(load_catalogue()):
        for anchor in signature.anchors:
            table.setdefault(anchor, []).append(position)
    return tuple((anchor, tuple(positions)) for anchor, positions in table.items())


@functools.cache
def gate_table() -> tuple[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], ...]:
    """Anchors grouped by a short text that all of the group hold: a line without it needs no look at the group.

    Chosen greedily, the text that most of the remaining anchors share first; about a quarter of the tests remain.
    """
    left = dict(anchor_table())
    gates = []
    while left:
        counts = Counter(
            gram for anchor in left for gram in {anchor[i : i + 4] for i in range(max(1, len(anchor) - 3))}
        )
        gram = max(counts, key=lambda g: (counts[g], g))
        group = tuple((anchor, positions) for anchor, positions in left.items() if gram in anchor)
        gates.append((gram, group))
        for anchor, _ in group:
            del left[anchor]
    return tuple(gates)


def match_line(line: str, engine: str | None = None) -> tuple[Match, ...]:
    """All signatures in one log line, in catalogue order (earlier rows win). Never raises.

    engine  restricts engine-specific rows to that engine; rows of ``any``, ``host``, ``kernel`` and ``systemd``
            always count. Of a very long line only the beginning and the end are examined.
    """
    line = clip(line)
    candidates: set[int] = set()
    for gram, group in gate_table():
        if gram in line:
            for anchor, positions in group:
                if anchor in line:
                    candidates.update(positions)
    if not candidates:
        return ()
    return tuple(_confirmed(line, sorted(candidates), engine))


def _confirmed(line: str, positions: Iterable[int], engine: str | None) -> Iterable[Match]:
    catalogue = load_catalogue()
    for position in positions:
        signature = catalogue[position]
        if not speaks(engine, signature.engine):
            continue
        if (match := signature.regex.search(line)) is not None:
            yield Match(signature, {k: v for k, v in match.groupdict().items() if v is not None})
