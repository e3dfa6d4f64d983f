"""The alert bar: what is wrong, why, and the keys that help. It stays until the alert is resolved."""

from __future__ import annotations

from ddtop.dashboard.paint import Line, Span, crop, line, pad, spread, wrap_text
from ddtop.dashboard.text import duration
from ddtop.journal.select import advised_alert
from ddtop.journal.state import State
from ddtop.journal.views import AlertView

CALM_VERDICTS = {"slow"}


def alert_lines(state: State, now_s: float, width: int, narrow: bool) -> list[Line]:
    """Lines of the bar, none where all is well: an open alert, else proposed steps that wait."""
    alert = advised_alert(state)
    if alert is not None:
        return _alert(state, alert, now_s, width, narrow)
    if state.proposed is not None:
        return _proposal(state, now_s, width)
    return []


def trouble_lines(error: str | None, width: int) -> list[Line]:
    """Why the recording cannot be followed: what is on the screen then is the last that was known."""
    if not error:
        return []
    return [pad(crop(line((" ✗ NOT FOLLOWED  ", "bad"), (error.splitlines()[0], "value")), width - 1), width)]


def _alert(state: State, alert: AlertView, now_s: float, width: int, narrow: bool) -> list[Line]:
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
    advice = raised.seen_before or raised.advice
    if not narrow and advice:
        out.append(pad(crop(line(" " * len(title), (advice, "label")), width - 1), width))
    out.append(spread(keys_line(alert, state), _countdown(state, alert, now_s, width), width))
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


def _countdown(state: State, alert: AlertView, now_s: float, width: int) -> Line:
    answer_by = alert.raised.answer_by_s
    if state.proposed is not None and state.proposed.answer_by_s is not None:
        answer_by = state.proposed.answer_by_s
    since = line((f"{duration(now_s - alert.at_s)} ago ", "dim"))
    if answer_by is None:
        return since
    left = max(0.0, answer_by - now_s)
    what = alert.raised.policy or "the plan's policy decides"
    text = f"{what} in {duration(left)} " if width >= 100 else f"policy in {duration(left)} "
    return line((text, "warn"))


def _proposal(state: State, now_s: float, width: int) -> list[Line]:
    proposed = state.proposed
    if proposed is None:
        return []
    number = len(proposed.steps)
    head = line((" ? ", "warn"), (f"{number} step{'s' if number != 1 else ''} proposed", "value"))
    why = line(("  " + proposed.why, "label"))
    tail = line(("  r ", "key"), ("look", "text"))
    if proposed.answer_by_s is not None:
        tail = (*tail, Span(f"   policy in {duration(max(0.0, proposed.answer_by_s - now_s))} ", "warn"))
    return [spread((*head, *why), tail, width)]
