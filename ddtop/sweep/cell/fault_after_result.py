"""A kernel fault that is reported after the result of the cell it hit: the result is doubted all the same."""

from __future__ import annotations

from ddtop.bench.judge.validity import judge_reasons
from ddtop.events import CellMeasured
from ddtop.journal.fold.views import CellView
from ddtop.sources.kernel.fault import Fault
from ddtop.sweep.cell.alerts import raise_cell_alert
from ddtop.sweep.cell.attempts import tried_before
from ddtop.sweep.cell.outcome import settle_cell
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.policy import decide_cell
from ddtop.sweep.shared.verdict import Judgement
from ddtop.sweep.tell.alerts import fault_evidence


def doubt_measured_cell(ctx: SweepContext, cell: CellView, fault: Fault) -> None:
    """Adds the fault to the reasons against a recorded result; the cell is measured again where that makes it INVALID."""
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
        judgement = Judgement(
            verdict="measuring-failed",
            cause=fault.fact.cause or fault.fact.what,
            kind="host",
            text=f"{cell.spec.label} was hit by a fault of the host: {fault.text}",
            evidence=fault_evidence(fault),
            advice=fault.advice,
        )
        raise_cell_alert(ctx, cell, judgement, decision)
        settle_cell(ctx, cell, decision, judgement.cause, number=attempt.number)
