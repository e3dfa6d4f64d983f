"""Each cell compared with the baseline's, over their starts and repeats, as a report for programs gives it. Pure."""

from __future__ import annotations

from typing import Any

from ddtop.journal.fold.state import State
from ddtop.journal.read.select import DEFAULT_METRIC, tps
from ddtop.journal.results.matrix import matrix, usable


def against_baseline(
    state: State, baseline: str | None = None, metric: str = DEFAULT_METRIC
) -> dict[str, dict[str, Any]]:
    """Cell id → {baseline, metric, ratio, low, high, different, why, spread, n, starts, baseline_n, baseline_starts}:
    `ratio` of the values with its 95% interval; `different` is null where there is no spread to judge by, which is
    between `starts` or only `inside` one. Cells without a comparison are left out."""
    out: dict[str, dict[str, Any]] = {}
    for tp in tps(state):
        view = matrix(state, tp, metric, baseline)
        base = next((row.cells for row in view.rows if row.baseline), ())
        for row in view.rows:
            for theirs, mine in zip(base, row.cells, strict=False):
                if row.baseline or theirs is None or mine is None or mine.against is None:
                    continue
                found = {
                    "baseline": view.baseline,
                    "metric": metric,
                    "ratio": mine.against.ratio,
                    "low": mine.against.low,
                    "high": mine.against.high,
                    "different": mine.against.different,
                    "why": mine.against.why,
                    "spread": mine.against.basis,
                    "n": mine.n,
                    "starts": mine.starts,
                    "baseline_n": theirs.n,
                    "baseline_starts": theirs.starts,
                }
                if mine.n and theirs.n:
                    out |= {i: found for i in mine.ids if usable(state.cells[i])}
    return out
