"""A chart as SVG: text for every value, readable without colour, on light and dark pages, with nothing from a network.

`chart_svg(chart)` is for a page of HTML: it takes the page's text colour and has no background. `chart_svg(chart, file=True)` is a
whole file with title, note and background. Each point says its values on hover (`<title>`).
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from html import escape

from ddtop.charts.layout import near, spread_out
from ddtop.charts.model import Chart, Dot, Series, drawable
from ddtop.charts.ticks import place, tick_text
from ddtop.charts.tones import DARK, LIGHT

SHAPES = ("circle", "square", "triangle", "diamond", "down", "star", "plus", "cross", "bar")
CHAR = 6.7
"""Width of a character in px at 12 px: there is no font to ask, so it is a guess on the wide side."""
LINE = 15.0
INSET = 12.0
"""Between the plot's edge and its first point, so that no marker is cut."""
NEAR = 7.0
"""Points whose centres are nearer than this in x and y would cover each other."""
PAPER, INK = ("#ffffff", "#1f2933"), ("#0f1319", "#d6dde6")


def _vars(tones: tuple[str, ...], paper: str, ink: str) -> str:
    return "".join(f"--dd{n}:{c};" for n, c in enumerate(tones)) + f"--dd-paper:{paper};--dd-ink:{ink}"


STYLE = (
    f".dd-chart{{{_vars(LIGHT, *PAPER)};font:12px system-ui,sans-serif;font-variant-numeric:tabular-nums}}"
    f"@media(prefers-color-scheme:dark){{.dd-chart{{{_vars(DARK, *INK)}}}}}"
    ".dd-chart text{fill:currentColor;stroke:none}.dd-chart .dd-file{color:var(--dd-ink)}"
    ".dd-chart .dd-paper{fill:var(--dd-paper)}.dd-chart .dd-grid{stroke:currentColor;stroke-opacity:.16;fill:none}"
    ".dd-chart .dd-axis{stroke:currentColor;stroke-opacity:.6;fill:none}"
    ".dd-chart .dd-lead{stroke:currentColor;stroke-opacity:.45;stroke-dasharray:1 4;stroke-linecap:round;fill:none}"
    ".dd-chart .dd-ref{stroke:currentColor;stroke-opacity:.75;fill:none;stroke-dasharray:6 4}"
    ".dd-chart .dd-soft{opacity:.75}.dd-chart .dd-hit{fill:transparent;stroke:none}"
    ".dd-chart .dd-dot:hover{stroke-width:3}.dd-chart .dd-halo{paint-order:stroke;stroke:var(--dd-paper);stroke-width:3px}"
    + "".join(
        f".dd-t{n}{{stroke:var(--dd{n});fill:none}}.dd-f{n}{{stroke:var(--dd{n});fill:var(--dd{n})}}"
        for n in range(len(LIGHT))
    )
)
"""Of every chart; in each drawing, so that a drawing can stand anywhere."""


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the plot stands in the drawing, in px, and the values at its edges."""

    left: float
    right: float
    top: float
    bottom: float
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    chart: Chart

    def x(self, value: float) -> float:
        room = self.right - self.left - 2 * INSET
        return self.left + INSET + place(value, self.xs, self.chart.x.scale) * room

    def y(self, value: float) -> float:
        return self.bottom - place(value, self.ys, self.chart.y.scale) * (self.bottom - self.top)


def chart_svg(chart: Chart, *, width: int = 640, height: int = 360, file: bool = False) -> str:
    """The drawing, `width` × `height` px; empty for a chart without points, unless it is to be a `file`."""
    chart = drawable(chart)
    if not chart.series and not file:
        return ""
    head = 52.0 if file else 24.0
    words = (
        (chart.note if chart.series else chart.why_empty) if file else ""
    )  # a page has them beside the drawing
    notes = textwrap.wrap(words, max(20, int((width - 24) / CHAR)))
    parts = [_open(chart, width, height, file)]
    if file:
        parts.append(f'<rect width="{width}" height="{height}" class="dd-paper"/><g class="dd-file">')
        parts.append(text(12, 20, chart.title, style="font-weight:600"))
    foot = height - LINE * len(notes) - (6 if notes else 0)
    parts += _body(chart, width, head, foot) if chart.series else []
    parts += [text(12, foot + LINE * n + 10, line, kind="dd-soft") for n, line in enumerate(notes)]
    return "".join([*parts, "</g></svg>" if file else "</svg>"])


def _body(chart: Chart, width: float, head: float, foot: float) -> list[str]:
    named = chart.series if _labels_fit(chart, foot - head) else ()
    columns = max(1, int((width - 24) // (30 + CHAR * max(len(s.name) for s in chart.series))))
    legend = [] if named else list(chart.series)
    rows = math.ceil(len(legend) / columns)
    beside = [s.name for s in named] + [level.name for level in chart.levels]
    right = max([12.0, *(16 + 1.1 * CHAR * min(len(name), 26) for name in beside)])
    bottom = foot - 44 - LINE * rows
    ys = chart.y_ticks(max(3, min(8, int((bottom - head) / 36))))
    left = 20 + CHAR * max(len(tick_text(y, ys)) for y in ys)
    xs = chart.x_ticks(max(3, min(10, int((width - left - right) / 52))))
    top = head + LINE * len(chart.marks) + (8 if chart.marks else 0)
    frame = Frame(left, width - right, top, bottom, tuple(xs), tuple(ys), chart)
    parts = _axes(frame, head)
    parts += _references(frame, head)
    for series in chart.series:
        parts += _lines(frame, series)
    parts += _dots(frame)
    parts += _names(frame, [(s.name, s.dots[-1].y, s.tone % len(LIGHT)) for s in named])
    for n, series in enumerate(legend):
        x, y = 18 + (n % columns) * (width - 24) / columns, bottom + 52 + LINE * (n // columns)
        parts.append(_shape(series, x, y - 4, hollow=False))
        parts.append(text(x + 11, y, series.name))
    return parts


def _labels_fit(chart: Chart, room: float) -> bool:
    """Names beside the ends of curves in place of a legend: as many as there is room for."""
    return all(s.joined for s in chart.series) and (len(chart.series) + len(chart.levels)) * LINE < room - 80


def _axes(frame: Frame, head: float) -> list[str]:
    chart, parts = frame.chart, []
    for tick in frame.ys:
        y = frame.y(tick)
        parts.append(f'<path d="M{frame.left:.1f} {y:.1f}H{frame.right:.1f}" class="dd-grid"/>')
        parts.append(text(frame.left - 6, y + 4, tick_text(tick, frame.ys), "end"))
    for tick in frame.xs:
        x = frame.x(tick)
        parts.append(f'<path d="M{x:.1f} {frame.bottom:.1f}v5" class="dd-axis"/>')
        parts.append(text(x, frame.bottom + 18, tick_text(tick, frame.xs), "middle"))
    parts.append(f'<path d="M{frame.left:.1f} {frame.bottom:.1f}H{frame.right:.1f}" class="dd-axis"/>')
    middle = (frame.left + frame.right) / 2
    parts.append(text(middle, frame.bottom + 35, chart.x.title, "middle", kind="dd-soft"))
    parts.append(text(12, head - 10, chart.y.title, kind="dd-soft"))
    return parts


def _references(frame: Frame, head: float) -> list[str]:
    """Levels over the whole width, and marks on the x axis with their band and name."""
    chart, parts = frame.chart, []
    for n, mark in enumerate(chart.marks):
        x, tone = frame.x(mark.x), mark.tone % len(LIGHT)
        low, high = frame.x(mark.low or mark.x), frame.x(mark.high or mark.x)
        top = head + LINE * (n + 1) - 4
        if high > low:
            parts.append(
                f'<rect x="{low:.1f}" y="{top:.1f}" width="{high - low:.1f}" height="{frame.bottom - top:.1f}" '
                f'class="dd-f{tone}" style="stroke:none;opacity:.1"/>'
            )
        parts.append(
            f'<path d="M{x:.1f} {top:.1f}V{frame.bottom:.1f}" class="dd-t{tone}" stroke-dasharray="2 3"/>'
        )
        after = x + 5 + CHAR * len(mark.name) < frame.right + 60
        parts.append(
            text(x + 5 if after else x - 5, top + 4, mark.name, "start" if after else "end", kind="dd-halo")
        )
    for level in chart.levels:
        y = frame.y(level.y)
        look = f' style="stroke:var(--dd{level.tone % len(LIGHT)})"' if level.tone is not None else ""
        parts.append(
            f'<path d="M{frame.left:.1f} {y:.1f}H{frame.right:.1f}" class="dd-ref"{look}>{_title(f"{level.name}: {chart.y.said(level.y)}")}</path>'
        )
    if len(chart.front) > 1:
        way = "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in chart.front)
        parts.append(f'<path d="M{way}" class="dd-ref"/>')
    return parts


def _lines(frame: Frame, series: Series) -> list[str]:
    tone, parts = series.tone % len(LIGHT), []
    if series.joined and len(series.dots) > 1:
        way = "L".join(f"{frame.x(d.x):.1f} {frame.y(d.y):.1f}" for d in series.dots)
        dash = ' stroke-dasharray="7 4"' if series.dashed else ""
        parts.append(f'<path d="M{way}" class="dd-t{tone}" stroke-width="2"{dash}/>')
    for dot in series.dots:
        if dot.low is not None and dot.high is not None:
            x, low, high = frame.x(dot.x), frame.y(dot.low), frame.y(dot.high)
            parts.append(
                f'<path d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8" class="dd-t{tone}"/>'
            )
    return parts


def _dots(frame: Frame) -> list[str]:
    """Every point with its values on hover; points in one place stand side by side, so that each is seen."""
    found = [(series, dot) for series in frame.chart.series for dot in series.dots]
    at = [(frame.x(dot.x), frame.y(dot.y)) for _, dot in found]
    groups = near(at, NEAR)
    places = {
        index: (at[index][0] + (NEAR + 1) * (n - (len(group) - 1) / 2), at[index][1])
        for group in groups
        for n, index in enumerate(group)
    }
    parts: list[str] = []
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places.values()]
    scatter = not any(series.joined for series in frame.chart.series)
    for index, (series, dot) in enumerate(found):
        x, y = places[index]
        parts.append(_shape(series, x, y, hollow=dot.hollow, says=said(frame.chart, series, dot)))
        if dot.doubt:
            ways = ((0, -7), (9, 4), (-9, 4), (0, 16))  # above, beside, below: the first where nothing stands
            spots = [(x + dx, y + dy, (x + dx - 4, y + dy - 10, x + dx + 4, y + dy)) for dx, dy in ways]
            free = (spot for spot in spots if not any(_overlap(spot[2], one) for one in taken))
            qx, qy, place = next(free, spots[0])
            taken.append(place)
            parts.append(text(qx, qy, "?", "middle", "dd-halo", "font-weight:700"))
        box = (x + 8, y - 5, x + 8 + CHAR * len(dot.label), y + 6)
        if (
            scatter
            and dot.label
            and box[2] < frame.right + 4
            and not any(_overlap(box, one) for one in taken)
        ):
            taken.append(box)
            parts.append(text(x + 8, y + 4, dot.label, kind="dd-soft dd-halo", style="font-size:11px"))
    return parts


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def said(chart: Chart, series: Series, dot: Dot) -> str:
    """What a point says of itself: `b15: 8 streams, 143 tok/s [140 tok/s, 146 tok/s]; SUSPECT: few-samples`."""
    name = " ".join(part for part in (series.name, dot.label) if part)
    words = f"{name}: {chart.x.said(dot.x)}, {chart.y.said(dot.y)}"
    if dot.low is not None and dot.high is not None:
        words += f" [{chart.y.said(dot.low)}, {chart.y.said(dot.high)}]"
    return words + (f"; SUSPECT: {dot.doubt}" if dot.doubt else "")


def _names(frame: Frame, named: list[tuple[str, float, int]]) -> list[str]:
    """The names of curves and levels at the right edge, each near its own end; a grey dotted line leads there, so that it is
    no curve."""
    levels = [(level.name, level.y, level.tone) for level in frame.chart.levels]
    every: list[tuple[str, float, int | None]] = [*named, *levels]
    places = spread_out([frame.y(y) for _, y, _ in every], LINE - 1, frame.top, frame.bottom)
    if places is None:
        return []
    ends = {s.name: frame.x(s.dots[-1].x) for s in frame.chart.series}
    parts: list[str] = []
    for (name, y, tone), at in zip(every, places, strict=True):
        start = ends.get(name, frame.right)
        if name in ends and (frame.right - start > 12 or abs(at - frame.y(y)) > 3):
            parts.append(
                f'<path d="M{start + 6:.1f} {frame.y(y):.1f}L{frame.right + 4:.1f} {at:.1f}" class="dd-lead"/>'
            )
        shown = name if len(name) <= 26 else name[:25] + "…"
        look = f"fill:var(--dd{tone % len(LIGHT)});font-weight:600" if tone is not None else ""
        parts.append(text(frame.right + 6, at + 4, shown, style=look))
    return parts


def _shape(series: Series, x: float, y: float, *, hollow: bool, says: str = "") -> str:
    shape, tone = SHAPES[series.tone % len(SHAPES)], series.tone % len(LIGHT)
    ways = {
        "circle": "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        "square": "m-4 -4h8v8h-8z",
        "triangle": "m-5 4h10l-5 -9z",
        "diamond": "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        "down": "m-5 -4h10l-5 9z",
        "plus": "m-1.6 -5h3.2v3.4h3.4v3.2h-3.4v3.4h-3.2v-3.4h-3.4v-3.2h3.4z",
        "cross": "m-5 -3l2 -2l3 3l3 -3l2 2l-3 3l3 3l-2 2l-3 -3l-3 3l-2 -2l3 -3z",
        "bar": "m-2.5 -5h5v10h-5z",
        "star": "m0 -6l1.8 4h4.2l-3.3 2.8l1.2 4.4l-3.9 -2.5l-3.9 2.5l1.2 -4.4l-3.3 -2.8h4.2z",
    }
    look = (
        f'class="dd-dot dd-t{tone}" stroke-width="1.8" style="fill:var(--dd-paper)"'
        if hollow
        else f'class="dd-dot dd-f{tone}"'
    )
    path = f'<path d="M{x:.1f} {y:.1f}{ways[shape]}" {look}>{_title(says) if says else ""}</path>'
    hit = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" class="dd-hit">{_title(says)}</circle>' if says else ""
    return path + hit


def _open(chart: Chart, width: int, height: int, file: bool) -> str:
    size = f'width="{width}" height="{height}" ' if file else ""
    return (
        f'<svg {size}viewBox="0 0 {width} {height}" role="img" aria-label="{shown(chart.title)}" class="dd-chart" '
        f'xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style>'
    )


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "", style: str = "") -> str:
    """A text element; `words` are escaped."""
    more = (f' class="{kind}"' if kind else "") + (f' style="{style}"' if style else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{shown(words)}</text>'


def _title(words: str) -> str:
    return f"<title>{shown(words)}</title>"


def shown(words: str) -> str:
    """`words` escaped, without the control characters that no XML may hold."""
    kept = "".join(
        " " if c < " " or c in "\x7f\ufffe\uffff" or "\ud800" <= c <= "\udfff" else c for c in words
    )
    return escape(kept)
