"""What a cell's result makes of the cell: judged, decided by policy, said in one alert. Pure but for the journal.

`commit` is the only way in which a result enters: from a running job, from one collected after a cut, or from a dead
runner's. It is idempotent: a result that the journal has is not taken twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ddtop.agent.loadgen.records import unpack
from ddtop.bench.figures.metrics import Slo
from ddtop.bench.judge.accuracy import AccuracyReport
from ddtop.bench.judge.cell import CellJudgement, judge_cell, judgement
from ddtop.bench.judge.validity import judge_reasons
from ddtop.events import (
    AlertRaised,
    AlertResolved,
    CauseKind,
    CellMeasured,
    CellOutputs,
    CellStarted,
    CellState,
    CellStateSet,
    Evidence,
    Generation,
    Verdict,
)
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView, CellView
from ddtop.sweep.cell import accuracy_guard as answers
from ddtop.sweep.cell.host_doubts import with_host
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES
from ddtop.sweep.shared.policy import AGAIN, Decision, decide_cell
from ddtop.sweep.tell.alerts import AlertText, alert_id, cell_alert

KEEP_B = 250_000
BULKY = ("gpu_samples", "gpu_samples_z", "texts", "texts_z", "texts_again", "texts_again_z")
REQUESTS = ("requests", "requests_z", "bins", "bins_z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """What became of the cell. `restart`: its server must be started anew before it is measured again."""

    state: CellState
    restart: bool = False
    no_tokens: bool = False
    judged: CellJudgement | None = None
    alert_id: str | None = None
    """The alert that was raised for it."""
    decision: Decision | None = None
    """What the policy says about it."""


def attempt_for(cell: CellView, job: str) -> AttemptView | None:
    """The attempt that `job` made or makes at the cell."""
    return next((a for a in reversed(cell.attempts) if a.job == job), None)


def measured_by(state: State, job: str) -> Generation | None:
    """The server that `job` measured, as the cells say that it has begun; None where it has begun none."""
    for cell in state.cells.values():
        for attempt in cell.attempts:
            if attempt.job == job and attempt.generation is not None:
                return attempt.generation
    return None


def generation_of(state: State, job: str, restart_key: str) -> Generation | None:
    """The server that `job` measured: as its other cells have it, else the one that was last ready for these cells."""
    known = measured_by(state, job)
    if known is not None:
        return known
    keys = {c.id: c.spec.restart_key for c in state.cells.values()}
    for restart in reversed(state.restarts):
        if restart.outcome == "ready" and restart_key in {keys.get(i) for i in restart.cell_ids}:
            return restart.generation
    return None


def begin_cell(ctx: SweepContext, cell: CellView, job: str, generation: Generation | None) -> int:
    """The cell is being measured: says so once for each job; returns the attempt's number."""
    old = attempt_for(cell, job)
    generation = generation or generation_of(ctx.state, job, cell.spec.restart_key)
    number = old.number if old else max((a.number for a in cell.attempts), default=0) + 1
    if old is None:
        ctx.emit(CellStarted, cell_id=cell.id, attempt=number, job=job, generation=generation)
    if cell.state != "running":
        ctx.emit(CellStateSet, cell_id=cell.id, state="running", attempt=number)
    return number


def without_bulk(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A result without its bulk, for the journal: single requests stay while they are small."""
    kept = {k: v for k, v in raw.items() if k not in BULKY}
    kept["clients"] = [
        {k: v for k, v in client.items() if not isinstance(v, list)} for client in raw.get("clients") or ()
    ]
    if len(msgspec.json.encode(kept)) > KEEP_B:
        kept = {k: v for k, v in kept.items() if k not in REQUESTS}
    return kept


def tried_before(cell: CellView, number: int, fault: str) -> int:
    """How often the cell was measured before attempt `number` and found INVALID by the same side's fault."""
    earlier = [a for a in cell.attempts if a.number < number and a.validity == "INVALID"]
    return sum(judge_reasons(a.reasons).fault == fault for a in earlier)


def commit(
    ctx: SweepContext,
    cell_id: str,
    raw: Mapping[str, Any],
    *,
    job: str,
    generation: Generation | None,
    engine: str,
    engine_version: str | None,
    known: Mapping[str, Any] | None = None,
    answer_by_s: float | None = None,
) -> Committed | None:
    """Takes one result of the load generator. None where it is had already, or the cell is not of this plan.
    `answer_by_s`: until when a person is asked about a result that costs a restart."""
    cell = ctx.state.cells.get(cell_id)
    if cell is None:
        return None
    old = attempt_for(cell, job)
    if old is not None and old.measured_at_s is not None:
        return None
    try:
        whole = unpack(dict(raw))
        found = answers.outputs_in(whole)
        report, base = compared(ctx, cell, found)
        if report is not None and report.suspect:
            known = {**(known or {}), "answers_differ": report.why}
        judged = judge_cell(whole, slo=slo_of(ctx), spec=known)
        if report is not None:
            judged.metrics["accuracy"] = answers.as_metrics(report, base)
        if found is not None:
            number = begin_cell(ctx, cell, job, generation)
            ctx.emit(CellOutputs, cell_id=cell.id, attempt=number, **found.packed())
    except (ValueError, KeyError, TypeError) as error:
        judged = judgement({"generator-failed": f"its result cannot be read: {error}"}, {})
    return commit_judged(
        ctx,
        cell,
        with_host(ctx, cell, judged, raw),
        without_bulk(raw),
        job=job,
        generation=generation,
        engine=engine,
        engine_version=engine_version,
        answer_by_s=answer_by_s,
    )


def keep_without_verdict(ctx: SweepContext, cell_id: str, raw: Mapping[str, Any], *, job: str) -> None:
    """Takes a result whose requests were cut off by a server that went away while nobody looked: it is kept, INVALID, and
    the cell is measured again. Neither an alert nor a try of the configuration: nothing is known of why it went."""
    cell = ctx.state.cells.get(cell_id)
    if cell is None or cell.state not in OPEN_STATES:
        return
    old = attempt_for(cell, job)
    if old is not None and old.measured_at_s is not None:
        return
    why = "the server was gone while it was measured"
    try:
        judged = judge_cell(unpack(dict(raw)), slo=slo_of(ctx), spec={"server_gone": why})
    except (ValueError, KeyError, TypeError):  # no figures then; that it was cut off is known all the same
        judged = judgement({"server-gone": why}, {})
    generation = generation_of(ctx.state, job, cell.spec.restart_key)
    launch = ctx.sweep.launches.get(cell.spec.restart_key) if ctx.sweep is not None else None
    number = begin_cell(ctx, cell, job, generation)
    ctx.emit(
        CellMeasured,
        cell_id=cell.id,
        attempt=number,
        validity=judged.validity,
        reasons=judged.reasons,
        metrics=judged.metrics,
        raw=without_bulk(raw),
        engine=launch.engine if launch else "",
        driver=driver_of(ctx),
        generation=generation,
    )
    ctx.emit(CellStateSet, cell_id=cell.id, state="interrupted", reason=why, attempt=number)


def compared(
    ctx: SweepContext, cell: CellView, found: answers.Outputs | None
) -> tuple[AccuracyReport | None, str]:
    """(the cell's answers beside the baseline's, the baseline's cell id); (None, "") where there is nothing to compare."""
    base = answers.reference(ctx.state.plan_cells, cell.spec) if found is not None else None
    if found is None or base is None or base.outputs is None:
        return None, ""
    try:
        kept = answers.outputs_of(base.outputs)
    except ValueError:  # the baseline's answers are damaged: that is no fault of this cell
        return None, ""
    return answers.compare(kept, found), base.id


def slo_of(ctx: SweepContext) -> Slo | None:
    """The plan's service levels, for goodput; None where it names none."""
    named = dict(ctx.sweep.bench.slo) if ctx.sweep is not None else {}
    return Slo(**named) if named else None


def commit_judged(
    ctx: SweepContext,
    cell: CellView,
    judged: CellJudgement,
    raw: dict[str, Any],
    *,
    job: str,
    generation: Generation | None,
    engine: str,
    engine_version: str | None,
    answer_by_s: float | None = None,
) -> Committed:
    """Writes down a judged result, then what it makes of the cell."""
    assert ctx.sweep is not None
    earlier = (cell.state, cell.reason, cell.cause, cell.by) if cell.state in ("skipped", "broken") else None
    number = begin_cell(ctx, cell, job, generation)
    if "bound" not in judged.metrics:
        judged = with_host(ctx, cell, judged, raw)
    ctx.emit(
        CellMeasured,
        cell_id=cell.id,
        attempt=number,
        validity=judged.validity,
        reasons=judged.reasons,
        metrics=judged.metrics,
        raw=raw,
        engine=engine,
        engine_version=engine_version,
        driver=driver_of(ctx),
        generation=generation,
    )
    no_tokens = "no-tokens" in judged.reasons
    if judged.state == "done":
        reason = "; ".join(judged.reasons)
        ctx.emit(
            CellStateSet,
            cell_id=cell.id,
            state="done",
            reason=reason,
            attempt=number,
            engine_version=engine_version,
        )
        resolve_cell_alerts(ctx, cell.id, "measured again: it has a result now")
        return Committed(state="done", judged=judged)
    if earlier is not None:  # somebody has settled the cell: a useless result does not open it again
        state, reason, cause, by = earlier
        ctx.emit(CellStateSet, cell_id=cell.id, state=state, reason=reason, cause=cause, by=by)
        return Committed(state=state, judged=judged)
    side = judged.fault or "not-server"
    decision = decide_cell(ctx.sweep.policy, side, no_tokens, tried_before(cell, number, side))
    detail = judged.details.get(judged.cause, "")
    text = f"{cell.spec.label} gave no usable result: {judged.cause}" + (f" ({detail})" if detail else "")
    verdict: Verdict = "no-tokens" if no_tokens else "measuring-failed"
    kind: CauseKind = "bug" if side == "server" else "transient"
    asks = side == "server" and decision.act in AGAIN
    ident = raise_cell_alert(
        ctx,
        cell,
        verdict,
        "zero-tokens" if no_tokens else judged.cause,
        kind,
        text,
        (Evidence(source="job", text=f"{job}: {detail or judged.cause}"),),
        decision,
        answer_by_s=answer_by_s if asks else None,
    )
    settled = settle_cell(
        ctx,
        cell,
        decision,
        "zero-tokens" if no_tokens else judged.cause,
        number=number,
        engine_version=engine_version,
        restart=side == "server",
        no_tokens=no_tokens,
        judged=judged,
    )
    return replace(settled, alert_id=ident, decision=decision)


def settle_cell(
    ctx: SweepContext,
    cell: CellView,
    decision: Decision,
    cause: str,
    *,
    number: int | None = None,
    engine_version: str | None = None,
    signature_id: str | None = None,
    restart: bool = False,
    no_tokens: bool = False,
    judged: CellJudgement | None = None,
    by: str = "policy",
) -> Committed:
    """Sets the cell's state as was decided, and closes its alert once nothing more is tried."""
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
        if no_tokens and decision.act == "broken":
            break_siblings(ctx, cell, decision.words, cause, engine_version)
    return Committed(state=state, restart=again and restart, no_tokens=no_tokens, judged=judged)


def break_siblings(
    ctx: SweepContext, cell: CellView, words: str, cause: str, engine_version: str | None
) -> None:
    """A server that never gave a token is broken as a whole: its other open cells share the verdict."""
    key = cell.spec.restart_key
    family = [c for c in ctx.state.plan_cells if c.spec.restart_key == key]
    if any(c.state == "done" for c in family):
        return
    for other in family:
        if other.state in ("planned", "interrupted", "running"):
            ctx.emit(
                CellStateSet,
                cell_id=other.id,
                state="broken",
                reason=f"{words} ({cell.spec.label})",
                cause=cause,
                engine_version=engine_version,
                by="policy",
            )


def raise_cell_alert(
    ctx: SweepContext,
    cell: CellView,
    verdict: Verdict,
    cause: str,
    kind: CauseKind,
    text: str,
    evidence: tuple[Evidence, ...],
    decision: Decision,
    *,
    advice: str = "",
    signature_id: str | None = None,
    fault_seen_s: float | None = None,
    unit: str | None = None,
    answer_by_s: float | None = None,
) -> str:
    """One alert for each cell and cause; raised again it says what is done now, and does not ring twice. Returns its id."""
    ident = alert_id(ctx.run_id, "cell", cell.id, cause)
    words: AlertText = cell_alert(
        ctx.host_name,
        cell.spec.config,
        cell.id,
        cell.spec.label,
        verdict,
        cause,
        kind,
        text,
        evidence,
        ident,
        advice,
        unit or unit_of(ctx, cell),
    )
    ctx.emit(
        AlertRaised,
        alert_id=ident,
        title=words.title,
        verdict=words.verdict,
        cause=words.cause,
        cause_text=words.cause_text,
        kind=words.kind,
        advice=words.advice,
        evidence=words.evidence,
        actions=words.actions,
        cell_ids=(cell.id,),
        policy=decision.words,
        signature_id=signature_id,
        fault_seen_s=fault_seen_s,
        unit=unit or unit_of(ctx, cell) or None,
        answer_by_s=answer_by_s,
    )
    return ident


def unit_of(ctx: SweepContext, cell: CellView) -> str:
    """The unit that serves a cell; empty where the plan no longer has it."""
    launch = ctx.sweep.launches.get(cell.spec.restart_key) if ctx.sweep is not None else None
    return launch.unit if launch is not None else ""


def resolve_cell_alerts(ctx: SweepContext, cell_id: str, how: str, by: str = "policy") -> None:
    """Closes the open alerts of one cell alone."""
    for alert in ctx.state.open_alerts:
        if alert.raised.cell_ids == (cell_id,) and alert.raised.attempt_id is None:
            ctx.emit(AlertResolved, alert_id=alert.id, how=how, by=by)


def resolve_stale_alerts(ctx: SweepContext) -> None:
    """Closes the open alerts of starts and cells of which nothing is left to measure, whoever settled that: a person who
    skipped them from the list, or a failure of a start that was told by an alert of its own."""
    for alert in ctx.state.open_alerts:
        cells = [c for i in alert.raised.cell_ids if (c := ctx.state.cells.get(i)) is not None]
        if cells and not any(c.state in OPEN_STATES and not c.hidden for c in cells):
            words = ", ".join(sorted({c.state for c in cells if not c.hidden})) or "no longer in the plan"
            how = f"nothing of it is left to measure: {words}"
            ctx.emit(AlertResolved, alert_id=alert.id, how=how, by=cells[-1].by or "sweep")


def driver_of(ctx: SweepContext) -> str | None:
    """The driver's version by the last probe; None where it is not known."""
    gpus = ctx.state.probe.get("gpus")
    if not isinstance(gpus, Mapping) or "csv" not in gpus:
        return None
    fields = [str(f) for f in gpus.get("fields", ())]
    if "driver_version" not in fields:
        return None
    at = fields.index("driver_version")
    for line in str(gpus["csv"]).splitlines():
        cells = [c.strip() for c in line.split(",")]
        if len(cells) > at and cells[at][:1].isdigit():
            return cells[at]
    return None
