"""The run as one line: what was at work when, where it stands, and what is expected. Pure.

Each stretch has a glyph of its own, so that the line reads without colour; what went wrong wins a column over what went well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ddtop.dashboard.draw.paint import Line, Span, fit_text, line
from ddtop.dashboard.draw.text import clock, duration
from ddtop.journal.fold.state import State
from ddtop.journal.fold.track import Lane, Stretch, Track
from ddtop.journal.scale import Scale, clock_marks, scale
from ddtop.words import many

FILL: dict[tuple[Lane, str], tuple[str, str]] = {
    ("cell", "done"): ("█", "ok"),
    ("cell", "suspect"): ("█", "warn"),
    ("cell", "failed"): ("▚", "warn"),
    ("cell", "broken"): ("▚", "bad"),
    ("cell", "interrupted"): ("▒", "warn"),
    ("cell", "running"): ("▓", "run"),
    ("start", "ready"): ("░", "label"),
    ("start", "running"): ("░", "run"),
    ("start", "failed"): ("░", "bad"),
    ("start", "interrupted"): ("░", "warn"),
    ("stage", "done"): ("≡", "label"),
    ("stage", "running"): ("≡", "run"),
    ("stage", "failed"): ("≡", "bad"),
    ("stage", "interrupted"): ("≡", "warn"),
    ("lost", ""): ("~", "warn"),
    ("paused", ""): ("=", "warn"),
    ("alert", "open"): ("┄", "bad"),
    ("alert", "done"): ("┄", "warn"),
    ("absent", ""): ("⋯", "dim"),
}
"""What a column shows that is filled by a stretch."""

MARK: dict[tuple[Lane, str], tuple[int, str, str]] = {
    ("alert", "open"): (6, "!", "bad"),
    ("alert", "done"): (5, "!", "warn"),
    ("reboot", ""): (4, "↻", "warn"),
    ("cell", "broken"): (3, "✗", "bad"),
    ("cell", "failed"): (3, "✗", "warn"),
    ("start", "failed"): (3, "✗", "bad"),
    ("stage", "failed"): (3, "✗", "bad"),
    ("cell", "interrupted"): (2, "‖", "warn"),
    ("cell", "suspect"): (1, "?", "warn"),
}
"""(rank, glyph, role) of what must be seen however short it was: the higher rank has the column."""

UNDER: tuple[Lane, ...] = ("absent", "alert", "paused", "stage", "start", "cell", "lost")
"""The lanes as they cover each other, the lowest first: an open alert shows where nothing else was at work."""

LEAST = 20
"""Columns below which there is no line."""


@dataclass(frozen=True)
class Expected:
    """A stretch of the rest of the plan: how long, and whether it is a start."""

    seconds: float
    start: bool


@dataclass(frozen=True)
class Run:
    """What a strip shows."""

    track: Track
    now_s: float
    end_s: float
    """Right end: of the recording in a replay, else the expected end, or now."""
    replay: bool = False
    alerts: tuple[int, int] = (0, 0)
    """(raised by now, of all)."""
    ahead: tuple[Expected, ...] = ()
    """The rest of the plan, where it can be estimated."""
    finish_s: float | None = None
    """When the run ends at the latest, while nothing goes wrong; None where that is not known, or it has ended."""


@dataclass(frozen=True)
class Strip:
    """The drawn lines, and what is where in them."""

    lines: tuple[Line, ...]
    scale: Scale | None = None
    left: int = 0
    """Column of the panel in which the line begins."""


def expected(state: State, cell_s: float | None, start_s: float | None, starts: int) -> tuple[Expected, ...]:
    """The rest of the plan in its order, from what an ETA says of all its cells and starts together (seconds)."""
    left = [c for c in state.plan_cells if c.state in ("planned", "running", "interrupted")]
    if cell_s is None or start_s is None or not left:
        return ()
    out: list[Expected] = []
    groups = [(key, len(list(some))) for key, some in groupby(left, lambda c: c.spec.restart_key)]
    starts = min(starts, len(groups))
    begun = len(groups) - starts
    for number, (_key, cells) in enumerate(groups):
        if number >= begun and starts:
            out.append(Expected(start_s / starts, True))
        out.append(Expected(cells * cell_s / len(left), False))
    return tuple(out)


def strip(run: Run, width: int, height: int) -> Strip:
    """The line in `width` columns; with clock times below where there are two lines."""
    track = run.track
    if track.begin_s is None or width < LEAST or height < 1:
        return Strip(())
    tall = height >= 2
    said = words(run)
    before = "" if tall else f" {clock(track.begin_s)[:5]} "
    after = "" if tall else f" {said} "
    if width - len(before) - len(after) < max(LEAST, width // 3):
        before, after = "", after if width - len(after) >= LEAST else ""
    inner = width - len(before) - len(after) - (2 if tall else 0)
    left = len(before) + (1 if tall else 0)
    absent = [(s.begin_s, s.end_s) for s in track.lanes["absent"] if s.end_s is not None]
    where = scale(track.begin_s, max(run.end_s, run.now_s), inner, absent)
    cells = _columns(run, where)
    spans = [Span("".join(g for g, _ in some), role) for role, some in _runs(cells)]
    first = line((before or (" " if tall else ""), "dim"), *spans, (after, "label"))
    if not tall:
        return Strip((first,), where, left)
    return Strip((first, _below(run, where, said, width)), where, left)


def _runs(cells: Sequence[tuple[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(role, list(some)) for role, some in groupby(cells, lambda cell: cell[1])]


def _columns(run: Run, where: Scale) -> list[tuple[str, str]]:
    """(glyph, role) of every column."""
    now = where.column(run.now_s)
    cells = [(" ", "text")] * where.width
    if not run.replay:
        _expect(cells, run, where, now)
    for lane in UNDER:
        _fill(cells, run, where, lane)
    _marks(cells, run, where)
    if run.replay:
        cells = [(glyph, role if column <= now else "dim") for column, (glyph, role) in enumerate(cells)]
        glyph = cells[now][0]
        cells[now] = (glyph if glyph in "!↻✗" else "┃", "key+sel")
    elif run.track.ended is False and run.now_s <= where.end_s:
        glyph, role = cells[now]
        cells[now] = ("▶", "run") if glyph in "░▓≡ ·:█" else (glyph, role)
    return cells


def _fill(cells: list[tuple[str, str]], run: Run, where: Scale, lane: Lane) -> None:
    covered: dict[int, float] = {}
    for stretch in run.track.lanes[lane]:
        ink = FILL.get((lane, stretch.state))
        if ink is None:
            continue
        first, last = (
            where.place(stretch.begin_s) * where.width,
            where.place(_end(stretch, run)) * where.width,
        )
        begin, end = where.column(stretch.begin_s), where.column(_end(stretch, run))
        if lane == "alert" and end == begin:
            continue
        for column in range(begin, end + 1):
            share = min(last, column + 1) - max(first, column)
            # Of several short stretches the longest has the column; a lane above needs a part of it that shows.
            if share > covered.get(column, 0.0) and (share > 0.3 or cells[column][0] in " ·:┄⋯"):
                covered[column] = share
                cells[column] = ink
        if lane == "cell" and stretch.state in ("done", "suspect") and end - begin >= 2 and last - end > 0.2:
            cells[end] = ("▉", ink[1])  # a gap between two cells where they are wide


def _end(stretch: Stretch, run: Run) -> float:
    return (
        stretch.end_s
        if stretch.end_s is not None
        else max(stretch.begin_s, run.now_s, run.track.end_s if run.replay else 0.0)
    )


def _marks(cells: list[tuple[str, str]], run: Run, where: Scale) -> None:
    ranks: dict[int, int] = {}
    for lane in ("cell", "stage", "start", "reboot", "alert"):
        for stretch in run.track.lanes[lane]:
            mark = MARK.get((lane, stretch.state))
            if mark is None:
                continue
            rank, glyph, role = mark
            late = lane in ("cell", "stage", "start") and stretch.state in ("failed", "broken")
            column = where.column(_end(stretch, run) if late else stretch.begin_s)
            if rank > ranks.get(column, 0):
                ranks[column] = rank
                cells[column] = (glyph, role)


def _expect(cells: list[tuple[str, str]], run: Run, where: Scale, now: int) -> None:
    at = run.now_s
    for part in run.ahead:
        begin, end = where.column(at), where.column(at + part.seconds)
        for column in range(max(now + 1, begin), end + 1):
            cells[column] = (":", "dim") if part.start else ("·", "dim")
        at += part.seconds


def words(run: Run) -> str:
    """What stands beside the line: `alert 3 of 13`, `ends by 16:40`."""
    passed, total = run.alerts
    if run.replay:
        if not total:
            return "no alerts"
        said = f"alert {passed} of {total}" if passed else many(total, "alert")
        # As wide as it will ever be: the line must not move under the hand.
        return said.rjust(len(f"alert {total} of {total}"))
    raised = many(total, "alert") if total else ""
    if run.track.ended:
        end = f"ended {clock(run.track.end_s)[:5]}"
    elif run.finish_s is not None:
        end = f"ends by {clock(run.finish_s)[:5]}"
    else:
        end = ""  # the header says that it is not known
    return " · ".join(part for part in (raised, end) if part)


def _below(run: Run, where: Scale, said: str, width: int) -> Line:
    """The clock line: marks from the left, the words at the right."""
    said = fit_text(said, width - 3).rstrip()
    room = width - len(said) - 3
    text = ""
    marks = clock_marks(where)
    begin = clock(where.begin_s)
    first = begin if any(len(word) > 6 for _, word in marks) else begin[:5]
    for column, word in [(0, first), *marks]:
        if column + 1 < len(text) + (2 if text else 0) or column + 1 + len(word) > room:
            continue
        text = text.ljust(column + 1) + word
    return line((fit_text(text, max(0, room)), "dim"), ("  ", "dim"), (said, "label"), " ")


# -------------------------------------------------------------------------------------------- what is where


def target_at(run: Run, where: Scale, column: int) -> float:
    """The wall time that a click on a column means: that of the alert or reboot drawn there, else the column's own."""
    marked = [
        stretch.begin_s
        for lane in ("alert", "reboot")
        for stretch in run.track.lanes[lane]
        if where.column(stretch.begin_s) == column
    ]
    return min(marked) if marked else where.time(column)


def found_at(run: Run, where: Scale, column: int) -> list[tuple[Lane, Stretch]]:
    """What the column stands for: alerts and reboots first, then what was at work."""
    out: list[tuple[Lane, Stretch]] = []
    for lane in ("alert", "reboot", "cell", "start", "stage", "lost", "paused", "absent"):
        for stretch in run.track.lanes[lane]:
            begin, end = where.column(stretch.begin_s), where.column(_end(stretch, run))
            moment = lane in ("alert", "reboot")
            if begin == column if moment else begin <= column <= end:
                out.append((lane, stretch))
    return out


def cell_at_column(run: Run, drawn: Strip, column: int) -> str | None:
    """Id of the cell in a column of the line; None where there is none."""
    found = found_at(run, drawn.scale, column) if drawn.scale is not None else []
    return next((s.what for lane, s in found if lane == "cell" and s.what), None)


def words_at(run: Run, state: State, drawn: Strip, column: int, most: int = 4) -> str:
    """What is in a column, for a tooltip: its time, then one line for each thing."""
    where = drawn.scale
    if where is None:
        return ""
    found = found_at(run, where, column)
    rows = [_said(lane, stretch, state, run) for lane, stretch in found[:most]]
    more = [f"and {len(found) - most} more"] if len(found) > most else []
    ahead = where.column(run.now_s) < column and not found
    nothing = ["expected rest of the plan" if ahead and run.ahead else "nothing at work"] if not rows else []
    return "\n".join([clock(target_at(run, where, column)), *rows, *more, *nothing])


def _said(lane: Lane, stretch: Stretch, state: State, run: Run) -> str:
    lasted = duration(_end(stretch, run) - stretch.begin_s)
    name = stretch.what or f"{stretch.count} of them"
    if lane == "cell":
        cell = state.cells.get(stretch.what)
        return f"{cell.spec.label if cell is not None else name}: {stretch.state} {lasted}"
    if lane == "start":
        return f"start of {name}: {stretch.state} {lasted}"
    if lane == "alert":
        alert = state.alerts.get(stretch.what)
        return f"{alert.raised.title if alert is not None else 'alert'}: {'open' if stretch.state == 'open' else f'resolved after {lasted}'}"
    named = {
        "reboot": "host rebooted",
        "lost": "host lost",
        "paused": "paused",
        "absent": "no runner",
        "stage": "staging",
    }
    return named[lane] if lane == "reboot" else f"{named[lane]} {lasted}"
