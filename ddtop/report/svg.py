"""Charts as inline SVG: bars, lines and points, with text for every value, readable without colour.

Pure: numbers in, SVG text out. Colours are Okabe and Ito's, distinguishable with colour blindness; each series has a
marker of its own too. Text takes the page's colour (`currentColor`), so light and dark pages both work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import escape

from ddtop.report.text import number

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b2a000")
MARKERS = ("circle", "square", "triangle", "diamond")
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 640, 64, 16, 14, 40
TINY = 1e-300
"""A span below it has no scale: the quotient would be infinite."""


Point = tuple[float, float]
"""(x, y) in data units."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one group of points."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar and its note."""

    name: str
    value: float
    note: str = ""
    low: float | None = None
    high: float | None = None
    emphasis: bool = False


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`.

    >>> ticks(0, 183)
    [0.0, 50.0, 100.0, 150.0, 200.0]
    """
    span = high - low
    size = max(abs(low), abs(high))
    if not math.isfinite(span) or span <= max(TINY, 1e-12 * size):  # no room for a round number between them
        return [low, low + max(1.0, abs(low))]
    rough = span / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next((unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough), unit * 10)
    first = math.floor(low / step)
    last = math.ceil(high / step)
    digits = max(10, 2 - math.floor(math.log10(step)))
    return [round(step * i, digits) for i in range(first, last + 1)]


def bars(title: str, unit: str, items: Sequence[Bar]) -> str:
    """Horizontal bars from zero, one a line, with their values; spreads as whiskers. Empty for no items."""
    shown = [_finite(b) for b in items if math.isfinite(b.value)]
    if not shown:
        return ""
    texts = [f"{number(b.value)} {unit}" + (f" · {b.note}" if b.note else "") for b in shown]
    # Widths of text are guessed at 7 units a character: there is no font to ask.
    name_width = min(220, 12 + 7 * max(len(b.name) for b in shown))
    text_width = min(300, 14 + 7 * max(len(t) for t in texts))
    top = max(max(b.value, b.high or 0.0) for b in shown)
    scale = (WIDTH - name_width - text_width) / top if top > TINY else 0.0
    height = TOP + 24 * len(shown) + 8
    parts = [_open(title, height)]
    for index, bar in enumerate(shown):
        y = TOP + 24 * index
        width = max(0.0, bar.value * scale)
        colour = COLOURS[1] if bar.emphasis else COLOURS[0]
        text = texts[index]
        end = width
        parts.append(_text(name_width - 8, y + 13, bar.name, anchor="end"))
        parts.append(
            f'<rect x="{name_width}" y="{y}" width="{width:.1f}" height="17" fill="{colour}" rx="2"/>'
        )
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            a, b = name_width + bar.low * scale, name_width + bar.high * scale
            end = bar.high * scale
            parts.append(
                f'<path d="M{a:.1f} {y + 8.5}H{b:.1f}M{a:.1f} {y + 4}v9M{b:.1f} {y + 4}v9" class="w"/>'
            )
        parts.append(_text(name_width + end + 6, y + 13, text))
    return "".join([*parts, "</svg>"])


def _finite(bar: Bar) -> Bar:
    """`bar` without a spread that cannot be drawn."""
    if bar.low is None or bar.high is None or math.isfinite(bar.low + bar.high):
        return bar
    return replace(bar, low=None, high=None)


def lines(title: str, x_unit: str, y_unit: str, series: Sequence[Series], *, log_x: bool = False) -> str:
    """Lines with a marker at each value. `log_x`: the x axis counts doublings. Empty for no points."""
    return _plot(title, x_unit, y_unit, series, log_x=log_x, joined=True)


def scatter(
    title: str, x_unit: str, y_unit: str, series: Sequence[Series], *, front: Sequence[Point] | None = None
) -> str:
    """Points, each series with a colour and marker of its own. Empty for no points.

    `front`: these points are joined by a dashed line, and all others are drawn hollow.
    """
    return _plot(title, x_unit, y_unit, series, log_x=False, joined=False, front=front)


def _plot(
    title: str,
    x_unit: str,
    y_unit: str,
    series: Sequence[Series],
    *,
    log_x: bool,
    joined: bool,
    front: Sequence[Point] | None = None,
) -> str:
    shown = [Series(s.name, tuple(p for p in s.points if all(math.isfinite(v) for v in p))) for s in series]
    shown = [s for s in shown if s.points]
    if not shown:
        return ""
    xs = [x for s in shown for x, _y in s.points]
    ys = [y for s in shown for _x, y in s.points]
    log_x = log_x and min(xs) > 0
    legend_rows = math.ceil(len(shown) / 3)
    plot_height = 240
    height = TOP + plot_height + BOTTOM + 18 * legend_rows
    y_ticks = ticks(min(0.0, *ys), max(ys) or 1.0)
    x_ticks = sorted(set(xs)) if log_x or len(set(xs)) <= 8 else ticks(min(xs), max(xs))
    x_of = _Axis(x_ticks[0], x_ticks[-1], LEFT + 12, WIDTH - RIGHT - 12, log=log_x)
    y_of = _Axis(y_ticks[0], y_ticks[-1], TOP + plot_height, TOP, log=False)
    parts = [_open(title, height)]
    for tick in y_ticks:
        y = y_of(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" class="g"/>')
        parts.append(_text(LEFT - 6, y + 4, number(tick), anchor="end"))
    parts.extend(_text(x_of(t), TOP + plot_height + 16, number(t), anchor="middle") for t in x_ticks)
    parts.append(_text((LEFT + WIDTH) / 2, TOP + plot_height + 33, x_unit, anchor="middle"))
    parts.append(_text(LEFT, TOP - 3, y_unit))
    if front is not None and len(front) > 1:
        way = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in sorted(front))
        parts.append(f'<path d="M{way}" class="w" stroke-dasharray="4 3"/>')
    for index, one in enumerate(shown):
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        places = [(x_of(x), y_of(y), x, y) for x, y in sorted(one.points)]
        if joined and len(places) > 1:
            way = "L".join(f"{px:.1f} {py:.1f}" for px, py, _x, _y in places)
            parts.append(f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for px, py, x, y in places:
            label = f"{one.name}: {number(x)} {x_unit}, {number(y)} {y_unit}"
            hollow = front is not None and (x, y) not in front
            parts.append(_mark(marker, px, py, colour, label, hollow=hollow))
        lx, ly = LEFT + (index % 3) * 190, TOP + plot_height + BOTTOM + 12 + 18 * (index // 3)
        parts.append(_mark(marker, lx, ly - 4, colour, one.name))
        parts.append(_text(lx + 10, ly, one.name))
    return "".join([*parts, "</svg>"])


class _Axis:
    """Data units → pixels."""

    def __init__(self, low: float, high: float, start: float, end: float, *, log: bool) -> None:
        self._log = log
        self._low = math.log2(low) if log else low
        top = math.log2(high) if log else high
        self._start = start
        self._scale = (end - start) / (top - self._low) if top - self._low > TINY else 0.0

    def __call__(self, value: float) -> float:
        here = math.log2(value) if self._log else value
        return self._start + (here - self._low) * self._scale


def _mark(kind: str, x: float, y: float, colour: str, label: str, *, hollow: bool = False) -> str:
    title = f"<title>{_shown(label)}</title>"
    ink = f'fill="none" stroke="{colour}" stroke-width="1.5"' if hollow else f'fill="{colour}"'
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {ink}>{title}</circle>'
    if kind == "square":
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" {ink}>{title}</rect>'
    way = "m-5 4h10l-5-9z" if kind == "triangle" else "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z"
    return f'<path d="M{x:.1f} {y:.1f}{way}" {ink}>{title}</path>'


def _open(title: str, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{_shown(title)}" '
        'xmlns="http://www.w3.org/2000/svg" font-size="12" fill="currentColor">'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_shown(text)}</text>'


def _shown(text: str) -> str:
    """`text` escaped, without the control characters that no XML may hold."""
    return str(escape("".join(c if c >= " " and c not in "\ufffe\uffff" else " " for c in text)))
