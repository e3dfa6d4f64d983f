"""Plain progress: the line of text for an event, for terminals without a dashboard and for logs. Pure."""

from __future__ import annotations

from ddtop import events as ev
from ddtop.journal.act.allocation import allocation_words
from ddtop.journal.fold.state import State
from ddtop.journal.read.ladder import rungs, words
from ddtop.journal.read.select import counts
from ddtop.words import CAUSE_KINDS

SPOILS_RESULTS = ("throttled", "power-capped", "wedged-collective")


def _seconds(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min"


def _cell(state: State, cell_id: str) -> str:
    cell = state.cells.get(cell_id)
    return cell.spec.label if cell else cell_id


def event_line(event: ev.Event, state: State) -> str | None:
    """The line for `event`; None for events without one. `state` is the state after the event."""
    match event:
        case ev.RunStarted():
            again = f", segment {event.segment}" if event.segment else ""
            simulated = "  SIMULATED" if event.simulated else ""
            return f"run {event.run_id} {event.name or 'monitor'}{again}{simulated}"
        case ev.CellsPlanned():
            return f"{len(event.cells)} cells"
        case ev.RunEnded():
            n = counts(state.plan_cells)
            head = f"run ended: {event.outcome}" + (f" ({event.reason})" if event.reason else "")
            tail = "".join(f"\n  left behind: {x}" for x in event.left_behind)
            return f"{head}; {n.in_words(ended=True)}{tail}"
        case ev.HostConnecting():
            return f"{event.target or event.host}: {event.error}" if event.error else None
        case ev.HostConnected():
            return f"{event.host} connected as {event.user}, agent {event.agent}, python {event.python}"
        case ev.HostLost():
            return f"{event.host} LOST: {event.what}"
        case ev.AllocationSeen():
            return f"{event.host}: {allocation_words(event, event.at_s)}"
        case ev.HostRebooted():
            return f"{event.host} REBOOTED: " + "; ".join(event.consequences)
        case ev.StepTaken():
            mark = {"started": "…", "done": "✓", "failed": "✗", "left-out": "–"}[event.state]
            return f"step {mark} {event.title} ({event.by}): {event.reason}" + (
                f" [{event.detail}]" if event.state == "failed" and event.detail else ""
            )
        case ev.StageProgress():
            return (
                None
                if event.state in ("copying", "downloading", "checking")
                else f"staging {event.target}: {event.state} {event.error or ''}".rstrip()
            )
        case ev.RestartStarted():
            usual = f", usually {_seconds(event.expected_s)}" if event.expected_s else ""
            return f"restart {event.unit} for {event.config} tp{event.tp}{usual}"
        case ev.PhaseSeen():
            if event.state == "failed":
                return f"  {event.phase} failed after {_seconds(event.elapsed_s)}"
            return f"  {event.phase} {_seconds(event.elapsed_s)}" if event.state == "done" else None
        case ev.GateSeen():
            mark = {True: "✓", False: "✗", None: "?"}[event.ok]
            return f"  gate {mark} {event.part}: {event.evidence.text[:160]}"
        case ev.RestartReady():
            return (
                f"  ready in {_seconds(event.ready_s)}, {event.engine} {event.engine_version or ''}".rstrip()
            )
        case ev.RestartFailed():
            means = f": {CAUSE_KINDS[event.kind]}" if CAUSE_KINDS[event.kind] else ""
            return f"  start failed: {event.verdict}, {event.cause}{means}"
        case ev.AlertRaised():
            what = f"  policy: {event.policy}" if event.policy else ""
            seen = f"  ({event.fault_seen_s:.2f} s after the fault)" if event.fault_seen_s is not None else ""
            proof = "".join(f"\n    {e.source}: {e.text.strip()[:300]}" for e in event.evidence[:4])
            advice = f"\n    advice: {event.advice}" if event.advice else ""
            before = f"\n    {event.seen_before}" if event.seen_before else ""
            return f"! {event.title} [{event.verdict}/{event.cause}] {event.cause_text}{seen}{what}{proof}{advice}{before}"
        case ev.AlertDecided():
            return f"decided: {event.what} ({event.by})"
        case ev.AlertResolved():
            return f"alert resolved: {event.how} ({event.by})"
        case ev.SearchStep():
            return _search_line(state, event)
        case ev.CellMeasured():
            speed = event.metrics.get("output_tok_s")
            length = event.metrics.get("acceptance_length")
            words = f"{speed:.1f} tok/s" if isinstance(speed, int | float) else "no rate"
            more = f", acceptance {length:.2f}" if isinstance(length, int | float) else ""
            doubts = f" [{', '.join(event.reasons)}]" if event.reasons else ""
            weak = " (weak)" if event.metrics.get("bound_strength") == "weak" else ""
            bound = f", {event.metrics['bound']}{weak}" if event.metrics.get("bound") else ""
            return f"{_cell(state, event.cell_id)}: {words}{more}{bound} {event.validity}{doubts}"
        case ev.CellStateSet():
            if event.state == "running":
                return f"{_cell(state, event.cell_id)} begins"
            n = counts(state.plan_cells)
            why = f": {event.reason}" if event.reason and event.state != "done" else ""
            return f"{_cell(state, event.cell_id)} {event.state}{why}  [{n.in_words()}]"
        case ev.RaceRound():
            left = "".join(f"\n    {config} is started no more: {why}" for config, why in event.left.items())
            return event.words + left
        case ev.SweepPaused():
            return f"paused by {event.by}"
        case ev.SweepResumed():
            return f"resumed by {event.by}"
        case ev.CommandSeen():
            return f"{event.viewer}: {event.command} {event.outcome}" + (
                f" ({event.reason})" if event.reason else ""
            )
        case ev.KernelFault():
            hit = f"  (hit {_cell(state, event.cell_id)})" if event.cell_id else ""
            return f"kernel: {event.text}{hit}" + (f"\n    advice: {event.advice}" if event.advice else "")
        case ev.BoundDiagnosed():
            # What limits a healthy GPU stands with each cell; these spoil results and are printed at once.
            span = f" over {event.window_s:.0f} s" if event.window_s is not None else ""
            return f"GPUs: {event.why}{span}: {event.meaning}" if event.verdict in SPOILS_RESULTS else None
        case ev.LogGap():
            return f"log of {event.unit}: {event.reason}"
        case ev.Note():
            return f"{event.level}: {event.text}" if event.level != "info" else event.text
    return None


def _search_line(state: State, event: ev.SearchStep) -> str | None:
    """A load that a search tried, as the fold has it: the event is applied already."""
    cell = state.cells.get(event.parent)
    tried = rungs(cell) if cell is not None else []
    if cell is None or not tried:
        return None
    rung = tried[-1]
    share = f", {rung.attained} of {rung.n} within the limits" if rung.n else ""
    return f"  {cell.spec.config} {rung.load}: {rung.verdict}{share}; {words(cell)}"
