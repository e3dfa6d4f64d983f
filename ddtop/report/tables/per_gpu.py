"""Results per GPU and per user: a table, a chart with its front, and JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ddtop.charts.make import Choice, chart
from ddtop.charts.svg import chart_svg
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import Column
from ddtop.journal.results.per_gpu import GpuPoint, per_gpu, unknown_configs
from ddtop.report.text import number

TITLE = "Per GPU and per user"
HOW = (
    "tok/s per GPU is the throughput ÷ the GPUs that the server's processes held; tok/s per user is 1000 ÷ the median TPOT in ms. "
    "front: no other point of the same workload is better in both"
)


def gpu_rows(state: State, usd_per_gpu_hour: float | None = None) -> list[list[str]]:
    """Header and a row for each point; empty where no configuration's GPUs are known."""
    points = per_gpu(state, usd_per_gpu_hour)
    if not points:
        return []
    head = ["", "load", "GPUs", "tok/s per GPU", "tok/s per user"]
    head += ["$ per million output tokens"] if usd_per_gpu_hour else []
    rows = [[*head, "front"]]
    columns = list(dict.fromkeys(p.load for p in points))
    for point in points:
        mark = {"SUSPECT": " ?", "INVALID": " !"}.get(point.validity or "", "")
        cost = [number(point.usd_per_mtok)] if point.usd_per_mtok is not None else []
        rows.append(
            [
                f"{point.config} tp{point.tp}",
                point.load.label(columns),
                str(point.gpus),
                number(point.tok_s_gpu) + mark,
                number(point.tok_s_user) if point.tok_s_user is not None else "not known",
                *cost,
                _front(point),
            ]
        )
    return rows


def _front(point: GpuPoint) -> str:
    if point.tok_s_user is None:
        return "not known: no TPOT"
    return "front" if point.front else f"dominated by {point.dominated_by}"


def gpu_notes(state: State, usd_per_gpu_hour: float | None) -> str:
    """How to read the table, the price, and configurations that are not in it."""
    lines = [HOW + "."]
    if usd_per_gpu_hour:
        lines.append(f"Price: {usd_per_gpu_hour:g} $ for an hour of a GPU.")
    lines += [f"{name} is not in it: {why}." for name, why in unknown_configs(state).items()]
    return "\n".join(lines)


def gpu_charts(state: State) -> list[tuple[str, str, str]]:
    """(title, how to read it, SVG) for each workload, output length and context with two points or more."""
    counted = Counter(p.load[:3] for p in per_gpu(state) if p.tok_s_user is not None)
    specs = {Column.of(cell.spec)[:3]: cell.spec for cell in state.plan_cells}
    drawn = [chart(state, Choice("pareto"), like=specs[group]) for group, n in counted.items() if n > 1]
    return [(one.title, one.note, chart_svg(one)) for one in drawn]


def gpu_json(state: State, usd_per_gpu_hour: float | None) -> dict[str, Any]:
    """For programs; what is not known is null."""
    return {
        "usd_per_gpu_hour": usd_per_gpu_hour,
        "points": [
            {
                "config": p.config,
                "tp": p.tp,
                "workload": p.load.workload,
                "output_tokens": p.load.output_tokens,
                "context": p.load.context,
                "load": p.load.load_name,
                "gpus": p.gpus,
                "tok_s_gpu": p.tok_s_gpu,
                "tok_s_user": p.tok_s_user,
                "usd_per_mtok": p.usd_per_mtok,
                "front": p.front,
                "dominated_by": p.dominated_by or None,
            }
            for p in per_gpu(state, usd_per_gpu_hour)
        ],
        "unknown": unknown_configs(state),
    }
