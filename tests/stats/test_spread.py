"""Spread, intervals and differences: against published tables, by hand, and against simulated truth (seeded)."""

from __future__ import annotations

import math
import random

import pytest

from ddtop.stats.differ import Comparison, differences, holm, samples_needed
from ddtop.stats.drift import drifted
from ddtop.stats.race import Rules, decide
from ddtop.stats.spread import Spread, Starts, around, pooled, value_of
from ddtop.stats.student import quantile, two_sided

TABLE = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    8: 2.306,
    12: 2.179,
    20: 2.086,
    30: 2.042,
    120: 1.980,
}
"""Two-sided 95% quantiles of Student's t by degrees of freedom, as printed in tables."""


@pytest.mark.parametrize(("freedom", "t"), TABLE.items())
def test_students_t_is_that_of_the_tables(freedom: int, t: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(t, abs=6e-4)
    assert two_sided(t, freedom) == pytest.approx(0.05, abs=5e-5)


def test_tails_of_two_degrees_of_freedom_have_a_closed_form() -> None:
    for t in (0.0, 0.3, 1.0, 4.3, 30.0, 1e4):
        assert two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-10)
    assert two_sided(math.inf, 5) == 0.0 and quantile(0.99, 5) == pytest.approx(4.032, abs=6e-4)


def test_the_value_is_the_mean_of_the_starts_means() -> None:
    found = value_of(((10.0, 20.0), (30.0,)), Spread())
    assert found is not None and (found.value, found.n, found.starts) == (22.5, 3, 2)
    assert found.low is None and value_of((), Spread()) is None


def test_the_spread_between_starts_is_pooled_over_configurations() -> None:
    # logs of the starts' means: a ±0.01, b ±0.02: (2 × 0.01² + 2 × 0.02²) over 1 + 1 degrees of freedom
    a = tuple((100 * math.exp(x),) for x in (-0.01, 0.01))
    b = tuple((9 * math.exp(x),) for x in (-0.02, 0.02))
    spread = pooled([a, b, ((50.0,),), ()])
    assert (spread.basis, spread.freedom) == ("starts", 2)
    assert spread.sd == pytest.approx(math.sqrt(0.0005))
    found = value_of(((50.0,),), spread)
    assert found is not None and found.high == pytest.approx(
        50 * math.exp(4.303 * math.sqrt(0.0005)), rel=1e-4
    )


def test_repeats_inside_a_start_say_nothing_of_the_spread_between_starts() -> None:
    spread = pooled([((100.0, 110.0), (104.9, 104.9))])
    assert spread.basis == "starts" and spread.sd == pytest.approx(
        math.log(105 / 104.9) / math.sqrt(2), rel=1e-6
    )


def test_one_start_has_the_spread_inside_it_only() -> None:
    spread = pooled([((100.0, 101.0, 102.0),), ((7.0,),)])
    assert (spread.basis, spread.freedom) == ("inside", 2)


@pytest.mark.parametrize("results", [[], [((1.0,),), ((2.0,),)], [((0.0, 1.0),)], [((math.nan, 1.0),)]])
def test_without_repeats_or_with_figures_of_zero_there_is_no_spread(results: list[Starts]) -> None:
    assert pooled(results) == Spread()


def one(reference: Starts, result: Starts, floor: float = 0.01) -> Comparison:
    return differences(reference, {"x": result}, pooled([reference, result]), floor)["x"]


def test_a_difference_and_none() -> None:
    far = one(((100.0,), (101.0,), (99.0,)), ((150.0,), (151.0,), (149.0,)))
    assert far.different is True and far.basis == "starts" and far.low is not None and 1.4 < far.low < 1.5
    near = one(((100.0,), (110.0,), (90.0,)), ((104.0,), (95.0,), (108.0,)))
    assert near.different is False and "includes 1" in near.why


def test_small_differences_do_not_matter_however_sure() -> None:
    assert one(((100.0,),) * 3, ((100.5,),) * 3).different is False
    assert one(((100.0,),) * 3, ((102.0,),) * 3).different is True
    floored = one(((100.0,),) * 3, ((102.0,),) * 3, floor=0.025)
    assert floored.different is False and floored.why == "not different: less than 2.5%"


def test_absurd_figures_give_wide_intervals_and_no_overflow() -> None:
    """An external benchmark's result file may hold anything."""
    wild: dict[str, Starts] = {
        "a": ((1e300,),),
        "b": ((1e-300, 1e-300), (1.0, 13.0)),
        "c": ((1.0, 2.0, 1e-300),),
    }
    spread = pooled(wild.values())
    low, high = around(1.0, 9_999.0)
    assert 0 < low < 1e-100 and 1e100 < high < math.inf
    found = value_of(wild["b"], spread)
    assert found is not None and found.low is not None and found.high is not None
    assert found.low < found.value < found.high
    compared = differences(wild["a"], {"b": wild["b"], "c": wild["c"]}, spread)
    assert all(
        one.low is not None and one.high is not None and one.low <= one.high for one in compared.values()
    )
    assert drifted(1e300, 1e-300, [[math.inf, 1.0]]) and drifted(math.inf, math.inf, []) is None
    unsure: dict[str, Starts] = {"a": ((1e-300, 1e-300), (1.0,)), "b": ((1.0,),)}
    assert decide({"c8": unsure}, ("a", "b"), Rules(rule="race", most=3), 1).go_on == ("a", "b")


def test_what_cannot_be_known() -> None:
    alone = one(((100.0,),), ((150.0,),))
    assert alone.different is None and alone.ratio == 1.5 and alone.low is None
    assert one((), ((1.0,),)).why == "no measurement on one side"
    assert one(((0.0,), (0.0,)), ((1.0,),)).ratio is None


def test_inside_one_start_says_so() -> None:
    assert one(((100.0, 101.0),), ((150.0, 151.0),)).why.endswith("spread inside one start only")


def test_holm() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({}) == {} and holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}


# ---- against simulated truth


def drawn(
    rng: random.Random, truth: float, starts: int, repeats: int, between: float, inside: float
) -> Starts:
    """SIMULATED: a server of `truth` tok/s with relative noise between starts and inside them."""
    shifts = [rng.gauss(0, between) for _ in range(starts)]
    return tuple(tuple(truth * (1 + s + rng.gauss(0, inside)) for _ in range(repeats)) for s in shifts)


@pytest.mark.parametrize("starts", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("between", "inside", "repeats"), [(0.015, 0.015, 1), (0.03, 0.01, 3), (0.002, 0.02, 2)]
)
def test_nineteen_of_twenty_intervals_hold_the_truth(
    starts: int, between: float, inside: float, repeats: int
) -> None:
    """Values and ratios, of five configurations whose spread is pooled."""
    rng, hit, ratios_hit, count = random.Random(starts), 0, 0, 600
    truths = {"base": 100.0, "a": 101.0, "b": 140.0, "c": 30.0, "d": 99.5}
    for _ in range(count):
        results = {k: drawn(rng, t, starts, repeats, between, inside) for k, t in truths.items()}
        spread = pooled(results.values())
        found = {k: value_of(r, spread) for k, r in results.items()}
        hit += sum(v.low <= truths[k] <= v.high for k, v in found.items() if v and v.low and v.high)
        others = {k: r for k, r in results.items() if k != "base"}
        ratios = differences(results["base"], others, spread)
        ratios_hit += sum(c.low <= truths[k] / 100 <= c.high for k, c in ratios.items() if c.low and c.high)
    assert 0.93 <= hit / count / 5 <= 0.97
    assert 0.93 <= ratios_hit / count / 4 <= 0.97


def test_where_nothing_differs_hardly_any_sweep_says_so() -> None:
    """Of all sweeps of nine equal configurations at most one in twenty calls any of them different."""
    rng, wrong, count = random.Random(9), 0, 400
    for _ in range(count):
        results = {str(k): drawn(rng, 100.0, 3, 1, 0.03, 0.01) for k in range(9)}
        base = results.pop("0")
        found = differences(base, results, pooled([base, *results.values()]))
        wrong += any(c.different for c in found.values())
    assert wrong / count <= 0.06


def test_what_repeats_in_one_start_call_sure_is_often_wrong() -> None:
    """Why `starts` exists: with 3% between starts, 95% intervals of repeats inside one start miss mostly."""
    rng, hit = random.Random(1), 0
    for _ in range(300):
        results = [drawn(rng, 100.0, 1, 4, 0.03, 0.01) for _ in range(4)]
        found = value_of(results[0], pooled(results))
        hit += found is not None and found.low is not None and found.low <= 100 <= (found.high or 0)
    assert hit / 300 < 0.5


# ---- drift inside a start


def test_a_start_that_moved_more_than_chance_explains() -> None:
    # 1.5% worth three degrees of freedom: the limit is 3 × √2 × 1.5% = 6.4%
    assert drifted(100.0, 94.1, []) is None and drifted(100.0, 106.3, []) is None
    said = drifted(100.0, 90.0, [])
    assert said == "the start's first load gave 100.0 tok/s, and 90.0 (-10.0%) as its last; limit 6.4%"
    assert drifted(0.0, 90.0, []) is None


def test_the_limit_follows_what_starts_show_and_is_2_percent_at_least() -> None:
    calm = [[100.0, 100.1]] * 60
    assert drifted(100.0, 97.9, calm) is not None and drifted(100.0, 98.2, calm) is None
    rough = [[100.0, 106.0], [50.0, 47.0, 51.0]] * 10
    assert drifted(100.0, 90.0, rough) is None


def test_hardly_any_healthy_start_is_doubted() -> None:
    """SIMULATED: starts with 1.5% noise inside, of which 20 were seen."""
    rng, count = random.Random(2), 1500
    wrong = 0
    for _ in range(count):
        seen = [[100 * (1 + rng.gauss(0, 0.015)) for _ in range(2)] for _ in range(20)]
        wrong += drifted(100 * (1 + rng.gauss(0, 0.015)), 100 * (1 + rng.gauss(0, 0.015)), seen) is not None
    assert wrong / count < 0.01


@pytest.mark.parametrize(("ratio", "sd"), [(1.03, 0.02), (1.05, 0.02), (0.97, 0.015)])
def test_so_many_starts_more_would_tell_and_one_less_would_not(ratio: float, sd: float) -> None:
    def judged(more: int) -> Comparison:
        starts = [[100.0]] * (2 + more), [[100.0 * ratio]] * (2 + more)
        return differences(starts[0], {"b": starts[1]}, Spread("starts", sd, 2 + 2 * more))["b"]

    needed = samples_needed(judged(0))
    assert needed is not None
    assert judged(needed).different is True and judged(needed - 1).different is False


def test_no_number_of_starts_makes_a_difference_that_does_not_matter() -> None:
    small = differences([[100.0]] * 2, {"b": [[100.5]] * 2}, Spread("starts", 0.01, 2))["b"]
    assert small.different is False and samples_needed(small) is None
    sure = differences([[100.0]] * 2, {"b": [[150.0]] * 2}, Spread("starts", 0.01, 2))["b"]
    assert sure.different and samples_needed(sure) is None
    alone = differences([[100.0]], {"b": [[150.0]]}, Spread())["b"]
    assert alone.different is None and samples_needed(alone) is None


def test_less_is_better_turns_the_ratio_and_its_interval() -> None:
    one = differences([[4.0]] * 2, {"b": [[2.0]] * 2}, Spread("starts", 0.01, 2))["b"]
    turned = one.turned()
    assert turned.ratio == 2.0 and turned.different is True
    assert turned.low is not None and one.high is not None and turned.low == pytest.approx(1 / one.high)
    assert Comparison(None, 0.0).turned().ratio is None
