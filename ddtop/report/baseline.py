"""Each cell compared with the baseline's, over their repeats: different, not different, or unknown (one run). Pure."""

from __future__ import annotations

from typing import Any

from ddtop.bench.judge.compare import compare
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import DEFAULT_METRIC, Column, metric_value


def _value(cell: CellView, metric: str) -> float | None:
    usable = cell.state not in ("broken", "failed") and cell.validity != "INVALID"
    return metric_value(cell.metrics, metric) if usable else None


def against_baseline(state: State, metric: str = DEFAULT_METRIC) -> dict[str, dict[str, Any]]:
    """Cell id → {baseline, metric, ratio, low, high, different, why, n, baseline_n}: `ratio` of the means with its 95 %
    interval; `different` is null where one side has one run only. Cells without a comparison are left out."""
    base = state.run.baseline
    values: dict[tuple[str | None, int, Column], list[float]] = {}
    for cell in state.plan_cells:
        if (value := _value(cell, metric)) is not None:
            values.setdefault((cell.spec.config, cell.spec.tp, Column.of(cell.spec)), []).append(value)
    out: dict[str, dict[str, Any]] = {}
    for cell in state.plan_cells:
        load = (cell.spec.tp, Column.of(cell.spec))
        mine, theirs = values.get((cell.spec.config, *load)), values.get((base, *load))
        if cell.spec.config == base or not mine or not theirs or _value(cell, metric) is None:
            continue
        found = compare(theirs, mine)
        out[cell.id] = {
            "baseline": base,
            "metric": metric,
            "ratio": found.ratio,
            "low": found.low,
            "high": found.high,
            "different": found.different,
            "why": found.why,
            "n": len(mine),
            "baseline_n": len(theirs),
        }
    return out
