"""The alert bar: what is wrong, why, and the keys that help. It stays until the alert is resolved."""

from __future__ import annotations

import re

from ddtop.dashboard.draw.paint import Line, Span, crop, line, packed, pad, spread, width_of, wrap_text
from ddtop.dashboard.draw.text import duration
from ddtop.dashboard.panels.steps import under_way_line
from ddtop.events import Action, StepsPlanned
from ddtop.journal.act.actions import choices
from ddtop.journal.act.seat import LIVE, Seat, nobody
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView
from ddtop.journal.read.select import advised_alert, asking, key_of_action
from ddtop.words import many

CALM_VERDICTS = {"slow"}

ADVICE_FROM = 4
"""From so many lines on there is room for advice."""
SHORT_BELOW = 100
"""Below so many columns choices lose what they name before they take a second line."""

RETRIES = re.compile(r"\b(again|retry)\b")
"""Words of a policy's decision that mean a retry (`sweep/shared/policy.py`)."""


def alert_lines(
    state: State,
    now_s: float,
    width: int,
    most: int = 6,
    plan: StepsPlanned | None = None,
    chosen: AlertView | None = None,
    seat: Seat = LIVE,
) -> list[Line]:
    """At most `most` lines of the bar, none where all is well: an open alert, else steps that wait or are being done.

    `plan` holds the steps that were proposed last and are not all done yet; `chosen` the alert that a person turned to. Choices are
    shown as far as they can be carried out.
    """
    alert = chosen if chosen is not None and chosen.open else advised_alert(state)
    if alert is not None:
        return _alert(state, alert, now_s, width, most, plan, seat)
    if plan is not None:
        return _proposal(state, plan, now_s, width, seat)
    return []


def trouble_lines(error: str | None, width: int) -> list[Line]:
    """Why the recording cannot be followed: what is on the screen then is the last that was known."""
    if not error:
        return []
    return [pad(crop(line((" ✗ NOT FOLLOWED  ", "bad"), (error.splitlines()[0], "value")), width - 1), width)]


def _alert(
    state: State,
    alert: AlertView,
    now_s: float,
    width: int,
    most: int,
    plan: StepsPlanned | None,
    seat: Seat,
) -> list[Line]:
    """Title and cause, advice where there is room, then the choices, which are never cut."""
    raised = alert.raised
    calm = raised.verdict in CALM_VERDICTS
    glyph, role = ("~", "warn") if calm else ("!", "bad")
    title = f" {glyph} {raised.title}  "
    foot = _foot(state, alert, now_s, width, plan, seat)
    room = max(1, most - len(foot))
    cause = raised.cause_text or raised.cause
    # On a narrow screen the cause begins below its title, else it has no room beside it.
    beside = len(title) <= width // 3 or room == 1
    indent = len(title) if beside else 3
    # Where it is narrow the cause needs the lines; the advice then is one key away, in the alert itself.
    advised = width >= SHORT_BELOW and most >= ADVICE_FROM
    advice = " · ".join(words for words in (raised.advice, raised.seen_before) if words and advised)
    for_cause = room if beside else room - 1
    if advice and room >= 3:
        for_cause -= min(2, for_cause - 1)
    rows = wrap_text(cause, width - indent - 1, max(1, min(3, for_cause))) or [""]
    if beside:
        out = [line((title, role), (rows[0], "value"))]
        out.extend(line(" " * indent, (row, "value")) for row in rows[1:])
    else:
        out = [line((title, role)), *(line(" " * indent, (row, "value")) for row in rows)]
    if advice and room > len(out):
        said = wrap_text(advice, width - indent - 1, min(2, room - len(out)))
        out.extend(line(" " * indent, (row, "label")) for row in said)
    out = [tuple(span._replace(target="key:a") for span in row) for row in out]
    return [pad(row, width) for row in (*out, *foot)]


def _foot(
    state: State, alert: AlertView, now_s: float, width: int, plan: StepsPlanned | None, seat: Seat
) -> list[Line]:
    """The choices and, at their right or below them, what happens without one."""
    right = _countdown(state, alert, now_s, width, plan)
    rows = packed(choice_parts(alert, state, seat), width - 3, gap=3)
    if len(rows) > 1 and width < SHORT_BELOW:
        rows = packed(choice_parts(alert, state, seat, short=True), width - 3, gap=3)
    rows = [(Span("   "), *row) for row in rows]
    if width_of(rows[-1]) + width_of(right) + 2 <= width:
        return [*rows[:-1], spread(rows[-1], right, width)]
    return [*rows, spread((), crop(right, width), width)]


SHORT = {
    "retry": "retry",
    "resume": "resume",
    "restage": "re-stage",
    "skip": "skip",
    "mark-broken": "broken",
    "wait": "wait",
}
"""Labels of choices where there is no room for what they name."""


def choice_parts(alert: AlertView, state: State, seat: Seat = LIVE, *, short: bool = False) -> list[Line]:
    """The choices as pieces: the advised one first and marked, then `a` for the whole alert, `l` for its place in the log."""
    raised = alert.raised
    out: list[Line] = []
    offered = choices(state, alert, seat)
    for action in offered:
        key = key_of_action(action)
        label = SHORT.get(action.command, action.label) if short else action_words(action)
        mark = "▸ " if action is raised.actions[0] and len(offered) > 1 else ""
        out.append(_choice(key, label, mark))
    out.append(_choice("a", "why" if short else "evidence"))
    out.append(_choice("l", "log"))
    others = len(state.open_alerts) - 1
    if others > 0:
        out.append((Span(f"+{others} more", "warn", "key:a"),))
    return out


def _choice(key: str, label: str, mark: str = "") -> Line:
    return line(
        Span(mark, "ok", f"key:{key}"),
        Span(f"{key} ", "key", f"key:{key}"),
        Span(label, "text", f"key:{key}"),
    )


def action_words(action: Action) -> str:
    """The label of an action without the key that older recordings put before it."""
    return action.label.removeprefix(f"{action.key} ")


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


def _proposal(state: State, plan: StepsPlanned, now_s: float, width: int, seat: Seat) -> list[Line]:
    heard = nobody(state, seat, "resume") is None
    keys = line(("  r ", "key"), ("review ", "text")) if heard else ()
    if not asking(state, now_s):
        return [spread(line(" ", *under_way_line(state, plan)), keys, width)]
    head = line((" ? ", "warn"), (f"{many(len(plan.steps), 'step')} proposed", "value"))
    why = line(("  " + plan.why, "label"))
    left = duration(max(0.0, (plan.answer_by_s or now_s) - now_s))
    return [spread((*head, *why), (*keys, *line((f"  auto-decision in {left} ", "warn"))), width)]
