"""The panel of the moment: its face, its title and its lines. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ddtop.dashboard.draw.paint import Line, crop
from ddtop.dashboard.panels.measuring import measuring_lines, measuring_title
from ddtop.dashboard.panels.moment.ended import ended_lines, ended_title
from ddtop.dashboard.panels.moment.face import Face, failure_of
from ddtop.dashboard.panels.moment.failed import failed_lines, failed_title
from ddtop.dashboard.panels.moment.found import found_lines
from ddtop.dashboard.panels.moment.standing import (
    connecting_lines,
    interrupted_lines,
    lost_lines,
    next_lines,
    paused_lines,
    ready_lines,
    waiting_lines,
)
from ddtop.dashboard.panels.moment.starting import stage_lines, starting_lines, starting_title
from ddtop.journal.act.seat import LIVE, Seat
from ddtop.journal.fold.state import State

Lines = Callable[[State, float, int, int], list[Line]]
"""(state, now, width, height) → lines."""
Asking = Callable[[State, float, int, int, Seat], list[Line]]
"""The same for a face with choices, which are shown as far as they can be carried out."""

WANTS: dict[Face, int] = {
    "connecting": 8,
    "lost": 8,
    "watching": 16,
    "staging": 6,
    "starting": 18,
    "measuring": 14,
    "failed": 20,
    "waiting": 10,
    "paused": 7,
    "interrupted": 8,
    "ready": 8,
    "next": 8,
    "ended": 16,
}
"""Lines that each face asks for. Fixed for a face, so that the panes do not move while it lasts."""


def _staging(state: State, now_s: float, width: int, _height: int) -> list[Line]:
    return stage_lines(state.stage, now_s, width) if state.stage is not None else []


LINES: dict[Face, Lines] = {
    "connecting": connecting_lines,
    "lost": lost_lines,
    "watching": found_lines,
    "staging": _staging,
    "starting": starting_lines,
    "measuring": measuring_lines,
    "ready": ready_lines,
    "next": next_lines,
}

ASKING: dict[Face, Asking] = {
    "waiting": waiting_lines,
    "paused": paused_lines,
    "interrupted": interrupted_lines,
    "ended": ended_lines,
}

TITLES: dict[Face, str] = {
    "connecting": "Connecting",
    "lost": "Host lost",
    "watching": "Found",
    "staging": "Staging",
    "waiting": "Waiting",
    "paused": "Paused",
    "interrupted": "Interrupted",
    "ready": "Ready",
    "next": "Next",
}


def moment_title(face: Face, state: State) -> str:
    """Title of the panel."""
    if face == "measuring":
        return measuring_title(state)
    if face == "starting":
        return starting_title(state)
    if face == "ended":
        return ended_title(state)
    if face == "failed":
        return failed_title(state, failure_of(state))
    return f"{TITLES[face]} · {state.host.name}" if state.host.name else TITLES[face]


def moment_lines(
    face: Face, state: State, now_s: float, width: int, height: int, seat: Seat = LIVE, below: int = 0
) -> list[Line]:
    """Lines of the panel, the most telling first; at most `height`. `below`: lines of the log that are in sight under it."""
    if face == "failed":
        rows = failed_lines(state, failure_of(state), now_s, width, height, seat)
    elif face in ASKING:
        rows = ASKING[face](state, now_s, width, height, seat)
    else:
        rows = LINES[face](state, now_s, width, height)
    return [crop(row, width) for row in rows[:height]]
