"""The face after the end of a run: how it ended, the best of each load, what failed, and what to do next. Pure."""

from __future__ import annotations

from collections import Counter

from ddtop.dashboard.draw.fields import BEST, MAYBE, gain_role, gain_text
from ddtop.dashboard.draw.paint import Line, fit_text, line
from ddtop.dashboard.draw.text import duration, rate
from ddtop.dashboard.panels.moment.standing import wrapped
from ddtop.journal.act.seat import LIVE, Seat, startable
from ddtop.journal.fold.state import State
from ddtop.journal.read.matrix import best_of, matrix
from ddtop.journal.read.select import counts, tps
from ddtop.words import many

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
    words_of = tally.words.replace(", 0 open", "").replace(" open", " not measured")
    cells = f": {words_of}" if tally.total else ""
    rows = [line((words, role), (cells, "value"), (f" · {took}" if took else "", "label"))]
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
    """The best configuration of each load, with its speed-up."""
    rows: list[Line] = []
    many_tps = len(tps(state)) > 1
    for tp in tps(state):
        shown = matrix(state, tp)
        for number, column in enumerate(shown.columns):
            best = best_of(shown, number)
            if best is None:
                continue
            row, cell = best
            name = (f"tp{tp} " if many_tps else "") + column.label(shown.columns).replace(" 0 ctx", "")
            gain = "" if row.baseline else " " + gain_text(cell, 2)
            mark = f" {BEST}" if cell.rank == "best" else f" {MAYBE}" if cell.rank else ""
            rows.append(
                line(
                    ("best   " if not rows else "       ", "label"),
                    (fit_text(name, min(24, max(10, width * 2 // 5))), "text"),
                    (f" {row.config}", "accent"),
                    (f" {rate(cell.value)} tok/s", "value"),
                    (gain, gain_role(cell)),
                    (mark, "key"),
                )
            )
    if len(rows) > room:
        more = len(rows) - max(0, room - 1)
        rows = [
            *rows[: max(0, room - 1)],
            *([line((f"       and {many(more, 'load')} more: v", "dim"))] if room else []),
        ]
    return rows


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
