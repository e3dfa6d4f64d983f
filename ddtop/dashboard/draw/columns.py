"""Which columns of a matrix are on the screen, and in which form, so that no number is cut. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtop.dashboard.draw.fields import FORMS, LEAST, Form, columns_of
from ddtop.dashboard.draw.grid import ALL, Cursor, Shape, Sight, heads_of, in_sight, load_name
from ddtop.journal.results.field import Matrix

HEAD_MAX, SWAPPED_HEAD_MAX = 18, 24
COLUMN_HEAD_MAX = 18
"""A column is widened for its head up to this: `knee c tpot≤8 80%` is whole."""
LEAST_HEAD = 10


@dataclass(frozen=True)
class View:
    """How a matrix is laid out in a width: the form of its fields and the columns on the screen that are in sight."""

    form: Form
    head: int
    widths: tuple[int, ...]
    """Of the columns in sight, each with the blank before it."""
    columns: tuple[int, ...]
    """Places in the matrix: of loads, or of configurations where it is swapped."""
    left: bool
    right: bool
    """Whether there is more on this side."""


def layout(
    matrix: Matrix, width: int, cursor: Cursor, shape: Shape = ALL, sight: Sight | None = None
) -> View:
    """The richest form in which all columns fit; else as many as fit in the poorest, the cursor's among them."""
    sight = sight or in_sight(matrix, cursor, shape)
    across = sight.rows if shape.swapped else sight.columns
    at = cursor.row if shape.swapped else max(0, cursor.at)
    head = _head_width(matrix, sight, shape, width)
    room = width - head
    for form in FORMS:
        sizes = _sizes(matrix, form, shape, across)
        if sum(sizes) <= room:
            return View(form, head, sizes, across, False, False)
    form = FORMS[-1]
    if across and max(sizes) > room:
        form = LEAST
        sizes = _sizes(matrix, form, shape, across)
    place = across.index(at) if at in across else 0
    first = last = place
    used = sizes[place] if sizes else 0
    while True:  # from the cursor to the left, then to the right, with a mark where there is more
        if first > 0 and used + sizes[first - 1] <= room - 2:
            first -= 1
            used += sizes[first]
        elif last + 1 < len(sizes) and used + sizes[last + 1] <= room - 2:
            last += 1
            used += sizes[last]
        else:
            break
    return View(
        *(form, head, sizes[first : last + 1], across[first : last + 1]),
        *(first > 0, last + 1 < len(across)),
    )


def width_wanted(matrix: Matrix, cursor: Cursor, shape: Shape) -> int:
    """Columns that the whole matrix takes, intervals left out."""
    sight = in_sight(matrix, cursor, shape)
    across = sight.rows if shape.swapped else sight.columns
    return _head_width(matrix, sight, shape, 0) + sum(_sizes(matrix, FORMS[1], shape, across))


def _head_width(matrix: Matrix, sight: Sight, shape: Shape, width: int) -> int:
    if shape.swapped:
        names = [load_name(matrix, c, shape.axis) for c in sight.columns]
        most = SWAPPED_HEAD_MAX
    else:
        names = [matrix.rows[r].config for r in sight.rows]
        most = HEAD_MAX
    least = LEAST_HEAD if shape.second else 0  # for the metric's name
    return min(max(most, width // 5), max(least, max(map(len, names), default=6) + 2))


def _sizes(matrix: Matrix, form: Form, shape: Shape, across: Sequence[int]) -> tuple[int, ...]:
    fields = columns_of(matrix, form, shape.swapped)
    return tuple(
        max(fields[n].width, min(COLUMN_HEAD_MAX, max(map(len, column_head(matrix, n, shape))))) + 1
        for n in across
    )


def column_head(matrix: Matrix, place: int, shape: Shape) -> tuple[str, str]:
    if shape.swapped:
        return matrix.rows[place].config, ""
    return heads_of(matrix, shape.axis)[place]
