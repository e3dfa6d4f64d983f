"""The run's timeline as SVG: server starts, cells by state, alerts, cuts and reboots, and the GPUs' power under them. Pure.

Every mark says what it is where the pointer rests on it. State is a glyph or a pattern too, never a colour alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from ddtop.errors import plain
from ddtop.journal.fold.state import State
from ddtop.journal.fold.track import Lane, Stretch
from ddtop.journal.scale import STEPS_S, Scale, scale
from ddtop.report.page.trace import Trace, Watts
from ddtop.report.text import number
from ddtop.words import duration, many

WIDTH, LEFT, RIGHT = 1160, 96, 8
ROWS: dict[str, tuple[int, int]] = {
    "starts": (26, 16),
    "cells": (48, 22),
    "events": (76, 16),
    "power": (102, 96),
}
"""Top and height of each row."""
BOTTOM = 206
CHAR = 6.2
"""Width of a character of the labels: there is no font to ask."""
HITS = 240
"""Places at which the pointer reads the power."""
GLYPHS = {"failed": "✗", "broken": "✗", "suspect": "?", "interrupted": "‖", "running": "▶"}


def timeline(state: State, trace: Trace) -> Markup:
    """The drawing; empty for a run of no length."""
    track = state.track
    if track.begin_s is None:
        return Markup("")
    end = max(track.end_s, *(w.end_s for w in trace.power[-1:]), track.begin_s + 1.0)
    absent = [(s.begin_s, s.end_s or end) for s in track.lanes["absent"]]
    axis = scale(track.begin_s, end, WIDTH - LEFT - RIGHT, absent)
    title = f"Timeline of {many(len(track.lanes['start']), 'start')} and {many(len(track.lanes['cell']), 'try')} at cells"
    parts = [
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {BOTTOM}" role="img" aria-label="{_safe(title)}" font-size="11">',
        *_frame(axis),
        *_absent(axis, track.lanes["absent"], end),
        *_stretches(axis, track.lanes["start"], "starts", end, state),
        *_stretches(axis, track.lanes["cell"], "cells", end, state),
        *_events(axis, state, end),
        *_power(axis, trace),
        "</svg>",
    ]
    return Markup("".join(parts))


def _x(axis: Scale, at_s: float) -> float:
    return LEFT + axis.place(at_s) * axis.width


def _frame(axis: Scale) -> Iterable[str]:
    for name, (top, height) in ROWS.items():
        label = {"events": "alerts, link", "power": "GPU power"}.get(name, name)
        yield f'<text x="{LEFT - 8}" y="{top + min(height, 24) / 2 + 4:.0f}" text-anchor="end">{label}</text>'
        yield f'<rect class="lane" x="{LEFT}" y="{top}" width="{axis.width}" height="{height}"/>'
    for x, word in _marks(axis):
        yield f'<path class="g" d="M{x:.1f} 18V{BOTTOM - 8}"/><text x="{x + 3:.1f}" y="14">{word}</text>'
    yield f'<text x="{LEFT - 8}" y="14" text-anchor="end">UTC</text>'


def _marks(axis: Scale) -> list[tuple[float, str]]:
    """(place, clock time) of round times, the day where it changes."""
    length = axis.end_s - axis.begin_s
    step = next((s for s in STEPS_S if s * 10 >= length), math.ceil(length / 10))
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    out: list[tuple[float, str]] = []
    day, at = _utc(axis.begin_s).date(), (int(axis.begin_s) // step + 1) * step
    while at < axis.end_s:
        moment = _utc(at)
        word = moment.strftime(form if moment.date() == day else "%d %b %H:%M")
        x = _x(axis, at)
        if (not out or x - out[-1][0] > CHAR * len(out[-1][1]) + 14) and x < WIDTH - RIGHT - CHAR * len(word):
            out.append((x, word))
            day = moment.date()
        at += step
    return out


def _utc(at_s: float) -> datetime:
    return datetime.fromtimestamp(min(max(at_s, 0.0), 32503680000.0), UTC)


def _when(begin_s: float, end_s: float) -> str:
    return f"{_utc(begin_s):%H:%M:%S}–{_utc(end_s):%H:%M:%S} UTC, {duration(end_s - begin_s)}"


def _absent(axis: Scale, lane: Sequence[Stretch], end: float) -> Iterable[str]:
    for one in lane:
        left, right = _x(axis, one.begin_s), _x(axis, one.end_s or end)
        words = f"no runner for {duration((one.end_s or end) - one.begin_s)}: drawn short"
        yield _bar(
            left,
            26,
            max(2.0, right - left),
            BOTTOM - 34,
            "absent",
            f"{_when(one.begin_s, one.end_s or end)}: {words}",
        )


def _stretches(axis: Scale, lane: Sequence[Stretch], row: str, end: float, state: State) -> Iterable[str]:
    top, height = ROWS[row]
    for n, one in enumerate(lane):
        stop = one.end_s if one.end_s is not None else end
        left, right = _x(axis, one.begin_s), _x(axis, stop)
        width = max(1.0, right - left)
        cell = state.cells.get(one.what)
        name = (
            cell.spec.label
            if cell is not None
            else one.what or many(one.count, "stretch").replace("stretchs", "stretches")
        )
        why = ""
        if cell is not None and one.state in ("failed", "broken"):
            why = f": {cell.reason}" if cell.reason else ""
        elif cell is not None and one.state == "suspect":
            why = f": {', '.join(cell.reasons)}"
        yield _bar(
            left,
            top,
            width,
            height,
            f"s-{one.state or 'done'}",
            f"{name}: {one.state}{why} ({_when(one.begin_s, stop)})",
        )
        glyph = GLYPHS.get(one.state, "")
        if glyph and width > 9:
            yield f'<text class="on" x="{left + 2:.1f}" y="{top + height / 2 + 4:.0f}">{glyph}</text>'
        elif one.state in ("failed", "broken"):
            yield f'<text class="bad" x="{left - 2:.1f}" y="{top + height - 2}">✗</text>'
        if row == "starts":  # its configuration stands beside it, where there is room until the next
            following = lane[n + 1].begin_s if n + 1 < len(lane) else end
            begin = right + (9 if one.state in ("failed", "broken") else 3)
            if _x(axis, following) - begin > CHAR * len(one.what) + 4:
                yield f'<text x="{begin:.1f}" y="{top + height - 4}">{_safe(one.what)}</text>'


def _events(axis: Scale, state: State, end: float) -> Iterable[str]:
    top, height = ROWS["events"]
    lanes: tuple[tuple[Lane, str], ...] = (("lost", "link lost"), ("paused", "paused"), ("stage", "staging"))
    for lane, word in lanes:
        for one in state.track.lanes[lane]:
            stop = one.end_s if one.end_s is not None else end
            left, right = _x(axis, one.begin_s), _x(axis, stop)
            yield _bar(
                left,
                top + 4,
                max(2.0, right - left),
                height - 8,
                f"e-{lane}",
                f"{word} {one.what if lane == 'stage' else ''}: {_when(one.begin_s, stop)}",
            )
    for one in state.track.lanes["reboot"]:
        yield _flag(
            _x(axis, one.begin_s),
            top,
            height,
            "↻",
            "warn",
            f"the host rebooted, {_utc(one.begin_s):%H:%M:%S} UTC",
        )
    for fault in state.kernel:
        yield _flag(
            _x(axis, fault.at_s),
            top,
            height,
            "✕",
            "bad",
            f"kernel: {fault.text}, {_utc(fault.at_s):%H:%M:%S} UTC",
        )
    for alert in state.alerts.values():
        raised = alert.raised
        solved = f"; resolved: {alert.resolved.how}" if alert.resolved is not None else "; open"
        words = (
            f"{raised.title}: {raised.cause_text or raised.cause}{solved}, {_utc(alert.at_s):%H:%M:%S} UTC"
        )
        yield _flag(_x(axis, alert.at_s), top, height, "▲", "bad" if alert.open else "warn", words, line=True)


def _flag(x: float, top: int, height: int, glyph: str, role: str, words: str, *, line: bool = False) -> str:
    way = f'<path class="{role} thin" d="M{x:.1f} 26V{BOTTOM - 8}"/>' if line else ""
    return f'{way}<text class="{role}" x="{x:.1f}" y="{top + height - 4}" text-anchor="middle">{glyph}<title>{_safe(words)}</title></text>'


def _power(axis: Scale, trace: Trace) -> Iterable[str]:
    top, height = ROWS["power"]
    power = [w for w in trace.power if w.n]
    if not power:
        yield f'<text x="{LEFT + 8}" y="{top + 24}">not measured</text>'
        return
    high = max(trace.limit_w or 0.0, *(w.most for w in power)) or 1.0
    bottom = top + height

    def y(watts: float) -> float:
        return bottom - height * min(1.0, max(0.0, watts / high))

    for run in _runs(power):
        points = [p for w in run for p in ((_x(axis, w.begin_s), y(w.mean)), (_x(axis, w.end_s), y(w.mean)))]
        way = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        yield f'<path class="area" d="M{points[0][0]:.1f} {bottom}L{way}L{points[-1][0]:.1f} {bottom}Z"/><path class="line" d="M{way}"/>'
    labels: list[tuple[float, str]] = []
    for watts, words in ((trace.limit_w, "limit"), (max(w.most for w in power), "largest")):
        if watts is not None:
            yield f'<path class="g dash" d="M{LEFT} {y(watts):.1f}H{WIDTH - RIGHT}"/>'
            labels.append((y(watts), f"{number(watts)} W {words}"))
    for n, (place, words) in enumerate(labels):
        low = n > 0 and abs(place - labels[0][0]) < 14
        yield f'<text x="{WIDTH - RIGHT - 4}" y="{place + (12 if not low else 24):.0f}" text-anchor="end">{words}</text>'
    size = math.ceil(len(power) / HITS)
    for some in (power[i : i + size] for i in range(0, len(power), size)):  # what the pointer reads
        left, right = _x(axis, some[0].begin_s), _x(axis, some[-1].end_s)
        mean = sum(w.total for w in some) / sum(w.n for w in some)
        most = max(w.most for w in some)
        words = f"{_utc(some[0].begin_s):%H:%M:%S} UTC: {number(mean)} W mean, {number(most)} W largest"
        yield f'<rect class="hit" x="{left:.1f}" y="{top}" width="{max(1.0, right - left):.1f}" height="{height}"><title>{words}</title></rect>'


def _runs(power: Sequence[Watts]) -> Iterable[list[Watts]]:
    """Spans without a gap between them: a gap stays a gap."""
    usual = sorted(b.begin_s - a.begin_s for a, b in itertools.pairwise(power))
    most = 5 * usual[len(usual) // 2] if usual else math.inf
    run: list[Watts] = []
    for one in power:
        if run and one.begin_s - run[-1].end_s > max(most, 5.0):
            yield run
            run = []
        run.append(one)
    yield run


def _bar(x: float, y: float, width: float, height: float, kind: str, words: str) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}"><title>{_safe(words)}</title></rect>'


def _safe(text: str) -> str:
    return str(escape(plain(text).replace("\ufffe", "").replace("\uffff", "")))
