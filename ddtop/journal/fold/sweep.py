"""How events of cells and restarts change the state; the others are in `apply.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddtop import events as ev
from ddtop.journal.fold.series import FigurePoint, pack, unpack
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView, CellView, PhaseView, RestartView

GPU_FRESH_S = 3.0
"""A GPU's reading that is older says nothing of this moment."""


def _cells_planned(state: State, event: ev.CellsPlanned) -> None:
    """Unchanged cells keep what is known of them, new ones are planned, vanished ones are hidden."""
    old = state.cells
    new: dict[str, CellView] = {}
    for spec in event.cells:
        cell = old.get(spec.id)
        if cell is None:
            cell = CellView(spec, state_at_s=event.at_s)
        cell.spec, cell.hidden = spec, False
        _skip_by_plan(cell, event.at_s)
        new[spec.id] = cell
    for cell_id, cell in old.items():
        if cell_id not in new:
            cell.hidden = True
            new[cell_id] = cell
    state.cells = new
    state.run.baseline, state.run.rule = event.baseline, event.rule


def _times_learned(state: State, event: ev.TimesLearned) -> None:
    state.learned = event


def _skip_by_plan(cell: CellView, at_s: float) -> None:
    """The plan's own `skip` decides where nothing was measured and no command said otherwise."""
    reason = cell.spec.skip_reason
    if reason is not None and cell.state in ("planned", "interrupted") and cell.by == "plan":
        cell.state, cell.reason, cell.state_at_s = "skipped", reason, at_s
    elif reason is None and cell.state == "skipped" and cell.by == "plan":
        cell.state, cell.reason, cell.state_at_s = "planned", "", at_s
    elif reason is not None and cell.state == "skipped" and cell.by == "plan":
        cell.reason = reason


def _attempt(cell: CellView, number: int) -> AttemptView:
    for attempt in reversed(cell.attempts):
        if attempt.number == number:
            return attempt
    attempt = AttemptView(number)
    cell.attempts.append(attempt)
    return attempt


def _cell(state: State, cell_id: str) -> CellView | None:
    cell = state.cells.get(cell_id)
    if cell is None:
        state.strays += 1
    return cell


def _cell_started(state: State, event: ev.CellStarted) -> None:
    cell = _cell(state, event.cell_id)
    if cell is None:
        return
    attempt = _attempt(cell, event.attempt)
    if attempt.started_at_s is None:  # each load that a search tries has a job of its own, in one attempt
        attempt.started_at_s, attempt.started_mono_s = event.at_s, event.mono_s
    attempt.segment, attempt.job, attempt.generation = state.run.segment, event.job, event.generation
    cell.progress = None
    state.measuring = attempt


def _server_figures(state: State, event: ev.ServerFigures) -> None:
    attempt = state.measuring
    if attempt is None:  # before the job's first cell, or between two
        return
    attempt.kept = False
    attempt.figures.append(
        FigurePoint(
            event.at_s,
            event.running,
            event.queued,
            event.kv_pct,
            event.prefix_hit_pct,
            event.prompt_tokens,
            _power_w(state, event.at_s),
            event.host_mono_s,
            event.spec_tokens,
            event.spec_steps,
        )
    )


def _cell_series(state: State, event: ev.CellSeries) -> None:
    cell = _cell(state, event.cell_id)
    found = next((a for a in cell.attempts if a.number == event.attempt), None) if cell is not None else None
    series = unpack(event)
    if found is None or series is None:
        return
    found.figures, found.live = series
    found.ttft, found.tpot, found.kept = event.ttft, event.tpot, True


def series_due(state: State, event: ev.Event) -> dict[str, Any] | None:
    """The fields of the CellSeries that is to be recorded after `event`, which is folded already: of a try that it ended."""
    if not isinstance(event, ev.CellStateSet) or event.state == "running" or event.attempt is None:
        return None
    cell = state.cells.get(event.cell_id)
    one = next((a for a in cell.attempts if a.number == event.attempt), None) if cell is not None else None
    if one is None or one.kept or not (one.figures or one.live.at_s):
        return None
    return pack(event.cell_id, one.number, one.figures, one.live, one.ttft, one.tpot)


def _power_w(state: State, at_s: float) -> float | None:
    """Power of the GPUs that the server holds, together (of all where that is not known); None where one says nothing now."""
    if state.gpus_at_s is None or at_s - state.gpus_at_s > GPU_FRESH_S:
        return None
    found = state.restart.provenance if state.restart is not None else None
    held = found.gpus if found is not None else ()
    total: float | None = None
    for index, view in state.gpus.items():
        if held and index not in held:
            continue
        power_w = view.reading.power_w
        if power_w is None:
            return None
        total = power_w if total is None else total + power_w
    return total


def _cell_progress(state: State, event: ev.CellProgress) -> None:
    cell = _cell(state, event.cell_id)
    if cell is None:
        return
    before, cell.progress = cell.progress, event
    if not cell.attempts:
        return
    attempt = cell.attempts[-1]
    attempt.kept = False
    if before is None or before.phase != event.phase:
        attempt.ttft = attempt.tpot = None  # the window's are not those of the burst before it
    attempt.ttft, attempt.tpot = event.ttft or attempt.ttft, event.tpot or attempt.tpot
    attempt.live.add(
        event.at_s,
        state.bound.verdict if state.bound is not None else "",
        tok_s=event.now_tok_s,
        in_flight=event.in_flight,
        power_w=_power_w(state, event.at_s),
        accept=_accepted(event, before),
    )


def _accepted(event: ev.CellProgress, before: ev.CellProgress | None) -> float | None:
    """Tokens a verification step since the report before; None where no response has ended in between."""
    tokens, steps = event.spec_tokens or 0, event.spec_steps or 0
    anew = before is None or (before.phase == "settling") != (event.phase == "settling")  # with the window
    if before is not None and not anew and steps >= (before.spec_steps or 0):
        tokens, steps = tokens - (before.spec_tokens or 0), steps - (before.spec_steps or 0)
    return tokens / steps if steps > 0 else None


def _search_step(state: State, event: ev.SearchStep) -> None:
    cell = _cell(state, event.parent)
    if cell is None:
        return
    if event.number == 0:
        cell.ladder, cell.searched = [], False
    cell.ladder.append(event)
    cell.progress = None


def _cell_measured(state: State, event: ev.CellMeasured) -> None:
    cell = _cell(state, event.cell_id)
    if cell is None:
        return
    attempt = _attempt(cell, event.attempt)
    amends = attempt.measured_at_s is not None and not event.raw
    if state.measuring is attempt:
        state.measuring = None
    attempt.live.thin()
    attempt.validity, attempt.reasons, attempt.metrics = event.validity, event.reasons, event.metrics
    attempt.generation = event.generation or attempt.generation
    if not amends:  # a later doubt changes the judgement, not the times
        attempt.measured_at_s = event.at_s
        attempt.host_span_s, attempt.window_mono_s = _host_span_s(event.raw), _window_mono_s(event.raw)
        seen_s = None
        if attempt.started_mono_s is not None and attempt.segment == state.run.segment:
            seen_s = max(0.0, event.mono_s - attempt.started_mono_s)
        attempt.seconds = _took_s(attempt, seen_s)
    cell.validity, cell.reasons, cell.metrics = event.validity, event.reasons, event.metrics
    cell.engine, cell.engine_version, cell.driver = event.engine, event.engine_version, event.driver
    cell.generation = event.generation
    cell.progress = None


def _took_s(attempt: AttemptView, seen_s: float | None) -> float | None:
    """How long a cell took. `seen_s`: from its beginning to its result as they were recorded, which may both have come late:
    a result that was collected after a cut says when it was measured by the host's clock, which may have been set."""
    span, window = attempt.host_span_s, attempt.window_mono_s
    spanned_s = span[1] - span[0] if span is not None else None
    if seen_s is None or spanned_s is None:
        return seen_s if spanned_s is None else spanned_s
    collected = window is not None and seen_s < window[1] - window[0]
    return spanned_s if collected else min(seen_s, spanned_s)


def _host_span_s(raw: dict[str, Any]) -> tuple[float, float] | None:
    start, end = raw.get("started_at_s"), raw.get("ended_at_s")
    if isinstance(start, int | float) and isinstance(end, int | float) and end > start:
        return float(start), float(end)
    return None


def _window_mono_s(raw: dict[str, Any]) -> tuple[float, float] | None:
    window = raw.get("window")
    if not isinstance(window, dict) or not isinstance(zero := window.get("zero_mono_ns"), int):
        return None
    wall_s = window.get("wall_s")
    return zero / 1e9, zero / 1e9 + (float(wall_s) if isinstance(wall_s, int | float) else 0.0)


def _cell_outputs(state: State, event: ev.CellOutputs) -> None:
    cell = _cell(state, event.cell_id)
    if cell is not None and cell.spec.baseline:
        cell.outputs = event


def _cell_state(state: State, event: ev.CellStateSet) -> None:
    cell = _cell(state, event.cell_id)
    if cell is None:
        return
    cell.state, cell.reason, cell.cause = event.state, event.reason, event.cause
    cell.signature_id, cell.by, cell.state_at_s = event.signature_id, event.by, event.at_s
    cell.searched = cell.searched or event.state == "done"
    if event.engine_version is not None:
        cell.engine_version = event.engine_version
    if event.state != "running":
        cell.progress = None
    if event.attempt is not None:
        attempt = _attempt(cell, event.attempt)
        attempt.state, attempt.reason, attempt.cause = event.state, event.reason, event.cause
        attempt.ended_at_s = event.at_s if event.state != "running" else None
        if event.state != "running":
            attempt.live.thin()
            if state.measuring is attempt:
                state.measuring = None


def _race_round(state: State, event: ev.RaceRound) -> None:
    state.races.append(event)


def _restart_started(state: State, event: ev.RestartStarted) -> None:
    last = state.restarts[-1] if state.restarts else None
    if last is not None and last.outcome == "running":
        # Its end was not recorded: the runner died, or another restart replaced it.
        last.outcome, last.ended_at_s = "interrupted", event.at_s
    state.restarts.append(
        RestartView(
            attempt_id=event.attempt_id,
            config=event.config,
            tp=event.tp,
            unit=event.unit,
            argv=event.argv,
            cell_ids=event.cell_ids,
            generation_before=event.generation_before,
            expected_s=event.expected_s,
            usual=event.usual,
            started_at_s=event.at_s,
            started_mono_s=event.mono_s,
            segment=state.run.segment,
            seq=state.seq,
        )
    )


def _restart(state: State, attempt_id: str) -> RestartView | None:
    for restart in reversed(state.restarts):
        if restart.attempt_id == attempt_id:
            return restart
    state.strays += 1
    return None


def _phase(state: State, event: ev.PhaseSeen) -> None:
    restart = _restart(state, event.attempt_id)
    if restart is None:
        return
    view = restart.phases.get(event.phase)
    if view is None:
        view = restart.phases[event.phase] = PhaseView(event.phase, event.state, event.at_s, event.at_s)
    view.state, view.at_s, view.elapsed_s = event.state, event.at_s, event.elapsed_s
    view.pct, view.eta_s = event.pct, event.eta_s
    view.detail = event.detail if event.detail is not None else view.detail
    view.quiet_s, view.limit_s = event.quiet_s, event.limit_s
    if event.moving is not None:
        restart.moves.append((event.at_s, event.moving))
    view.longest_quiet_s = max(view.longest_quiet_s, event.quiet_s or 0.0)


def _gate(state: State, event: ev.GateSeen) -> None:
    restart = _restart(state, event.attempt_id)
    if restart is not None:
        restart.gate[event.part] = event


def _end_restart(state: State, restart: RestartView, at_s: float, mono_s: float) -> None:
    restart.ended_at_s = at_s
    if restart.segment == state.run.segment:
        restart.seconds = max(0.0, mono_s - restart.started_mono_s)


def _restart_ready(state: State, event: ev.RestartReady) -> None:
    restart = _restart(state, event.attempt_id)
    if restart is None:
        return
    restart.outcome, restart.ready_s, restart.generation = "ready", event.ready_s, event.generation
    restart.engine, restart.engine_version = event.engine, event.engine_version
    restart.resolved_args, restart.overridden = event.resolved_args, event.overridden
    restart.meant_for_cpu = event.meant_for_cpu
    restart.acceptance_simulated = event.acceptance_simulated
    restart.read_mib, restart.new_cache_files = event.read_mib, event.new_cache_files
    restart.compile_cache = event.compile_cache
    _end_restart(state, restart, event.at_s, event.mono_s)
    for phase in restart.phases.values():
        if phase.state == "running":
            phase.state = "done"
    state.host.rebooted = None


def _provenance(state: State, event: ev.StartProvenance) -> None:
    restart = _restart(state, event.attempt_id)
    if restart is not None:
        restart.provenance = event


def _restart_failed(state: State, event: ev.RestartFailed) -> None:
    restart = _restart(state, event.attempt_id)
    if restart is None:
        return
    restart.outcome, restart.verdict, restart.cause = "failed", event.verdict, event.cause
    restart.kind, restart.alert_id = event.kind, event.alert_id
    _end_restart(state, restart, event.at_s, event.mono_s)


HANDLERS: dict[type[ev.Event], Callable[[State, Any], None]] = {
    ev.CellsPlanned: _cells_planned,
    ev.TimesLearned: _times_learned,
    ev.CellStarted: _cell_started,
    ev.CellProgress: _cell_progress,
    ev.ServerFigures: _server_figures,
    ev.CellOutputs: _cell_outputs,
    ev.SearchStep: _search_step,
    ev.CellMeasured: _cell_measured,
    ev.CellSeries: _cell_series,
    ev.CellStateSet: _cell_state,
    ev.RaceRound: _race_round,
    ev.RestartStarted: _restart_started,
    ev.PhaseSeen: _phase,
    ev.GateSeen: _gate,
    ev.RestartReady: _restart_ready,
    ev.StartProvenance: _provenance,
    ev.RestartFailed: _restart_failed,
}
