"""The measurement under way, as the dashboard's panel."""

from __future__ import annotations

from ddtop.dashboard.draw.paint import Line, line
from ddtop.dashboard.panels.cell.live import live_lines
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import running_cell


def measuring_title(state: State) -> str:
    """Title of the panel."""
    cell = running_cell(state)
    return f"Measuring · {cell.spec.label}" if cell is not None else "Measuring"


def measuring_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """Lines of the panel, at most `height`; where there are few, the most telling."""
    cell = running_cell(state)
    if cell is None:
        return [line(("No cell is measured now.", "dim"))]
    return live_lines(state, cell, now_s, width, height)
