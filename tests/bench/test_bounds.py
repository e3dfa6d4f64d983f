"""Percentiles with a bound: LoadGen's own numbers, coverage, and what is shown of too few samples."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from ddtop.bench.figures.bounds import bounded_summary, upper_bound
from ddtop.bench.figures.stats import CERTIFIED, percentile, shown_percentile
from ddtop.bench.render import percentile_text


def tail(t: int, n: int, p: int) -> Fraction:
    """P(at most t of n samples lie beyond the p-th percentile), exactly."""
    q = Fraction(100 - p, 100)
    return sum((math.comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(t + 1)), Fraction(0))


@pytest.mark.parametrize(("p", "least"), [(90, 64), (99, 662)])
def test_loadgens_own_sample_counts(p: int, least: int) -> None:
    """MLPerf's rules: at least 64 samples for an estimate of p90, 662 for one of p99 (t = 1 at 99%)."""
    assert CERTIFIED[f"p{p}"] == least
    assert tail(1, least, p) <= Fraction(1, 100) < tail(1, least - 1, p)


@pytest.mark.parametrize("p", [90, 99])
@pytest.mark.parametrize("n", [44, 63, 64, 100, 458, 459, 662, 1000, 3000])
def test_the_bound_is_the_largest_t_by_exact_sums(n: int, p: int) -> None:
    bound = upper_bound(list(range(n)), p)
    if tail(0, n, p) > Fraction(1, 100):
        assert bound is None
        return
    t = next((t for t in range(n) if tail(t, n, p) > Fraction(1, 100)), n) - 1
    assert bound == n - max(1, t)


def test_no_bound_of_too_few() -> None:
    assert upper_bound([1.0] * 43, 90) is None and upper_bound([1.0] * 44, 90) == 1.0
    assert upper_bound([1.0] * 458, 99) is None and upper_bound([1.0] * 459, 99) == 1.0
    assert upper_bound([], 90) is None


@pytest.mark.parametrize(("n", "p"), [(64, 90), (256, 90), (662, 99)])
def test_the_bound_holds_in_99_of_100(n: int, p: int) -> None:
    """SIMULATED: exponential latencies, whose percentiles are known."""
    rng, true = random.Random(n), -math.log(1 - p / 100)
    below = sum(
        (upper_bound(sorted(rng.expovariate(1) for _ in range(n)), p) or 0) < true for _ in range(2000)
    )
    assert below <= 32, "1% of 2,000, and three standard errors"


def test_what_is_shown() -> None:
    values = [float(v) for v in range(1000)]
    few, some, many = bounded_summary(values[:20]), bounded_summary(values[:50]), bounded_summary(values)
    assert "p90" not in few and "p90_bound" not in few and shown_percentile(few, "p90") is None
    assert some["p90"] == percentile(values[:50], 90) and some["p90_bound"] == 49.0
    assert shown_percentile(some, "p90") == ("≤ ", 49.0) and shown_percentile(some, "p99") is None
    assert shown_percentile(many, "p90") == ("", many["p90"]) and many["p90_bound"] > many["p90"]
    assert shown_percentile(many, "p99") == ("", many["p99"]) and many["p99_bound"] <= many["max"]
    assert shown_percentile(some, "p50") == ("", 24.5)
    assert percentile_text(some, "p90") == "≤ 49.00" and percentile_text(few, "p99") == "–"
    assert shown_percentile({"n": 200, "p99": 7.0}, "p99") == ("", 7.0), "older results, and gaps of chunks"
