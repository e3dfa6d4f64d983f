"""A cell that is measured already, and then the kernel's line comes: its result is doubted after the fact."""

from __future__ import annotations

from ddtop.bench.judge.validity import judge_reasons
from ddtop.events import CellMeasured
from ddtop.journal.fold.views import CellView
from ddtop.sources.kernel.fault import Fault
from ddtop.sweep.cell.outcome import raise_cell_alert, settle_cell, tried_before
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.policy import decide_cell
from ddtop.sweep.tell.alerts import fault_evidence


def doubt_measured_cell(ctx: SweepContext, cell: CellView, fault: Fault) -> None:
    """The kernel's line came after the cell's result: the result is doubted all the same, and measured again where
    the fault makes it worthless."""
    attempt = cell.attempts[-1] if cell.attempts else None
    if attempt is None or attempt.measured_at_s is None or fault.reason in cell.reasons or ctx.sweep is None:
        return
    reasons = (*cell.reasons, fault.reason)
    judged = judge_reasons(reasons)
    ctx.emit(
        CellMeasured,
        cell_id=cell.id,
        attempt=attempt.number,
        validity=judged.validity,
        reasons=reasons,
        metrics=dict(cell.metrics),
        engine=cell.engine,
        engine_version=cell.engine_version,
        driver=cell.driver,
        generation=cell.generation,
    )
    if judged.state == "rerun" and cell.state == "done":
        decision = decide_cell(
            ctx.sweep.policy, "not-server", False, tried_before(cell, attempt.number, "not-server")
        )
        raise_cell_alert(
            ctx,
            cell,
            "measuring-failed",
            fault.fact.cause or fault.fact.what,
            "host",
            f"{cell.spec.label} was hit by a fault of the host: {fault.text}",
            fault_evidence(fault),
            decision,
            advice=fault.advice,
        )
        settle_cell(ctx, cell, decision, fault.fact.cause or fault.fact.what, number=attempt.number)
