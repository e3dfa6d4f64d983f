"""What changed in a run, in words: for the dashboard when somebody comes back, and for a terminal. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from ddtop.journal.act.changes import Changes, cells_as_of, changes, names
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView
from ddtop.journal.read.eta import Eta, sweep_eta
from ddtop.journal.results.field import Best
from ddtop.journal.results.matrix import bests
from ddtop.report.conclusion.best import best_text
from ddtop.report.text import number
from ddtop.words import duration, many

MOST = 6
"""Cells, alerts and loads that are named; the rest is counted."""


class Row(NamedTuple):
    """One line. `role` is what it means: good, bad, warn, text, detail (indented)."""

    role: str
    text: str


def change_rows(state: State, since_s: float, now_s: float, *, live: bool) -> list[Row]:
    """All that is worth a word of the time after `since_s`; the first line says what time that is."""
    found = changes(state, since_s, now_s)
    rows = [Row("text", f"Since {moment(since_s, now_s)}, {duration(now_s - since_s)} ago")]
    if not found.any:
        rows.append(Row("text", "Nothing happened."))
    rows += _cells(found)
    rows += _alerts(found, now_s)
    rows += _host(found, now_s)
    rows += _best(state, found)
    rows.append(_finish(state, now_s, live))
    return rows


def moment(at_s: float, now_s: float) -> str:
    """A time of day; with its date where that is another day."""
    there, here = time.localtime(at_s), time.localtime(now_s)
    return time.strftime("%H:%M" if there[:3] == here[:3] else "%Y-%m-%d %H:%M", there)


def _cells(found: Changes) -> Iterator[Row]:
    done = found.cells["done"]
    now = found.now
    if now.total:
        yield Row(
            "good" if done else "text", f"✓ {many(len(done), 'cell')} done: {now.done} of {now.total} now"
        )
    for word, glyph in (("SUSPECT", "?"), ("INVALID", "✗")):
        doubted = [c for c in done if c.validity == word]
        if doubted:
            yield Row("warn", f"{glyph} {len(doubted)} of them {word}: {', '.join(names(doubted, MOST))}")
    for state, glyph, role in (
        ("failed", "✗", "warn"),
        ("broken", "✗", "bad"),
        ("interrupted", "‖", "warn"),
        ("skipped", "–", "text"),
    ):
        cells = found.cells[state]  # type: ignore[index]
        if cells:
            by = sorted({c.by for c in cells} - {"sweep", "plan"})
            who = f" by {', '.join(by)}" if by else ""
            yield Row(
                role, f"{glyph} {many(len(cells), 'cell')} {state}{who}: {', '.join(names(cells, MOST))}"
            )
            for reason in list(dict.fromkeys(c.reason for c in cells if c.reason))[:3]:
                yield Row("detail", reason)
    if found.ready or found.failed:
        failed = f", {len(found.failed)} failed" if found.failed else ""
        yield Row("text", f"  {many(len(found.ready), 'start')} became ready{failed}")


def _alerts(found: Changes, now_s: float) -> Iterator[Row]:
    raised = found.raised
    if raised:
        waits = sum(a.open for a in raised)
        state = "all answered" if not waits else f"{waits} open" if waits < len(raised) else "none answered"
        yield Row("bad" if waits else "warn", f"! {many(len(raised), 'alert')} raised, {state}")
    shown = [*raised, *found.answered]
    shown.sort(key=lambda a: (not a.open, a.at_s))
    for alert in shown[:MOST]:
        yield Row("detail", f"{moment(alert.at_s, now_s)} {alert.raised.title} {alert.raised.cause_text}")
        yield Row("detail", f"      {_answer(alert, now_s)}")
    if len(shown) > MOST:
        yield Row("detail", f"and {len(shown) - MOST} more")


def _answer(alert: AlertView, now_s: float) -> str:
    if alert.resolved is not None:
        after = duration(alert.resolved.at_s - alert.at_s)
        decided = f"{alert.decided.what} ({alert.decided.by}); " if alert.decided is not None else ""
        return f"→ {decided}resolved after {after} by {alert.resolved.by}: {alert.resolved.how}"
    if alert.decided is not None:
        return f"→ decided by {alert.decided.by}: {alert.decided.what}; not resolved yet"
    return f"→ open for {duration(now_s - alert.at_s)}"


def _host(found: Changes, now_s: float) -> Iterator[Row]:
    if found.reboots:
        yield Row("warn", f"↻ the host was rebooted {_often(found.reboots)}")
    for what, lasted in (
        ("the host was lost", found.lost),
        ("no runner was there", found.absent),
        ("it was paused", found.paused),
    ):
        if lasted.times:
            yield Row("warn", f"~ {what} {_often(lasted.times)}, {duration(lasted.seconds)} in all")


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _best(state: State, found: Changes) -> Iterator[Row]:
    """The best of each load that has a new one, or a new figure."""
    now = bests(state)
    if not now:
        return
    before = {(b.place, b.load): b for b in bests(cells_as_of(state, found.since_s))}
    new = [one for one in now if _told(one) != _told(before.get((one.place, one.load)))]
    if new:
        of = f" ({len(new)} of {many(len(now), 'load')} changed)" if len(new) < len(now) else ""
        yield Row("good", f"★ Best so far{of}")
    places = [one.place for one in now]
    for one in new[:MOST]:
        old = before.get((one.place, one.load))
        was = f" (was {old.config})" if old is not None and old.config != one.config else ""
        yield Row("detail", best_text(one, places, state.run.baseline) + was)
    if len(new) > MOST:
        yield Row("detail", f"and {many(len(new) - MOST, 'load')} more: ddtop report")


def _told(one: Best | None) -> tuple[str, str] | None:
    return None if one is None else (one.config, number(one.field.value or 0.0))


def _finish(state: State, now_s: float, live: bool) -> Row:
    ended = state.run.ended
    if ended is not None:
        reason = f": {ended.reason}" if ended.reason else ""
        return Row("text", f"  It ended at {moment(ended.at_s, now_s)}, {ended.outcome}{reason}")
    if not live:
        return Row("bad", "✗ Its runner is gone: nothing goes on")
    eta: Eta = sweep_eta(state, now_s)
    if not eta.cells:
        return Row("text", "  No cell is left to measure")
    by_s = eta.ends_by(now_s)
    if by_s is None:
        why = "nothing alike was measured yet"
        return Row("text", f"  When it ends is unknown: {many(eta.cells, 'cell')} left, and {why}")
    return Row("text", f"  It ends in {eta.words}, by {moment(by_s, now_s)}")


def change_text(state: State, since_s: float, now_s: float, *, live: bool) -> str:
    """The same as plain text."""
    return "\n".join(
        ("      " if row.role == "detail" else "") + row.text
        for row in change_rows(state, since_s, now_s, live=live)
    )
