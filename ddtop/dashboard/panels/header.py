"""The top line: host, service, run, recording. What does not fit goes in order of its use."""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.dashboard.draw.paint import Line, Span, line, pad, width_of
from ddtop.dashboard.draw.text import clock, day_time, duration, size, unit_name
from ddtop.journal.act.allocation import short_words
from ddtop.journal.fold.state import State
from ddtop.journal.read.eta import Eta, sweep_eta
from ddtop.journal.read.select import counts
from ddtop.words import OUTCOMES

DROPS = (
    "rtt",
    "up",
    "name",
    "unit",
    "measured",
    "word",
    "finish",
    "allocation",
    "title",
    "skipped",
    "service",
    "bad",
    "eta",
)
"""What is left out where the line is too short, the first first."""

CLOSE = ("host", "unit", "", "bad")
SOON_S = 900.0
"""An allocation that ends so soon is a warning."""


@dataclass(frozen=True)
class Recording:
    """What the header says about the file behind the screen."""

    live: bool
    held: bool = True
    """True while a runner holds it, so that the run goes on and commands are heard."""
    size_b: int | None = None
    speed: float = 1.0
    """Of a replay; 0 where it stands still."""
    playing: bool = True
    position_s: float | None = None
    """Wall time that a replay has come to."""
    number: int | None = None
    """Which of several hosts this is, from 1; None where there is but one."""


def header_line(state: State, now_s: float, width: int, recording: Recording, eta: Eta | None = None) -> Line:
    """The header in exactly `width` cells. `eta`: where the caller has it already."""
    left, right = _left(state, now_s, recording, eta), _right(state, recording)
    gap = "   " if width >= 100 else "  "
    for drop in (None, *DROPS):
        left = [(tag, part) for tag, part in left if tag != drop]
        if width_of(_joined(left, gap)) + len(gap) + width_of(right) <= width:
            break
    return (*pad(_joined(left, gap), width - width_of(right) - 1), *right, Span(" "))


def _joined(parts: list[tuple[str, Line]], gap: str) -> Line:
    """Parts in one line: a part that begins with `·` or continues one (`up`, `state`) stands close to it."""
    out: list[Span] = [Span(" ")]
    for number, (tag, part) in enumerate(parts):
        if number and part:
            close = part[0].text.startswith("·") or (
                tag in ("up", "service", "measured", "word") and parts[number - 1][0] in CLOSE
            )
            out.append(Span(" " if close else gap, "dim"))
        out.extend(part)
    return tuple(out)


def _left(state: State, now_s: float, recording: Recording, eta: Eta | None) -> list[tuple[str, Line]]:
    parts: list[tuple[str, Line]] = [("title", line(("ddtop", "title")))]
    if state.run.simulated:
        parts.append(("", line(("SIMULATED", "warn"))))
    gone = recording.live and not recording.held and state.run.ended is None and bool(state.run.run_id)
    parts.append(("host", host_part(state, now_s, recording.number, gone=gone)))
    uptime = uptime_s(state, now_s)
    linked = state.host.link == "connected" and state.run.ended is None and not gone
    if linked and uptime is not None:
        parts.append(("up", line((duration(uptime), "dim"))))
    if linked and state.host.rtt_ms is not None:
        parts.append(("rtt", line((f"· rtt {state.host.rtt_ms:.0f} ms", "dim"))))
    if words := short_words(state, now_s):
        parts.append(("allocation", line((words, allocation_role(state, now_s)))))
    if linked:  # else the last reading is out of date
        name, how = service_part(state, now_s)
        parts.append(("unit", name))
        parts.append(("service", how))
    parts.extend(_run_parts(state, now_s, eta, going=not gone))
    return [(tag, part) for tag, part in parts if part]


def allocation_role(state: State, now_s: float) -> str:
    """The colour of what is said of a Slurm allocation: a warning once little is left of it, or while it waits."""
    now = state.allocation
    if now is None or now.ended:
        return "bad"
    left_s = now.seen.ends_at - now_s if now.seen.ends_at is not None else None
    return "warn" if now.waits or (left_s is not None and left_s < SOON_S) else "label"


def uptime_s(state: State, now_s: float) -> float | None:
    """Seconds since the host booted, carried on from the last probe."""
    said = state.probe.get("uptime_s")
    if not isinstance(said, int | float) or state.probe_at_s is None:
        return None
    return float(said) + max(0.0, now_s - state.probe_at_s)


def host_part(state: State, now_s: float, number: int | None = None, *, gone: bool = False) -> Line:
    """`ct200 ● up`, or what is wrong with the link and since when. `gone`: no runner is connected any more."""
    host = state.host
    name = (f"{number} " if number else "") + (host.name or "no host yet")
    since = duration(now_s - host.since_at_s) if host.since_at_s is not None else ""
    word = host.state
    if gone or (state.run.ended is not None and word in ("connected", "rebooted", "connecting")):
        state_part = ("○ not connected", "dim")
    elif word == "connected":
        state_part = ("● up", "ok")
    elif word == "rebooted":
        state_part = ("! rebooted", "warn")
    elif word == "lost":
        state_part = (f"✗ lost {since}".rstrip(), "bad")
    elif word == "connecting":
        again = f" try {host.attempt}" if host.attempt > 1 else ""
        queued = state.allocation is not None and state.allocation.waits
        state_part = ("◌ queued" if queued else f"◌ connecting{again}", "warn")
    else:
        state_part = ("○ not connected", "dim")
    return line((name, "value"), " ", state_part)


def service_part(state: State, now_s: float) -> tuple[Line, Line]:
    """(`sglang-bench`, `● ready 4m12s`): the unit of the present start, else the first unit known."""
    restart = state.restart
    unit = restart.unit if restart is not None else next(iter(state.services), "")
    if not unit or state.run.ended is not None:
        # After the end the host is not read any more, and the service was restored: the last reading is out of date.
        return (), ()
    name = line((unit_name(unit), "label"))
    status = state.services[unit].status if unit in state.services else None
    if restart is not None and restart.outcome == "running":
        if restart.stuck is not None:
            return name, line((f"✗ not started {duration(now_s - restart.started_at_s)}", "bad"))
        phase = restart.phase
        word = phase.phase if phase is not None else "restarting"
        return name, line((f"◌ {word} {duration(now_s - restart.started_at_s)}", "run"))
    if status is not None and status.active in ("failed", "inactive"):
        glyph, role = ("✗", "bad") if status.active == "failed" else ("○", "dim")
        return name, line((f"{glyph} {status.active}", role))
    if restart is not None and restart.outcome == "ready" and restart.ended_at_s is not None:
        return name, line((f"● ready {duration(now_s - restart.ended_at_s)}", "ok"))
    if restart is not None and restart.outcome == "failed":
        return name, line((f"✗ {restart.verdict or 'failed'}", "bad"))
    if status is not None and status.active:
        role = "ok" if status.active == "active" else "warn"
        return name, line((f"{'●' if status.active == 'active' else '◌'} {status.active}", role))
    return name, ()


def _run_parts(
    state: State, now_s: float, eta: Eta | None = None, *, going: bool = True
) -> list[tuple[str, Line]]:
    run = state.run
    ended = run.ended.outcome if run.ended is not None else None
    if run.mode == "monitor" and not state.plan_cells:
        words = "watching" if ended is None else OUTCOMES[ended]
        return [("", line((words, "dim" if ended in (None, "done") else "warn")))] if run.run_id else []
    tally = counts(state.plan_cells)
    parts: list[tuple[str, Line]] = []
    if run.name:
        parts.append(("name", line((run.name, "label"))))
    if tally.total:
        parts.append(("", line((f"{tally.done} of {tally.total}", "value"))))
        parts.append(("measured", line(("measured", "label"))))
    elif ended is None:
        parts.append(("", line(("no cells yet", "dim"))))
    if tally.skipped:
        parts.append(("skipped", line((f"· {tally.skipped} skipped", "dim"))))
    if tally.bad:
        number, _, word = tally.bad.partition(" ")
        parts.append(("bad", line((f"· ✗ {number}", "bad"))))
        parts.append(("word", line((word, "bad"))))
    if ended is not None:
        role = "ok" if ended == "done" else "warn"
        parts.append(("", line((f"· {OUTCOMES[ended]}", role))))
    elif not going:
        parts.append(("", line(("· ‖ interrupted", "warn"))))
    elif state.paused is not None:
        parts.append(("", line(("· ‖ PAUSED", "warn"))))
    elif tally.remaining:
        eta = eta if eta is not None else sweep_eta(state, now_s)
        parts.append(("eta", line((f"· ETA {eta.words.replace('time unknown', 'unknown')}", "dim"))))
        if (end_s := eta.ends_by(now_s)) is not None:
            parts.append(("finish", line((f"· by {day_time(end_s, now_s)}", "dim"))))
    return parts


def _right(state: State, recording: Recording) -> Line:
    if recording.live:
        if state.run.ended is not None:
            return line((f"○ recorded {size(recording.size_b)}", "dim"))
        if recording.size_b is None:
            return line(("◌ no recording yet", "dim"))
        if not recording.held:
            return line(("✗ no runner", "bad"), (f" {size(recording.size_b)}", "dim"))
        return line((f"● REC {size(recording.size_b)}", "bad"))
    speed = f"{recording.speed:g}×" if recording.playing else "‖ paused"
    return line(("REPLAY ", "accent"), (speed, "value"), (f" {clock(recording.position_s)}", "dim"))
