"""Up to which concurrency a configuration is faster than the baseline. Pure.

Speculation spends idle compute, so its speed-up falls as concurrency rises. The measured ratios are therefore made
non-increasing (pool adjacent violators on the logarithm of the ratio, weighted by precision) before the crossing of 1
is read off, by interpolation on the logarithms of ratio and concurrency.

The interval [lo, hi] is read from the measured points alone, so that it holds for every falling curve: from the left, the last point
of the unbroken row whose 95% interval lies above 1; from the right, the same below 1. Testing in the order of a
monotone curve needs no correction for the number of points: each end is wrong in at most 2.5% of cases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FIT_NEEDS = 3
"""Points from which on the ratios are made monotone: of two, each stands for itself."""
USUAL_ERROR = 0.02
"""Standard error of the logarithm that weighs a point without an interval. Only its ratio to the others' matters."""

Verdict = Literal["always", "until", "never", "not known"]


@dataclass(frozen=True, slots=True)
class Point:
    """Speed-up at one concurrency: `ratio` to the baseline's value, with its 95% interval where there are repeats."""

    concurrency: int
    ratio: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What a curve of points says.

    `at` is the concurrency at which the fitted speed-up crosses 1 (None where it does not between measured points);
    `lo`: shown to gain up to here, `hi`: shown to lose from here (None where not shown)."""

    verdict: Verdict
    why: str
    fit: tuple[Point, ...] = ()
    """The points in order of concurrency, their ratios made non-increasing; intervals as measured."""
    at: float | None = None
    lo: int | None = None
    hi: int | None = None

    @property
    def words(self) -> str:
        """In short: `until c 11 [8, 16]`, `always`, `never`, `not known`."""
        if self.verdict != "until":
            return self.verdict
        at = f"until c {self.at:.2g}" if self.at and self.at < 10 else f"until c {self.at:.0f}"
        if self.lo is None and self.hi is None:
            return f"{at} [no interval]"
        return f"{at} [{'?' if self.lo is None else self.lo}, {'?' if self.hi is None else self.hi}]"


def falling(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-increasing sequence nearest to `values` by weighted least squares (pool adjacent violators).

    Raises ValueError on a weight that is not positive."""
    if any(not w > 0 for w in weights):
        raise ValueError("a weight must be positive")
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] < block[0]:
            mean, mass, length = blocks.pop()
            both = mass + block[1]
            block = ((mean * mass + block[0] * block[1]) / both, both, length + block[2])
        blocks.append(block)
    return [mean for mean, _, length in blocks for _ in range(length)]


def break_even(points: Sequence[Point]) -> BreakEven:
    """Where the speed-up of `points` (one a concurrency, in any order) crosses 1."""
    usable = sorted(
        (p for p in points if _positive(p.ratio) and p.concurrency > 0), key=lambda p: p.concurrency
    )
    if not usable:
        return BreakEven("not known", "measured at no concurrency at which the baseline is")
    fit = _fitted(usable)
    lo, hi = _shown(usable)
    first, last = usable[0].concurrency, usable[-1].concurrency
    if len(usable) == 1:
        words = _side(lo, hi) if usable[0].low is not None else "a single run, no interval"
        return BreakEven("not known", f"measured at c {first} alone: {words}", fit, lo=lo, hi=hi)
    if lo == last:
        return BreakEven("always", f"faster at every measured concurrency, c {first} to {last}", fit, lo=lo)
    if hi == first:
        return BreakEven("never", f"slower at every measured concurrency, c {first} to {last}", fit, hi=hi)
    certain = all(p.low is not None for p in usable)
    at = _crossing(fit)
    if at is not None:
        why = "" if certain else "one run a point on a side: no interval"
        return BreakEven("until", why or _until(lo, hi, first, last), fit, at, lo, hi)
    if not certain:
        side: Verdict = "always" if fit[-1].ratio >= 1 else "never"
        return BreakEven(side, f"by single runs at c {first} to {last}: no interval", fit, lo=lo, hi=hi)
    return BreakEven(
        "not known", f"no crossing is shown between c {first} and {last}: {_side(lo, hi)}", fit, lo=lo, hi=hi
    )


def ratio_at(fit: Sequence[Point], concurrency: float) -> float | None:
    """The fitted speed-up at a concurrency, interpolated on logarithms; None outside the measured range."""
    if not fit or not fit[0].concurrency <= concurrency <= fit[-1].concurrency:
        return None
    for a, b in itertools.pairwise(fit):
        if concurrency <= b.concurrency:
            share = math.log(concurrency / a.concurrency) / math.log(b.concurrency / a.concurrency)
            return math.exp((1 - share) * math.log(a.ratio) + share * math.log(b.ratio))
    return fit[-1].ratio


def crossed(found: BreakEven, measured: Sequence[int]) -> tuple[int, int] | None:
    """The neighbours among `measured` between which the fit crosses 1; None where it does not."""
    below = max((c for c in measured if found.at is not None and c <= found.at), default=None)
    above = min((c for c in measured if found.at is not None and c > found.at), default=None)
    return None if below is None or above is None else (below, above)


def _fitted(points: Sequence[Point]) -> tuple[Point, ...]:
    if len(points) < FIT_NEEDS:
        return tuple(points)
    logs = falling([math.log(p.ratio) for p in points], [1 / _error(p) ** 2 for p in points])
    return tuple(
        Point(p.concurrency, math.exp(value), p.low, p.high) for p, value in zip(points, logs, strict=True)
    )


def _error(point: Point) -> float:
    """Half the interval's width on the logarithm (its scale against the other points is what matters)."""
    if point.low is None or point.high is None or not _positive(point.low) or point.high <= point.low:
        return USUAL_ERROR
    return max(1e-4, math.log(point.high / point.low) / 4)


def _shown(points: Sequence[Point]) -> tuple[int | None, int | None]:
    lo = hi = None
    for point in points:
        if point.low is None or point.low <= 1:
            break
        lo = point.concurrency
    for point in reversed(points):
        if point.high is None or point.high >= 1:
            break
        hi = point.concurrency
    if lo is not None and hi is not None and lo >= hi:
        return None, None  # not a falling curve: the points contradict each other
    return lo, hi


def _crossing(fit: Sequence[Point]) -> float | None:
    """Where the fit falls through 1. A stretch at exactly 1 counts from its first point: nothing is gained there."""
    for a, b in itertools.pairwise(fit):
        if a.ratio > 1 >= b.ratio:
            share = math.log(a.ratio) / (math.log(a.ratio) - math.log(b.ratio))
            return float(a.concurrency * (b.concurrency / a.concurrency) ** share)
    return None


def _until(lo: int | None, hi: int | None, first: int, last: int) -> str:
    gains = f"shown to gain up to c {lo}" if lo is not None else f"no gain is shown from c {first} on"
    loses = f"to lose from c {hi}" if hi is not None else f"no loss is shown up to c {last}"
    return f"{gains}, {loses}"


def _side(lo: int | None, hi: int | None) -> str:
    if lo is not None:
        return f"gains up to c {lo}"
    if hi is not None:
        return f"loses from c {hi}"
    return "neither gain nor loss is shown"


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0
