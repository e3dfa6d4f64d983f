"""A chart in character cells, by plotext. Pure: the same chart and size give the same lines; nothing here knows Textual.

All places are computed here, in whole cells, and handed to plotext as such. So a line goes through its markers, and points of
several series that fall into one cell are all seen.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import plotext
from rich.cells import cell_len

from ddtop.charts.layout import spread_out
from ddtop.charts.model import Chart, Dot, Level, Series, drawable
from ddtop.charts.ticks import place, tick_text
from ddtop.dashboard.draw.paint import TONES, Line, Span, clean, crop, fit_text, line, wrap_text

MARKERS = ("●", "■", "▲", "◆", "▼", "★", "✚", "✖", "▮")
HOLLOW = ("○", "□", "△", "◇", "▽", "☆", "✛", "✕", "▯")
"""Of each tone; nine markers beside eight colours: 72 series differ, and nine without colour."""
SMALLEST = (24, 7)
"""Cells below which no plot can be read."""
SIDES = (1, -1, 2, -2, 3, -3)
"""Columns beside its own where a point may stand that falls into the cell of another."""
NAME = 18
"""Cells of a curve's name at the right edge, at most."""
REST = "\uf8ff"
"""Second cell of a wide character: of no script, and taken out again."""
_ROLES = ("text", "dim", "label", "value", "warn", *TONES)
_ANSI = re.compile(r"\x1b\[38;5;(\d+)m([^\x1b]*)")
_PLOTEXT = threading.Lock()
"""plotext draws one figure at a time, which is the module's."""


@dataclass(slots=True)
class _Cells:
    """The plot's cells: what stands where, in the order drawn. Row 0 is the lowest."""

    columns: int
    rows: int
    first: int
    last: int
    """Columns of the lowest and the highest tick of x; names stand to the right of the last."""
    top: int
    """Row of the highest tick of y."""
    xs: Sequence[float]
    ys: Sequence[float]
    chart: Chart
    put: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    """(column, row) → character and role."""
    held: set[tuple[int, int]] = field(default_factory=set)
    """Cells that no name and no `?` may cover: points."""

    def at(self, dot: Dot) -> tuple[int, int]:
        return self.column(dot.x), self.row(dot.y)

    def column(self, x: float) -> int:
        share = place(x, self.xs, self.chart.x.scale)
        return min(self.columns - 1, max(0, self.first + round(share * (self.last - self.first))))

    def row(self, y: float) -> int:
        return min(self.rows - 1, max(0, round(place(y, self.ys, self.chart.y.scale) * self.top)))

    def write(self, column: int, row: int, words: str, role: str) -> None:
        """Words from a column on. A wide character has a cell that `REST` fills, for plotext counts characters."""
        for char in words:
            cells = [char, REST][: cell_len(char)]
            if column + len(cells) > self.columns:
                return
            for part in cells:
                self.put[column, row] = (part, role)
                column += 1

    def free(self, column: int, row: int, width: int) -> bool:
        inside = 0 <= row < self.rows and column >= 0 and column + width <= self.columns
        return inside and not any((column + n, row) in self.held for n in range(width))


def drawn(chart: Chart, width: int, height: int) -> list[Line]:
    """The chart in `width` × `height` cells: axis titles, plot, names, and the note where there is room."""
    chart = drawable(chart)
    if not chart.series:
        return [
            line((words, "dim")) for words in wrap_text(clean(chart.why_empty), max(1, width - 2), height)
        ]
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return [line((fit_text("too small for a plot", width).rstrip(), "dim"))]
    beside = _beside(chart, width, height)
    below = [] if beside else _legend(chart.series, width)[: max(0, height - SMALLEST[1])]
    notes = (
        wrap_text(clean(chart.note), width, 1 if height < 20 else 2) if chart.note and height >= 14 else []
    )
    room = height - 1 - len(below) - len(notes)
    title = spread_title(chart, width)
    return [
        title,
        *_plot(chart, width, room, beside),
        *below,
        *(line((words, "dim")) for words in notes),
    ][:height]


def spread_title(chart: Chart, width: int) -> Line:
    """The title of the y axis, at its top."""
    return crop(line((clean(chart.y.title), "label")), width)


def marker(series: Series, *, hollow: bool = False) -> str:
    return (HOLLOW if hollow else MARKERS)[series.tone % len(MARKERS)]


def tone(number: int) -> str:
    """The role of a tone."""
    return TONES[number % len(TONES)]


def _level_role(level: Level) -> str:
    return tone(level.tone) if level.tone is not None else "label"


def _beside(chart: Chart, width: int, height: int) -> int:
    """Cells for the names of curves and levels to the right of the plot; 0: there is no room, or they are points."""
    names = [*(s.name for s in chart.series), *(level.name for level in chart.levels)]
    if not all(s.joined for s in chart.series) or len(names) > height - 6:
        return 0
    wide = min(NAME, max(cell_len(clean(name)) for name in names)) + 5
    return wide if wide <= width // 3 else 0


def _legend(series: Sequence[Series], width: int) -> list[Line]:
    """Markers and names below the plot, as many lines as they need, at most four."""
    rows: list[list[tuple[str, str]]] = [[]]
    used = 0
    for one in series:
        words = f"{marker(one)} {clean(one.name)}  "
        if used + cell_len(words) > width and rows[-1]:
            rows.append([])
            used = 0
        rows[-1].append((words, tone(one.tone)))
        used += cell_len(words)
    return [crop(line(*row), width) for row in rows[:4]]


def _plot(chart: Chart, width: int, height: int, beside: int) -> list[Line]:
    """Axes and canvas: `height` lines, the title of the x axis as the last."""
    rows = height - 3
    marks = min(len(chart.marks), rows // 4)
    ys = chart.y_ticks(max(3, min(9, rows // 2)))
    labels = [tick_text(y, ys) for y in ys]
    columns = width - 1 - max(len(text) for text in labels)
    xs = chart.x_ticks(max(3, min(12, (columns - beside) // 8)))
    cells = _Cells(columns, rows, 1, max(2, columns - 2 - beside), rows - 1 - marks, xs, ys, chart)
    _references(cells, marks)
    strokes = list(_strokes(cells))
    _dots(cells)
    _names(cells, beside)
    text = _built(cells, (width, height), strokes, labels)
    return _lines(text, width, height)


def _references(cells: _Cells, marks: int) -> None:
    chart = cells.chart
    for level in chart.levels:
        for column in range(cells.last + 2):
            cells.put[column, cells.row(level.y)] = ("╌", _level_role(level))
    for n, mark in enumerate(chart.marks):
        column, role = cells.column(mark.x), tone(mark.tone)
        for row in range(cells.rows - min(n, marks)):
            cells.put[column, row] = ("┊", role)
        if n < marks:
            words = clean(mark.name)
            start = (
                column + 2 if column + 2 + len(words) <= cells.columns else max(0, column - 1 - len(words))
            )
            cells.write(start, cells.rows - 1 - n, words, role)


def _strokes(cells: _Cells) -> Iterable[tuple[list[float], list[float], str, str]]:
    """Lines between points as plotext draws them: xs, ys, its marker, role."""
    chart = cells.chart
    if len(chart.front) > 1:
        places = [(cells.column(x), cells.row(y)) for x, y in chart.front]
        yield [float(x) for x, _ in places], [float(y) for _, y in places], "·", "label"
    for series in chart.series:
        if not series.joined or len(series.dots) < 2:
            continue
        places = [cells.at(dot) for dot in series.dots]
        if series.dashed:
            yield [float(x) for x, _ in places], [float(y) for _, y in places], "·", tone(series.tone)
        else:  # through the middle of the markers' cells: braille has 2 × 4 points in a cell
            xs = [(2 * x + 0.5) * (cells.columns - 1) / (2 * cells.columns - 1) for x, _ in places]
            ys = [(4 * y + 1.5) * (cells.rows - 1) / (4 * cells.rows - 1) for _, y in places]
            yield xs, ys, "braille", tone(series.tone)


def _dots(cells: _Cells) -> None:
    """Intervals, then every point over them. Points that fall into one cell stand side by side, else the cell says how many."""
    found = [(series, dot) for series in cells.chart.series for dot in series.dots]
    for series, dot in found:
        if dot.low is not None and dot.high is not None:
            column, low, high = cells.column(dot.x), cells.row(dot.low), cells.row(dot.high)
            for row in range(low, high + 1):
                char = "┬" if row == high > low else "┴" if row == low < high else "│"
                cells.put[column, row] = (char, tone(series.tone))
    groups: dict[tuple[int, int], list[tuple[Series, Dot]]] = {}
    for series, dot in found:
        groups.setdefault(cells.at(dot), []).append((series, dot))
    cells.held |= set(groups)
    for (column, row), group in groups.items():
        beside = [column + n for n in SIDES if column + n <= cells.last + 1]
        places = [column, *(c for c in beside if cells.free(c, row, 1))]
        if len(group) <= len(places):
            for at, (series, dot) in zip(sorted(places[: len(group)]), group, strict=True):
                cells.put[at, row] = (marker(series, hollow=dot.hollow), tone(series.tone))
                cells.held.add((at, row))
        else:
            cells.put[column, row] = (str(len(group)) if len(group) < 10 else "+", "value")
    for (column, row), group in groups.items():
        if any(dot.doubt for _, dot in group):
            after = next((c for c in range(column + 1, column + 5) if (c, row) not in cells.held), column + 1)
            for spot in ((after, row), (column, row + 1), (column - 1, row), (column, row - 1)):
                if cells.free(*spot, 1):
                    cells.put[spot] = ("?", "warn")
                    cells.held.add(spot)
                    break
    if not any(series.joined for series in cells.chart.series) and len(found) <= 24:
        for (column, row), group in groups.items():
            words = clean(group[0][1].label)
            if len(group) == 1 and words and cells.free(column + 2, row, cell_len(words)):
                cells.write(column + 2, row, words, "dim")
                cells.held |= {(column + 2 + n, row) for n in range(cell_len(words))}


def _names(cells: _Cells, beside: int) -> None:
    """The names of curves and levels at the right, each near its end, its sign in brackets: a bare one is a point."""
    if not beside:
        return
    chart = cells.chart
    every = [(f"({marker(s)}) {clean(s.name)}", cells.row(s.dots[-1].y), tone(s.tone)) for s in chart.series]
    every += [(f"╌ {clean(level.name)}", cells.row(level.y), _level_role(level)) for level in chart.levels]
    places = spread_out([row for _, row, _ in every], 1, 0, cells.rows - 1)
    for (words, _, role), row in zip(every, places or [], strict=False):
        at = cells.columns - beside + 1
        for column in range(at - 1, cells.columns):
            cells.put.pop((column, round(row)), None)
        cells.write(at, round(row), fit_text(words, beside - 1).rstrip(), role)


def _built(
    cells: _Cells,
    size: tuple[int, int],
    strokes: Iterable[tuple[list[float], list[float], str, str]],
    labels: list[str],
) -> str:
    """What plotext makes of it, with roles as the numbers of colours."""
    chart = cells.chart
    with _PLOTEXT:
        plotext.clear_figure()
        plotext.limit_size(False, False)
        plotext.plot_size(*size)
        plotext.theme("clear")
        plotext.xaxes(True, False)
        plotext.yaxes(True, False)
        plotext.xlim(0, cells.columns - 1)
        plotext.ylim(0, cells.rows - 1)
        plotext.xticks([cells.column(x) for x in cells.xs], [tick_text(x, cells.xs) for x in cells.xs])
        plotext.yticks([cells.row(y) for y in cells.ys], labels)
        plotext.xlabel(clean(chart.x.title)[: size[0] - 4])
        for xs, ys, kind, role in strokes:
            plotext.plot(xs, ys, marker=kind, color=_ROLES.index(role) + 16)
        for role in dict.fromkeys(role for _, role in cells.put.values()):
            mine = [(where, char) for where, (char, of) in cells.put.items() if of == role]
            plotext.scatter(
                [float(column) for (column, _), _ in mine],
                [float(row) for (_, row), _ in mine],
                marker=[char for _, char in mine],
                color=_ROLES.index(role) + 16,
            )
        return str(plotext.build())


def _lines(text: str, width: int, height: int) -> list[Line]:
    out: list[Line] = []
    for row in text.replace(REST, "").split("\n")[:height]:
        spans, at = [], 0
        for found in _ANSI.finditer(row):
            spans.append(Span(_bare(row[at : found.start()]), "dim"))
            spans.append(Span(found[2], _ROLES[int(found[1]) - 16]))
            at = found.end()
        spans.append(Span(_bare(row[at:]), "dim"))
        out.append(crop(tuple(span for span in spans if span.text), width))
    return out


def _bare(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)
