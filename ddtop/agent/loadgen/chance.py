"""Chances and intervals that a measurement is judged by: binomial tails, Clopper-Pearson, and whether a series rises. Pure."""

from __future__ import annotations

import math
from typing import Callable, Sequence

CONFIDENCE = 0.99
BLOCKS = 8
T99 = 3.707  # two-sided 99% quantile of Student's t with BLOCKS - 2 degrees of freedom
LEAST_RISE = 1.5  # a queue that grows without end has grown by this factor from the first block to the last


def beta_share(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by Lentz's continued fraction (Numerical Recipes, 6.4)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_share(b, a, 1.0 - x)
    front = math.exp(
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log1p(-x)
        - math.log(a)
    )
    tiny = 1e-300
    c, d = 1.0, 1.0 / _off_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    out = d
    for m in range(1, 10_000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _off_zero(1.0 + step * d, tiny)
            c = _off_zero(1.0 + step / c, tiny)
            out *= c * d
        if abs(c * d - 1.0) < 1e-13:
            break
    return front * out


def _off_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def at_most(k: int, n: int, p: float) -> float:
    """P(X ≤ k) of a binomial X of n trials with chance p."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else beta_share(n - k, k + 1, 1.0 - p)


def clopper_pearson(k: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The two-sided interval of a share of which k of n were seen; (0, 1) of nothing."""
    tail = (1.0 - confidence) / 2
    low = 0.0 if k <= 0 else _where(lambda p: 1.0 - at_most(k - 1, n, p) > tail)
    high = 1.0 if k >= n else _where(lambda p: at_most(k, n, p) <= tail)
    return low, high


def _where(above: Callable[[float], bool]) -> float:
    """The chance at which a test that turns true once, as the chance grows, does so."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if above(middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2


def rises(values: Sequence[float]) -> bool:
    """Whether a series grows: over the means of BLOCKS equal parts the 99% interval of the slope (Student's t) lies above
    0, and the last part is LEAST_RISE times the first. Means of parts, because neighbours are alike in a queue."""
    size = len(values) // BLOCKS
    if size < 2:
        return False
    means = [math.fsum(values[at * size : (at + 1) * size]) / size for at in range(BLOCKS)]
    middle, mean = (BLOCKS - 1) / 2, math.fsum(means) / BLOCKS
    spread = sum((at - middle) ** 2 for at in range(BLOCKS))
    slope = math.fsum((at - middle) * (one - mean) for at, one in enumerate(means)) / spread
    rest = math.fsum((one - mean - slope * (at - middle)) ** 2 for at, one in enumerate(means))
    error = math.sqrt(rest / (BLOCKS - 2) / spread)
    return slope - T99 * error > 0 and means[-1] >= LEAST_RISE * means[0]
