"""From where a person looks at a run, and so whether anything can be asked of it at all: a replay and a run without a runner
hear no command. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.journal.fold.state import State
from ddtop.journal.read.select import remaining
from ddtop.words import many


@dataclass(frozen=True, slots=True)
class Seat:
    """How one looks at a run."""

    held: bool = True
    """A runner holds the recording: commands are heard."""
    replay: bool = False
    """The recording is played: its time is ours, and nothing in it can be changed."""
    starts: bool = False
    """This viewer can start a runner for the recording by the key `r`."""


LIVE = Seat()

DONE = {
    "skip": "skipped",
    "retry": "retried",
    "mark-broken": "marked",
    "unmark": "unmarked",
    "undo": "undone",
    "restage": "re-staged",
    "restart": "restarted",
    "wait": "waited for",
    "pause": "paused",
    "go-on": "gone on with",
    "stop": "stopped",
    "answer": "answered",
    "resume": "resumed",
}
"""Action → what it does to its object, for `nothing can be …`."""


def orphaned(state: State, seat: Seat) -> bool:
    """A sweep was begun and has not ended, and its runner is gone: nothing goes on."""
    run = state.run
    begun = run.mode == "sweep" and run.started_at_s is not None and run.ended is None
    return begun and not seat.replay and not seat.held


def startable(state: State, seat: Seat) -> bool:
    """Whether this viewer can start a runner that goes on with the run. What failed is not run again by itself: a run that
    ended with no cell open has nothing to go on with, unless it never reached its host."""
    if seat.replay or seat.held or not seat.starts:
        return False
    ended = state.run.ended
    if ended is None:
        return orphaned(state, seat)
    return ended.outcome != "done" and (not state.host.agent or bool(remaining(state)))


def nobody(state: State, seat: Seat, action: str) -> str | None:
    """Why `action` can reach no runner, in a sentence with the way on; None where one would read it."""
    no = f"Nothing can be {DONE[action]}"
    if seat.replay:
        return f"{no} in a replay: it shows what was recorded."
    run, host = state.run, state.host.name or "HOST"
    if run.ended is not None:
        left = len(remaining(state))
        why = f"{no}: the run has ended ({run.ended.outcome})."
        if not left:
            return why
        cells = f"the {many(left, 'cell')} that {'is' if left == 1 else 'are'} not measured"
        return f"{why} r goes on with {cells}." if startable(state, seat) else why
    if seat.held:
        return None
    if run.started_at_s is None:
        return f"{no}: the run has not begun yet."
    how = "r starts a runner." if startable(state, seat) else f"ddtop connect {host} starts a runner."
    return f"{no}: the runner of this run is gone. {how}"
