"""Bars as inline SVG, with text for every value, readable without colour. Curves and points: `ddtop/charts/svg.py`.

Pure: numbers in, SVG text out. Text takes the page's colour (`currentColor`), so light and dark pages both work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddtop.charts.svg import STYLE, shown, text
from ddtop.report.text import number

WIDTH, TOP = 640, 14
TINY = 1e-300
"""A span below it has no scale: the quotient would be infinite."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar and its note."""

    name: str
    value: float
    note: str = ""
    low: float | None = None
    high: float | None = None
    emphasis: bool = False


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
        tone = 1 if bar.emphasis else 0
        end = width
        parts.append(text(name_width - 8, y + 13, bar.name, anchor="end"))
        parts.append(
            f'<rect x="{name_width}" y="{y}" width="{width:.1f}" height="17" class="dd-f{tone}" rx="2"/>'
        )
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            a, b = name_width + bar.low * scale, name_width + bar.high * scale
            end = bar.high * scale
            parts.append(
                f'<path d="M{a:.1f} {y + 8.5}H{b:.1f}M{a:.1f} {y + 4}v9M{b:.1f} {y + 4}v9" class="dd-axis" style="stroke-opacity:1"/>'
            )
        parts.append(text(name_width + end + 6, y + 13, texts[index]))
    return "".join([*parts, "</svg>"])


def _finite(bar: Bar) -> Bar:
    """`bar` without a spread that cannot be drawn."""
    if bar.low is None or bar.high is None or math.isfinite(bar.low + bar.high):
        return bar
    return replace(bar, low=None, high=None)


def _open(title: str, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{shown(title)}" class="dd-chart" '
        f'xmlns="http://www.w3.org/2000/svg" fill="currentColor"><style>{STYLE}</style>'
    )
