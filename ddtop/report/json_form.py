"""`ddtop report FILE --json`: the stable form for programs. Documented in docs/recordings.md.

Times are ISO 8601 in UTC; `…_s` are seconds; `raised_s` and `resolved_s` count from the start of the run. What
is not known is null or absent, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ddtop.events import RaceRound
from ddtop.journal.act.now import allocation_facts
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView, AttemptView, CellView, RestartView, StepView
from ddtop.journal.read.ladder import as_values
from ddtop.journal.read.server_figures import load_of
from ddtop.journal.read.starts import StartClass, StartTime, start_classes, start_times
from ddtop.report.baseline import against_baseline
from ddtop.report.conclusion import conclude
from ddtop.report.recording import Recording, engines, iso, load
from ddtop.report.tables.per_gpu import gpu_json

SCHEMA = 1
"""Version of this form. Keys are only added; anything else is a new number."""


def report_json(sources: Iterable[Path | Recording | State], baseline: str | None = None) -> dict[str, Any]:
    """One recording: its report. Several: `{schema, reports: [...]}` in the order given. `baseline` goes before the plan's.
    Raises JournalError."""
    reports = [_report(_recording(source), baseline) for source in sources]
    return reports[0] if len(reports) == 1 else {"schema": SCHEMA, "reports": reports}


def _recording(source: Path | Recording | State) -> Recording:
    if isinstance(source, Recording):
        return source
    if isinstance(source, State):
        return Recording(source.run.name or source.host.name, source)
    return load(source)


def _report(recording: Recording, baseline: str | None) -> dict[str, Any]:
    state = recording.state
    start = state.run.started_at_s
    against = against_baseline(state, baseline)
    kinds = start_classes(state)
    return {
        "schema": SCHEMA,
        "run": _run(recording),
        "cells": [_cell(c, against.get(c.id)) for c in state.cells.values() if not c.hidden or c.metrics],
        "restarts": [_restart(r, kinds.get(r.attempt_id)) for r in state.restarts],
        "alerts": [_alert(a, start) for a in state.alerts.values()],
        "steps": [_step(s) for s in state.steps.values()],
        "start_times": [_start_time(one) for one in start_times(state, baseline)],
        "per_gpu": gpu_json(state, recording.usd_per_gpu_hour),
        "rounds": [_round(r) for r in state.races],
        "conclusion": conclude(state, baseline).as_values(),
    }


def _run(recording: Recording) -> dict[str, Any]:
    state = recording.state
    run = state.run
    engine, version, driver = engines(state)
    versions = sorted({c.engine_version for c in state.cells.values() if c.engine_version})
    ended = run.ended
    return {
        "name": run.name,
        "plan": run.plan_path or (run.name if run.mode == "sweep" else None),
        "host": state.host.name,
        "started": iso(run.started_at_s),
        "ended": iso(ended.at_s) if ended is not None else None,
        "outcome": ended.outcome if ended is not None else None,
        "engine": engine,
        "engine_version": version,
        "engine_versions": versions,
        "driver": driver,
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.reading.name,
                "uuid": gpu.reading.uuid,
                "power_limit_w": gpu.reading.power_limit_w,
                "mem_total_mib": gpu.reading.mem_total_mib,
            }
            for gpu in state.gpus.values()
        ],
        "run_id": run.run_id,
        "mode": run.mode,
        "segments": run.segment + 1,
        "baseline": run.baseline,
        "simulated": run.simulated,
        "allocation": allocation_facts(state, state.at_s),
        "left_behind": list(ended.left_behind) if ended is not None else [],
        "file": str(recording.path) if recording.path is not None else None,
    }


def _cell(cell: CellView, against: dict[str, Any] | None) -> dict[str, Any]:
    spec = cell.spec
    out: dict[str, Any] = {
        "id": spec.id,
        "config": spec.config,
        "tp": spec.tp,
        "workload": spec.workload,
        "concurrency": spec.concurrency or None,
        "rate": spec.rate,
        "search": _built(spec.search),
        "context": spec.context,
        "output_tokens": spec.output_tokens,
        "repeat": spec.repeat,
        "start": spec.start,
        "sentinel": spec.sentinel,
        "aa": spec.aa,
        "state": cell.state,
        "reason": cell.reason or None,
        "cause": cell.cause,
        "validity": cell.validity,
        "reasons": list(cell.reasons),
        "metrics": cell.metrics,
        "seconds": cell.seconds,
        "engine_version": cell.engine_version,
        "server": load_of(cell),
        "against_baseline": against,
        "attempts": [_attempt(a) for a in cell.attempts],
    }
    if spec.search is not None:
        out["ladder"] = as_values(cell)
    if cell.hidden:
        out["no_longer_planned"] = True
    return out


def _attempt(attempt: AttemptView) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "started": iso(attempt.started_at_s),
        "measured": iso(attempt.measured_at_s),
        "seconds": attempt.seconds,
        "state": attempt.state,
        "reason": attempt.reason or None,
        "cause": attempt.cause,
        "validity": attempt.validity,
        "reasons": list(attempt.reasons),
        "generation": _built(attempt.generation),
    }


def _restart(restart: RestartView, kind: StartClass | None) -> dict[str, Any]:
    return {
        "config": restart.config,
        "tp": restart.tp,
        "unit": restart.unit,
        "started": iso(restart.started_at_s),
        "outcome": restart.outcome,
        "generation": _built(restart.generation),
        "phases": [
            {"name": phase.phase, "seconds": phase.elapsed_s, "state": phase.state}
            for phase in restart.phases.values()
        ],
        "gate": [
            {"part": part, "ok": seen.ok, "seconds": seen.elapsed_s, "evidence": _built(seen.evidence)}
            for part, seen in restart.gate.items()
        ],
        "ready_s": restart.ready_s,
        "verdict": restart.verdict,
        "cause": restart.cause,
        "engine_version": restart.engine_version,
        "overridden": list(restart.overridden),
        "command": list(restart.argv),
        "resolved_args": restart.resolved_args,
        "provenance": _provenance(restart),
        "files": kind.files if kind is not None else None,
        "compiled": kind.compiled if kind is not None else None,
        "read_mib": restart.read_mib,
        "acceptance_simulated": restart.acceptance_simulated,
    }


def _start_time(one: StartTime) -> dict[str, Any]:
    return {
        "config": one.config,
        "tp": one.tp,
        **one.kind._asdict(),
        "n": one.n,
        "ready_s": one.seconds,
        "low": one.low,
        "high": one.high,
        "phases": dict(one.phases),
        "ratio": one.against.ratio if one.against is not None else None,
        "different": one.against.different if one.against is not None else None,
        "why": one.against.why if one.against is not None else None,
    }


def _provenance(restart: RestartView) -> dict[str, Any] | None:
    found = restart.provenance
    if found is None:
        return None
    gpus = None if found.gpus is None else list(found.gpus)
    return {"gpus": gpus, "facts": found.facts, "unknown": found.unknown}


def _alert(alert: AlertView, start_s: float | None) -> dict[str, Any]:
    raised, resolved = alert.raised, alert.resolved
    since = start_s if start_s is not None else alert.at_s
    return {
        "kind": raised.kind,
        "title": raised.title,
        "verdict": raised.verdict,
        "cause": raised.cause,
        "cause_text": raised.cause_text,
        "advice": raised.advice,
        "fault_seen_s": raised.fault_seen_s,
        "raised_s": alert.at_s - since,
        "decided": alert.decided.what if alert.decided is not None else None,
        "decided_by": alert.decided.by if alert.decided is not None else None,
        "resolved_s": resolved.at_s - since if resolved is not None else None,
        "resolved_by": resolved.by if resolved is not None else None,
        "resolved_how": resolved.how if resolved is not None else None,
        "unit": raised.unit,
        "cells": list(raised.cell_ids),
        "evidence": [_built(e) for e in raised.evidence],
    }


def _round(race: RaceRound) -> dict[str, Any]:
    return {
        "at": iso(race.at_s),
        "start": race.start,
        "tp": race.tp,
        "rule": race.rule,
        "go_on": list(race.go_on),
        "left": race.left,
        "ended": race.ended or None,
        "leaders": race.leaders,
    }


def _step(step: StepView) -> dict[str, Any]:
    return {
        "at": iso(step.at_s),
        "action": step.action,
        "title": step.title,
        "reason": step.reason,
        "by": step.by,
        "state": step.state,
        "detail": step.detail,
        "ended": iso(step.ended_at_s),
    }


def _built(value: msgspec.Struct | None) -> Any:
    return msgspec.to_builtins(value) if value is not None else None
