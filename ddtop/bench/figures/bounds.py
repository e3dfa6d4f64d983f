"""Upper bounds of percentiles. Pure.

Figures of one value a request also have an upper bound of p90 and p99 at 99% confidence, by the binomial estimate with
which MLPerf's LoadGen stops early; where not even the largest sample is one, the percentile is absent. From 64 and 662
samples on the percentile is shown as it is, below that its bound (`shown_percentile`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.agent.loadgen.chance import CONFIDENCE, at_most
from ddtop.bench.figures.stats import summary


def upper_bound(ordered: Sequence[float], p: int) -> float | None:
    """What the p-th percentile is below, at 99% confidence: the t-th largest of n sorted samples, with the largest t at
    which at most t samples beyond the percentile have a chance of at most 1% (LoadGen's t, at least 1). The largest
    sample where none beyond it has that chance; None where even that is no bound."""
    n, beyond = len(ordered), 1 - p / 100
    unlikely = 1 - CONFIDENCE
    if not n or at_most(0, n, beyond) > unlikely:
        return None
    low, high = 0, n  # at `low` it holds, at `high` it does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at_most(middle, n, beyond) <= unlikely else (low, middle)
    return ordered[n - max(1, low)]


def bounded_summary(samples: Sequence[float]) -> dict[str, float]:
    """As `summary`, of one value a request: with p90_bound and p99_bound, and without a percentile that has no bound."""
    out = summary(samples)
    ordered = sorted(samples)
    for p in (90, 99):
        bound = upper_bound(ordered, p)
        if bound is None:
            out.pop(f"p{p}", None)
        else:
            out[f"p{p}_bound"] = bound
    return out
