"""What of a matrix is in sight: which slice of its loads, what is folded away, which way round. Pure.

A cursor is always a place of the whole matrix, whatever is hidden: what is under it is always shown, so a cell that was
chosen in another list is the one that keys act on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from ddtop.journal.read.select import Column, short_count
from ddtop.journal.results.field import Matrix, MatrixCell

Axis = Literal["all", "load", "context", "workload", "tokens"]
AXES: tuple[Axis, ...] = ("load", "context", "workload", "tokens")
AXIS_WORDS: dict[Axis, str] = {
    "all": "all loads",
    "load": "by load",
    "context": "by context",
    "workload": "by workload",
    "tokens": "by output tokens",
}


@dataclass(frozen=True)
class Cursor:
    """Where the cursor stands in a matrix: row and column; column −1 is the configuration itself, and `home` then the
    column whose slice is shown."""

    row: int = 0
    column: int = 0
    home: int = 0

    @property
    def at(self) -> int:
        """A column that exists: the cursor's, or that it came from."""
        return self.column if self.column >= 0 else self.home


@dataclass(frozen=True)
class Shape:
    """How a person wants to see the matrix."""

    axis: Axis = "all"
    """What differs between the columns; what else a load has is held at the cursor's."""
    swapped: bool = False
    """Loads down, configurations across."""
    unfolded: bool = False
    """Rows and columns with nothing but skipped cells too."""
    second: str = ""
    """Key of the metric in the second line of each row; `interval`; empty: none."""


ALL = Shape()
"""All loads, configurations down."""


@dataclass(frozen=True)
class Sight:
    """The rows and columns in sight, as places of the matrix, and how many are folded away."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    folded_rows: int
    folded_columns: int


def cell_at(matrix: Matrix, cursor: Cursor) -> MatrixCell | None:
    """The field under the cursor, or None where there is none."""
    if not 0 <= cursor.row < len(matrix.rows) or not 0 <= cursor.column < len(matrix.columns):
        return None
    return matrix.rows[cursor.row].cells[cursor.column]


def find(matrix: Matrix, cell_id: str) -> Cursor | None:
    """Where a cell stands in a matrix."""
    for row_number, row in enumerate(matrix.rows):
        for column_number, cell in enumerate(row.cells):
            if cell is not None and cell_id in cell.ids:
                return Cursor(row_number, column_number, column_number)
    return None


def clamp(matrix: Matrix, cursor: Cursor) -> Cursor:
    """The cursor within `matrix`."""
    last = max(0, len(matrix.columns) - 1)
    return Cursor(
        min(max(0, cursor.row), max(0, len(matrix.rows) - 1)),
        min(max(-1, cursor.column), last),
        min(max(0, cursor.home), last),
    )


def along(column: Column, axis: Axis) -> object:
    """What a column has of an axis."""
    return {
        "all": column,
        "load": (bool(column.search), column.rate or 0.0, column.concurrency, column.search),
        "context": column.context,
        "workload": column.workload,
        "tokens": column.output_tokens,
    }[axis]


def beside(column: Column, axis: Axis) -> tuple[object, ...]:
    """What a column has of all other axes: equal for the columns of one slice."""
    return () if axis == "all" else tuple(along(column, other) for other in AXES if other != axis)


def axes_of(matrix: Matrix) -> tuple[Axis, ...]:
    """The ways to slice these loads that differ from showing all of them."""
    useful = (
        axis
        for axis in AXES
        if len({along(c, axis) for c in matrix.columns}) > 1
        and len({beside(c, axis) for c in matrix.columns}) > 1
    )
    return ("all", *useful)


def in_sight(matrix: Matrix, cursor: Cursor, shape: Shape) -> Sight:
    """The slice of the cursor, less what is skipped throughout; the row and the column of the cursor always."""
    here = clamp(matrix, cursor)
    if not matrix.columns:
        return Sight(tuple(range(len(matrix.rows))), (), 0, 0)
    same = beside(matrix.columns[here.at], shape.axis)
    slice_ = [n for n, column in enumerate(matrix.columns) if beside(column, shape.axis) == same]
    if shape.axis in ("load", "context", "tokens"):
        slice_.sort(key=lambda n: along(matrix.columns[n], shape.axis))  # type: ignore[arg-type,return-value]
    rows = tuple(range(len(matrix.rows)))
    if shape.unfolded:
        return Sight(rows, tuple(slice_), 0, 0)
    alive = {
        (r, c)
        for r, row in enumerate(matrix.rows)
        for c in slice_
        if (cell := row.cells[c]) is not None and (cell.state != "skipped" or cell.n)
    }
    if not alive:
        return Sight(rows, tuple(slice_), 0, 0)
    kept_rows = {r for r, _ in alive} | {here.row}
    kept = {c for _, c in alive} | {here.column}
    columns = tuple(c for c in slice_ if c in kept)
    return Sight(
        tuple(r for r in rows if r in kept_rows),
        columns,
        len(rows) - len(kept_rows),
        len(slice_) - len(columns),
    )


def moved(matrix: Matrix, cursor: Cursor, shape: Shape, down: int, right: int) -> Cursor:
    """The cursor moved among what is in sight, by what is down and right on the screen."""
    here = clamp(matrix, cursor)
    if shape.swapped:
        down, right = right, down
    sight = in_sight(matrix, here, shape)
    row = _step(sight.rows, here.row, down)
    column = _step((-1, *sight.columns), here.column, right)
    return Cursor(row, column, column if column >= 0 else here.at)


def _step(places: tuple[int, ...], at: int, by: int) -> int:
    place = places.index(at) if at in places else 0
    return places[min(max(0, place + by), len(places) - 1)] if places else 0


def next_slice(matrix: Matrix, cursor: Cursor, shape: Shape, step: int) -> Cursor:
    """The cursor in the next slice of the loads, at the same place along the axis where that has one."""
    slices = list(dict.fromkeys(beside(c, shape.axis) for c in matrix.columns))
    if len(slices) < 2:
        return cursor
    here = matrix.columns[clamp(matrix, cursor).at]
    wanted = slices[(slices.index(beside(here, shape.axis)) + step) % len(slices)]
    members = [n for n, c in enumerate(matrix.columns) if beside(c, shape.axis) == wanted]
    alive = [n for n in members if any(c is not None and c.state != "skipped" for c in _down(matrix, n))]
    place = next(
        (n for n in alive if along(matrix.columns[n], shape.axis) == along(here, shape.axis)),
        (alive or members)[0],
    )
    return Cursor(cursor.row, place if cursor.column >= 0 else -1, place)


def _down(matrix: Matrix, column: int) -> list[MatrixCell | None]:
    return [row.cells[column] for row in matrix.rows]


def next_axis(matrix: Matrix, shape: Shape, step: int = 1) -> Shape:
    """The next way to slice; the same shape where there is only one."""
    axes = axes_of(matrix)
    at = axes.index(shape.axis) if shape.axis in axes else 0
    return replace(shape, axis=axes[(at + step) % len(axes)])


def context_word(tokens: int) -> str:
    """`8k ctx`, or that there is none."""
    return f"{short_count(tokens)} ctx" if tokens else "no ctx"


def column_words(column: Column, columns: tuple[Column, ...], axis: Axis = "all") -> tuple[str, str]:
    """(`fib@256`, `8k ctx c8`): the second part holds only what differs among the columns. In a slice its own axis alone."""
    if axis != "all":
        word = {
            "load": column.load_name,
            "context": context_word(column.context),
            "workload": column.workload,
            "tokens": f"{column.output_tokens} tok",
        }[axis]
        return word, ""
    parts = []
    if len({c.context for c in columns}) > 1 and column.context:
        parts.append(f"{short_count(column.context)} ctx")
    if len({c.load_name for c in columns}) > 1:
        parts.append(column.load_name)
    return f"{column.workload}@{column.output_tokens}", " ".join(parts)


@lru_cache(maxsize=16)
def heads_of(matrix: Matrix, axis: Axis) -> tuple[tuple[str, str], ...]:
    """The words of every column of a matrix."""
    return tuple(column_words(column, matrix.columns, axis) for column in matrix.columns)


def load_name(matrix: Matrix, column: int, axis: Axis = "all") -> str:
    """The words of a column in one."""
    return " ".join(word for word in heads_of(matrix, axis)[column] if word)


def fixed_words(matrix: Matrix, cursor: Cursor, shape: Shape) -> str:
    """What is held still in a slice, where it could be another: `fib@256 · 8k ctx`; nothing where all loads are shown."""
    if shape.axis == "all" or not matrix.columns:
        return ""
    column = matrix.columns[clamp(matrix, cursor).at]
    words = {
        "workload": column.workload,
        "tokens": f"{column.output_tokens} tok",
        "context": context_word(column.context),
        "load": column.load_name,
    }
    varied = [a for a in words if a != shape.axis and len({along(c, a) for c in matrix.columns}) > 1]  # type: ignore[arg-type]
    return " · ".join(words[axis] for axis in varied)
