"""What was recorded second by second while a cell was measured: speed, the server's load, power, on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddtop.dashboard.draw.paint import Line, line
from ddtop.dashboard.draw.series import axis, strip, words_strip
from ddtop.dashboard.draw.text import duration, sparkline
from ddtop.dashboard.panels.cell.charts import BOUND, accepted_points, span_s
from ddtop.dashboard.panels.gpus import bucketed
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView, CellView
from ddtop.journal.read.server_figures import SHOWN, load_over, measured_attempt

LABEL, WIDEST, LEAST = 14, 80, 10
UNITS_FROM = 80
"""Columns from which the units have room."""
LIVE = (("tok_s", "tok/s", ""), ("accept", "acceptance", "tokens/step"), ("power_w", "power", "W"))
"""Column of a LiveSeries → its name and unit."""

Points = Sequence[tuple[float, float | None]]


class Row(NamedTuple):
    """One figure over the cell. `told`: mean and maximum within the measured window, where they are known."""

    label: str
    unit: str
    points: Points
    told: tuple[float, float] | None = None

    def words(self, width: int) -> tuple[str, str]:
        """(mean, maximum) in words."""
        values = [value for _, value in self.points if value is not None]
        mean, most = self.told or (sum(values) / len(values), max(values))
        unit = f" {self.unit}" if width >= UNITS_FROM and self.unit else ""
        return f"  mean {mean:.4g}", f" max {most:.4g}{unit}"


def over_time_lines(state: State, cell: CellView, width: int) -> list[Line]:
    """Each figure on a scale of its own, percentages on theirs; what was not recorded has no line."""
    attempt = measured_attempt(cell)
    span = span_s(attempt, state.at_s) if attempt is not None else None
    if attempt is None or span is None:
        return []
    rows = [row for row in _rows(attempt) if any(value is not None for _, value in row.points)]
    if not rows:
        return []
    said = [row.words(width) for row in rows]
    size = max(LEAST, min(WIDEST, width - LABEL - max(len(mean + most) for mean, most in said)))
    out: list[Line] = [(), line((f"Over the cell · {duration(span[1] - span[0])}", "title"))]
    for row, (mean, most) in zip(rows, said, strict=True):
        drawn = strip(row.points, *span, size, 100.0 if row.unit == "%" else None) or " " * size
        out.append(
            line((f"  {row.label:<{LABEL - 2}}", "label"), (drawn, "spark"), (mean, "value"), (most, "dim"))
        )
    bound = attempt.live.bound
    letters = words_strip(zip(attempt.live.at_s, bound, strict=True), *span, size, BOUND)
    if letters.strip():
        mostly = max(set(bound) - {""}, key=bound.count)
        out.append(
            line((f"  {'bound':<{LABEL - 2}}", "label"), (letters, "bar"), (f"  mostly {mostly}", "dim"))
        )
    return [*out, line((" " * LABEL, "dim"), (axis(span[1] - span[0], size), "dim"))]


def _rows(attempt: AttemptView) -> list[Row]:
    load = load_over(attempt.figures, attempt.window_mono_s) or load_over(attempt.figures)
    live = [Row(label, unit, list(attempt.live.points(name))) for name, label, unit in LIVE]
    live[1] = live[1]._replace(points=accepted_points(attempt))
    server = []
    for name, label, unit in SHOWN[:4]:
        told = load.get(name)
        points = [(p.at_s, getattr(p, name)) for p in attempt.figures]
        known = (told["mean"], told["max"]) if isinstance(told, dict) else None
        if isinstance(told, float):  # a share of all prompt tokens
            known = told, max(value for _, value in points if value is not None)
        server.append(Row(label, unit, points, known))
    return [live[0], *server, *live[1:]]


def power_lines(state: State, cell: CellView, width: int) -> list[Line]:
    """Power of each GPU, as far as its readings are still held."""
    attempt = measured_attempt(cell)
    between = span_s(attempt, state.at_s) if attempt is not None else None
    if between is None:
        return []
    start, end = between
    span = end - start
    size = max(10, min(80, width - 30))
    out: list[Line] = []
    for view in state.gpus.values():
        points = [(p.at_s, p.power_w) for p in view.history if start <= p.at_s <= end]
        watts = [w for _, w in points if w is not None]
        if not watts:
            continue
        strip = sparkline(bucketed(points, end, size, span_s=span), view.reading.power_limit_w)
        mean = sum(watts) / len(watts)
        out.append(
            line(
                (f"  {view.index:>2} ", "label"),
                (strip, "spark"),
                (f"  mean {mean:.0f} W", "value"),
                (f" max {max(watts):.0f}", "dim"),
            )
        )
    if not out:
        return []
    return [(), line((f"Power · {duration(span)}", "title")), *out]
