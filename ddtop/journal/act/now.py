"""What a run does now, and what it asks, as plain values: for `ddtop status`, and for programs. Pure; time is an argument.

A value that is not known is absent. Times are Unix seconds, durations seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from ddtop.events import Action, Step
from ddtop.journal.act.allocation import allocation_words, used
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView, CellView, RestartView
from ddtop.journal.read.eta import sweep_eta
from ddtop.journal.read.select import (
    advised_alert,
    asking,
    counts,
    key_of_action,
    metric_value,
    running_cell,
    waits_for_answer,
)

SCHEMA = 1

Doing = Literal[
    "ended",
    "no-runner",
    "asking",
    "host-lost",
    "connecting",
    "staging",
    "starting",
    "measuring",
    "paused",
    "watching",
    "between",
]
"""What a run does: `no-runner` was begun, and nothing runs it; `between` is on its way to the next start or cell."""

UNDELIVERED = "notification not delivered"
"""How a note begins that says so (sweep/tell/notify.py)."""

WARNINGS = 10
"""The last warnings that are shown."""


def known(**values: Any) -> dict[str, Any]:
    """The values that are known.

    >>> known(a=0, b=None, c="")
    {'a': 0}
    """
    return {key: value for key, value in values.items() if value is not None and value != ""}


def doing(state: State, now_s: float, *, live: bool) -> Doing:
    """The one word for what a run does."""
    if state.run.ended is not None:
        return "ended"
    if not live:
        return "no-runner"
    if asks(state, now_s):
        return "asking"
    if state.host.link == "lost":
        return "host-lost"
    if state.host.link != "connected":
        return "connecting"
    if state.stage is not None and state.stage.active:
        return "staging"
    if state.restarting is not None:
        return "starting"
    if running_cell(state) is not None:
        return "measuring"
    if state.paused is not None:
        return "paused"
    return "between" if state.plan_cells else "watching"


def asks(state: State, now_s: float) -> bool:
    """Whether the run waits for a person's answer."""
    return asking(state, now_s) or any(waits_for_answer(a, now_s) for a in state.open_alerts)


def facts(state: State, now_s: float, *, path: Path, live: bool) -> dict[str, Any]:
    """All that `ddtop status` says of a run."""
    run, host, word = state.run, state.host, doing(state, now_s, live=live)
    tally, eta = counts(state.plan_cells), sweep_eta(state, now_s)
    going = word not in ("ended", "no-runner")
    cell, start = running_cell(state), state.restart
    left_s = eta.total_s if going and tally.remaining else None
    at_work = cell.spec if cell is not None else start
    return known(
        schema=SCHEMA,
        run=run.run_id,
        name=run.name,
        host=host.name,
        path=str(path),
        mode=run.mode,
        live=live,
        pid=run.pid if live else None,
        simulated=run.simulated or None,
        seq=state.seq,
        at_s=now_s,
        started_at_s=run.started_at_s,
        doing=word,
        since_s=_since(state, word),
        link=known(state=host.state, since_s=host.since_at_s, error=host.error, retry_in_s=host.retry_in_s),
        allocation=allocation_facts(state, now_s),
        config=at_work.config if at_work is not None and going else None,
        tp=at_work.tp if at_work is not None and going else None,
        start=_start(start, now_s) if start is not None else None,
        cell=cell_facts(cell, now_s) if cell is not None and going else None,
        cells=known(
            total=tally.total,
            done=tally.done,
            suspect=tally.suspect or None,
            invalid=tally.invalid or None,
            failed=tally.failed,
            broken=tally.broken,
            skipped=tally.skipped,
            remaining=tally.remaining,
        )
        if tally.total
        else None,
        eta=known(
            left_s=left_s,
            finish_at_s=now_s + left_s if left_s is not None else None,
            at_most=eta.at_most or None,
            low_s=eta.low_s if eta.high_s is not None else None,
            high_s=eta.high_s,
            starts=eta.restarts,
        )
        if going and tally.remaining
        else None,
        staging=_staging(state),
        paused=known(by=state.paused.by, reason=state.paused.reason, since_s=state.paused.at_s)
        if state.paused is not None and going
        else None,
        asks=asks(state, now_s) if going else None,
        alerts=[alert_facts(a, now_s) for a in state.open_alerts] if going else [],
        advised=advised.id if (advised := advised_alert(state)) is not None and going else None,
        steps=steps_facts(state, now_s) if going else None,
        warnings=[known(at_s=n.at_s, text=n.text) for n in state.notes if n.level != "info"][-WARNINGS:],
        undelivered=[n.text for n in state.notes if n.text.startswith(UNDELIVERED)] or None,
        ended=known(
            outcome=run.ended.outcome,
            exit_code=run.ended.exit_code,
            reason=run.ended.reason,
            at_s=run.ended.at_s,
            left_behind=list(run.ended.left_behind),
        )
        if run.ended is not None
        else None,
    )


def _since(state: State, word: Doing) -> float | None:
    """When what the run does began."""
    cell, stage = running_cell(state), state.stage
    match word:
        case "ended":
            return state.run.ended.at_s if state.run.ended is not None else None
        case "no-runner":
            return state.at_s or None
        case "asking":
            opened = [a.at_s for a in state.open_alerts if a.raised.answer_by_s is not None]
            return max(opened, default=state.proposed.at_s if state.proposed is not None else None)
        case "host-lost" | "connecting":
            return state.host.since_at_s
        case "staging":
            return stage.started_at_s if stage is not None else None
        case "starting":
            return state.restarting.started_at_s if state.restarting is not None else None
        case "measuring":
            return cell.attempts[-1].started_at_s if cell is not None and cell.attempts else None
        case "paused":
            return state.paused.at_s if state.paused is not None else None
    return None


def _start(start: RestartView, now_s: float) -> dict[str, Any]:
    """The present start of a server, or the last one."""
    phase = start.phase
    under_way = start.outcome == "running"
    return known(
        config=start.config,
        tp=start.tp,
        unit=start.unit,
        outcome=start.outcome,
        started_at_s=start.started_at_s,
        elapsed_s=max(0.0, now_s - start.started_at_s) if under_way else start.seconds,
        usual_s=start.expected_s,
        phase=phase.phase if phase is not None else None,
        phase_s=phase.elapsed_s if phase is not None else None,
        phase_pct=phase.pct if phase is not None and under_way else None,
        phase_eta_s=phase.eta_s if phase is not None and under_way else None,
        quiet_s=phase.quiet_s if phase is not None and under_way else None,
        quiet_limit_s=phase.limit_s if phase is not None and under_way else None,
        verdict=start.verdict,
        cause=start.cause,
        engine=start.engine,
        engine_version=start.engine_version,
    )


def cell_facts(cell: CellView, now_s: float) -> dict[str, Any]:
    """One cell: what it is, its state, and its main figures or its progress."""
    spec, progress = cell.spec, cell.progress
    began = cell.attempts[-1].started_at_s if cell.state == "running" and cell.attempts else None
    moving = cell.state == "running" and progress is not None
    return known(
        id=spec.id,
        label=spec.label,
        config=spec.config,
        tp=spec.tp,
        workload=spec.workload,
        output_tokens=spec.output_tokens,
        concurrency=spec.concurrency or None,
        rate=spec.rate,
        context=spec.context,
        repeat=spec.repeat,
        start=spec.start,
        state=cell.state,
        reason=cell.reason,
        cause=cell.cause,
        validity=cell.validity,
        reasons=list(cell.reasons) or None,
        output_tok_s=metric_value(cell.metrics, "output_tok_s"),
        acceptance_length=metric_value(cell.metrics, "acceptance_length"),
        ttft_ms_p50=metric_value(cell.metrics, "ttft_ms.p50"),
        tpot_ms_p50=metric_value(cell.metrics, "tpot_ms.p50"),
        requests_done=progress.requests_done if moving and progress is not None else None,
        requests_total=progress.requests_total if moving and progress is not None else None,
        pct=progress.pct if moving and progress is not None else None,
        tok_s_now=progress.tok_s if moving and progress is not None else None,
        elapsed_s=max(0.0, now_s - began) if began is not None else cell.seconds,
        attempts=len(cell.attempts),
    )


def allocation_facts(state: State, now_s: float) -> dict[str, Any] | None:
    """The present Slurm allocation, and what all of the run's have cost; None on another host."""
    now = state.allocation
    if now is None:
        return None
    seen, (hours, gpu_hours) = now.seen, used(state, now_s)
    return known(
        words=allocation_words(seen, now_s),
        job=seen.job,
        state=seen.state,
        reason=seen.reason,
        start_estimate_s=seen.start_estimate,
        nodes=list(seen.nodes) or None,
        ends_at_s=seen.ends_at,
        account=seen.account,
        partition=seen.partition,
        gpus=seen.gpus,
        allocations=len(state.allocations),
        walltime_h=round(hours, 4),
        gpu_hours=round(gpu_hours, 4) if gpu_hours is not None else None,
    )


def _staging(state: State) -> dict[str, Any] | None:
    stage = state.stage
    if stage is None or not stage.active:
        return None
    now = stage.progress
    return known(
        target=now.target,
        state=now.state,
        bytes_done=now.bytes_done,
        bytes_total=now.bytes_total,
        rate_mib_s=now.rate_mib_s,
        eta_s=now.eta_s,
        since_s=stage.started_at_s,
    )


def alert_facts(alert: AlertView, now_s: float) -> dict[str, Any]:
    """One alert: what happened, why, what to do, the choices, and when the policy acts."""
    raised, waits = alert.raised, waits_for_answer(alert, now_s)
    return known(
        alert=alert.id,
        title=raised.title,
        verdict=raised.verdict,
        cause=raised.cause,
        cause_text=raised.cause_text,
        kind=raised.kind,
        advice=raised.advice,
        unit=raised.unit,
        cells=list(raised.cell_ids) or None,
        since_s=alert.at_s,
        asks=waits,
        answer_by_s=raised.answer_by_s if waits else None,
        default=raised.policy,
        choices=[_choice(n, a) for n, a in enumerate(raised.actions)],
        decided=alert.decided.what if alert.decided is not None else None,
        decided_by=alert.decided.by if alert.decided is not None else None,
        seen_before=raised.seen_before,
        evidence=[known(source=e.source, text=e.text) for e in raised.evidence],
    )


def _choice(number: int, action: Action) -> dict[str, Any]:
    return known(
        key=key_of_action(action),
        label=action.label,
        command=action.command,
        advised=True if number == 0 else None,
    )


def steps_facts(state: State, now_s: float) -> dict[str, Any] | None:
    """The steps that are proposed or being done."""
    plan = state.proposed
    if plan is None or not plan.steps:
        return None
    waits = asking(state, now_s)
    states = {step: view.state for (plan_id, step), view in state.steps.items() if plan_id == plan.plan_id}
    return known(
        plan=plan.plan_id,
        why=plan.why,
        asks=waits,
        answer_by_s=plan.answer_by_s if waits else None,
        default="all steps are done" if waits else None,
        since_s=plan.at_s,
        steps=[_step(s, states.get(s.id)) for s in plan.steps],
    )


def _step(step: Step, state: str | None) -> dict[str, Any]:
    return known(
        id=step.id,
        action=step.action,
        title=step.title,
        reason=step.reason,
        detail=step.detail,
        needs_consent=step.needs_consent,
        state=state,
    )
