"""Faces of the moment while nothing is started or measured: what stands still, why, and what comes next. Pure."""

from __future__ import annotations

from ddtop.dashboard.draw.paint import Line, line, wrap_text
from ddtop.dashboard.draw.text import clock, day_time, duration
from ddtop.dashboard.panels.moment.starting import gate_line, phases_line
from ddtop.dashboard.panels.steps import under_way_line
from ddtop.events import StepsPlanned
from ddtop.journal.act.allocation import allocation_words
from ddtop.journal.act.seat import LIVE, Seat, nobody, startable
from ddtop.journal.fold.state import State
from ddtop.journal.read.eta import sweep_eta
from ddtop.journal.read.select import asking, questions, remaining, running_cell
from ddtop.words import many


def wrapped(label: str, text: str, width: int, most: int = 2, role: str = "text") -> list[Line]:
    """`label` and `text` beside it, wrapped below itself."""
    if not text:
        return []
    rows = wrap_text(text, max(10, width - len(label)), most)
    return [
        line((label if number == 0 else " " * len(label), "label"), (row, role))
        for number, row in enumerate(rows)
    ]


def coming_lines(state: State, now_s: float, width: int, most: int) -> list[Line]:
    """What is measured next, and when all of it is done."""
    left = remaining(state)
    if not left or most <= 0:
        return []
    eta = sweep_eta(state, now_s)
    rows: list[Line] = []
    if eta.high_s is not None or eta.total_s is not None:
        end_s = eta.ends_by(now_s) or now_s
        rows.append(
            line(
                ("left   ", "label"),
                (f"{many(len(left), 'cell')}, {many(eta.restarts, 'start')}", "value"),
                (f" · {eta.words} · done by {day_time(end_s, now_s)}", "text"),
            )
        )
    else:
        rows.append(
            line(
                ("left   ", "label"),
                (f"{many(len(left), 'cell')}, {many(eta.restarts, 'start')}", "value"),
                (" · time unknown: nothing like it was measured yet", "dim"),
            )
        )
    rows.append(line(("next   ", "label"), (left[0].spec.label, "value")))
    rows.extend(line("       ", (cell.spec.label, "dim")) for cell in left[1 : most - 1])
    return rows[:most]


def connecting_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """The connection on its way, and why the last try failed."""
    host = state.host
    if host.link == "idle" and not host.error:
        return [line(("◌ ", "run"), ("Waiting for the runner to connect.", "text"))]
    since = f" {duration(now_s - host.since_at_s)}" if host.since_at_s is not None else ""
    again = f" · try {host.attempt}" if host.attempt > 1 else ""
    target = f" to {host.target}" if host.target else ""
    now = state.allocation
    if now is not None and now.waits:
        return [
            line(("◌ waiting for Slurm", "run"), (since, "label")),
            *wrapped("", allocation_words(now.seen, now_s), width, 2),
            *coming_lines(state, now_s, width, max(0, min(4, height - 3))),
        ]
    rows = [line(("◌ connecting", "run"), (f"{target}{again}{since}", "label"))]
    rows += wrapped("✗ ", host.error or "", width, 3, "bad")
    rows += wrapped("means  ", host.means, width, 3)
    rows += wrapped("do     ", host.do, width, 3)
    if host.retry_in_s is not None and host.since_at_s is not None:
        left = max(0.0, host.since_at_s + host.retry_in_s - now_s)
        rows.append(line((f"next try in {duration(left)}", "dim")))
    return rows


def lost_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """The host that does not answer, what that costs, and what goes on without it."""
    host = state.host
    since = f" for {duration(now_s - host.since_at_s)}" if host.since_at_s is not None else ""
    again = f" · try {host.attempt}" if host.link == "connecting" and host.attempt > 1 else ""
    rows = [line(("✗ no connection", "bad"), (f" to {host.name}{since}{again}", "label"))]
    rows += wrapped("what   ", host.error or "", width)
    rows += wrapped("means  ", host.means, width)
    rows += wrapped("do     ", host.do, width)
    cell = running_cell(state)
    if cell is not None:
        rows += wrapped(
            "cell   ",
            f"{cell.spec.label} goes on there; its result is collected once the host is back",
            width,
        )
    return [*rows, *coming_lines(state, now_s, width, min(3, height - len(rows)))]


def waiting_lines(state: State, now_s: float, width: int, height: int, seat: Seat = LIVE) -> list[Line]:
    """What the sweep waits for: steps that ask or are being done, a host to be put right."""
    rows: list[Line] = []
    plan = state.proposed
    if plan is not None and asking(state, now_s):
        rows += _proposal(plan, width, keys=nobody(state, seat, "resume") is None)
    else:
        for step in state.steps.values():
            if step.state == "started":
                rows.append(
                    line(("▶ ", "run"), (step.title, "value"), (f" {duration(now_s - step.at_s)}", "dim"))
                )
                rows += wrapped("  ", step.reason, width, 2, "label")
        if plan is not None and not rows:
            rows.append(under_way_line(state, plan))
    for alert in questions(state):
        rows.append(
            line(("! ", "bad"), (alert.raised.title, "bad"), (f" {duration(now_s - alert.at_s)}", "dim"))
        )
        rows += wrapped("  ", alert.raised.cause_text, width, 3)
        rows += wrapped("  do  ", alert.raised.advice, width, 2, "label")
        if alert.decided is not None:
            rows += wrapped("  ✓ ", f"{alert.decided.what} · {alert.decided.by}", width, 2, "label")
    return [*rows, *coming_lines(state, now_s, width, max(0, min(4, height - len(rows))))]


def _proposal(plan: StepsPlanned, width: int, *, keys: bool) -> list[Line]:
    rows = [line(("? ", "warn"), (f"{many(len(plan.steps), 'step')} proposed", "value"))]
    rows += wrapped("  ", plan.why, width, 3, "label")
    for number, step in enumerate(plan.steps, 1):
        rows += wrapped(f"  {number} ", step.title, width, 1)
    return [*rows, line(("  r ", "key"), ("look at them, and do them", "text"))] if keys else rows


def paused_lines(state: State, now_s: float, width: int, height: int, seat: Seat = LIVE) -> list[Line]:
    """Who paused, and what comes when it goes on."""
    paused = state.paused
    if paused is None:
        return []
    since = duration(now_s - paused.at_s)
    rows = [line(("‖ paused", "warn"), (f" by {paused.by} · {since} ago", "label"))]
    if paused.reason:
        rows += wrapped("", paused.reason, width, 3)
    if nobody(state, seat, "go-on") is None:
        rows.append(line(("space ", "key"), ("goes on", "text")))
    return [*rows, *coming_lines(state, now_s, width, height - len(rows))]


def interrupted_lines(state: State, now_s: float, width: int, height: int, seat: Seat = LIVE) -> list[Line]:
    """A sweep whose runner is gone."""
    rows = [
        line(("‖ nothing is running this sweep", "warn"), (f" since {clock(state.at_s)}", "label")),
        *wrapped("", "Its runner ended without a last word. What is measured is kept.", width, 2),
    ]
    if startable(state, seat):
        rows.append(line(("r ", "key"), ("starts a runner, which goes on where it ended", "text")))
    cell = running_cell(state)
    if cell is not None:
        rows += wrapped("cell   ", f"{cell.spec.label} was being measured: it is measured again", width)
    return [*rows, *coming_lines(state, now_s, width, height - len(rows))]


def ready_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """A server that is ready while no cell runs."""
    restart = state.restart
    if restart is None:
        return []
    version = f" · {restart.engine} {restart.engine_version or ''}".rstrip() if restart.engine else ""
    idle = f" · idle {duration(now_s - restart.ended_at_s)}" if restart.ended_at_s is not None else ""
    rows: list[Line] = [
        line(
            ("✓ ready", "ok"), (f" · {restart.config} in {duration(restart.ready_s)}{version}{idle}", "label")
        ),
        gate_line(restart),
        *phases_line(restart, now_s, width),
    ]
    return [*rows, *coming_lines(state, now_s, width, height - len(rows))]


def next_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """Between two things: what ended last, and what comes."""
    rows: list[Line] = []
    restart = state.restart
    if restart is not None and restart.outcome == "failed":
        after = duration(restart.failed_after_s)
        rows.append(
            line(
                (f"✗ {restart.config} tp{restart.tp} {restart.verdict or 'failed'}", "bad"),
                (f" after {after} · {restart.cause or 'cause unknown'}", "label"),
            )
        )
    elif restart is not None and restart.outcome == "interrupted":
        rows.append(line((f"‖ the start of {restart.config} was interrupted", "warn")))
    elif restart is None:
        rows.append(line(("◌ ", "run"), ("Looking at the host before the first start.", "text")))
    return [*rows, *coming_lines(state, now_s, width, height - len(rows))]
