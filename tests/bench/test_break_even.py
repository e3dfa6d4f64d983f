"""Break-even: the fit by hand, every verdict, and the interval against curves whose crossing is known (simulated)."""

from __future__ import annotations

import math
import random

import pytest

from ddtop.bench.worth.break_even import Point, break_even, crossed, falling, ratio_at
from ddtop.stats.differ import differences
from ddtop.stats.spread import pooled


def near(concurrency: int, ratio: float, half: float = 0.02) -> Point:
    return Point(concurrency, ratio, ratio - half, ratio + half)


def test_falling_pools_what_rises() -> None:
    assert falling([3, 1, 2, 0], [1, 1, 1, 1]) == [3, 1.5, 1.5, 0]
    assert falling([1, 2, 3], [1, 1, 2]) == [2.25, 2.25, 2.25]
    assert falling([3, 2, 1], [1, 5, 1]) == [3, 2, 1]
    assert falling([], []) == []
    with pytest.raises(ValueError, match="positive"):
        falling([1.0], [0.0])


def test_the_crossing_is_read_on_logarithms() -> None:
    found = break_even([near(1, 2.0), near(4, 1.25), near(16, 0.8), near(64, 0.5)])
    assert found.verdict == "until"
    assert found.at == pytest.approx(8.0)  # 1.25 and 0.8 are equally far from 1, and so is 8 from 4 and 16
    assert (found.lo, found.hi) == (4, 16)
    assert found.words == "until c 8 [4, 16]"
    assert ratio_at(found.fit, 2) == pytest.approx(math.sqrt(2.0 * 1.25))
    assert ratio_at(found.fit, 0.5) is None and ratio_at(found.fit, 65) is None
    assert ratio_at(found.fit, 64) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("points", "verdict", "words"),
    [
        ([], "not known", "not known"),
        ([near(8, 1.4)], "not known", "not known"),
        ([near(1, 1.8), near(8, 1.5), near(32, 1.2)], "always", "always"),
        ([near(1, 0.9), near(8, 0.8), near(32, 0.7)], "never", "never"),
        ([near(1, 1.8), near(8, 1.01), near(32, 1.005)], "not known", "not known"),
        ([near(1, 1.2), near(8, 1.01), near(32, 0.99)], "until", "until c 16 [1, ?]"),
        ([Point(1, 1.5), Point(4, 1.1), Point(16, 0.9)], "until", "until c 7.7 [no interval]"),
        ([Point(1, 1.5), Point(4, 1.1)], "always", "always"),
        ([Point(1, 0.5), Point(4, 0.6)], "never", "never"),
        ([near(1, math.nan), near(4, 0.0), near(8, 1.4)], "not known", "not known"),
    ],
)
def test_verdicts(points: list[Point], verdict: str, words: str) -> None:
    found = break_even(points)
    assert (found.verdict, found.words) == (verdict, words)
    if verdict != "until":
        assert found.why


def test_single_runs_say_so() -> None:
    assert "no interval" in break_even([Point(1, 1.5), Point(4, 1.1)]).why
    assert "no interval" in break_even([Point(1, 1.5), Point(4, 0.9), Point(8, 0.8)]).why
    assert break_even([near(8, 1.4)]).why == "measured at c 8 alone: gains up to c 8"


def test_points_that_contradict_each_other_show_nothing() -> None:
    """Losing at c 1 and gaining at c 4 is no falling curve: nothing is shown, whatever the intervals say."""
    found = break_even([near(1, 0.8), near(4, 1.4), near(8, 1.5)])
    assert (found.lo, found.hi) == (None, None) and found.verdict == "not known"


def test_the_crossing_lies_between_measured_neighbours() -> None:
    found = break_even([near(1, 2.0), near(4, 1.25), near(16, 0.8)])
    assert crossed(found, [1, 4, 16]) == (4, 16)
    assert crossed(found, [1, 4, 8, 16]) == (8, 16)  # it crosses at 8.0
    assert crossed(break_even([near(1, 1.8), near(8, 1.5)]), [1, 8]) is None
    assert crossed(break_even([near(1, 0.8), near(8, 0.5)]), [1, 8]) is None


CURVES = (
    lambda c: 1.9 * c**-0.3,  # crosses at 8.5
    lambda c: 1.25 * c**-0.1,  # flat: crosses at 9.3
    lambda c: 2.0 / (1 + c / 16),  # crosses at 16, a measured point
    lambda c: 1.3 if c < 6 else 0.85,  # a step
)
CROSSINGS = (1.9 ** (1 / 0.3), 1.25 ** (1 / 0.1), 16.0, 6.0)
MEASURED = (1, 2, 4, 8, 16, 32, 64)


def _measured(rng: random.Random, at: int, truth: float, starts: int, noise: float) -> Point:
    base = tuple((rng.gauss(100.0, 100.0 * noise),) for _ in range(starts))
    mine = tuple((truth * rng.gauss(100.0, 100.0 * noise),) for _ in range(starts))
    found = differences(base, {"mine": mine}, pooled([base, mine]))["mine"]
    assert found.ratio is not None
    return Point(at, found.ratio, found.low, found.high)


@pytest.mark.parametrize("noise", [0.015, 0.05])
@pytest.mark.parametrize("which", range(len(CURVES)))
def test_the_interval_covers_the_true_crossing(which: int, noise: float) -> None:
    """SIMULATED: 600 sweeps of three starts; [lo, hi] holds the true crossing in at least 95%, and is of use: with
    1.5% noise both ends are known in most."""
    rng = random.Random(1000 * which + round(1000 * noise))
    held = both = 0
    runs = 600
    for _ in range(runs):
        points = [_measured(rng, c, CURVES[which](c), 3, noise) for c in MEASURED]
        found = break_even(points)
        true = CROSSINGS[which]
        held += (found.lo is None or found.lo <= true) and (found.hi is None or true <= found.hi)
        both += found.lo is not None and found.hi is not None
    assert held >= 0.95 * runs
    if noise < 0.02:
        assert both >= 0.7 * runs
