"""Which face the panel of the moment shows. Pure."""

from __future__ import annotations

from typing import Literal

from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView
from ddtop.journal.read.select import asking, questions, running_cell

Face = Literal[
    "connecting",
    "lost",
    "watching",
    "staging",
    "starting",
    "measuring",
    "failed",
    "waiting",
    "paused",
    "interrupted",
    "ready",
    "next",
    "ended",
]
"""What the moment is about; each has its own lines.

`connecting`: no connection yet, and why. `lost`: the host does not answer. `watching`: no plan. `failed`: a start or a cell
went wrong and that is open. `waiting`: the host must be put right, a step is under way, or steps wait for an answer.
`interrupted`: nothing runs this sweep any more. `ready`: a server is ready and idle. `next`: between two things.
"""

CALM = frozenset({"slow"})
"""Verdicts of alerts that interrupt nothing."""
OF_HOST = frozenset({"lost-host", "rebooted", "model-missing", "staging-failed", "interrupted"})
"""Verdicts about the host or the run; a start or a cell that such an alert names is not what went wrong."""


def face_of(state: State, now_s: float, *, orphaned: bool = False) -> Face:
    """The face for `state`. `orphaned`: a sweep was begun, has not ended, and no runner holds its recording."""
    if state.run.ended is not None:
        return "ended"
    if orphaned:
        return "interrupted"
    host = state.host
    if host.link != "connected":
        return "lost" if host.agent else "connecting"
    if failure_of(state) is not None:
        return "failed"
    if state.stage is not None and state.stage.active:
        return "staging"
    restarting = state.restarting
    if restarting is not None and restarting.stuck is None:
        return "starting"
    if running_cell(state) is not None:
        return "measuring"
    if restarting is not None:
        return "starting"
    if waits(state, now_s):
        return "waiting"
    if state.paused is not None:
        return "paused"
    if not state.plan_cells:
        return "watching"
    restart = state.restart
    return "ready" if restart is not None and restart.outcome == "ready" else "next"


def failure_of(state: State) -> AlertView | None:
    """The open alert about a start or a cell, as long as nothing newer is under way."""
    restarting, cell = state.restarting, running_cell(state)
    for alert in questions(state):
        raised = alert.raised
        if raised.verdict in CALM or raised.verdict in OF_HOST:
            continue
        if raised.attempt_id is None and (not raised.cell_ids or raised.verdict == "foreign"):
            continue
        if restarting is not None and restarting.attempt_id != raised.attempt_id:
            continue  # another try is under way: that is what one wants to see
        if restarting is None and cell is not None and cell.id not in raised.cell_ids:
            continue
        return alert
    return None


def waits(state: State, now_s: float) -> bool:
    """Whether the sweep stands still for the host, for a step that is being done, or for an answer."""
    if asking(state, now_s) or any(step.state == "started" for step in state.steps.values()):
        return True
    return any(a.raised.verdict not in CALM for a in state.open_alerts)
