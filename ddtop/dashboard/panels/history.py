"""What happened so far: alerts with their evidence and end, restarts, steps, commands, notes, faults."""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.dashboard.draw.paint import Item, Line, line, wrap_text
from ddtop.dashboard.draw.text import clock, duration
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView, RestartView
from ddtop.words import CAUSE_KINDS

Below = str | tuple[str, str]
"""Words that stand below an entry; with a key where enter opens something."""
Entry = tuple[float, str, Line, Sequence[Below]]
"""(wall time, key, line, what stands below it)."""


def history_items(state: State, width: int) -> list[Item]:
    """All of it, the newest first; evidence and reasons stand indented below their line."""
    entries = [*_alerts(state), *_restarts(state), *_steps(state), *_commands(state), *_notes(state)]
    entries.sort(key=lambda entry: entry[0], reverse=True)
    out: list[Item] = []
    for at_s, key, text, below in entries:
        out.append(Item(line((f"{clock(at_s)}  ", "dim"), *text), key))
        for one in below:
            words, below_key = one if isinstance(one, tuple) else (one, None)
            rows = wrap_text(words, width - 13, 3)
            out.extend(
                Item(line((" " * 12, "dim"), (row, "label")), below_key if number == 0 else None)
                for number, row in enumerate(rows)
            )
    return out


def _alerts(state: State) -> list[Entry]:
    out: list[Entry] = []
    for alert in state.alerts.values():
        raised = alert.raised
        mark = ("! ", "bad") if alert.open else ("✓ ", "ok")
        head = line(
            mark, (raised.title, "bad" if alert.open else "value"), (f"  {raised.cause_text}", "text")
        )
        out.append((alert.at_s, f"alert {alert.id}", head, [_end(alert), *_evidence(alert)]))
    return out


def _end(alert: AlertView) -> str:
    resolved = alert.resolved
    if resolved is None:
        return "open"
    return f"resolved after {duration(resolved.at_s - alert.at_s)} by {resolved.by}: {resolved.how}"


def _evidence(alert: AlertView) -> list[Below]:
    """Verdict, evidence, advice, and what is known from earlier. A log line can be opened at its place in the log."""
    raised = alert.raised
    seen = (
        f", {raised.fault_seen_s:.1f} s after the host's first sign"
        if raised.fault_seen_s is not None
        else ""
    )
    means = f": {CAUSE_KINDS[raised.kind]}" if CAUSE_KINDS[raised.kind] else ""
    out: list[Below] = [f"verdict {raised.verdict}{means}{seen}"]
    for number, evidence in enumerate(raised.evidence):
        words = f"{evidence.source}: {evidence.text}"
        out.append((words, f"evidence {alert.id} {number}") if evidence.cursor else words)
    if raised.advice:
        out.append(f"advice: {raised.advice}")
    if raised.seen_before:
        out.append(raised.seen_before)
    return out


def _restarts(state: State) -> list[Entry]:
    return [(r.started_at_s, f"restart {r.attempt_id}", _restart(r), []) for r in state.restarts]


def _restart(restart: RestartView) -> Line:
    place = f"restart for {restart.config} tp{restart.tp}" if restart.config else f"restart of {restart.unit}"
    if restart.outcome == "ready":
        return line(("✓ ", "ok"), (place, "value"), (f"  ready in {duration(restart.ready_s)}", "label"))
    if restart.outcome == "failed":
        why = f"  {restart.verdict or 'failed'} after {duration(restart.failed_after_s)}: {restart.cause or 'unknown'}"
        return line(("✗ ", "bad"), (place, "value"), (why, "label"))
    if restart.outcome == "interrupted":
        return line(("‖ ", "warn"), (place, "value"), ("  interrupted", "label"))
    if restart.stuck is not None:
        why = f"  not started after {duration(restart.failed_after_s)}; waiting for a decision"
        return line(("✗ ", "bad"), (place, "value"), (why, "label"))
    return line(("▶ ", "run"), (place, "value"), ("  running", "label"))


STEP_MARK = {
    "started": ("▶ ", "run"),
    "done": ("✓ ", "ok"),
    "failed": ("✗ ", "bad"),
    "left-out": ("– ", "dim"),
}


def _by(who: str) -> str:
    return "automatic" if who == "automatic" else f"by {who}"


def _steps(state: State) -> list[Entry]:
    out: list[Entry] = []
    for (plan_id, step_id), step in state.steps.items():
        head = line(
            STEP_MARK[step.state], (step.title, "value"), (f"  {step.state} · {_by(step.by)}", "label")
        )
        below = [f"because {step.reason}"] if step.reason else []
        out.append((step.at_s, f"step {plan_id} {step_id}", head, below))
    return out


OUTCOME_WORD = {"obeyed": "accepted", "refused": "refused", "late": "too late"}
"""What became of a command, in words."""


def _commands(state: State) -> list[Entry]:
    out: list[Entry] = []
    for seen in state.commands:
        mark = {"obeyed": ("✓ ", "ok"), "refused": ("✗ ", "bad"), "late": ("! ", "warn")}[seen.outcome]
        args = " ".join(f"{value}" for value in seen.args.values() if value not in (None, "", False))
        why = f": {seen.reason}" if seen.reason else ""
        text = line(
            mark,
            (f"{seen.command} {args}".strip(), "value"),
            (f"  {OUTCOME_WORD[seen.outcome]}{why} · {seen.viewer}", "label"),
        )
        out.append((seen.at_s, f"command {seen.command_id}", text, []))
    return out


def _notes(state: State) -> list[Entry]:
    marks = {"info": ("· ", "dim"), "warn": ("! ", "warn"), "error": ("✗ ", "bad")}
    out: list[Entry] = [
        (note.at_s, f"note {number}", line(marks[note.level], (note.text, "text")), [])
        for number, note in enumerate(state.notes)
    ]
    for number, fault in enumerate(state.kernel):
        name = fault.kind + (f" {fault.code}" if fault.code is not None else "")
        text = line(("✗ ", "bad"), (f"kernel: {name}", "bad"), (f"  {fault.text}", "text"))
        hit = state.cells.get(fault.cell_id or "")
        below = (
            [f"during {hit.spec.config} {hit.spec.workload}@{hit.spec.output_tokens}"]
            if hit is not None
            else []
        )
        out.append(
            (fault.at_s, f"kernel {number}", text, [*below, *([fault.advice] if fault.advice else [])])
        )
    reboot = state.host.rebooted
    if reboot is not None:
        head = line(("! ", "warn"), ("rebooted", "warn"))
        out.append((reboot.at_s, "reboot", head, list(reboot.consequences)))
    return out
