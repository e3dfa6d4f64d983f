"""Whether a cell can end before its Slurm allocation does. Pure: what was measured says how long things take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ddtop.events import CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.eta import Times, cell_limit_s, longest_s, start_span

MARGIN_S = 20.0
"""Kept free at the end of an allocation: for the last result to be fetched, and the server to be stopped."""
CUT_MOST = 2
"""So many allocations that ended in the middle of a cell show that none is long enough for it."""


class Need(NamedTuple):
    """How long a cell may take, in seconds."""

    seconds: float | None
    """None where nothing says."""
    measured: bool
    """By cells like it; else by the plan's time limit."""


def cell_need(state: State, spec: CellSpec) -> Need:
    """The longest that the cell is expected to take."""
    most = longest_s(spec, cell_limit_s(state.run.plan_toml))
    samples = [
        (c.spec, c.seconds)
        for c in state.cells.values()
        if c.seconds is not None and (c.spec.search is None) == (spec.search is None)
    ]
    learned = state.learned.cells.get(spec.id) if state.learned is not None else None
    span = Times(samples).span(spec, learned, most)
    if span is None or not math.isfinite(span.high):
        return Need(most, False)
    return Need(span.high, True)


def start_need_s(state: State, spec: CellSpec) -> float:
    """The longest that the start of its server is expected to take; 0 where no start was seen."""
    begun = [(r.tp, r.config, r.seconds) for r in state.restarts if r.outcome == "ready" and r.seconds]
    learned = state.learned.starts.get(spec.restart_key) if state.learned is not None else None
    span = start_span(spec, begun, learned)
    return span.high if span is not None else 0.0


def cut(state: State, cell: CellView) -> int:
    """How many of its attempts ended with the walltime of their allocation."""
    ends = [
        (a.began_at_s or 0.0, a.ended_at_s)
        for a in state.allocations.values()
        if a.ended_at_s is not None and a.seen.state == "TIMEOUT"
    ]
    return sum(
        any(first <= (attempt.started_at_s or 0.0) <= last for first, last in ends)
        for attempt in cell.attempts
        if attempt.measured_at_s is None
    )


class Fit(NamedTuple):
    """What is done with the cells of a configuration in what is left of the allocation."""

    act: Literal["begin", "renew", "fail"]
    """`renew`: none can end in it; `fail`: the first can end in no allocation of this length."""
    cells: tuple[CellSpec, ...] = ()
    need_s: float = 0.0
    """Of the first cell, the start of its server included."""


def fit(state: State, cells: Sequence[CellSpec], *, ready: bool, left_s: float | None, fresh: bool) -> Fit:
    """Which of `cells`, in their order, can end within `left_s`.

    `ready`: their server runs. `fresh`: nothing was measured in this allocation yet, so another one is no longer. A cell
    of which nothing is known but the plan's limit is begun in a fresh allocation, until it was cut off twice.
    """
    if left_s is None or not cells:
        return Fit("begin", tuple(cells))
    room = left_s - MARGIN_S - (0.0 if ready else start_need_s(state, cells[0]))
    first = cell_need(state, cells[0])
    need_s = (first.seconds or 0.0) + left_s - MARGIN_S - room
    found: list[CellSpec] = []
    for spec in cells:
        need = cell_need(state, spec)
        if need.seconds is None or need.seconds > room:
            break
        found.append(spec)
        room -= need.seconds
    if found:
        return Fit("begin", tuple(found), need_s)
    view = state.cells.get(cells[0].id)
    if fresh and (first.measured or (view is not None and cut(state, view) >= CUT_MOST)):
        return Fit("fail", (cells[0],), need_s)
    if fresh:
        return Fit("begin", (cells[0],), need_s)
    return Fit("renew", (cells[0],), need_s)
