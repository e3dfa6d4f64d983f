"""The face of a start: its phases with what each usually takes, what moves now, the gate; and staging before it. Pure."""

from __future__ import annotations

from statistics import median

from ddtop.dashboard.draw.paint import Line, Span, crop, fit_text, line, packed
from ddtop.dashboard.draw.text import bar, duration, gib, size, unit_name
from ddtop.dashboard.panels.moment.moving import move_parts
from ddtop.events import AlertRaised, GatePartName, Phase
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import PhaseView, RestartView, StageView

PHASES: tuple[tuple[Phase, str], ...] = (
    ("stopping", "stop"),
    ("stopped", "stopped"),
    ("launching", "launch"),
    ("initialising", "init"),
    ("loading", "load"),
    ("kv", "kv"),
    ("capturing", "capture"),
    ("listening", "listen"),
    ("warming", "warm"),
    ("answering", "answer"),
    ("ready", "ready"),
)
WORD = dict(PHASES)
GATE: tuple[GatePartName, ...] = ("generation", "listener", "mark", "arguments", "token")
QUIET_SHOWN_S = 10.0


TALL = 11
"""From so many lines on each phase has a line of its own."""


def starting_title(state: State) -> str:
    """Title of the panel."""
    restart = state.restart
    if restart is None:
        return "Start"
    place = f"{restart.config} tp{restart.tp}" if restart.config else unit_name(restart.unit)
    return f"Starting · {place}"


def starting_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """Lines of the panel, the most telling first."""
    restart = state.restart
    if restart is None:
        return [line(("No start in this run yet.", "dim"))]
    mine = [a.raised for a in state.open_alerts if a.raised.attempt_id == restart.attempt_id]
    troubled = any(a.raised.attempt_id is None for a in state.open_alerts)
    rows = [summary_line(restart, now_s, width, mine[-1] if mine else None, troubled)]
    if height < TALL:
        rows.extend(phases_line(restart, now_s, width))
        detail = _detail(restart, width)
        rows.extend([detail] if detail else [])
        free = height - len(rows)
        rows.extend(gate_lines(restart, width) if free >= len(GATE) else packed(_gate_parts(restart), width))
        return rows
    gate = gate_lines(restart, width) if not gate_passed(restart) else [gate_line(restart)]
    usual = usual_phases(state, restart)
    rows.extend(timeline(restart, usual, now_s, width))
    moving = moving_lines(state, restart, now_s, width)
    rows.extend(moving[: max(0, height - len(rows))])
    if height - len(rows) >= len(gate):
        rows.extend(gate)
    else:
        rows.extend(packed(_gate_parts(restart), width))
    return rows


def phases_line(restart: RestartView, now_s: float, width: int) -> list[Line]:
    """The phases one after the other, in as few lines as they need."""
    seen = [view for view in restart.phases.values() if _shown(view)]
    return packed([_phase(view, now_s, restart) for view in seen] + _open_phases(restart), width)


def usual_phases(state: State, restart: RestartView) -> dict[Phase, float]:
    """Seconds that each phase usually takes: what was learned on this host, else by the starts of this run that got ready."""
    if restart.usual:
        return restart.usual
    seen: dict[Phase, list[float]] = {}
    for other in state.restarts:
        if other.outcome == "ready" and other is not restart and other.tp == restart.tp:
            for view in other.phases.values():
                seen.setdefault(view.phase, []).append(view.elapsed_s)
    return {phase: median(values) for phase, values in seen.items()}


def timeline(restart: RestartView, usual: dict[Phase, float], now_s: float, width: int) -> list[Line]:
    """One line a phase: done, now, still to come; how long it took or usually takes."""
    out: list[Line] = []
    known = [
        *restart.phases,
        *(phase for phase, _ in PHASES if phase in usual and phase not in restart.phases),
    ]
    if not usual:
        known = [*restart.phases, *(phase for phase, _ in PHASES if phase not in restart.phases)]
    for phase in known:
        view = restart.phases.get(phase)
        if phase in ("ready", "stopped") and (view is None or not _shown(view)):
            continue
        word = WORD.get(phase, phase)
        typical = usual.get(phase)
        often = f"usually {duration(typical)}" if typical is not None and typical >= 1 else ""
        if view is None:
            if restart.outcome == "running" and restart.stuck is None:
                out.append(line((f"· {word:<8}", "dim"), (f"{'':7} {often}", "dim")))
            continue
        elapsed = view.elapsed_s + (max(0.0, now_s - view.at_s) if view.state == "running" else 0.0)
        spans: list[tuple[str, str]]
        if view.state == "running" and restart.outcome == "running":
            share = view.pct / 100 if view.pct is not None else None
            if share is None and typical:
                share = min(0.99, elapsed / typical)
            filled, empty = bar(share, max(6, min(20, width // 5)))
            spans = [
                (f"▶ {word:<8}", "run"),
                (f"{duration(elapsed):>7} ", "value"),
                (filled, "bar"),
                (empty, "track"),
            ]
            if view.pct is not None:
                spans.append((f" {view.pct:.0f} %", "value"))
            if view.eta_s is not None and view.eta_s > 0:
                spans.append((f" · ETA {duration(view.eta_s)}", "label"))
            quiet = _quiet(view)
            if often and not quiet and not (view.eta_s is not None and view.eta_s > 0):
                spans.append((f" · {often}", "dim"))
            spans.extend(quiet)
        elif view.state == "failed" or (restart.outcome == "failed" and view.state == "running"):
            spans = [(f"✗ {word:<8}", "bad"), (f"{duration(elapsed):>7} ", "bad"), (often, "dim")]
        elif view.state == "skipped":
            spans = [(f"– {word:<8}", "dim"), ("skipped", "dim")]
        else:
            slow = typical is not None and elapsed > 1.5 * typical and elapsed - typical > 5
            spans = [("✓ ", "ok"), (f"{word:<8}", "label"), (f"{duration(elapsed):>7} ", "value")]
            if slow:
                spans.append((often, "warn"))
        out.append(crop(line(*spans), width))
    return out


def moving_lines(state: State, restart: RestartView, now_s: float, width: int) -> list[Line]:
    """What moves now: bytes read, GPU memory, processors, the log; the last sign of progress; the log's last line."""
    parts = move_parts(list(restart.moves), now_s)
    if not any(part and part[0].text.startswith("GPU memory") for part in parts):
        used = [g.reading.mem_used_mib for g in state.gpus.values() if g.reading.mem_used_mib is not None]
        if used:
            parts.append(line(("GPUs hold ", "label"), (f"{gib(sum(used))} GiB", "text")))
    tail = state.logs.get(restart.unit)
    logs = tail is not None and tail.at_s is not None and tail.lines and tail.at_s >= restart.started_at_s
    if tail is not None and logs:
        parts.append(line(("log ", "label"), (f"{duration(now_s - (tail.at_s or now_s))} ago", "text")))
    out = [line(("       ", "label"), *row) for row in packed(parts, width - 7, gap=3)]
    if out:
        out[0] = line(("moving ", "label"), *out[0][1:])
    detail = _detail(restart, width)
    if detail:
        out.append(detail)
    elif restart.moves and restart.moves[-1][1].what:
        out.append(crop(line(("sign   ", "label"), (restart.moves[-1][1].what, "dim")), width))
    if tail is not None and logs:
        out.append(crop(line(("last   ", "label"), (tail.lines[-1].line.text.strip(), "dim")), width))
    return out


def gate_passed(restart: RestartView) -> bool:
    """Whether all five parts hold."""
    return all((seen := restart.gate.get(name)) is not None and seen.ok for name in GATE)


def gate_line(restart: RestartView) -> Line:
    """The gate in one line."""
    if gate_passed(restart):
        last = max(restart.gate[name].elapsed_s for name in GATE)
        return line(("✓ gate passed", "ok"), (f" at {duration(last)}: {', '.join(GATE)}", "dim"))
    return tuple(span for part in _gate_parts(restart) for span in (*part, Span("  ")))


def summary_line(
    restart: RestartView, now_s: float, width: int, alert: AlertRaised | None = None, troubled: bool = False
) -> Line:
    """How the restart stands, for how long, and how long such a start takes.

    `alert` is the open one about it, `troubled` says that there is another: then a slow start is not called normal.
    """
    if restart.outcome == "ready":
        took = restart.ready_s if restart.ready_s is not None else restart.seconds
        version = f" · {restart.engine} {restart.engine_version or ''}".rstrip() if restart.engine else ""
        spans = line(("✓ ready", "ok"), (f" in {duration(took)}{version}", "label"))
        if restart.overridden:
            spans = (*spans, Span(f"  ! overridden: {', '.join(restart.overridden)}", "warn"))
        return crop(spans, width)
    if restart.outcome == "failed":
        text = f" after {duration(restart.failed_after_s)} · {restart.cause or 'cause unknown'}"
        return crop(line((f"✗ {restart.verdict or 'failed'}", "bad"), (text, "label")), width)
    if restart.outcome == "interrupted":
        return line(("‖ interrupted", "warn"))
    if restart.stuck is not None:
        after = f" after {duration(restart.failed_after_s)}"
        verdict, cause = (alert.verdict, f" · {alert.cause}") if alert is not None else ("failed", "")
        return crop(line((f"✗ {verdict}", "bad"), (after + cause, "label")), width)
    spent = now_s - restart.started_at_s
    expected = f" of about {duration(restart.expected_s)}" if restart.expected_s is not None else ""
    spans = line(("▶ starting", "run"), (f" {duration(spent)}{expected}", "label"))
    if alert is None and not troubled and restart.expected_s is not None and spent > 1.2 * restart.expected_s:
        spans = (*spans, Span(" · slower than usual, still making progress", "dim"))
    return crop(spans, width)


def _shown(view: PhaseView) -> bool:
    """False for phases that are but a moment: stopped, and ready, which the first line says."""
    return view.phase != "ready" and (view.phase != "stopped" or view.elapsed_s >= 1)


def _phase(view: PhaseView, now_s: float, restart: RestartView) -> Line:
    word = WORD.get(view.phase, view.phase)
    if view.state == "done":
        return line(("✓ ", "ok"), (word, "label"), (f" {duration(view.elapsed_s)}", "dim"))
    if view.state == "skipped":
        return line((f"– {word} skipped", "dim"))
    if view.state == "failed" or restart.outcome == "failed":
        return line((f"✗ {word} {duration(view.elapsed_s)}", "bad"))
    if restart.outcome != "running":
        return line(("✓ ", "ok"), (word, "label"))
    elapsed = view.elapsed_s + max(0.0, now_s - view.at_s)
    parts: list[tuple[str, str]] = [("▶ ", "run"), (word, "run")]
    parts.append((f" {view.pct:.0f} %" if view.pct is not None else f" {duration(elapsed)}", "value"))
    if view.eta_s is not None:
        parts.append((f" · ETA {duration(view.eta_s)}", "label"))
    parts.extend(_quiet(view))
    return line(*parts)


def _quiet(view: PhaseView) -> list[tuple[str, str]]:
    """How long nothing has moved, once that is worth a word."""
    quiet = view.quiet_s
    if quiet is None or quiet < QUIET_SHOWN_S:
        return []
    limit = f" of {duration(view.limit_s)}" if view.limit_s is not None else ""
    near = view.limit_s is not None and quiet > 0.7 * view.limit_s
    return [(f" · quiet {duration(quiet)}{limit}", "warn" if near else "dim")]


def _open_phases(restart: RestartView) -> list[Line]:
    if restart.outcome != "running" or restart.stuck is not None:
        return []
    seen = set(restart.phases)
    last = max((at for at, (name, _) in enumerate(PHASES) if name in seen), default=-1)
    return [line((f"· {word}", "dim")) for name, word in PHASES[last + 1 :] if name != "stopped"]


def _detail(restart: RestartView, width: int) -> Line:
    view = restart.phase
    if view is None or not view.detail or restart.outcome != "running":
        return ()
    return line(("  " + fit_text(view.detail, width - 2).rstrip(), "dim"))


def _gate_parts(restart: RestartView) -> list[Line]:
    out = [line(("gate", "label"))]
    for name in GATE:
        glyph, role, _ = _gate_state(restart, name)
        out.append(line((f"{glyph} ", role), (name, "label" if role == "ok" else role)))
    return out


def gate_lines(restart: RestartView, width: int) -> list[Line]:
    """The five parts of the gate, one a line, each with its time and evidence."""
    out: list[Line] = []
    for name in GATE:
        glyph, role, when = _gate_state(restart, name)
        seen = restart.gate.get(name)
        evidence = seen.evidence.text if seen is not None else ""
        spans = line((f"{glyph} {name:<10}", role), (f"{when:>6}  ", "dim"), (evidence, "label"))
        out.append(crop(spans, width))
    return out


def _gate_state(restart: RestartView, name: GatePartName) -> tuple[str, str, str]:
    seen = restart.gate.get(name)
    if seen is None:
        return "·", "dim", ""
    when = duration(seen.elapsed_s)
    if seen.ok is None:
        return "?", "warn", when
    if seen.ok:
        return "✓", "ok", when
    pending = restart.outcome == "running" and restart.stuck is None
    return ("◌", "dim", when) if pending else ("✗", "bad", when)


def stage_lines(stage: StageView, now_s: float, width: int) -> list[Line]:
    """Staging: what, how far, how fast, for how long."""
    progress = stage.progress
    if progress.state == "failed":
        return [
            crop(
                line(("✗ staging failed", "bad"), (f" · {progress.error or progress.target}", "label")), width
            )
        ]
    done, total = progress.bytes_done, progress.bytes_total
    share = done / total if done is not None and total else None
    filled, empty = bar(share, min(24, max(8, width // 4)))
    parts: list[tuple[str, str]] = [(f"▶ {progress.state} ", "run"), (filled, "bar"), (empty, "track")]
    if done is not None:
        parts.append((f" {size(done)}" + (f" of {size(total)}" if total else ""), "value"))
    if progress.rate_mib_s is not None:
        parts.append((f" · {progress.rate_mib_s:.0f} MiB/s", "label"))
    if progress.eta_s is not None:
        parts.append((f" · ETA {duration(progress.eta_s)}", "label"))
    age = now_s - stage.at_s
    if age > 15:
        parts.append((f" · no progress reported for {duration(age)}", "warn"))
    rows = [crop(line(*parts), width)]
    origin = f" ← {progress.source}" if progress.source else ""
    rows.append(crop(line((f"  {progress.target}{origin}", "dim")), width))
    return rows
