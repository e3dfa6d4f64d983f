"""What a cell's result makes of the cell: judged, decided by policy, raised in one alert.

`commit` is the only way in which a result of the load generator enters: from a running job, from one collected after
a lost connection, or from one of an earlier runner. It is idempotent: a recorded result is not taken twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ddtop.agent.loadgen.records import unpack
from ddtop.bench.figures.metrics import Slo
from ddtop.bench.judge.accuracy import AccuracyReport
from ddtop.bench.judge.cell import CellJudgement, judge_cell, judgement
from ddtop.events import CellMeasured, CellOutputs, CellState, CellStateSet, Evidence, Generation
from ddtop.journal.fold.views import CellView
from ddtop.sweep.cell import accuracy_guard as guard
from ddtop.sweep.cell.alerts import raise_cell_alert, resolve_cell_alerts
from ddtop.sweep.cell.attempts import begin_cell, generation_of, has_result, tried_before
from ddtop.sweep.cell.host_doubts import with_drift, with_host
from ddtop.sweep.recovery.probe_gpus import driver_version
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES
from ddtop.sweep.shared.policy import AGAIN, Decision, decide_cell
from ddtop.sweep.shared.verdict import Judgement

PAUSED = "server-paused"
KEEP_B = 250_000
"""Single requests stay in a recorded result while it is smaller than this."""
BULKY = ("gpu_samples", "gpu_samples_z", "texts", "texts_z", "texts_again", "texts_again_z")
REQUESTS = ("requests", "requests_z", "bins", "bins_z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The job that gave a result, and the server that it measured."""

    job: str
    generation: Generation | None
    engine: str = ""
    engine_version: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """What became of the cell. `restart`: its server must be started anew before it is measured again."""

    state: CellState
    restart: bool = False
    no_tokens: bool = False
    alert_id: str | None = None
    """The alert that was raised for it."""
    decision: Decision | None = None
    """The policy's decision."""


def without_bulk(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A result as it is recorded: without samples and texts, with single requests while they are small."""
    kept = {k: v for k, v in raw.items() if k not in BULKY}
    kept["clients"] = [
        {k: v for k, v in client.items() if not isinstance(v, list)} for client in raw.get("clients") or ()
    ]
    if len(msgspec.json.encode(kept)) > KEEP_B:
        kept = {k: v for k, v in kept.items() if k not in REQUESTS}
    return kept


def commit(
    ctx: SweepContext,
    cell_id: str,
    raw: Mapping[str, Any],
    origin: Origin,
    *,
    known: Mapping[str, Any] | None = None,
    answer_by_s: float | None = None,
) -> Committed | None:
    """Takes one result of the load generator. None where it is recorded already, or the cell is not of this plan.

    `known`: what the sweep knows of the cell, for its judge. `answer_by_s`: until when a viewer is asked about a
    result that costs a restart.
    """
    cell = ctx.state.cells.get(cell_id)
    if cell is None or has_result(cell, origin.job):
        return None
    try:
        whole = unpack(dict(raw))
        found = guard.outputs_in(whole)
        report, base, groups = _compared(ctx, cell, found, guard.groups_in(whole))
        if report is not None and (why := guard.suspicion(report, groups)):
            known = {**(known or {}), "answers_differ": why}
        judged = judge_cell(whole, slo=_slo(ctx), spec=known)
        if report is not None:
            judged.metrics["accuracy"] = guard.as_metrics(report, base, groups)
        if found is not None:
            number = begin_cell(ctx, cell, origin.job, origin.generation)
            ctx.emit(CellOutputs, cell_id=cell.id, attempt=number, **found.packed())
    except (ValueError, KeyError, TypeError) as error:
        judged = judgement({"generator-failed": f"its result cannot be read: {error}"}, {})
    judged = with_host(ctx, cell, judged, raw)
    if _was_paused(cell, judged):
        number = _record(ctx, cell, judged, without_bulk(raw), origin)
        why = f"measured again, once, because its server paused: {judged.details[PAUSED]}"
        ctx.emit(CellStateSet, cell_id=cell.id, state="interrupted", reason=why, attempt=number, by="policy")
        return Committed(state="interrupted")
    return commit_judged(ctx, cell, judged, without_bulk(raw), origin, answer_by_s=answer_by_s)


def _was_paused(cell: CellView, judged: CellJudgement) -> bool:
    """Whether a result would count but for a pause of its server, for the first time: what held it up (a signal, a suspended
    machine) is not the configuration's, and no race is to be decided by it. A second pause is its own: that result is kept."""
    open_still = cell.state in OPEN_STATES and not any(PAUSED in a.reasons for a in cell.attempts)
    return open_still and judged.state == "done" and PAUSED in judged.reasons


def keep_without_verdict(ctx: SweepContext, cell_id: str, raw: Mapping[str, Any], *, job: str) -> None:
    """Takes a result whose requests were cut off by a server that ended while no runner watched.

    It is recorded as INVALID and the cell is measured again. It raises no alert and counts as no try of the
    configuration: why the server ended is unknown.
    """
    cell = ctx.state.cells.get(cell_id)
    if cell is None or cell.state not in OPEN_STATES or has_result(cell, job):
        return
    why = "the server was gone while it was measured"
    try:
        judged = judge_cell(unpack(dict(raw)), slo=_slo(ctx), spec={"server_gone": why})
    except (ValueError, KeyError, TypeError):  # no figures then; that it was cut off is known all the same
        judged = judgement({"server-gone": why}, {})
    launch = ctx.sweep.launches.get(cell.spec.restart_key) if ctx.sweep is not None else None
    origin = Origin(
        job=job,
        generation=generation_of(ctx.state, job, cell.spec.restart_key),
        engine=launch.engine if launch else "",
    )
    number = _record(ctx, cell, judged, without_bulk(raw), origin)
    ctx.emit(CellStateSet, cell_id=cell.id, state="interrupted", reason=why, attempt=number)


def _record(
    ctx: SweepContext, cell: CellView, judged: CellJudgement, raw: dict[str, Any], origin: Origin
) -> int:
    """Records a judged result; returns the attempt's number."""
    number = begin_cell(ctx, cell, origin.job, origin.generation)
    ctx.emit(
        CellMeasured,
        cell_id=cell.id,
        attempt=number,
        validity=judged.validity,
        reasons=judged.reasons,
        metrics=judged.metrics,
        raw=raw,
        engine=origin.engine,
        engine_version=origin.engine_version,
        driver=driver_version(ctx.state.probe),
        generation=origin.generation,
    )
    return number


def commit_judged(
    ctx: SweepContext,
    cell: CellView,
    judged: CellJudgement,
    raw: dict[str, Any],
    origin: Origin,
    *,
    answer_by_s: float | None = None,
) -> Committed:
    """Records a judged result, then what it makes of the cell."""
    settled = (cell.state, cell.reason, cell.cause, cell.by) if cell.state in ("skipped", "broken") else None
    if "bound" not in judged.metrics:
        begin_cell(ctx, cell, origin.job, origin.generation)
        judged = with_host(ctx, cell, judged, raw)
    judged = with_drift(ctx, cell, judged, origin.generation)
    number = _record(ctx, cell, judged, raw, origin)
    if judged.state == "done":
        ctx.emit(
            CellStateSet,
            cell_id=cell.id,
            state="done",
            reason="; ".join(judged.reasons),
            attempt=number,
            engine_version=origin.engine_version,
        )
        resolve_cell_alerts(ctx, cell.id, "measured again: it has a result now")
        return Committed(state="done")
    if settled is not None:  # by a viewer, while it ran: an invalid result does not open it again
        state, reason, cause, by = settled
        ctx.emit(CellStateSet, cell_id=cell.id, state=state, reason=reason, cause=cause, by=by)
        return Committed(state=state)
    return _settle_invalid(ctx, cell, judged, origin, number, answer_by_s)


def _settle_invalid(
    ctx: SweepContext,
    cell: CellView,
    judged: CellJudgement,
    origin: Origin,
    number: int,
    answer_by_s: float | None,
) -> Committed:
    """Raises the alert of an INVALID result and settles the cell as the policy decides."""
    no_tokens = "no-tokens" in judged.reasons
    side = judged.fault or "not-server"
    decision = decide_cell(ctx.policy, side, no_tokens, tried_before(cell, number, side))
    detail = judged.details.get(judged.cause, "")
    why = Judgement(
        verdict="no-tokens" if no_tokens else "measuring-failed",
        cause="zero-tokens" if no_tokens else judged.cause,
        kind="bug" if side == "server" else "transient",
        text=f"{cell.spec.label} gave no usable result: {judged.cause}" + (f" ({detail})" if detail else ""),
        evidence=(Evidence(source="job", text=f"{origin.job}: {detail or judged.cause}"),),
    )
    asks = side == "server" and decision.act in AGAIN
    ident = raise_cell_alert(ctx, cell, why, decision, answer_by_s=answer_by_s if asks else None)
    state = settle_cell(
        ctx,
        cell,
        decision,
        why.cause,
        number=number,
        engine_version=origin.engine_version,
        no_tokens=no_tokens,
    )
    return Committed(
        state=state,
        restart=side == "server" and decision.act in AGAIN,
        no_tokens=no_tokens,
        alert_id=ident,
        decision=decision,
    )


def settle_cell(
    ctx: SweepContext,
    cell: CellView,
    decision: Decision,
    cause: str,
    *,
    number: int | None = None,
    engine_version: str | None = None,
    signature_id: str | None = None,
    no_tokens: bool = False,
    by: str = "policy",
) -> CellState:
    """Sets the cell's state as decided, and resolves its alerts once nothing more is tried. Returns the state."""
    again = decision.act in AGAIN
    ends: dict[str, CellState] = {"broken": "broken", "skip": "skipped"}
    state: CellState = "interrupted" if again else ends.get(decision.act, "failed")
    ctx.emit(
        CellStateSet,
        cell_id=cell.id,
        state=state,
        reason=decision.words,
        cause=cause,
        attempt=number,
        signature_id=signature_id,
        engine_version=engine_version,
        by=by,
    )
    if not again:
        resolve_cell_alerts(ctx, cell.id, decision.words, by)
        if decision.act == "broken":
            _break_siblings(ctx, cell, decision.words, cause, engine_version, whole=no_tokens)
    return state


def _break_siblings(
    ctx: SweepContext, cell: CellView, words: str, cause: str, engine_version: str | None, *, whole: bool
) -> None:
    """A broken cell is broken in every round. `whole`: a server that never gave a token is broken with all its cells."""
    family = [c for c in ctx.state.plan_cells if c.spec.server == cell.spec.server]
    if not whole or any(c.state == "done" for c in family):
        family = [c for c in family if c.spec.load == cell.spec.load]
    for other in family:
        if other.state in OPEN_STATES:
            ctx.emit(
                CellStateSet,
                cell_id=other.id,
                state="broken",
                reason=f"{words} ({cell.spec.label})",
                cause=cause,
                engine_version=engine_version,
                by="policy",
            )


def _compared(
    ctx: SweepContext, cell: CellView, found: guard.Outputs | None, groups: Mapping[str, str]
) -> tuple[AccuracyReport | None, str, dict[str, AccuracyReport]]:
    """(the cell's outputs compared with the baseline's, the baseline's cell id, the same by group of prompts); (None, "", {})
    without a baseline."""
    base = guard.reference(ctx.state.plan_cells, cell.spec) if found is not None else None
    if found is None or base is None or base.outputs is None:
        return None, "", {}
    try:
        kept = guard.outputs_of(base.outputs)
    except ValueError:  # the baseline's recorded outputs are damaged: that is no fault of this cell
        return None, "", {}
    return guard.compare(kept, found), base.id, guard.compare_groups(kept, found, groups)


def _slo(ctx: SweepContext) -> Slo | None:
    """The plan's service levels, for goodput; None where it names none."""
    named = dict(ctx.sweep.bench.slo) if ctx.sweep is not None else {}
    return Slo(**named) if named else None
