"""Numbers about samples, with the number of samples. Pure.

Percentiles interpolate linearly between order statistics (numpy's default, as SGLang and vLLM do). A percentile is
absent where too few samples stand beyond it: p90 needs 10 samples, p99 needs 100. Figures of no samples are absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

NEEDS = {50: 1, 90: 10, 95: 20, 99: 100}
CERTIFIED = {"p90": 64, "p99": 662}
"""Samples from which LoadGen's estimate lets one of them lie above the bound."""


def percentile(ordered: Sequence[float], p: float) -> float:
    """The p-th percentile (0–100) of sorted samples. Raises ValueError on none."""
    if not ordered:
        raise ValueError("a percentile of no samples")
    place = (len(ordered) - 1) * p / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def shown_percentile(stats: Mapping[str, float], name: str) -> tuple[str, float] | None:
    """("" or "≤ ", value) of a percentile as it may be shown; None where it is not known."""
    bound, value = stats.get(f"{name}_bound"), stats.get(name)
    if bound is not None and stats["n"] < CERTIFIED[name]:
        return "≤ ", bound
    return None if value is None else ("", value)


def summary(samples: Sequence[float], percentiles: Sequence[int] = (50, 90, 99)) -> dict[str, float]:
    """{n, mean, sd (n ≥ 2), p50, p90, p99 (where enough), max}; {} of no samples."""
    ordered = sorted(samples)
    if not ordered:
        return {}
    n = len(ordered)
    mean = math.fsum(ordered) / n
    out: dict[str, float] = {"n": n, "mean": mean}
    if n > 1:
        out["sd"] = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / (n - 1))
    for p in percentiles:
        if n >= NEEDS.get(p, 1):
            out[f"p{p}"] = percentile(ordered, p)
    out["max"] = ordered[-1]
    return out


def weighted_summary(pairs: Sequence[tuple[float, int]]) -> dict[str, float]:
    """As `summary`, for (value, weight) pairs: a value with weight k counts as k samples. Percentiles are those of the
    expanded samples, without interpolation between them."""
    ordered = sorted(pair for pair in pairs if pair[1] > 0)
    n = sum(weight for _, weight in ordered)
    if not n:
        return {}
    mean = math.fsum(value * weight for value, weight in ordered) / n
    out: dict[str, float] = {"n": n, "mean": mean}
    if n > 1:
        out["sd"] = math.sqrt(math.fsum(weight * (value - mean) ** 2 for value, weight in ordered) / (n - 1))
    wanted = [(p, (n - 1) * p / 100) for p in (50, 90, 99) if n >= NEEDS[p]]
    seen = 0
    for value, weight in ordered:
        seen += weight
        while wanted and seen - 1 >= wanted[0][1]:
            out[f"p{wanted.pop(0)[0]}"] = value
    out["max"] = ordered[-1][0]
    return out
