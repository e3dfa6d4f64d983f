"""Alerts about cells: raised with the cell's name and unit, resolved once nothing of them is left to decide."""

from __future__ import annotations

from ddtop.events import AlertResolved
from ddtop.journal.fold.views import CellView
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES
from ddtop.sweep.shared.policy import Decision
from ddtop.sweep.shared.verdict import Judgement
from ddtop.sweep.tell.alerts import alert_id, cell_alert
from ddtop.sweep.tell.raise_alert import raise_alert


def raise_cell_alert(
    ctx: SweepContext,
    cell: CellView,
    judgement: Judgement,
    decision: Decision,
    *,
    unit: str | None = None,
    fault_seen_s: float | None = None,
    answer_by_s: float | None = None,
) -> str:
    """One alert for each cell and cause; raised again it updates the open one. Returns its id."""
    ident = alert_id(ctx.run_id, "cell", cell.id, judgement.cause)
    unit = unit or _unit_of(ctx, cell)
    raise_alert(
        ctx,
        ident,
        cell_alert(judgement, cell.spec, ident, host=ctx.host_name, unit=unit),
        cell_ids=(cell.id,),
        policy=decision.words,
        fault_seen_s=fault_seen_s,
        unit=unit or None,
        answer_by_s=answer_by_s,
    )
    return ident


def _unit_of(ctx: SweepContext, cell: CellView) -> str:
    """The unit that serves a cell; empty where the plan no longer has it."""
    launch = ctx.sweep.launches.get(cell.spec.restart_key) if ctx.sweep is not None else None
    return launch.unit if launch is not None else ""


def resolve_cell_alerts(ctx: SweepContext, cell_id: str, how: str, by: str = "policy") -> None:
    """Resolves the open alerts that are about this cell alone."""
    for alert in ctx.state.open_alerts:
        if alert.raised.cell_ids == (cell_id,) and alert.raised.attempt_id is None:
            ctx.emit(AlertResolved, alert_id=alert.id, how=how, by=by)


def resolve_stale_alerts(ctx: SweepContext) -> None:
    """Resolves the open alerts of starts and cells of which nothing is left to measure, settled by a viewer
    who skipped them from the list, or by a failed start that has an alert of its own."""
    for alert in ctx.state.open_alerts:
        cells = [c for i in alert.raised.cell_ids if (c := ctx.state.cells.get(i)) is not None]
        if cells and not any(c.state in OPEN_STATES and not c.hidden for c in cells):
            states = ", ".join(sorted({c.state for c in cells if not c.hidden})) or "no longer in the plan"
            how = f"no cell of it is left to measure: {states}"
            ctx.emit(AlertResolved, alert_id=alert.id, how=how, by=cells[-1].by or "sweep")
