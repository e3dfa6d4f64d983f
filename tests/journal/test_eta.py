"""How long the rest takes: bounds that hold, and an end that does not move away while nothing goes wrong."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from ddtop import events as ev
from ddtop.commands.live.status import status_text
from ddtop.journal.act.now import facts
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.read.eta import Eta, Times, cell_limit_s, longest_s, rough, sweep_eta
from tests.journal.made import Clock, spec

LOADS = (1, 4, 16, 64)
LIMIT_S = 120.0
PLAN = f"[bench]\ntime_limit_s = {LIMIT_S}\n"


def seconds_of(config: int, load: int, seed: random.Random) -> float:
    """A cell's time: more with the load, less with each configuration, some noise; never above the limit."""
    return min(LIMIT_S, 6.0 * load**0.55 * (1.6 - 0.3 * config) * seed.uniform(0.95, 1.05))


@pytest.mark.parametrize(
    ("seed", "shuffled"), [*((n, False) for n in range(4)), *((n, True) for n in range(8))]
)
def test_the_bounds_hold_and_the_end_does_not_move_away(seed: int, shuffled: bool) -> None:
    """From the slowest configuration to the fastest the end only comes nearer (but for starts slower than learned); in any order it
    moves by little: here by no
    more than a tenth of the run, where configurations differ by 2.3 times."""
    chance = random.Random(seed)
    clock = Clock()
    order = chance.sample(range(4), 4) if shuffled else list(range(4))
    plan = [(c, n) for c, n in itertools.product(order, LOADS)]
    cells = {
        (c, n): spec(f"{c}-{n}", f"b{c}", concurrency=n, restart_key=f"b{c}", baseline=not c) for c, n in plan
    }
    state = fold(
        [
            ev.RunStarted(**clock(), run_id="r", name="r", mode="sweep", segment=0, plan_toml=PLAN),
            ev.CellsPlanned(**clock(), cells=tuple(cells.values()), baseline="b0"),
            ev.TimesLearned(**clock(), starts={f"b{c}": 60.0 for c in range(4)}),
        ]
    )
    durations = {place: seconds_of(*place, chance) for place in plan}
    starts = {c: 60.0 * chance.uniform(0.8, 1.4) for c in range(4)}
    now, last_end = state.at_s, float("inf")
    slack_s = (0.1 if shuffled else 0.02) * (sum(durations.values()) + sum(starts.values()))
    for at, place in enumerate(plan):
        if place[1] == LOADS[0]:
            attempt = f"s{place[0]}"
            begun = {"attempt_id": attempt, "config": f"b{place[0]}", "tp": 1, "unit": "u"}
            apply(
                state, ev.RestartStarted(at_s=now, mono_s=now, host="h", cell_ids=(cells[place].id,), **begun)
            )
            now += starts[place[0]]
            ready = {"attempt_id": attempt, "ready_s": starts[place[0]], "engine": "e"}
            generation = ev.Generation(boot="b", id=attempt)
            apply(state, ev.RestartReady(at_s=now, mono_s=now, host="h", generation=generation, **ready))
        found = sweep_eta(state, now)
        left = sum(durations[p] for p in plan[at:]) + sum(
            starts[c] for c in order[order.index(place[0]) + 1 :]
        )
        assert found.high_s is not None and found.low_s <= left <= found.high_s, (place, found, left)
        end = found.ends_by(now)
        assert end is not None and end <= last_end + slack_s + 1e-6, (
            f"the end moved away by {end - last_end:.0f} s"
        )
        last_end = min(end, last_end)
        cell = cells[place].id
        apply(state, ev.CellStarted(at_s=now, mono_s=now, host="h", cell_id=cell, attempt=1))
        now += durations[place]
        apply(
            state, ev.CellMeasured(at_s=now, mono_s=now, host="h", cell_id=cell, attempt=1, validity="VALID")
        )
        apply(state, ev.CellStateSet(at_s=now, mono_s=now, host="h", cell_id=cell, state="done", attempt=1))
    assert sweep_eta(state, now).high_s == 0.0


def test_before_anything_is_measured_the_plans_limits_and_earlier_runs_say_how_long() -> None:
    clock = Clock()
    cells = tuple(spec(f"c{n}", "auto", concurrency=n, restart_key="auto") for n in (1, 8))
    planned = ev.CellsPlanned(**clock(), cells=cells, baseline="auto")
    alone = fold([planned])
    assert sweep_eta(alone, 0.0).words == "time unknown"
    run = ev.RunStarted(**clock(), run_id="r", name="r", mode="sweep", segment=0, plan_toml=PLAN)
    limits = sweep_eta(fold([run, planned, ev.TimesLearned(**clock(), starts={"auto": 60.0})]), 0.0)
    assert limits.total_s is None and limits.high_s == 2 * (120.0 * 4 / 3 + 15.0) + 1.8 * 60.0
    assert limits.words == "at most 8m"
    learned = ev.TimesLearned(**clock(), cells={"c1": 20.0, "c8": 40.0}, starts={"auto": 60.0})
    known = sweep_eta(fold([run, planned, learned]), 0.0)
    assert known.total_s == 120.0 and known.words == "80s to 4m"


def test_a_search_may_take_as_long_as_its_loads_and_its_confirmation() -> None:
    search = ev.Search(by="concurrency", start=1.0, most=64.0, point_s=20.0, confirm_s=60.0)
    one = spec("s", "auto", concurrency=0, search=search)
    assert longest_s(one, 100.0) == (6 + 4) * 20.0 + 100.0 and longest_s(one, None) is None
    clock = Clock()
    run = ev.RunStarted(**clock(), run_id="r", name="r", mode="sweep", segment=0, plan_toml=PLAN)
    planned = ev.CellsPlanned(**clock(), cells=(one,), baseline="auto")
    learned = ev.TimesLearned(**clock(), starts={one.restart_key: 60.0})
    found = sweep_eta(fold([run, planned, learned]), 0.0)
    assert found.total_s is None and found.high_s == 10 * 20.0 + 175.0 + 108.0


def test_a_configurations_pace_beside_the_others_is_taken_over_to_loads_it_has_not_met() -> None:
    auto = [(spec(f"a{n}", "auto", concurrency=n), 10.0 * n) for n in (1, 8)]
    slow = (spec("s1", "slow", concurrency=1), 30.0)
    times = Times([*auto, slow])
    span = times.span(spec("s8", "slow", concurrency=8), None, None)
    assert span is not None and span.mid == 240.0
    first = times.span(spec("n8", "new", concurrency=8), None, 100.0)
    assert first is not None and first.mid == 80.0 and first.high == 100.0, "never above the plan's limit"


@pytest.mark.parametrize(
    ("toml", "limit"),
    [(None, None), ("", 815.0), ("[bench]\ntime_limit_s = 60", 95.0), ("[[", None), ("bench = 3", None)],
)
def test_the_limit_of_a_cell_is_the_plans(toml: str | None, limit: float | None) -> None:
    assert cell_limit_s(toml) == limit


def test_the_words_of_a_time_to_come() -> None:
    assert Eta(100.0, 1, 0, low_s=6000.0, high_s=7800.0).words == "1h40m to 2h10m"
    assert Eta(100.0, 1, 0, low_s=99.0, high_s=99.5).words == "about 2m"
    assert Eta(100.0, 1, 0, at_most=True, high_s=7800.0).words == "at most 2h10m"
    assert rough(0.0) == "10s" and rough(36_000) == "10h"


@pytest.mark.parametrize("plan", [PLAN, None])
def test_status_says_what_the_header_says_of_the_time_left(plan: str | None) -> None:
    """Before anything was measured a limit may be known: `status` said "unknown" beside the dashboard's "at most"."""
    clock = Clock()
    cells = tuple(spec(f"c{n}", "b0", concurrency=n, restart_key="b0", baseline=True) for n in LOADS)
    state = fold(
        [
            ev.RunStarted(**clock(), run_id="r", name="r", mode="sweep", segment=0, plan_toml=plan),
            ev.CellsPlanned(**clock(), cells=cells, baseline="b0"),
            ev.TimesLearned(**clock(), starts={"b0": 60.0}),
        ]
    )
    left = sweep_eta(state, state.at_s)
    assert left.total_s is None and (left.high_s is None) == (plan is None)
    text = status_text(facts(state, state.at_s, path=Path("r.ddtop"), live=True))
    (line,) = [row for row in text.splitlines() if row.startswith("  ETA: ")]
    assert left.words in line
    assert ("no similar cell" in line) == (plan is None)
