"""A cell in words, and when it ran."""

from __future__ import annotations

from ddtop.events import CellSpec
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import short_count
from ddtop.words import many


def cell_title(cell: CellView) -> str:
    """`b15 · tp1 · fib@256 · 8k ctx · c8`."""
    spec = cell.spec
    parts = [spec.config, f"tp{spec.tp}", f"{spec.workload}@{spec.output_tokens}"]
    if spec.context:
        parts.append(f"{short_count(spec.context)} ctx")
    parts.append(f"concurrency {spec.concurrency}" if spec.concurrency else spec.load_name)
    if spec.repeat:
        parts.append(f"repeat {spec.repeat}")
    if spec.start:
        parts.append(f"start {spec.start + 1}")
    if spec.sentinel:
        parts.append("sentinel")
    return " · ".join(parts)


def load_fact(spec: CellSpec) -> tuple[str, str]:
    """The load in words, with its name."""
    search = spec.search
    if search is not None:
        what = "streams" if search.by == "concurrency" else "rate"
        return "search", f"the highest {what} up to {search.most:g} {search.unit} at {search.limits}"
    if spec.rate is not None:
        return "rate", f"{spec.rate:g} requests/s, whether or not earlier ones are answered"
    return "concurrency", many(spec.concurrency, "request") + " at a time"


def excerpt_bounds(cell: CellView, slack_s: float = 2.0) -> tuple[float, float] | None:
    """Wall times between which the cell's log lines lie; None where it never began."""
    starts = [a.started_at_s for a in cell.attempts if a.started_at_s is not None]
    if not starts:
        return None
    last = cell.attempts[-1]
    end = last.measured_at_s or last.ended_at_s
    return starts[-1] - slack_s, end + slack_s if end is not None else float("inf")
