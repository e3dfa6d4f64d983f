"""What this run takes from earlier runs' history, and what it adds to it for later ones."""

from __future__ import annotations

import contextlib

from ddtop.errors import DdtopError
from ddtop.events import CellStateSet, TimesLearned
from ddtop.journal.fold.state import State
from ddtop.journal.history.store import History
from ddtop.journal.read.eta import Prior
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.learned_limits import prior_limits
from ddtop.sweep.shared.plan import OPEN_STATES, Sweep

PASSING = (
    *("lost-host", "interrupted", "rebooted"),
    *("unhandled-exception", "unknown-root-cause-cut", "main-process-exited"),
)
"""Verdicts that every run may meet, and names for whatever has no rule: that they were seen before says nothing of a cause."""


def recall_causes(ctx: SweepContext) -> None:
    """Takes what earlier runs on this host met, for AlertRaised.seen_before. `recall` reports an unreadable history."""
    with contextlib.suppress(DdtopError), History() as history:
        seen = history.causes_seen(ctx.host_name)
        ctx.seen_before = {cause: s.sentence for cause, s in seen.items() if cause not in PASSING}


def recall(ctx: SweepContext, sweep: Sweep) -> None:
    """Takes cells known to be broken, and how long the phases of a start take here."""
    try:
        with History() as history:
            broken = history.broken(ctx.host_name)
            model = sweep.model.name or sweep.model.path if sweep.model else ""
            ctx.learned_limits = {
                key: prior_limits(history, host=ctx.host_name, model=model, tp=x.tp, engine=x.engine)
                for key, x in sweep.launches.items()
            }
            _tell_times(ctx, history, model)
    except DdtopError as error:
        ctx.note("warn", f"the history of earlier runs cannot be read: {error.what}")
        return
    first = {(c.spec.server, c.spec.load): c.id for c in ctx.state.plan_cells if not c.spec.start}
    for cell in ctx.state.plan_cells:
        # A cell is broken in every round; the history may know it by its first one alone.
        known = broken.get(cell.id) or broken.get(first.get((cell.spec.server, cell.spec.load), ""))
        if known is not None and cell.state in OPEN_STATES and not cell.attempts:
            ctx.emit(
                CellStateSet,
                cell_id=cell.id,
                state="broken",
                reason=f"known from an earlier run: {known.reason}",
                by="history",
                cause=known.cause,
                signature_id=known.signature_id,
                engine_version=known.engine_version,
            )


def _tell_times(ctx: SweepContext, history: History, model: str) -> None:
    """Says how long cells and starts like those of the plan took here before: by that the rest of the sweep is estimated."""
    assert ctx.sweep is not None
    cells: dict[str, float] = {}
    starts: dict[str, float] = {}
    priors: dict[str, Prior] = {}
    for cell in ctx.state.plan_cells:
        spec = cell.spec
        engine = ctx.sweep.launches[spec.restart_key].engine if spec.restart_key in ctx.sweep.launches else ""
        prior = priors.setdefault(engine, history.prior(host=ctx.host_name, model=model, engine=engine))
        if (took := prior.cell_s(spec)) is not None:
            cells[cell.id] = round(took, 1)
        if spec.restart_key not in starts and (took := prior.restart_s(spec.config, spec.tp)) is not None:
            starts[spec.restart_key] = round(took, 1)
    if cells or starts:
        ctx.emit(TimesLearned, cells=cells, starts=starts)


def learn_from(state: State) -> None:
    """Adds this run to the history. A history that cannot be written is left as it is."""
    with contextlib.suppress(DdtopError):
        with History() as history:
            history.learn(state)
