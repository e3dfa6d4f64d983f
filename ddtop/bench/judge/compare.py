"""Whether two results differ, by the 95 % interval of their ratio over repeats. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ddtop.bench.figures.stats import T95

FLOOR = 0.01  # a difference below 1 % does not matter, however small the spread


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio` = mean(b) / mean(a), with a 95 % interval [low, high] (None without repeats); `different` is None where
    there is only one sample on a side and no spread to judge by."""

    different: bool | None
    ratio: float | None
    low: float | None
    high: float | None
    why: str


def compare(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """Compare two sets of repeats of one figure (tok/s, say). Welch's t on the ratio of means."""
    a = [x for x in a if math.isfinite(x)]
    b = [x for x in b if math.isfinite(x)]
    if not a or not b:
        return Comparison(None, None, None, None, "no measurement on one side")
    mean_a, mean_b = math.fsum(a) / len(a), math.fsum(b) / len(b)
    if mean_a == 0:
        return Comparison(None, None, None, None, "the reference is zero: no ratio")
    ratio = mean_b / mean_a
    if len(a) < 2 or len(b) < 2:
        return Comparison(None, ratio, None, None, "one run on a side: no spread to judge by")
    var_a, var_b = _error(a, mean_a), _error(b, mean_b)
    error = math.sqrt(var_a + var_b)
    t = T95[min(len(T95), _freedom(var_a, len(a), var_b, len(b))) - 1]
    half = t * error / abs(mean_a)
    # the interval of the difference, as a ratio to the reference
    low, high = ratio - half, ratio + half
    different = not (low <= 1 <= high) and abs(ratio - 1) >= FLOOR
    why = "the spreads do not overlap" if different else "not different: the spreads overlap"
    if abs(ratio - 1) < FLOOR:
        why = "not different: less than 1 %"
    return Comparison(different, ratio, low, high, why)


def _error(samples: Sequence[float], mean: float) -> float:
    """Variance of the mean."""
    return math.fsum((x - mean) ** 2 for x in samples) / (len(samples) - 1) / len(samples)


def _freedom(var_a: float, n_a: int, var_b: float, n_b: int) -> int:
    """Welch–Satterthwaite degrees of freedom, at least 1."""
    if var_a + var_b == 0:
        return n_a + n_b - 2
    below = var_a**2 / (n_a - 1) + var_b**2 / (n_b - 1)
    return max(1, math.floor((var_a + var_b) ** 2 / below)) if below else n_a + n_b - 2
