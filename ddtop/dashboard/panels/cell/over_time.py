"""What was recorded second by second while a cell was measured: speed, the server's load, power, on one time axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddtop.dashboard.draw.paint import Line, line
from ddtop.dashboard.draw.series import axis, strip, words_strip
from ddtop.dashboard.draw.text import duration, sparkline
from ddtop.dashboard.panels.cell.charts import BOUND, span_s
from ddtop.dashboard.panels.gpus import bucketed
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView, CellView
from ddtop.journal.read.server_figures import SHOWN, load_over, measured_attempt, window_points

LABEL, WORDS = 14, 30
LIVE = (("tok_s", "tok/s", ""), ("accept", "acceptance", "tokens/step"), ("power_w", "power", "W"))
"""Column of a LiveSeries → its name and unit."""

Points = Sequence[tuple[float, float | None]]


def over_time_lines(state: State, cell: CellView, width: int) -> list[Line]:
    """Each figure on a scale of its own, percentages on theirs; what was not recorded has no line."""
    attempt = measured_attempt(cell)
    span = span_s(attempt, state.at_s) if attempt is not None else None
    if attempt is None or span is None:
        return []
    size = max(10, min(80, width - LABEL - WORDS))
    rows: list[Line] = []
    told = load_over(window_points(attempt)) or load_over(attempt.figures)
    for name, label, unit in LIVE[:1]:
        rows.extend(_row(label, list(attempt.live.points(name)), span, size, unit))
    for name, label, unit in SHOWN[:4]:
        known = told.get(name)
        words = known if isinstance(known, dict) else None
        rows.extend(
            _row(label, [(p.at_s, getattr(p, name)) for p in attempt.figures], span, size, unit, words)
        )
    for name, label, unit in LIVE[1:]:
        rows.extend(_row(label, list(attempt.live.points(name)), span, size, unit))
    rows.extend(_bound(attempt, span, size))
    if not rows:
        return []
    marks = line((" " * LABEL, "dim"), (axis(span[1] - span[0], size), "dim"))
    return [(), line((f"Over the cell · {duration(span[1] - span[0])}", "title")), *rows, marks]


def _row(
    label: str,
    points: Points,
    span: tuple[float, float],
    size: int,
    unit: str,
    told: dict[str, float] | None = None,
) -> list[Line]:
    """A strip with mean and maximum; `told` has those of the measured window, where they are known."""
    values = [value for _, value in points if value is not None]
    if not values:
        return []
    drawn = strip(points, *span, size, 100.0 if unit == "%" else None) or " " * size
    mean, most = (told["mean"], told["max"]) if told is not None else (sum(values) / len(values), max(values))
    said = (f"  mean {mean:.4g}", "value"), (f" max {most:.4g} {unit}".rstrip(), "dim")
    return [line((f"  {label:<{LABEL - 2}}", "label"), (drawn, "spark"), *said)]


def _bound(attempt: AttemptView, span: tuple[float, float], size: int) -> list[Line]:
    moments: Iterable[tuple[float, str]] = zip(attempt.live.at_s, attempt.live.bound, strict=True)
    letters = words_strip(moments, *span, size, BOUND)
    if not letters.strip():
        return []
    counted = sorted(set(attempt.live.bound) - {""}, key=attempt.live.bound.count, reverse=True)
    words = ", ".join(counted)
    shown = words if len(words) <= WORDS else f"mostly {counted[0]}"
    return [line((f"  {'bound':<{LABEL - 2}}", "label"), (letters, "bar"), ("  " + shown, "dim"))]


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
