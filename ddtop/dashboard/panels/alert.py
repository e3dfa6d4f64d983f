"""The alert bar: what is wrong, why, and the keys that help. It stays until the alert is resolved."""

from __future__ import annotations

import re

from ddtop.dashboard.draw.paint import Line, Span, crop, line, pad, spread, wrap_text
from ddtop.dashboard.draw.text import duration
from ddtop.dashboard.panels.steps import under_way_line
from ddtop.events import StepsPlanned
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView
from ddtop.journal.read.select import advised_alert, asking
from ddtop.words import many

CALM_VERDICTS = {"slow"}

RETRIES = re.compile(r"\b(again|retry)\b")
"""Words of a policy's decision that mean a retry (`sweep/shared/policy.py`)."""


def alert_lines(
    state: State, now_s: float, width: int, narrow: bool, plan: StepsPlanned | None = None
) -> list[Line]:
    """Lines of the bar, none where all is well: an open alert, else steps that wait or are being done.

    `plan` holds the steps that were proposed last and are not all done yet.
    """
    alert = advised_alert(state)
    if alert is not None:
        return _alert(state, alert, now_s, width, narrow, plan)
    if plan is not None:
        return _proposal(state, plan, now_s, width)
    return []


def trouble_lines(error: str | None, width: int) -> list[Line]:
    """Why the recording cannot be followed: what is on the screen then is the last that was known."""
    if not error:
        return []
    return [pad(crop(line((" ✗ NOT FOLLOWED  ", "bad"), (error.splitlines()[0], "value")), width - 1), width)]


def _alert(
    state: State, alert: AlertView, now_s: float, width: int, narrow: bool, plan: StepsPlanned | None
) -> list[Line]:
    raised = alert.raised
    calm = raised.verdict in CALM_VERDICTS
    glyph = "~" if calm else "!"
    role = "warn" if calm else "bad"
    title = f" {glyph} {raised.title}  "
    cause = raised.cause_text or raised.cause
    kind = f" ({raised.kind})" if raised.kind != "unknown" and f"({raised.kind})" not in cause else ""
    rows = wrap_text(f"{cause}{kind}", width - len(title) - 1, 2) or [""]
    out = [pad(line((title, role), (rows[0], "value")), width)]
    out.extend(pad(line(" " * len(title), (row, "value")), width) for row in rows[1:])
    advice = " · ".join(words for words in (raised.advice, raised.seen_before) if words)
    if not narrow and advice:
        indent = " " * len(title)
        out.extend(
            pad(line(indent, (row, "label")), width) for row in wrap_text(advice, width - len(title) - 1, 2)
        )
    out.append(spread(keys_line(alert, state), _countdown(state, alert, now_s, width, plan), width))
    return out


def keys_line(alert: AlertView, state: State) -> Line:
    """The keys of the alert's actions, the advised one first, and `l` for its log."""
    spans: list[Span] = [Span("   ")]
    used: set[str] = set()
    for number, action in enumerate(alert.raised.actions):
        key = "r" if number == 0 else action.key
        if key in used:
            continue
        used.add(key)
        label = action.label.removeprefix(f"{key} ")
        spans.extend((Span(f"{key} ", "key", f"key:{key}"), Span(f"{label}   ", "text", f"key:{key}")))
    if "l" not in used:
        spans.extend((Span("l ", "key", "key:l"), Span("log", "text", "key:l")))
    more = len(state.open_alerts) - 1
    if more > 0:
        spans.append(Span(f"   +{more} more", "warn"))
    return tuple(spans)


def _countdown(state: State, alert: AlertView, now_s: float, width: int, plan: StepsPlanned | None) -> Line:
    """What stands at the right: steps under way, else the time until the policy acts, else the alert's age."""
    answer_by = alert.raised.answer_by_s
    if plan is not None:
        if not asking(state, now_s):
            return (*crop(under_way_line(state, plan), max(20, width // 2)), Span(" "))
        answer_by = plan.answer_by_s
    if alert.decided is not None:
        age = duration(now_s - alert.decided.at_s)
        words = f"{alert.decided.what} · {alert.decided.by}"
        return (*crop(line((words, "label")), max(20, width // 2)), *line((f" · {age} ago ", "dim")))
    if answer_by is None or answer_by <= now_s:
        return line((f"{duration(now_s - alert.at_s)} ago ", "dim"))
    what = alert.raised.policy
    left = duration(answer_by - now_s)
    if width >= 100 and what:
        return line((f"auto: {what} in {left} ", "warn"))
    return line((f"{'auto-retry' if RETRIES.search(what or '') else 'auto-decision'} in {left} ", "warn"))


def _proposal(state: State, plan: StepsPlanned, now_s: float, width: int) -> list[Line]:
    keys = line(("  r ", "key"), ("review ", "text"))
    if not asking(state, now_s):
        return [spread(line(" ", *under_way_line(state, plan)), keys, width)]
    head = line((" ? ", "warn"), (f"{many(len(plan.steps), 'step')} proposed", "value"))
    why = line(("  " + plan.why, "label"))
    left = duration(max(0.0, (plan.answer_by_s or now_s) - now_s))
    return [spread((*head, *why), (*keys, *line((f"  auto-decision in {left} ", "warn"))), width)]
