"""The fold: `state = fold(events)`, live or replayed, today or next year. One function for each kind of event.

`apply` accepts any event in any order: an event that names an unknown cell, restart or alert is counted in
`strays` and otherwise ignored, and a kind of event this version does not know is skipped, so that a newer recording
still shows what it can. Cells and restarts are in `sweep.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import msgspec

from ddtop import events as ev
from ddtop.journal.fold import sweep as fold_sweep
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import (
    AlertView,
    AllocationView,
    GpuPoint,
    GpuView,
    LogTail,
    ServiceView,
    StageView,
    StepView,
    TailLine,
)


def _run_started(state: State, event: ev.RunStarted) -> None:
    run = state.run
    if run.started_at_s is None:
        run.started_at_s = event.at_s
    run.run_id, run.name, run.mode, run.segment = event.run_id, event.name, event.mode, event.segment
    run.simulated = run.simulated or event.simulated  # a later runner does not make what was measured real
    run.attended, run.pid = event.attended, event.pid
    run.schema, run.ddtop_version = event.schema, event.ddtop_version
    if event.plan_toml is not None:
        run.plan_toml = event.plan_toml
    if event.plan_path is not None:
        run.plan_path = event.plan_path
    run.segment_at_s = event.at_s
    run.before, run.ended = run.ended, None
    # The connection, viewers, pause and open question belonged to the previous runner.
    state.host.link, state.host.since_at_s = "idle", event.at_s
    state.viewers = 0
    state.proposed = None
    state.paused = None


def _plan_source(state: State, event: ev.PlanSource) -> None:
    state.run.plan_source = event


def _selftest(state: State, event: ev.SelftestDone) -> None:
    state.selftest = event.result


def _run_ended(state: State, event: ev.RunEnded) -> None:
    state.run.ended = event
    state.proposed = state.paused = None


def _connecting(state: State, event: ev.HostConnecting) -> None:
    host = state.host
    if host.link != "connecting":
        # After a loss the pane counts from the loss, not from each new attempt.
        if host.link != "lost":
            host.since_at_s = event.at_s
        host.link = "connecting"
    host.attempt, host.retry_in_s = event.attempt, event.retry_in_s
    host.error = event.error
    if event.target:
        host.target = event.target


def _connected(state: State, event: ev.HostConnected) -> None:
    host = state.host
    host.link, host.since_at_s = "connected", event.at_s
    host.attempt, host.retry_in_s, host.error, host.means, host.do, host.final = 0, None, None, "", "", False
    host.agent, host.python, host.uid, host.user = event.agent, event.python, event.uid, event.user
    host.can, host.boot, host.clock_offset_s = event.can, event.boot, event.clock_offset_s
    if event.rtt_ms is not None:
        host.rtt_ms = event.rtt_ms


def _lost(state: State, event: ev.HostLost) -> None:
    host = state.host
    if host.link not in ("lost", "connecting"):
        host.since_at_s = event.at_s
    host.link = "lost"
    host.error, host.means, host.do, host.final = event.what, event.means, event.do, event.final
    host.rtt_ms = None


def _rebooted(state: State, event: ev.HostRebooted) -> None:
    state.host.rebooted = event
    state.host.reboots += 1
    state.host.boot = event.boot_now


def _allocation(state: State, event: ev.AllocationSeen) -> None:
    view = state.allocations.get(event.job)
    if view is None:
        view = state.allocations[event.job] = AllocationView(event)
    view.seen = event
    view.ends_at_s = event.ends_at if event.ends_at is not None else view.ends_at_s
    if event.state in ("RUNNING", "SUSPENDED", "RESIZING"):
        view.began_at_s = view.began_at_s if view.began_at_s is not None else event.at_s
        view.ended_at_s = None
    elif not view.waits:
        view.ended_at_s = view.ended_at_s if view.ended_at_s is not None else event.at_s


def _rtt(state: State, event: ev.RttMeasured) -> None:
    state.host.rtt_ms = event.rtt_ms


def _probe(state: State, event: ev.ProbeTaken) -> None:
    state.probe, state.probe_at_s = event.probe, event.at_s


def _gpu(state: State, event: ev.GpuSampled) -> None:
    at_s = event.at_s
    state.gpus_at_s, state.gpu_source = at_s, event.source
    gpus = state.gpus
    for reading in event.gpus:
        index = reading.index
        view = gpus.get(index)
        if view is None:
            view = gpus[index] = GpuView(index, reading, at_s)
        else:
            view.reading, view.at_s = reading, at_s
        # `GpuPoint(…)` without a call in Python: a day of eight GPUs has 691,200 of them.
        point = (at_s, reading.power_w, reading.util_gpu_pct, reading.mem_used_mib)
        view.history.append(tuple.__new__(GpuPoint, point))


def _bound(state: State, event: ev.BoundDiagnosed) -> None:
    state.bound = event


def _tail(state: State, unit: str, at_s: float) -> LogTail:
    tail = state.logs.get(unit)
    if tail is None:
        tail = state.logs[unit] = LogTail(unit)
    tail.at_s = at_s
    return tail


def _log(state: State, event: ev.LogRead) -> None:
    tail = _tail(state, event.unit, event.at_s)
    seq = state.seq
    # `TailLine(seq, line)` for each, without a call in Python: a busy server logs 10,000 lines a second.
    tail.lines.extend(map(tuple.__new__, repeat(TailLine), zip(repeat(seq), event.lines, repeat(False))))
    tail.total += len(event.lines)


def _log_gap(state: State, event: ev.LogGap) -> None:
    tail = _tail(state, event.unit, event.at_s)
    tail.lines.append(TailLine(state.seq, ev.LogLine(text=event.reason, at_s=event.at_s), gap=True))


def _kernel(state: State, event: ev.KernelFault) -> None:
    state.kernel.append(event)


def _service(state: State, event: ev.ServiceSeen) -> None:
    state.services[event.status.unit] = ServiceView(event.status, event.at_s)


def _steps_planned(state: State, event: ev.StepsPlanned) -> None:
    # A plan without steps withdraws the question.
    state.proposed = event if event.steps else None


def _step(state: State, event: ev.StepTaken) -> None:
    key = (event.plan_id, event.step_id)
    ended = event.at_s if event.state != "started" else None
    view = state.steps.get(key)
    if view is None:
        state.steps[key] = StepView(
            event.plan_id,
            event.step_id,
            event.action,
            event.title,
            event.reason,
            event.by,
            event.state,
            event.detail,
            event.at_s,
            ended,
        )
    else:
        view.action, view.title, view.reason, view.by = event.action, event.title, event.reason, event.by
        view.state, view.ended_at_s = event.state, ended
        view.detail = event.detail or view.detail
    state.steps[key].seq = state.seq
    _answered(state, event.plan_id)


def _answered(state: State, plan_id: str) -> None:
    if state.proposed is not None and state.proposed.plan_id == plan_id:
        state.proposed = None


def _stage(state: State, event: ev.StageProgress) -> None:
    view = state.stages.get(event.target)
    if view is None or not view.active:
        state.stages[event.target] = StageView(event, event.at_s, event.at_s)
    else:
        view.progress, view.at_s = event, event.at_s


def _titled(event: ev.AlertRaised) -> ev.AlertRaised:
    """The alert under the title of what happened: older recordings gave a server that died or hung under a cell that of a
    start, which names an attempt."""
    if event.title != "NOT STARTING?" or event.attempt_id is not None or not event.cell_ids:
        return event
    hung = event.verdict in ("stalled", "hung-gpu")
    return msgspec.structs.replace(event, title="SERVER HUNG" if hung else "SERVER DIED")


def _alert(state: State, event: ev.AlertRaised) -> None:
    event = _titled(event)
    view = state.alerts.get(event.alert_id)
    if view is None:
        state.alerts[event.alert_id] = AlertView(event, event.at_s)
    else:
        # Raised again under the same id: more is known. It keeps its place, and opens if it was closed.
        view.raised, view.decided, view.resolved = event, None, None


def _alert_decided(state: State, event: ev.AlertDecided) -> None:
    view = state.alerts.get(event.alert_id)
    if view is None:
        state.strays += 1
    else:
        view.decided = event


def _alert_resolved(state: State, event: ev.AlertResolved) -> None:
    view = state.alerts.get(event.alert_id)
    if view is None:
        state.strays += 1
    else:
        view.resolved = event


def _paused(state: State, event: ev.SweepPaused) -> None:
    state.paused = event


def _resumed(state: State, _event: ev.SweepResumed) -> None:
    state.paused = None


def _command(state: State, event: ev.CommandSeen) -> None:
    state.commands.append(event)
    if event.command == "approve" and event.outcome == "obeyed":
        _answered(state, str(event.args.get("plan_id", "")))


def _viewers(state: State, event: ev.ViewersSeen) -> None:
    state.viewers = event.count
    state.run.attended = event.count > 0


def _note(state: State, event: ev.Note) -> None:
    state.notes.append(event)


HANDLERS: dict[type[ev.Event], Callable[[State, Any], None]] = {
    ev.RunStarted: _run_started,
    ev.PlanSource: _plan_source,
    ev.SelftestDone: _selftest,
    ev.RunEnded: _run_ended,
    ev.HostConnecting: _connecting,
    ev.HostConnected: _connected,
    ev.HostLost: _lost,
    ev.HostRebooted: _rebooted,
    ev.AllocationSeen: _allocation,
    ev.RttMeasured: _rtt,
    ev.ProbeTaken: _probe,
    ev.GpuSampled: _gpu,
    ev.BoundDiagnosed: _bound,
    ev.LogRead: _log,
    ev.LogGap: _log_gap,
    ev.KernelFault: _kernel,
    ev.ServiceSeen: _service,
    ev.StepsPlanned: _steps_planned,
    ev.StepTaken: _step,
    ev.StageProgress: _stage,
    ev.AlertRaised: _alert,
    ev.AlertDecided: _alert_decided,
    ev.AlertResolved: _alert_resolved,
    ev.SweepPaused: _paused,
    ev.SweepResumed: _resumed,
    ev.CommandSeen: _command,
    ev.ViewersSeen: _viewers,
    ev.Note: _note,
    **fold_sweep.HANDLERS,
}
"""Kind of event → how it changes the state. Complete: a test compares it with `AnyEvent`."""


def apply(state: State, event: ev.Event, seq: int | None = None) -> None:
    """Change `state` by one event. `seq` is the event's place in the journal; without it, the next one."""
    state.seq = state.seq + 1 if seq is None else seq
    state.track.note(event, state.at_s)
    state.at_s = event.at_s
    state.mono_s = event.mono_s
    if event.host and not state.host.name:
        state.host.name = event.host
    handler = HANDLERS.get(type(event))
    if handler is not None:
        handler(state, event)


def fold(events: Iterable[ev.Event], state: State | None = None) -> State:
    """The state after `events`, from nothing or from `state` (which is changed and returned)."""
    result = State() if state is None else state
    for event in events:
        apply(result, event)
    return result
