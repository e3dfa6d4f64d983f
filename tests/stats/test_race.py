"""Racing and precision: decisions by hand, and against simulated truth (seeded)."""

from __future__ import annotations

import random

import pytest

from ddtop.stats.race import Rules, decide, with_prior
from ddtop.stats.spread import Spread, Starts, mean

RACE = Rules(rule="race", most=6)
FINE = Rules(rule="precision", most=6, precision=0.02)


def flat(**values: list[float]) -> dict[str, dict[str, Starts]]:
    """One load: configuration → one figure a start."""
    return {"fib c1": {name: tuple((v,) for v in numbers) for name, numbers in values.items()}}


def test_what_lies_below_the_leader_is_left_with_the_numbers() -> None:
    found = decide(flat(a=[100.0], b=[99.0], c=[80.0]), "abc", RACE, 1)
    assert found.go_on == ("a", "b") and not found.ended and found.leaders == {"fib c1": "a"}
    # 1.5% a start, three degrees of freedom: t 2.353 × 1.5% × √2 = 5.0%
    assert found.left == {"c": "20.0% below a (90% interval 15.9 to 23.9%)"}


def test_it_ends_when_one_is_left() -> None:
    found = decide(flat(a=[100.0], b=[50.0]), "ab", RACE, 1)
    assert (found.go_on, found.ended) == ((), "a leads") and "50.0% below a" in found.left["b"]


def test_it_ends_when_all_that_are_left_are_near_enough() -> None:
    found = decide(flat(a=[100.0] * 5, b=[99.9] * 5, c=[60.0]), "abc", RACE, 5)
    assert found.ended == "a and b are within 2% of each other" and "40.0% below" in found.left["c"]
    assert found.left["b"] == found.ended


def test_it_ends_at_the_last_round() -> None:
    assert decide(flat(a=[100.0, 103.0], b=[103.0, 100.0]), "ab", Rules(rule="race", most=2), 2).ended == (
        "no start is left: 2 at most"
    )


def test_the_best_at_any_load_is_not_left() -> None:
    results = {
        **flat(a=[100.0], b=[70.0], c=[60.0]),
        "fib c8": {"a": ((100.0,),), "b": ((180.0,),), "c": ((99.0,),)},
    }
    found = decide(results, "abc", RACE, 1)
    assert found.ended == "fib c1: a leads; fib c8: b leads"
    assert (
        found.left["c"].startswith("fib c1: 40.0% below a") and "; fib c8: 45.0% below b" in found.left["c"]
    )


def test_a_load_that_is_decided_asks_for_no_start() -> None:
    results = {
        **flat(a=[100.0], b=[70.0], c=[60.0]),
        "fib c8": {"a": ((50.0,),), "b": ((99.0,),), "c": ((100.0,),)},
    }
    found = decide(results, "abc", RACE, 1)
    assert found.go_on == ("b", "c") and found.left == {
        "a": "fib c1: a leads; fib c8: 50.0% below c (90% interval 47.4 to 52.4%)"
    }


def test_what_has_no_result_yet_goes_on() -> None:
    found = decide(flat(a=[100.0], b=[50.0]), "abc", RACE, 1)
    assert found.go_on == ("c",) and not found.ended
    assert decide({}, "ab", RACE, 1).go_on == ("a", "b")


def test_what_came_late_is_compared_with_a_leader_that_is_started_no_more() -> None:
    found = decide(flat(a=[100.0], b=[50.0], c=[60.0]), "c", RACE, 2)
    assert (found.go_on, found.ended, found.leaders) == ((), "a leads", {"fib c1": "a"})
    assert found.left["c"].startswith("40.0% below a")
    near = decide(flat(a=[100.0], b=[50.0], c=[99.0]), "c", RACE, 2)
    assert near.go_on == ("c",)


def test_figures_of_zero_lose() -> None:
    found = decide(flat(a=[100.0], b=[0.0]), "ab", RACE, 1)
    assert found.ended == "a leads" and found.left["b"].startswith("100.0% below a")


def test_the_prior_gives_way_to_what_is_seen() -> None:
    assert with_prior(Spread("inside", 0.5, 50)).sd == pytest.approx(0.015)
    assert with_prior(Spread("starts", 0.06, 997)).sd == pytest.approx(0.06, rel=0.01)


def test_precision_stops_what_is_known_well_enough() -> None:
    assert decide(flat(a=[100.0], b=[50.0]), "ab", FINE, 1).go_on == ("a", "b"), "one start shows no spread"
    known = decide(flat(a=[100.0, 100.1], b=[50.0, 50.1]), "ab", FINE, 2)
    assert known.ended == "every value is known to ±2%" and known.left["a"].startswith("known to ±0.")
    assert decide(flat(a=[100.0, 104.0], b=[50.0, 51.0]), "ab", FINE, 2).go_on == ("a", "b")
    part = decide(
        flat(a=[100.0, 100.5, 100.0, 100.5, 100.2], b=[50.0, 50.1]),
        "ab",
        Rules(rule="precision", most=9, precision=0.003),
        5,
    )
    assert part.go_on == ("b",) and list(part.left) == ["a"]


# ---- against simulated truth


def raced(rng: random.Random, truth: dict[str, float], between: float, inside: float) -> tuple[str, int]:
    """SIMULATED: (the leader, starts) of a race with one cell a start."""
    data: dict[str, list[tuple[float, ...]]] = {name: [] for name in truth}
    go_on, starts = tuple(truth), 0
    for rounds in range(1, RACE.most + 1):
        for name in go_on:
            data[name].append((truth[name] * (1 + rng.gauss(0, between) + rng.gauss(0, inside)),))
        starts += len(go_on)
        found = decide({"load": {n: tuple(d) for n, d in data.items()}}, go_on, RACE, rounds)
        if found.ended:
            return found.leaders["load"], starts
        go_on = found.go_on
    raise AssertionError("it did not end")


@pytest.mark.parametrize("count", [9, 24])
@pytest.mark.parametrize(("between", "inside"), [(0.005, 0.01), (0.015, 0.015)])
def test_a_race_finds_the_best_with_fewer_starts_than_the_grid(
    count: int, between: float, inside: float
) -> None:
    """Within 2% of the best in at least 98 of 100 plans, with at most 65% of the starts of three each."""
    rng, right, starts, plans = random.Random(7), 0, 0, 400
    for _ in range(plans):
        truth = {f"c{k}": 100 * (1 - abs(rng.gauss(0, 0.15))) for k in range(count)}
        best, used = raced(rng, truth, between, inside)
        right += truth[best] >= 0.98 * max(truth.values())
        starts += used
    assert right / plans >= 0.98
    assert starts / plans <= 0.65 * 3 * count


def test_a_race_is_righter_than_one_start_each() -> None:
    """With 3% between starts: racing errs less than half as often as three repeats in one start."""
    rng, wrong_race, wrong_one, plans = random.Random(3), 0, 0, 300
    for _ in range(plans):
        truth = {f"c{k}": 100 * (1 - abs(rng.gauss(0, 0.15))) for k in range(9)}
        best, _ = raced(rng, truth, 0.03, 0.02)
        wrong_race += truth[best] < 0.98 * max(truth.values())
        shifted = {n: t * (1 + rng.gauss(0, 0.03)) for n, t in truth.items()}
        once = {n: mean([[t * (1 + rng.gauss(0, 0.02)) for _ in range(3)]]) for n, t in shifted.items()}
        wrong_one += truth[max(once, key=lambda n: once[n])] < 0.98 * max(truth.values())
    assert wrong_race < wrong_one / 2
