"""A chart as frozen values, before it is known where it is drawn.

Two drawers read it: `report/svg.py` (a page, a file) and `dashboard/draw/canvas.py` (a terminal).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddtop.charts.ticks import Scale, number, ticks

ABSURD = 1e100
"""No measured value is larger: ticks beyond it would leave the numbers that a computer has."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis means."""

    label: str
    unit: str = ""
    scale: Scale = "linear"
    zero: bool = False
    """A linear axis that begins at 0."""
    whole: bool = False
    """Its values are counts: no tick stands between two of them."""

    @property
    def title(self) -> str:
        """`throughput (tok/s)`."""
        return f"{self.label} ({self.unit})" if self.unit and self.unit != self.label else self.label

    def said(self, value: float) -> str:
        """A value with its unit, in about three figures."""
        return f"{number(value)} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Dot:
    """One point. `low` and `high` are the 95 % interval of `y`."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    label: str = ""
    """What it is, where its series does not say it: `c8`."""
    doubt: str = ""
    """Why it is SUSPECT, in words. Empty: it is not."""
    hollow: bool = False
    """It counts less: dominated, a load too high, a bound in place of a percentile. The chart's note says which."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one kind, ordered by x. `tone` numbers its colour and marker: the same for all that belongs together."""

    name: str
    dots: tuple[Dot, ...]
    tone: int = 0
    joined: bool = True
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """A value of y to compare with, as a line over the whole width."""

    name: str
    y: float
    low: float | None = None
    high: float | None = None
    tone: int | None = None
    """That of the series it is to be compared with; None: with all."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the x axis that matters: a knee, a break-even. `low` and `high`: between which it is."""

    name: str
    x: float
    tone: int = 0
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture."""

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    levels: tuple[Level, ...] = ()
    marks: tuple[Mark, ...] = ()
    front: tuple[tuple[float, float], ...] = ()
    """Points that no other beats in both, ordered by x: joined by a dashed line."""
    note: str = ""
    """How to read it, and what is not in it."""
    why_empty: str = ""
    """Why there is nothing to draw, where `series` is empty."""
    drawn_by: tuple[str, str, str] = ("", "", "")
    """Names of what is on x, on y, and of what splits the series."""

    @property
    def dots(self) -> list[Dot]:
        return [dot for series in self.series for dot in series.dots]

    def x_ticks(self, most: int) -> list[float]:
        """Round values that hold every point between the first and the last of them; at most `most`. Where all points have
        one x it stands alone: an axis to either side would show a range that nothing was measured in."""
        near = [bound for mark in self.marks for bound in (mark.low, mark.x, mark.high) if bound is not None]
        values = [*(dot.x for dot in self.dots), *near]
        if len(set(values)) == 1 and not self.x.zero:
            return [values[0]]
        return _span(self.x, values, most)

    def y_ticks(self, most: int) -> list[float]:
        """As `x_ticks`; intervals and reference lines are held too."""
        values = [v for d in self.dots for v in (d.low, d.y, d.high) if v is not None]
        values += [v for level in self.levels for v in (level.low, level.y, level.high) if v is not None]
        return _span(self.y, values, most)


def simulated(chart: Chart) -> Chart:
    """The chart of a run that measured nothing real: its title says so."""
    return replace(chart, title=f"{chart.title} · SIMULATED")


def _span(axis: Axis, values: Sequence[float], most: int) -> list[float]:
    if axis.scale != "linear":
        values = [v for v in values if v > 0]
    held = [*values, 0.0] if axis.zero and axis.scale == "linear" else values
    return ticks(min(held), max(held), most, axis.scale, whole=axis.whole) if held else []


def drawable(chart: Chart) -> Chart:
    """The chart without what has no place on its axes: values that are no numbers, or not above 0 on a log axis."""

    def placed(value: float, scale: str) -> bool:
        return abs(value) < ABSURD and (
            scale == "linear" or value > 1 / ABSURD
        )  # false of what is no number, too

    def kept(dot: Dot) -> Dot:
        ends = (dot.low, dot.high)
        sound = all(v is not None and placed(v, chart.y.scale) for v in ends)
        return dot if sound or ends == (None, None) else replace(dot, low=None, high=None)

    series = [
        replace(
            s,
            dots=tuple(kept(d) for d in s.dots if placed(d.x, chart.x.scale) and placed(d.y, chart.y.scale)),
        )
        for s in chart.series
    ]
    return replace(
        chart,
        series=tuple(s for s in series if s.dots),
        levels=tuple(level for level in chart.levels if placed(level.y, chart.y.scale)),
        marks=tuple(mark for mark in chart.marks if placed(mark.x, chart.x.scale)),
        front=tuple((x, y) for x, y in chart.front if placed(x, chart.x.scale) and placed(y, chart.y.scale)),
    )
