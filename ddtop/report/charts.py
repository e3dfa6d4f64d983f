"""The charts of a recording for a page: throughput, acceptance, latency, scaling, energy, starts. Only those with data.

`charts(state, baseline)` is all of them in the order they are read. One alone: `curve(state, "speedup", baseline, like)` with a name of
`ddtop.charts.kinds.PICTURES`; `like` is a cell whose TP, workload and context it shows. Each is a `Chart`, whose `svg` goes into
HTML as it is: every text in it is escaped, its colours follow `prefers-color-scheme`, and its points say their values on hover.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.charts.kinds import SEARCH
from ddtop.charts.make import Choice, chart
from ddtop.charts.svg import chart_svg
from ddtop.errors import UsageError
from ddtop.events import CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import Column, tps
from ddtop.journal.results.field import Matrix
from ddtop.journal.results.matrix import matrix
from ddtop.report.svg import Bar, bars

BY_LOAD = ("throughput", "speedup", "ttft", "tpot", "budget", "acceptance")
"""Curves of one TP, workload and context."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its title, a line that says how to read it, and its SVG (empty where there is too little to draw)."""

    title: str
    note: str
    svg: str


def charts(state: State, baseline: str | None = None) -> list[Chart]:
    """The charts of one recording, TP by TP, the most asked first."""
    out: list[Chart] = []
    for tp in tps(state):
        speed = matrix(state, tp, "output_tok_s", baseline)
        column = _best_column(speed)
        if column is None:
            continue
        name = speed.columns[column].label(speed.columns)
        like = _cell_of(state, tp, speed.columns[column])
        out.append(_bars(speed, column, f"Throughput · tp{tp} · {name}", "tok/s"))
        accept = matrix(state, tp, "acceptance_length", baseline)
        title = f"Acceptance length · tp{tp} · {name}"
        out.append(_bars(accept, column, title, "tokens a step"))
        out += [curve(state, what, baseline, like) for what in BY_LOAD]
        out.append(curve(state, "throughput", baseline, like, x="context"))
        out.append(curve(state, SEARCH, baseline, like))
    out.append(curve(state, "energy", baseline))
    out.append(_starts(state))
    return [chart for chart in out if chart.svg]


def curve(
    state: State, what: str, baseline: str | None = None, like: CellSpec | None = None, x: str | None = None
) -> Chart:
    """One of the pictures, over `x` where that is not its own axis. No SVG where all its points have one x or x is not varied."""
    try:
        found = chart(state, Choice(what, x=x), baseline, like)
    except UsageError as error:
        return Chart(what, str(error), "")
    enough = len({dot.x for dot in found.dots}) > 1
    return Chart(found.title, found.note or found.why_empty, chart_svg(found) if enough else "")


def _cell_of(state: State, tp: int, column: Column) -> CellSpec | None:
    specs = (cell.spec for cell in state.plan_cells)
    return next((spec for spec in specs if spec.tp == tp and Column.of(spec) == column), None)


def _best_column(view: Matrix) -> int | None:
    """The column with the most results: the first of them."""
    filled = [0] * len(view.columns)
    for row in view.rows:
        for index, cell in enumerate(row.cells):
            filled[index] += cell is not None and cell.value is not None
    return filled.index(max(filled)) if any(filled) else None


def _bars(view: Matrix, column: int, title: str, unit: str) -> Chart:
    items: list[Bar] = []
    for row in view.rows:
        cell = row.cells[column]
        if cell is None or cell.value is None or cell.state == "broken":
            continue
        note = f"{cell.speedup:.2f}×" if cell.speedup is not None and not row.baseline else ""
        if cell.validity not in (None, "VALID"):
            note = f"{note} {cell.validity}".strip()
        items.append(Bar(row.config, cell.value, note, cell.low, cell.high, emphasis=row.baseline))
    note = f"against {view.baseline}" if view.baseline else ""
    return Chart(title, note, bars(title, unit, items))


def _starts(state: State) -> Chart:
    items: list[Bar] = []
    for restart in state.restarts:
        seconds = restart.ready_s if restart.ready_s is not None else restart.seconds
        if seconds is None:
            continue
        word = (
            ""
            if restart.outcome == "ready"
            else f"{restart.verdict or restart.outcome}: {restart.cause or ''}"
        )
        items.append(
            Bar(
                f"{restart.config} tp{restart.tp}",
                seconds,
                word.strip(": "),
                emphasis=restart.outcome != "ready",
            )
        )
    title = "Server starts"
    return Chart(title, "from the call to ready, or to the verdict", bars(title, "s", items))
