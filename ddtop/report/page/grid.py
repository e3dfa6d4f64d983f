"""A matrix of results for the page: each field as its parts, so that it can wrap between them and never inside a number. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddtop.bench.judge.validity import TABLE
from ddtop.journal.read.select import Column, short_count
from ddtop.journal.results.field import Matrix, MatrixCell
from ddtop.report.conclusion.words import times
from ddtop.report.text import BASIS, STARS, WORDS, number, pieces_of
from ddtop.words import many


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its value, what stands small below it, its marks, what the pointer reads, and where it leads."""

    value: str
    small: str = ""
    mark: str = ""
    kind: str = ""
    """Of its colour: `up1`–`up3` and `down1`–`down3` by the ratio to the baseline, `none` without a value."""
    best: str = ""
    """★ or ☆."""
    words: str = ""
    cell: str = ""
    """Id of the cell whose details it leads to."""


@dataclass(frozen=True, slots=True)
class Grid:
    """One table."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, bool, tuple[Field, ...]], ...]
    """(configuration, whether it is the baseline, fields)."""


def grids(
    view: Matrix,
    loads: Sequence[Column],
    *,
    brief: bool = False,
) -> list[Grid]:
    """The matrix as tables of few loads, as `pieces_of` cuts it. `brief`: without words for the pointer and links."""
    pieces = pieces_of(view.columns)
    return [_grid(view, piece, loads, brief=brief) for piece in pieces if piece]


def _grid(
    view: Matrix,
    columns: Sequence[int],
    loads: Sequence[Column],
    *,
    brief: bool,
) -> Grid:
    mine = [view.columns[i] for i in columns]
    first = mine[0]
    caption = f"tp{view.tp}"
    head = [column.label(loads) for column in mine]
    if len(columns) < len(view.columns):
        caption += f" · {first.workload}@{first.output_tokens}"
        one_context = len({c.context for c in mine}) == 1
        if one_context and len({c.context for c in loads}) > 1:
            caption += f" · {short_count(first.context)} ctx"
        head = [c.load_name if one_context else f"{short_count(c.context)} ctx {c.load_name}" for c in mine]

    def shown(baseline: bool, cell: MatrixCell | None) -> Field:
        field = _field(cell, baseline=baseline)
        return replace(field, words="", cell="") if brief else field

    rows = tuple(
        (
            r.config,
            r.baseline,
            tuple(shown(r.baseline, r.cells[i]) for i in columns),
        )
        for r in view.rows
    )
    return Grid(caption, tuple(head), rows)


def _field(cell: MatrixCell | None, *, baseline: bool) -> Field:
    if cell is None:
        return Field("", kind="none")
    place = cell.ids[0] if cell.ids else ""
    if cell.value is None or (cell.state in ("broken", "failed") and not cell.n):
        return Field(WORDS[cell.state], kind="none", words=cell.reason, cell=place)
    small = "" if baseline else times(cell.against)
    if baseline and cell.low is not None and cell.high is not None:
        small = f"[{number(cell.low)}–{number(cell.high)}]"
    mark = {"SUSPECT": "? SUSPECT", "INVALID": "! INVALID"}.get(cell.validity or "", "")
    if cell.state in ("broken", "failed"):
        mark = f"{mark} {WORDS[cell.state]} once".strip()
    if cell.differs is False and not baseline:
        mark = f"≈ {mark}".strip()
    if cell.mixed_versions:
        mark = f"{mark} other version".strip()
    return Field(
        number(cell.value),
        small,
        mark,
        kind_of_field(cell, baseline),
        STARS[cell.rank],
        words_of(cell),
        place,
    )


def words_of(cell: MatrixCell) -> str:
    """What the pointer reads: the interval, what it rests on, and each doubt in words."""
    lines = []
    if cell.low is not None and cell.high is not None and cell.basis is not None:
        lines.append(f"95% interval {number(cell.low)}–{number(cell.high)} by the spread {BASIS[cell.basis]}")
    if cell.n:
        lines.append(f"{many(cell.n, 'measurement')} on {many(cell.starts, 'start')}")
    if cell.against is not None and cell.against.why:
        lines.append(cell.against.why)
    lines += [f"{slug}: {TABLE[slug].meaning}" if slug in TABLE else slug for slug in cell.reasons]
    lines += [cell.unlike] if cell.unlike else []
    return "\n".join([*lines, *([cell.knee] if cell.knee else [])])


def kind_of_field(cell: MatrixCell, baseline: bool) -> str:
    """The colour of a field by its ratio to the baseline."""
    ratio = cell.speedup
    if baseline or ratio is None or not ratio > 0 or cell.differs is False:
        return ""
    if ratio >= 1.02:
        return f"up{3 if ratio >= 3 else 2 if ratio >= 1.5 else 1}"
    return f"down{3 if ratio <= 0.5 else 2 if ratio <= 0.8 else 1}" if ratio <= 0.98 else ""
