"""The cell that is measured now: how far it is, and its figures so far."""

from __future__ import annotations

from ddtop.dashboard.draw.paint import Line, crop, line
from ddtop.dashboard.draw.text import bar, duration, rate
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import running_cell


def measuring_title(state: State) -> str:
    """Title of the panel."""
    cell = running_cell(state)
    return f"Measuring · {cell.spec.label}" if cell is not None else "Measuring"


def measuring_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """Lines of the panel, the most telling first."""
    cell = running_cell(state)
    if cell is None:
        return []
    attempt, progress = state.measuring, cell.progress
    since = f" {duration(now_s - attempt.started_at_s)}" if attempt and attempt.started_at_s else ""
    rows = [line(("▶ measuring", "run"), (since, "label"))]
    if progress is not None:
        share = progress.pct / 100 if progress.pct is not None else None
        filled, empty = bar(share, min(30, max(8, width // 3)))
        done, total = progress.requests_done, progress.requests_total
        count = f" {done or 0} of {total} requests" if total is not None else ""
        speed = f" · {rate(progress.tok_s)} tok/s" if progress.tok_s is not None else ""
        rows.append(line((filled, "bar"), (empty, "track"), (count, "value"), (speed, "value")))
    return [crop(row, width) for row in rows[:height]]
