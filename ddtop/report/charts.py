"""The charts of a recording: throughput, acceptance, scaling, energy, starts. Only those with data."""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.journal.fold.state import State
from ddtop.journal.read.matrix import Matrix, matrix, usable
from ddtop.journal.read.select import metric_value, tps
from ddtop.report.svg import Bar, Series, bars, lines, scatter


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its title, a line that says how to read it, and its SVG."""

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
        out.append(_bars(speed, column, f"Throughput · tp{tp} · {name}", "tok/s"))
        accept = matrix(state, tp, "acceptance_length", baseline)
        title = f"Acceptance length · tp{tp} · {name}"
        out.append(_bars(accept, column, title, "tokens a step"))
        out.append(_by_concurrency(speed, column, tp))
        out.append(_by_context(speed, column, tp))
        out.append(_energy(state, tp))
    out.append(_starts(state))
    return [chart for chart in out if chart.svg]


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


def _by_concurrency(view: Matrix, column: int, tp: int) -> Chart:
    base = view.columns[column]
    same = [
        (i, c.concurrency)
        for i, c in enumerate(view.columns)
        if c.concurrency
        and (c.workload, c.output_tokens, c.context) == (base.workload, base.output_tokens, base.context)
    ]
    title = f"Throughput by concurrency · tp{tp} · {base.workload}@{base.output_tokens}"
    return Chart(title, "all streams together", _series(view, same, title, "streams"))


def _by_context(view: Matrix, column: int, tp: int) -> Chart:
    base = view.columns[column]
    same = [
        (i, c.context)
        for i, c in enumerate(view.columns)
        if (c.workload, c.output_tokens, c.load_name) == (base.workload, base.output_tokens, base.load_name)
    ]
    title = f"Throughput by context · tp{tp} · {base.workload}@{base.output_tokens}"
    return Chart(title, "tokens before the prompt", _series(view, same, title, "tokens"))


def _series(view: Matrix, same: list[tuple[int, int]], title: str, x_unit: str) -> str:
    if len(same) < 2:
        return ""
    series: list[Series] = []
    for row in view.rows:
        points: list[tuple[float, float]] = []
        for index, x in same:
            cell = row.cells[index]
            if cell is not None and cell.value is not None:
                points.append((float(x), cell.value))
        series.append(Series(row.config, tuple(points)))
    return lines(title, x_unit, "tok/s", series, log_x=True)


def _energy(state: State, tp: int) -> Chart:
    groups: dict[str, list[tuple[float, float]]] = {}
    for cell in state.plan_cells:
        speed = metric_value(cell.metrics, "output_tok_s")
        energy = metric_value(cell.metrics, "j_per_token")
        if cell.spec.tp == tp and speed is not None and energy is not None and usable(cell):
            groups.setdefault(cell.spec.config, []).append((energy, speed))
    title = f"Throughput by energy · tp{tp}"
    series = [Series(name, tuple(points)) for name, points in groups.items()]
    return Chart(title, "left and up is better", scatter(title, "J/token", "tok/s", series))


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
