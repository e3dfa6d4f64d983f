"""The face after the end of a run: how it ended, the best of each load, what failed, and what to do next. Pure."""

from __future__ import annotations

from collections import Counter

from ddtop.bench.worth.sure import if_it_holds
from ddtop.dashboard.draw.fields import gain_role, gain_text
from ddtop.dashboard.draw.paint import Line, fit_text, line, width_of
from ddtop.dashboard.draw.text import duration, rate, times
from ddtop.dashboard.panels.moment.standing import wrapped
from ddtop.journal.act.seat import LIVE, Seat, startable
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import counts
from ddtop.journal.results.best import LATENCY, load_words
from ddtop.journal.results.field import Best
from ddtop.journal.results.matrix import bests
from ddtop.words import many

HEAD, LEAST_NAME = 7, 10
"""Cells before the names of loads, and of such a name at least."""
OUTCOME = {
    "done": ("✓ Finished", "ok"),
    "some-failed": ("! Finished", "warn"),
    "host-lost": ("✗ Ended: the host was lost", "bad"),
    "refused": ("✗ Refused", "bad"),
    "stopped": ("‖ Stopped", "warn"),
    "interrupted": ("‖ Interrupted", "warn"),
    "crashed": ("✗ The runner crashed", "bad"),
}


def ended_title(state: State) -> str:
    """Title of the panel."""
    return f"Ended · {state.run.name or state.host.name}".removesuffix(" · ")


def ended_lines(state: State, now_s: float, width: int, height: int, seat: Seat = LIVE) -> list[Line]:
    """The outcome in a line, then the winners, the failures, and the commands that follow."""
    ended = state.run.ended
    if ended is None:
        return []
    words, role = OUTCOME[ended.outcome]
    if ended.outcome == "host-lost" and not state.host.agent:
        words = "✗ Could not connect"
    tally = counts(state.plan_cells)
    took = duration(ended.at_s - state.run.started_at_s) if state.run.started_at_s is not None else ""
    cells = f": {tally.in_words(ended=True)}" if tally.total else ""
    rows = [line((words, role), (cells, "value"), (f" · {took}" if took else "", "label"))]
    if width_of(rows[0]) > width:
        rows = [
            line((words, role)),
            *wrapped("  ", f"{cells.removeprefix(': ')} · {took}".strip(" ·"), width),
        ]
    rows += _reason(state, width)
    last: list[Line] = []
    for left in ended.left_behind:
        last += wrapped("! left ", left, width, 2, "warn")
    last += _after(state, seat)
    failed = _failed(state, width)
    room = height - len(rows) - len(last) - min(len(failed), 3)
    rows += _winners(state, width, max(0, room))
    told = _failed(state, width, proofs=True)
    room = height - len(rows) - len(last)
    rows += (told if len(told) <= room else failed)[: max(0, room)]
    return [*rows, *last]


def _reason(state: State, width: int) -> list[Line]:
    """Why it ended: what happened, what that means and what to do, each under its own word."""
    if state.run.ended is None:
        return []
    what, parts = [], {"means": "", "do": ""}
    for text in state.run.ended.reason.splitlines():
        label, colon, rest = text.strip().partition(":")
        if colon and label in parts:
            parts[label] = rest.strip()
        elif text.strip():
            what.append(text.strip())
    if not what and not state.host.agent:  # it never connected, and says no more
        what, parts = [state.host.error or ""], {"means": state.host.means, "do": state.host.do}
    rows = wrapped("why    ", " ".join(what), width, 4)
    rows += wrapped("means  ", parts["means"], width, 4)
    return rows + wrapped("do     ", parts["do"], width, 5)


def _winners(state: State, width: int, room: int) -> list[Line]:
    """The best configuration of each load, with its speed-up, and what is better if its result in doubt holds."""
    found = bests(state)
    places = [one.place for one in found]
    names = [load_words(one.place, [one.load], places) for one in found]
    wide = max(map(len, names), default=0)
    blocks = [
        _winner(one, name, wide, width, n == 0)
        for n, (one, name) in enumerate(zip(found, names, strict=True))
    ]
    if sum(map(len, blocks)) > room:
        blocks = [block[:1] for block in blocks]  # what is better if it holds stands in the matrix too
    rows = [row for block in blocks for row in block]
    if len(rows) > room:
        more = len(rows) - max(0, room - 1)
        rows = [
            *rows[: max(0, room - 1)],
            *([line((f"       and {many(more, 'load')} more: v", "dim"))] if room else []),
        ]
    return rows


def _winner(one: Best, name: str, wide: int, width: int, first: bool) -> list[Line]:
    """The best of one load, and what is better if it holds: beside it, else below. Numbers are whole: the unit gives way
    first, then the load's name, then the ratio. `197.6?`: SUSPECT, as in the matrix."""
    unit = {LATENCY: " ms", "knee": " at most"}.get(one.metric, " tok/s")
    gain = "" if one.gain is None else " " + gain_text(one.field, 2)
    mark = "" if one.verdict == "alone" else f" {one.star}"
    suspect = one.field.validity == "SUSPECT"
    figure = f"{one.field.value:g}" if one.metric == "knee" else rate(one.field.value)
    value = f" {figure}{'?' if suspect else ''}"
    rest = len(f" {one.config}{value}{mark}")
    left = width - HEAD - LEAST_NAME - rest
    gain = gain if len(gain) <= left else ""
    unit = unit if HEAD + len(name) + rest + len(gain + unit) <= width else ""
    head = line(
        ("best   " if first else " " * HEAD, "label"),
        (fit_text(name, min(wide, max(LEAST_NAME, width - HEAD - rest - len(gain + unit)))), "text"),
        (f" {one.config}", "accent"),
        (value + unit, "warn" if suspect else "value"),
        (gain, gain_role(one.field)),
        (mark, "key"),
    )
    said = "; ".join(if_it_holds(other, times(other.ratio), brief=True) for other in one.doubted)
    if suspect and not said and width_of(head) + 9 <= width:
        return [line(*head, ("  SUSPECT", "warn"))]
    if said and width_of(head) + 2 + len(said) <= width:
        return [line(*head, (f"  {said}", "warn"))]
    return [head, *wrapped(" " * HEAD, said, width, 2, "warn")]


def _failed(state: State, width: int, *, proofs: bool = False) -> list[Line]:
    """Configurations with cells that failed or are broken, with the cause that they share; `proofs`: its evidence and advice too."""
    alerts = {
        state.cells[i].spec.config: alert.raised
        for alert in state.alerts.values()
        for i in alert.raised.cell_ids
        if i in state.cells
    }
    why: Counter[tuple[str, str, str]] = Counter()
    for cell in state.plan_cells:
        if cell.state in ("failed", "broken"):
            why[cell.spec.config, cell.state, cell.reason or cell.cause or "cause unknown"] += 1
    rows: list[Line] = []
    for (config, what, reason), number in why.items():
        rows += wrapped(f"✗ {config} ", f"{many(number, 'cell')} {what}: {reason}", width, 2)
        raised = alerts.get(config)
        if proofs and raised is not None:
            proof = next((e.text.strip() for e in raised.evidence if e.source == "log"), "")
            rows += wrapped("  ▸ ", proof, width, 3, "dim")
            rows += wrapped("  do ", raised.advice, width, 4, "label")
    return rows


def _after(state: State, seat: Seat) -> list[Line]:
    """What one does now."""
    rows: list[Line] = []
    if startable(state, seat):
        again = "connects again" if not state.host.agent else "goes on with what is not measured"
        rows.append(line(("r ", "key"), (again, "text")))
    if state.plan_cells and any(cell.metrics for cell in state.plan_cells):
        name = state.run.run_id or "RUN"
        rows.append(line(("v ", "key"), ("results and plots   ", "text"), (f"ddtop report {name}", "value")))
    return rows
