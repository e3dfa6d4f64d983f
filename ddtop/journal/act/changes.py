"""What changed in a run between two moments: cells, starts, alerts and who answered them, losses. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ddtop.events import CellState
from ddtop.journal.fold.state import State
from ddtop.journal.fold.track import Lane
from ddtop.journal.fold.views import AlertView, CellView, RestartView
from ddtop.journal.read.select import Counts, counts


class Lasted(NamedTuple):
    """How often something happened, and for how long in all (seconds); what lay partly outside counts with its part."""

    times: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened after `since_s` up to `until_s` (wall time)."""

    since_s: float
    until_s: float
    cells: Mapping[CellState, tuple[CellView, ...]]
    """The cells that came into a state, by the state they have now: done, failed, broken, skipped, interrupted."""
    now: Counts
    """How all cells of the plan stand."""
    ready: tuple[RestartView, ...]
    """Starts that became ready."""
    failed: tuple[RestartView, ...]
    raised: tuple[AlertView, ...]
    """Alerts that came up."""
    answered: tuple[AlertView, ...]
    """Alerts that were open before, and were decided or resolved since."""
    reboots: int
    lost: Lasted
    absent: Lasted
    """Without a runner."""
    paused: Lasted
    ended: bool
    """The run ended in this time."""

    @property
    def any(self) -> bool:
        """Whether anything happened that is worth a word."""
        return bool(
            any(self.cells.values())
            or self.ready
            or self.failed
            or self.raised
            or self.answered
            or self.reboots
            or self.lost.times
            or self.absent.times
            or self.paused.times
            or self.ended
        )


TOLD: tuple[CellState, ...] = ("done", "failed", "broken", "skipped", "interrupted")


def changes(state: State, since_s: float, until_s: float | None = None) -> Changes:
    """What changed after `since_s`. `state` is that of `until_s`; without it, of its last event."""
    until_s = max(since_s, state.at_s if until_s is None else until_s)

    def inside(at_s: float | None) -> bool:
        return at_s is not None and since_s < at_s <= until_s

    came = [c for c in state.plan_cells if inside(c.state_at_s) and c.by != "plan"]
    alerts = list(state.alerts.values())
    ended = state.run.ended
    return Changes(
        since_s,
        until_s,
        {kind: tuple(c for c in came if c.state == kind) for kind in TOLD},
        counts(state.plan_cells),
        tuple(r for r in state.restarts if r.outcome == "ready" and inside(r.ended_at_s)),
        tuple(r for r in state.restarts if r.outcome == "failed" and inside(r.ended_at_s)),
        tuple(a for a in alerts if inside(a.at_s)),
        tuple(a for a in alerts if a.at_s <= since_s and inside(answered_at(a))),
        sum(s.count for s in state.track.lanes["reboot"] if inside(s.begin_s)),
        _lasted(state, "lost", since_s, until_s),
        _lasted(state, "absent", since_s, until_s),
        _lasted(state, "paused", since_s, until_s),
        ended is not None and inside(ended.at_s),
    )


def answered_at(alert: AlertView) -> float | None:
    """When an alert was resolved, or else decided; None while it waits."""
    answer = alert.resolved or alert.decided
    return answer.at_s if answer is not None else None


def _lasted(state: State, lane: Lane, since_s: float, until_s: float) -> Lasted:
    parts = [
        (min(until_s, s.end_s if s.end_s is not None else until_s) - max(since_s, s.begin_s), s.count)
        for s in state.track.lanes[lane]
    ]
    inside = [(seconds, count) for seconds, count in parts if seconds > 0]
    return Lasted(sum(count for _, count in inside), sum(seconds for seconds, _ in inside))


def cells_as_of(state: State, at_s: float) -> State:
    """A state whose cells are as they were at `at_s`, as far as results go; everything else is that of `state`."""
    return dataclasses.replace(
        state, cells={cell_id: _as_of(cell, at_s) for cell_id, cell in state.cells.items()}
    )


def _as_of(cell: CellView, at_s: float) -> CellView:
    if cell.state_at_s is None or cell.state_at_s <= at_s:
        return cell
    before = [
        a
        for a in cell.attempts
        if a.state == "done" and a.measured_at_s is not None and a.measured_at_s <= at_s
    ]
    if not before:
        return dataclasses.replace(cell, state="planned", metrics={}, validity=None, reasons=(), ladder=[])
    last = before[-1]
    return dataclasses.replace(
        cell,
        state="done",
        metrics=last.metrics,
        validity=last.validity,
        reasons=last.reasons,
        generation=last.generation,
    )


def looked_since(
    own_s: float | None, unwatched: tuple[float, float | None] | None, opened_s: float
) -> float | None:
    """Since when the person at this dashboard has seen nothing of a run.

    `own_s`: when a dashboard of this user last showed it; None where none ever did, and then the last time without any
    dashboard counts (`unwatched`: from when to when), if it lasted until this one was opened. None: it was watched.
    """
    if own_s is not None:
        return own_s
    if unwatched is None:
        return None
    begin_s, end_s = unwatched
    return begin_s if end_s is None or end_s >= opened_s - OPENING_S else None


OPENING_S = 30.0
"""What a dashboard may take from its start until the run has heard of it."""


def names(cells: Sequence[CellView], most: int) -> list[str]:
    """Names of cells, the last of them `and 12 more` where they are many."""
    shown = [cell.spec.label for cell in cells[:most]]
    return [*shown, f"and {len(cells) - most} more"] if len(cells) > most else shown
