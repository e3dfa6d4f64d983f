"""The face of a failure: cause, the evidence inside its context from the log, advice, and what each choice does. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.dashboard.draw.paint import Line, crop, line, selected, width_of, wrap_text
from ddtop.dashboard.draw.text import clock, duration, unit_name
from ddtop.dashboard.panels.alert import action_words
from ddtop.dashboard.panels.moment.standing import wrapped
from ddtop.dashboard.panels.moment.starting import phases_line, timeline, usual_phases
from ddtop.events import Action
from ddtop.journal.act.actions import choices
from ddtop.journal.act.seat import LIVE, Seat
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView, TailLine
from ddtop.journal.read.select import key_of_action, remaining
from ddtop.words import CAUSE_KINDS, many

SMALL = 8
"""Below so many lines the cited line stands alone, with what it means and the advice."""
TALL = 34
"""From so many lines on there is room for the command and for each phase of the start."""


def failed_title(state: State, alert: AlertView | None) -> str:
    """`SERVER DIED · b16 fib@256 tp1 c8`, or the start that failed."""
    if alert is None:
        return "Failed"
    raised = alert.raised
    start = next((r for r in state.restarts if r.attempt_id == raised.attempt_id), None)
    if start is not None:
        place = f"{start.config} tp{start.tp}" if start.config else unit_name(start.unit)
    else:
        cell = next((state.cells[i] for i in raised.cell_ids if i in state.cells), None)
        place = cell.spec.label if cell is not None else unit_name(raised.unit or "")
    return f"{raised.title} · {place}".removesuffix(" · ")


def failed_lines(
    state: State, alert: AlertView | None, now_s: float, width: int, height: int, seat: Seat = LIVE
) -> list[Line]:
    """Cause, phases, evidence in its context, advice and choices; the evidence gets the room that is left."""
    if alert is None:
        return []
    raised = alert.raised
    start = next((r for r in state.restarts if r.attempt_id == raised.attempt_id), None)
    head: list[Line] = []
    after = f" after {duration(start.failed_after_s)}" if start is not None else ""
    head.append(
        line(
            (f"✗ {raised.verdict}{after}", "bad"),
            (f" · {raised.cause}", "label"),
            (f" · {CAUSE_KINDS[raised.kind]}" if CAUSE_KINDS[raised.kind] else "", "dim"),
        )
    )
    if height >= 10:
        head += wrapped("", raised.cause_text, width, 2, "value")
    phases: list[Line] = []
    if start is not None and height >= TALL:
        phases = [(), *timeline(start, usual_phases(state, start), now_s, width), ()]
        head += wrapped("command ", " ".join(start.argv), width, 3, "label")
    elif start is not None:
        phases = phases_line(start, now_s, width)
    foot: list[Line] = []
    if height < SMALL:  # the log stands right below: its lines are not told twice
        foot += wrapped("advice ", raised.advice, width, 2)
        if alert.decided is not None:
            foot += wrapped("done   ", f"{alert.decided.what} · {alert.decided.by}", width, 1)
        else:
            foot += wrapped("before ", raised.seen_before or "", width, 1)
        foot = foot[: max(0, height - len(head) - 1)]
        proof = evidence_lines(state, alert, width, 1)
        return [*head, *phases[: max(0, height - len(head) - len(proof) - len(foot))], *proof, *foot]
    if height >= 8:
        foot += wrapped("advice ", raised.advice, width, 2)
        foot += wrapped("before ", raised.seen_before or "", width, 2)
        if alert.decided is not None:
            foot += wrapped("done   ", f"{alert.decided.what} · {alert.decided.by}", width, 2)
    if height >= 12:
        foot += choice_lines(state, alert, width, seat)
    if height >= 6:
        head += phases[: 1 if height < 14 else 3 if height < TALL else len(phases)]
    room = height - len(head) - len(foot)
    if room < 2 and len(foot) > 2:
        foot = foot[: max(0, height - len(head) - 2)]
        room = height - len(head) - len(foot)
    proof = evidence_lines(state, alert, width, max(1, room))
    gap: list[Line] = [()] if len(proof) < room and foot else []
    return [*head, *proof, *gap, *foot]


def card_lines(
    state: State, alert: AlertView | None, now_s: float, width: int, seat: Seat = LIVE
) -> list[Line]:
    """Everything about an alert, nothing shortened: the alert's own screen."""
    if alert is None:
        return [line(("No alert is open. Earlier ones are in the history (H).", "dim"))]
    raised = alert.raised
    start = next((r for r in state.restarts if r.attempt_id == raised.attempt_id), None)
    rows = wrapped("", raised.cause_text or raised.cause, width, 20, "value")
    below_cause = len(rows)
    seen = (
        f" · {raised.fault_seen_s:.1f} s after the first sign on the host"
        if raised.fault_seen_s is not None
        else ""
    )
    means = f": {CAUSE_KINDS[raised.kind]}" if CAUSE_KINDS[raised.kind] else ""
    words = f"{raised.verdict} · {raised.cause}{means} · at {clock(alert.at_s)}{seen}"
    rows += wrapped("", words, width, 3, "dim")
    rows += [
        (),
        *wrapped("advice ", raised.advice, width, 10),
        *wrapped("before ", raised.seen_before or "", width, 4),
    ]
    if alert.decided is not None:
        rows += wrapped("done   ", f"{alert.decided.what} · {alert.decided.by}", width, 4)
    elif raised.answer_by_s is not None and raised.answer_by_s > now_s:
        rows += wrapped(
            "else   ",
            f"{raised.policy or 'the policy decides'} in {duration(raised.answer_by_s - now_s)}",
            width,
            3,
        )
    tail = state.logs.get(raised.unit or (start.unit if start is not None else ""))
    lines = list(tail.lines) if tail is not None else []
    cited = cited_lines(alert, lines)
    if cited:  # in sight before anything is scrolled; its context is below
        rows[below_cause:below_cause] = marked_lines(lines, cited[0], cited[0] + 1, cited, width, whole=True)
    rows += [(), *choice_lines(state, alert, width, seat, whole=True)]
    shown: set[int] = set()
    for at in cited:
        if at in shown:
            continue
        first, last = context_of(lines, at, 24, start.seq if start is not None else 0)
        shown.update(range(first, last))
        rows += [
            (),
            line(("log", "title"), (f" of {unit_name(tail.unit)}" if tail is not None else "", "dim")),
        ]
        rows += marked_lines(lines, first, last, cited, width, whole=True)
    others = [e for e in raised.evidence if e.source != "log" or not _found(e.text, e.cursor, lines)]
    if others:
        rows += [(), line(("evidence", "title"))]
        for evidence in others:
            rows += wrapped(f"{evidence.source} ", evidence.text, width, 12)
    cells = [state.cells[i] for i in raised.cell_ids if i in state.cells]
    rows.append(())
    if cells:
        more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
        rows += wrapped("cells  ", ", ".join(c.spec.label for c in cells[:3]) + more, width, 3)
    if start is not None:
        rows += [*timeline(start, usual_phases(state, start), now_s, width)]
        rows += wrapped("command ", " ".join(start.argv), width, 12, "label")
    return rows


def choice_lines(
    state: State, alert: AlertView, width: int, seat: Seat = LIVE, *, whole: bool = False
) -> list[Line]:
    """What can be done, the advised one first and marked, each with what it does; `whole`: wrapped, not cut. Where nobody
    would do it any more, what was offered."""
    out: list[Line] = []
    offered = choices(state, alert, seat)
    if not offered and alert.decided is None and alert.raised.actions:
        words = ", ".join(action_words(action) for action in alert.raised.actions)
        return wrapped("offered ", words, width, 3 if whole else 1, "dim")
    several = len(offered) > 1
    for action in offered:
        key = key_of_action(action)
        mark = "▸ " if action is alert.raised.actions[0] and several else "  " if several else ""
        head = line((mark, "ok"), (f"{key} ", "key"), (action_words(action), "value"), "  ")
        means = does(state, action)
        if whole and width_of(head) + len(means) > width:
            rows = [head, *(line("      ", (row, "dim")) for row in wrap_text(means, width - 6, 4))]
        else:
            rows = [crop((*head, *line((means, "dim"))), width)]
        out.extend(tuple(span._replace(target=f"key:{key}") for span in row) for row in rows)
    return out


def does(state: State, action: Action) -> str:
    """What an action does, in words."""
    config, cell_id = action.args.get("config"), action.args.get("cell_id")
    if config is not None:
        cells = [c for c in remaining(state) if c.spec.config == config]
        what = f"its {many(len(cells), 'open cell')}" if cells else "its open cells"
    else:
        what = "this cell"
    if action.command == "retry":
        return (
            "measures this cell again"
            if cell_id and config is None
            else "starts it again, with the same arguments"
        )
    if action.command == "skip":
        return f"leaves out {what} and goes on; u undoes it"
    if action.command == "mark-broken":
        return f"leaves out {what}, in later runs too, until the engine's version changes; b undoes it"
    return {
        "wait": "gives this phase its limit again",
        "restage": "copies missing or damaged files of the model, then goes on",
        "resume": "looks at the host, shows the steps, and goes on",
    }.get(action.command, "")


# --------------------------------------------------------------------------------------------- evidence


def evidence_lines(state: State, alert: AlertView, width: int, room: int) -> list[Line]:
    """The evidence: log lines inside their context, the cited ones marked; then readings from elsewhere."""
    if room <= 0:
        return []
    unit = alert.raised.unit or (state.restart.unit if state.restart is not None else "")
    tail = state.logs.get(unit)
    lines = list(tail.lines) if tail is not None else []
    cited = cited_lines(alert, lines)
    others = [e for e in alert.raised.evidence if e.source != "log" or not _found(e.text, e.cursor, lines)]
    rest: list[Line] = []
    for evidence in others[: max(1, room // 3)]:
        rest += wrapped(f"{evidence.source} ", evidence.text, width, 1 if room < 8 else 2)
    if not cited:
        return rest[:room]
    rest = rest[: max(0, room - 3)] if room >= 4 else []
    start = next((r for r in state.restarts if r.attempt_id == alert.raised.attempt_id), None)
    since = start.seq if start is not None else 0
    return [*context_lines(lines, cited, width, room - len(rest), since), *rest]


def _found(text: str, cursor: str | None, lines: Sequence[TailLine]) -> bool:
    return any(
        (cursor is not None and t.line.cursor == cursor) or t.line.text.strip() == text.strip() for t in lines
    )


def cited_lines(alert: AlertView, lines: Sequence[TailLine]) -> list[int]:
    """Places in `lines` of the log lines that the alert cites, the most telling first.

    By their cursor; where a log has none, by their text, the last of several.
    """
    out: list[int] = []
    by_cursor = {t.line.cursor: n for n, t in enumerate(lines) if t.line.cursor is not None}
    for evidence in alert.raised.evidence:
        if evidence.source != "log":
            continue
        at = by_cursor.get(evidence.cursor) if evidence.cursor is not None else None
        if at is None:
            wanted = evidence.text.strip()
            at = next(
                (n for n in range(len(lines) - 1, -1, -1) if lines[n].line.text.strip() == wanted), None
            )
        if at is not None and at not in out:
            out.append(at)
    return out


MOST_BEFORE, MOST_AFTER = 14, 6
"""Lines of context around the first cited line, at most."""


def context_lines(
    lines: Sequence[TailLine], cited: Sequence[int], width: int, room: int, since: int = 0
) -> list[Line]:
    """At most `room` lines of a log around the first cited one, of the same start; cited ones are marked."""
    if not cited or room <= 0:
        return []
    first, last = context_of(lines, cited[0], room, since)
    return marked_lines(lines, first, last, cited, width)


def context_of(lines: Sequence[TailLine], at: int, room: int, since: int = 0) -> tuple[int, int]:
    """(first, after the last) of at most `room` lines around `at`: two before for one after, none of an earlier start, by
    their invocation, else by `since`, the place in the recording where this one began."""
    start = lines[at].line.invocation
    before = after = 0
    while before + after + 1 < room:
        up = at - before - 1
        more_up = (
            before < MOST_BEFORE
            and up >= 0
            and lines[up].line.invocation in (start, None)
            and lines[up].seq >= since
        )
        more_down = after < MOST_AFTER and at + after + 1 < len(lines)
        if more_up and (before < 2 * (after + 1) or not more_down):
            before += 1
        elif more_down:
            after += 1
        else:
            break
    return at - before, at + after + 1


def marked_lines(
    lines: Sequence[TailLine], first: int, last: int, cited: Sequence[int], width: int, *, whole: bool = False
) -> list[Line]:
    """Lines of a log, the cited ones marked; `whole`: these are wrapped, not cut."""
    marked = set(cited)
    out: list[Line] = []
    for number in range(first, last):
        entry = lines[number].line
        stamp = f"{clock(entry.at_s)} " if entry.at_s is not None and width >= 60 else ""
        is_cited = number in marked
        head = line(("▸ " if is_cited else "  ", "bad"), (stamp, "dim"))
        ink = "value" if is_cited else "label"
        if not (is_cited and whole):
            row = crop((*head, *line((entry.text, ink))), width)
            out.append(selected(row) if is_cited else row)
            continue
        indent = width_of(head)
        for part, text in enumerate(wrap_text(entry.text, width - indent, 40)):
            out.append(selected((*(head if part == 0 else line(" " * indent)), *line((text, ink)))))
    return out
