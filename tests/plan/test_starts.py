"""Repeats over starts: rounds, their order, keys and ids, the sentinel, and the baseline against itself."""

from __future__ import annotations

import pytest

from ddtop.events import CellSpec
from ddtop.plan import Plan, expand, parse_plan, show
from ddtop.plan.check import count_cells
from ddtop.stats.race import Rules
from ddtop.stats.spread import Spread
from ddtop.sweep.setup.from_plan import sweep_from
from tests.plan.test_plan import ENV, SMALL, faults, small


def starts_of(text: str, plan: str = SMALL) -> Plan:
    return small(plan, **{"[matrix]\n": f"[matrix]\n{text}\n"})


def rounds(plan: Plan) -> list[list[str]]:
    """Of each round the configurations in the order of their starts."""
    keys: dict[str, tuple[int, str]] = {}
    for cell in expand(plan):
        keys.setdefault(cell.spec.restart_key, (cell.spec.start, f"{cell.spec.config} tp{cell.spec.tp}"))
    return [[name for at, name in keys.values() if at == n] for n in range(plan.matrix.starts)]


def test_one_start_is_the_plan_as_it_was() -> None:
    assert expand(starts_of("starts = 1")) == expand(small())


def test_the_first_rounds_cells_keep_their_ids_and_all_others_are_new() -> None:
    before, now = expand(small()), expand(starts_of("starts = 3"))
    first = {c.spec.id for c in now if not c.spec.start and not c.spec.sentinel}
    assert first == {c.spec.id for c in before}
    assert len({c.spec.id for c in now}) == len(now) == count_cells(starts_of("starts = 3"))
    assert {c.spec.id for c in now} <= {c.spec.id for c in expand(starts_of("starts = 5"))}


def test_every_round_starts_each_configuration_once_and_begins_one_later() -> None:
    one, two, three = rounds(starts_of("starts = 3"))
    assert one == ["b16 tp1", "auto tp1", "b8 tp1", "b16 tp2", "auto tp2", "b8 tp2"]
    assert two == [*one[1:], one[0]] and three == [*one[2:], *one[:2]]


def test_one_key_is_one_start_and_says_whose_it_is() -> None:
    cells = expand(starts_of("starts = 3"))
    keys = [c.spec.restart_key for c in cells]
    assert len(set(keys)) == 18 and all(c.launch.restart_key == c.spec.restart_key for c in cells)
    runs = [k for i, k in enumerate(keys) if i == 0 or keys[i - 1] != k]
    assert len(runs) == 18, "the cells of a start stand together"
    assert len({c.spec.server for c in cells}) == 6


def test_a_rounds_loads_stand_in_one_order_for_all_and_another_in_the_next_round() -> None:
    orders = {
        (c.spec.start, c.spec.restart_key): [
            (x.spec.workload, x.spec.output_tokens, x.spec.concurrency)
            for x in expand(starts_of("starts = 6"))
            if x.spec.restart_key == c.spec.restart_key
        ]
        for c in expand(starts_of("starts = 6"))
        if c.spec.sentinel
    }
    by_round = [{tuple(o) for (at, _), o in orders.items() if at == n} for n in range(6)]
    assert all(len(each) == 1 for each in by_round) and len(set.union(*by_round)) > 2


def test_the_sentinel_is_the_first_load_again_with_other_text() -> None:
    cells = [c for c in expand(starts_of("starts = 2")) if c.spec.config == "b8" and c.spec.tp == 1]
    for start in (0, 1):
        first, *_, last = (c for c in cells if c.spec.start == start)
        assert last.spec.sentinel and not first.spec.sentinel and last.spec.id != first.spec.id
        assert last.spec.load[:-1] == first.spec.load[:-1]
        same = {k: v for k, v in last.bench.load.items() if k not in ("id", "nonce")}
        assert same == {k: v for k, v in first.bench.load.items() if k not in ("id", "nonce")}
        assert last.bench.load["nonce"] != first.bench.load["nonce"]
    assert cells[0].bench.load["nonce"] != cells[1].bench.load["nonce"]


def test_the_sentinel_is_of_a_load_that_is_run() -> None:
    plan = starts_of('starts = 2\nskip = [{ config = "b8", concurrency = 8, reason = "too slow" }]')
    cells = [c.spec for c in expand(plan) if c.spec.config == "b8"]
    assert {c.concurrency for c in cells if c.sentinel} == {1}
    assert all((c.skip_reason is not None) == (c.concurrency == 8) for c in cells)


def test_the_baseline_is_measured_against_itself_under_another_name() -> None:
    plan = starts_of("starts = 2\naa = true")
    cells = [c for c in expand(plan) if c.spec.tp == 1]
    base = [c for c in cells if c.spec.config == "b16"]
    again = [c for c in cells if c.spec.config == "b16-aa"]
    assert len(again) == len(base) and all(c.spec.aa and not c.spec.baseline for c in again)
    assert {c.spec.id for c in again}.isdisjoint(c.spec.id for c in base)
    assert {c.launch.argv for c in again} == {c.launch.argv for c in base}
    assert {c.launch.restart_key for c in again}.isdisjoint(c.launch.restart_key for c in base)
    assert "measured against itself too" in show(plan)


def test_a_cells_name_says_its_round() -> None:
    cells = [c.spec for c in expand(starts_of("starts = 2")) if c.spec.config == "b8" and c.spec.tp == 2]
    assert [c.label for c in cells if c.sentinel][1].endswith(" start 2 sentinel")
    assert "start" not in cells[0].label


class Known:
    """What earlier runs taught: a minute a cell, two minutes a start, 1% between starts."""

    spread = Spread("starts", 0.01, 12)

    def cell_s(self, _spec: CellSpec, /) -> float | None:
        return 60.0

    def restart_s(self, _config: str, _tp: int, /) -> float | None:
        return 120.0


def test_show_says_what_starts_cost_and_what_one_more_would_show() -> None:
    text = show(starts_of("starts = 2"), Known())
    # two rounds of six servers, each 2 min and 5 cells of 1 min
    assert "60 cells to run, 12 server starts" in text and "about 1 h 24 min" in text
    assert "starts: 2 of every configuration, 42 min for each" in text
    # three configurations a TP: 3 degrees of freedom, t 3.182 × 1% × √(2/2); then 6, t 2.447 × 1% × √(2/3)
    assert "here: 1.0%, from earlier runs; 2 starts each show differences from 3.2%" in text
    assert "one start more of each (42 min more): 3 starts each show differences from 2.0%" in text
    assert "start 2: auto tp1, b8 tp1, b16 tp2, auto tp2, b8 tp2, b16 tp1" in text
    assert "sentinel: the first load again" in text


def test_show_says_what_a_first_further_start_would_bring() -> None:
    text = show(small(), Known())
    assert "one start each shows no difference for sure" in text and "from 3.2%" in text
    assert "starts:" not in show(small()) and "starts: 2 of every configuration\n" in show(
        starts_of("starts = 2")
    )
    assert "at most 6 of every configuration, fewer of those that lose the race" in show(
        starts_of("race = true")
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("starts = 0", "line 13: matrix.starts: found 0"),
        ("starts = 101", "a whole number from 1 to 100"),
        ('starts = "many"', "matrix.starts"),
        ("starts = 1\nrace = true", "line 13: matrix.starts: found 1; allowed: with race, at least 2"),
        (
            "race = true\nmax_starts = 1",
            "line 14: matrix.max_starts: found 1; allowed: a whole number from 2",
        ),
        ("starts = 3\nmax_starts = 4", "line 14: matrix.max_starts: stands beside starts = 3"),
        (
            "race = true\nstarts = 3\nmax_starts = 4",
            "matrix.max_starts: stands beside starts = 3; with race either of them is the limit: leave one out",
        ),
        ("max_starts = 4", "line 13: matrix.max_starts: stands without starts"),
        ("starts = 3\nepsilon_pct = 1", "line 14: matrix.epsilon_pct: stands without race"),
        ("starts = 3\nprecision_pct = 1", 'line 14: matrix.precision_pct: stands without starts = "auto"'),
        ("race = true\nprecision_pct = 1", "line 14: matrix.precision_pct: stands beside race"),
        ('starts = "auto"\nprecision_pct = 0', "line 14: matrix.precision_pct: found 0"),
        ("race = true\nepsilon_pct = 90", "a number from 0.1 to 50%"),
        ("aa = 1", "true or false"),
    ],
)
def test_impossible_starts_get_a_sentence(text: str, said: str) -> None:
    assert any(said in fault for fault in faults(SMALL.replace("[matrix]\n", f"[matrix]\n{text}\n")))


@pytest.mark.parametrize(
    ("text", "starts", "rules"),
    [
        ("starts = 4", 4, None),
        ('starts = "auto"', 6, Rules(rule="precision", most=6)),
        (
            'starts = "auto"\nprecision_pct = 0.5\nmax_starts = 9',
            9,
            Rules(rule="precision", most=9, precision=0.005),
        ),
        ("race = true", 6, Rules(rule="race", most=6)),
        ("race = true\nstarts = 3\nepsilon_pct = 1", 3, Rules(rule="race", most=3, epsilon=0.01)),
        ('race = true\nstarts = "auto"\nmax_starts = 8', 8, Rules(rule="race", most=8)),
    ],
)
def test_rules_of_when_to_stop(text: str, starts: int, rules: Rules | None) -> None:
    plan = starts_of(text)
    assert (plan.matrix.starts, plan.matrix.rounds) == (starts, rules)
    assert sweep_from(plan).rounds == rules


def test_a_race_needs_two_configurations() -> None:
    text = SMALL.replace("auto = {}\n", "").replace("[8, 16]", "[16]")
    assert any(
        "line 12: matrix.race: has one configuration" in f
        for f in faults(text.replace("[matrix]\n", "[matrix]\nrace = true\n"))
    )


def test_a_race_by_rates_alone_is_warned_of() -> None:
    def warned(load: str) -> list[str]:
        text = SMALL.replace("[matrix]\n", "[matrix]\nrace = true\n").replace("concurrency = [1, 8]", load)
        _, warnings = parse_plan(text, environ=ENV)
        return [str(w) for w in warnings if w.path == ("matrix", "race")]

    (said,) = warned("load = [{ rate = 4.0 }]")
    assert "has rates alone to judge by" in said and "add a concurrency or a search" in said
    assert warned("concurrency = 1\nload = [{ rate = 4.0 }]") == []


def test_starts_of_one_configuration_are_warned_of() -> None:
    one = (
        SMALL.replace("auto = {}\n", "")
        .replace("[8, 16]", "[16]")
        .replace("[matrix]\n", "[matrix]\nstarts = 3\n")
    )
    _, warnings = parse_plan(one, environ=ENV)
    assert [str(w) for w in warnings if w.path[:2] == ("matrix", "starts")] == [
        "line 12: matrix.starts: has one configuration to start again; "
        "its own value gets an interval; there is nothing to compare it with"
    ]
    _, warnings = parse_plan(one.replace("starts = 3\n", "starts = 3\naa = true\n"), environ=ENV)
    assert not [w for w in warnings if w.path[:2] == ("matrix", "starts")]  # it is compared with itself


def test_a_configuration_may_not_have_the_name_of_the_baseline_against_itself() -> None:
    text = SMALL.replace("auto = {}", 'auto = {}\nb16-aa = { args = ["--other"] }')
    assert any("b16-aa" in f for f in faults(text.replace("[matrix]\n", "[matrix]\naa = true\n")))
