"""After each round of starts: which configurations are started again. Decided from the recording alone.

A decision is an event (RaceRound), made once for each round and TP, from the results of that round and those before
it. What it skips follows from the event, so that a runner that dies anywhere in between leaves nothing half done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddtop import events as ev
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import DEFAULT_METRIC, tps
from ddtop.journal.results.field import SIMULATED
from ddtop.journal.results.matrix import fields_of, starts_in
from ddtop.stats.race import Rules, decide
from ddtop.stats.spread import Starts
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES

BY = "race"
"""Who skips the cells of a configuration that is started no more. A person brings one back by a retry."""

NO_SPEED = "its acceptance is simulated: its tok/s say nothing"


def settle_rounds(ctx: SweepContext) -> None:
    """Decides on every round that has ended, and skips what is started no more."""
    rules = ctx.sweep.rounds if ctx.sweep is not None else None
    if rules is None:
        return
    for tp in tps(ctx.state):
        while (found := due(ctx.state, rules, tp)) is not None:
            ctx.emit(ev.RaceRound, **found)
    for cell, why in to_skip(ctx.state):
        ctx.emit(ev.CellStateSet, cell_id=cell.id, state="skipped", reason=why, by=BY)


def due(state: State, rules: Rules, tp: int) -> dict[str, Any] | None:
    """Fields of the next RaceRound at `tp`; None where no round has ended that is not decided on."""
    cells = [c for c in state.plan_cells if c.spec.tp == tp]
    last = max((r.start for r in state.races if r.tp == tp), default=-1)
    if last + 1 >= rules.most or any(r.ended for r in state.races if r.tp == tp):
        return None
    start = last + 1
    before = [c for c in cells if c.spec.start <= start]
    if not any(c.spec.start == start for c in before) or any(c.state in OPEN_STATES for c in before):
        return None
    fields, _, columns = fields_of(state, tp)
    contenders = _contenders(cells, start)
    out = _outside(before) if rules.rule == "race" else frozenset()
    results: dict[str, dict[str, Starts]] = {}
    for (config, column), mine in fields.items():
        if not mine[0].spec.aa and config not in out:
            counting = (c for c in mine if c.spec.start <= start)
            results.setdefault(column.label(columns), {})[config] = starts_in(counting, DEFAULT_METRIC)
    found = decide(results, [c for c in contenders if c not in out], rules, start + 1)
    return {
        "start": start,
        "tp": tp,
        "rule": rules.rule,
        "go_on": found.go_on,
        "left": {**found.left, **{c: NO_SPEED for c in contenders if c in out}},
        "ended": found.ended,
        "leaders": dict(found.leaders),
    }


def _contenders(cells: list[CellView], start: int) -> list[str]:
    """Configurations that are still in it: not skipped in this round, and with something measured or to be measured."""
    here = {c.spec.config for c in cells if c.spec.start == start and c.state != "skipped"}
    alive = (c.spec for c in cells if c.state == "done" or c.state in OPEN_STATES)
    return list(dict.fromkeys(spec.config for spec in alive if spec.config in here and not spec.aa))


def _outside(cells: list[CellView]) -> frozenset[str]:
    """Configurations that race against nobody: with a simulated acceptance, beside others without."""
    done = [c for c in cells if c.state == "done" and not c.spec.aa]
    faked = frozenset(c.spec.config for c in done if SIMULATED in c.reasons)
    # All of them: a trial, in which they are alike.
    return faked if any(c.spec.config not in faked for c in done) else frozenset()


def to_skip(state: State) -> Iterator[tuple[CellView, str]]:
    """Cells of later rounds that the decisions leave out, with the reason. What a person planned again stays planned."""
    twin = {c.spec.config for c in state.plan_cells if c.spec.aa}
    for cell in list(state.plan_cells):
        if cell.state not in OPEN_STATES or cell.by != "plan":
            continue
        config = cell.spec.config if cell.spec.config not in twin else state.run.baseline or ""
        for race in state.races:
            if (
                race.tp == cell.spec.tp
                and race.start < cell.spec.start
                and (race.ended or config in race.left)
            ):
                yield cell, race.left.get(config) or race.ended
                break
