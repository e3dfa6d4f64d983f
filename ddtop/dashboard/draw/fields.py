"""The fields of a matrix as texts, and how wide they must be. Pure; kept for each matrix, so that a cursor costs nothing.

A field has a value, its interval where there is room, the speed-up behind a glyph that says what it means, and a mark for
the best of its column. Numbers are never cut: a column is as wide as its widest field, and where that does not fit, all
columns go to a form with fewer parts or digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from ddtop.dashboard.draw.metrics import Metric, metric_of
from ddtop.dashboard.draw.paint import Line, Span, crop, line, pad
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, SPINNER, times
from ddtop.journal.results.field import Matrix, MatrixCell

STRONG = 1.5
"""Speed-ups from here on are drawn in the role `gain`."""
CLEAR = 0.05
"""A ratio nearer to 1 than this, of which nothing is known, is drawn in no colour."""
BEST, MAYBE = "★", "☆"

Gain = Literal["better", "worse", "same", "maybe better", "maybe worse"]
GAIN_GLYPH: dict[Gain, str] = {
    "better": "▲",
    "worse": "▼",
    "same": "≈",
    "maybe better": "△",
    "maybe worse": "▽",
}
"""Filled: by the rule of `stats/differ.py` it differs from the baseline. Hollow: there is no spread to judge by."""


class Form(NamedTuple):
    """Which parts a field has, the richest first in FORMS."""

    bounds: bool
    short: bool
    """The value with no more than three digits that count."""
    digits: int
    """Of the speed-up, where fewer hide no difference in the column; 0: its glyph alone."""


FORMS = (Form(True, False, 2), Form(False, False, 2), Form(False, True, 2), Form(False, True, 1))
LEAST = Form(False, True, 0)


class Texts(NamedTuple):
    """One field's parts; `word` alone where there is no value."""

    value: tuple[str, str] = ("", "dim")
    mark: str = ""
    bounds: str = ""
    gain: tuple[str, str] = ("", "dim")
    tail: tuple[tuple[str, str], ...] = ()
    word: tuple[str, str] = ("", "dim")


@dataclass(frozen=True)
class Fields:
    """One column's texts, by row of the matrix, and the width of each part."""

    texts: tuple[Texts, ...]
    value: int
    mark: int
    bounds: int
    gain: int
    tail: int
    word: int

    @property
    def width(self) -> int:
        """Of a field in cells."""
        return max(self.word, sum(self.parts))

    @property
    def parts(self) -> tuple[int, ...]:
        """Widths of value, bounds, gain and tail; bounds and gain with the blank before them."""
        more = (self.bounds, self.gain)
        return (self.value + self.mark, *(part + 1 if part else 0 for part in more), self.tail)

    def line(self, row: int, width: int, target: str) -> Line:
        """The field of `row` in exactly `width` cells."""
        text = self.texts[row]
        if not text.value[0]:
            return tuple(s._replace(target=target) for s in pad(crop(line(text.word), width), width))
        sizes = self.parts
        spans = [
            Span(text.value[0].rjust(self.value) + text.mark.ljust(self.mark), text.value[1], target),
            Span(text.bounds.rjust(sizes[1]), "dim", target),
            Span(text.gain[0].rjust(sizes[2]), text.gain[1], target),
        ]
        spans.extend(Span(mark, role, target) for mark, role in text.tail)
        return tuple(s for s in pad(tuple(spans), width) if s.text)


def kind_of(cell: MatrixCell) -> Gain | None:
    """What a speed-up says; None where there is none."""
    if cell.speedup is None:
        return None
    if cell.differs is False:
        return "same"
    if cell.differs:
        return "better" if cell.speedup > 1 else "worse"
    return "maybe better" if cell.speedup >= 1 else "maybe worse"


def doubtful(cell: MatrixCell) -> bool:
    """Whether a speed-up compares unlike things, or with a doubtful baseline."""
    return bool(cell.base_reasons or cell.unlike or cell.mixed_versions)


def gain_role(cell: MatrixCell) -> str:
    """The colour of a speed-up."""
    kind, ratio = kind_of(cell), cell.speedup
    if kind is None or ratio is None or kind == "same":
        return "dim"
    if doubtful(cell) or cell.validity == "SUSPECT":
        return "warn"
    if cell.differs is None and abs(ratio - 1) < CLEAR:
        return "dim"
    return "bad" if ratio < 1 else "gain" if ratio >= STRONG else "ok"


def gain_text(cell: MatrixCell, digits: int, ratio: float | None = None) -> str:
    """`▲5.62×`; `~` before one that compares unlike things, `?` behind one with a doubtful baseline. `ratio`: that of one of
    its measurements, in place of the field's."""
    kind = kind_of(cell)
    if kind is None:
        return ""
    unlike = "~" if cell.mixed_versions or cell.unlike else ""
    number = times(cell.speedup if ratio is None else ratio, digits) if digits else ""
    return f"{unlike}{GAIN_GLYPH[kind]}{number}{'?' if cell.base_reasons else ''}"


def half_width(cell: MatrixCell) -> float | None:
    """Half the interval of a field's value, in its unit."""
    return None if cell.low is None or cell.high is None else (cell.high - cell.low) / 2


def texts_of(cell: MatrixCell | None, baseline: bool, metric: Metric, form: Form) -> Texts:
    """The parts of one field in a form."""
    if cell is None:
        return Texts()
    if cell.value is None or cell.state == "running" or not (cell.state == "done" or cell.n):
        word = "·" if cell.state == "planned" else f"{CELL_GLYPH[cell.state]} {cell.state}"
        return Texts(word=(word, CELL_ROLE[cell.state]))
    value = metric.text(cell.value, short=form.short)
    if cell.validity == "INVALID":
        return Texts((value, "dim"), gain=("✗inval", "bad"))
    suspect = cell.validity == "SUSPECT"
    half = half_width(cell) if form.bounds else None
    role = "accent" if baseline else "warn" if suspect else "value"
    gain = ("", "dim") if baseline else (gain_text(cell, form.digits), gain_role(cell))
    if not baseline and form.digits == 0 and not suspect:
        role = gain[1] if gain[0] and gain[1] != "dim" else role
    tail = [(BEST, "key") if cell.rank == "best" else (MAYBE, "label")] if cell.rank else []
    if cell.state != "done":  # another start or repeat of it has gone wrong
        tail.append((f" {CELL_GLYPH[cell.state]}", CELL_ROLE[cell.state]))
    bounds = f"±{metric.text(half, short=form.short)}" if half is not None else ""
    return Texts((value, role), "?" if suspect else "", bounds, gain, tuple(tail))


@lru_cache(maxsize=16)
def columns_of(matrix: Matrix, form: Form, swapped: bool) -> tuple[Fields, ...]:
    """What is drawn of each column on the screen (of each row of the matrix where it is `swapped`), in a form."""
    metric = metric_of(matrix.metric)
    if form.digits == 1 and swapped and any(_hides(list(c)) for c in _by_load(matrix)):
        form = form._replace(digits=2)
    rows = [[(cell, row.baseline) for cell in row.cells] for row in matrix.rows]
    table = rows if swapped else _by_load(matrix)
    return tuple(_fields(column, metric, form) for column in table)


def _by_load(matrix: Matrix) -> list[list[tuple[MatrixCell | None, bool]]]:
    rows = ([(cell, row.baseline) for cell in row.cells] for row in matrix.rows)
    return [list(column) for column in zip(*rows, strict=True)]


def _fields(cells: list[tuple[MatrixCell | None, bool]], metric: Metric, form: Form) -> Fields:
    if form.digits == 1 and _hides(cells):
        form = form._replace(digits=2)
    texts = tuple(texts_of(cell, baseline, metric, form) for cell, baseline in cells)
    return Fields(
        texts,
        value=max((len(t.value[0]) for t in texts), default=0),
        mark=max((len(t.mark) for t in texts), default=0),
        bounds=max((len(t.bounds) for t in texts), default=0),
        gain=max((len(t.gain[0]) for t in texts), default=0),
        tail=max((sum(len(mark) for mark, _ in t.tail) for t in texts), default=0),
        word=max((len(t.word[0]) for t in texts), default=0),
    )


def _hides(cells: list[tuple[MatrixCell | None, bool]]) -> bool:
    """Whether one digit makes two speed-ups of a column look the same that two digits tell apart."""
    seen: dict[str, str] = {}
    for cell, baseline in cells:
        if cell is None or baseline or cell.speedup is None:
            continue
        long = times(cell.speedup)
        if seen.setdefault(times(cell.speedup, 1), long) != long:
            return True
    return False


def running_line(progress: str, width: int, now_s: float, target: str) -> Line:
    """A cell at work: how far it is, turning twice a second."""
    turn = SPINNER[int(now_s * 2) % len(SPINNER)]
    return tuple(s._replace(target=target) for s in pad(line((f"{turn} {progress}", "run")), width))


def second_texts(matrix: Matrix, second: Matrix | None) -> dict[tuple[int, int], str]:
    """(row, column) → the second line of a field: another metric's value, or the interval of this one."""
    return dict(_second(matrix, second))


@lru_cache(maxsize=4)
def _second(matrix: Matrix, second: Matrix | None) -> tuple[tuple[tuple[int, int], str], ...]:
    shown = second or matrix
    metric = metric_of(shown.metric)
    out = []
    for r, row in enumerate(shown.rows):
        for c, cell in enumerate(row.cells):
            if cell is None or cell.value is None or not (cell.state == "done" or cell.n):
                continue
            if second is not None:
                out.append(((r, c), metric.text(cell.value)))
            elif (half := half_width(cell)) is not None:
                out.append(((r, c), f"±{metric.text(half)} n{cell.n}"))
    return tuple(out)
