"""Races on a SIMULATED host: who is started again, what is skipped, and the same decisions after any death."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.journal.fold.views import CellView
from ddtop.stats.race import Rules
from ddtop.sweep.cell import host_doubts
from ddtop.sweep.controller import Controller
from tests.sweep.test_controller import Dead, Rig, make_sweep
from tests.sweep.test_starts import in_rounds

SPEED = {"a": (1.00, 1.02, 1.01, 1.00), "b": (0.98, 1.03, 0.99, 1.01), "c": (0.80, 0.81, 0.80, 0.80)}
"""Configuration → how fast its start of each round serves: `a` and `b` alike, `c` a fifth slower."""
RACE = Rules(rule="race", most=4)


def rig(rules: Rules | None = RACE, **speed: tuple[float, ...]) -> Rig:
    run = Rig()
    run.sweep = dataclasses.replace(in_rounds(make_sweep(), 4), rounds=rules)
    for spec in run.sweep.cells:
        run.world.speeds[spec.id] = {**SPEED, **speed}[spec.config][spec.start]
    return run


def decided(run: Rig) -> list[ev.RaceRound]:
    return [e for e in run.events if isinstance(e, ev.RaceRound)]


def said(run: Rig) -> list[tuple[object, ...]]:
    """The decisions, less their times."""
    return [(r.start, r.tp, r.go_on, r.left, r.ended, r.leaders) for r in decided(run)]


def test_a_race() -> None:
    run = rig()
    assert run.run().word == "done"
    first, *_, last = decided(run)
    assert first.go_on == ("a", "b") and list(first.left) == ["c"] and "below a" in first.left["c"]
    assert last.ended.startswith("no start is left")
    assert [r.start for r in decided(run)] == [0, 1, 2, 3]
    assert [c for c in run.world.served if c.startswith("c")] == ["c0", "c1"]
    assert len(run.world.starts) == 4 + 4 + 1
    skipped = [c for c in run.state.plan_cells if c.state == "skipped"]
    assert len(skipped) == 6 and {(c.spec.config, c.by) for c in skipped} == {("c", "race")}
    assert all("below a" in c.reason for c in skipped)


@pytest.mark.parametrize("faked", ["b", "abc"])
def test_a_simulated_acceptance_wins_no_race_beside_a_real_one(
    monkeypatch: pytest.MonkeyPatch, faked: str
) -> None:
    """In no round. Where all simulate theirs it is a trial, and raced as any other."""

    def said_of(_: object, cell: CellView) -> dict[str, str]:
        return {"acceptance-simulated": "SGLANG_SIMULATE_ACC_LEN"} if cell.spec.config in faked else {}

    monkeypatch.setattr(host_doubts, "_simulated", said_of)
    run = rig(b=(3.0,) * 4, c=(0.98, 1.03, 0.99, 1.01))
    assert run.run().word == "done"
    first, *more = decided(run)
    if faked == "b":
        assert first.go_on == ("a", "c") and "simulated" in first.left["b"] and more
        assert all(r.leaders["w@32"] in "ac" for r in decided(run))
    else:
        assert first.leaders == {"w@32": "b"} and not more


def test_it_ends_early_when_one_leads() -> None:
    run = rig(b=(0.5,) * 4)
    assert run.run().word == "done"
    (only,) = decided(run)
    assert only.ended == "a leads" and only.leaders == {"w@32": "a"}
    assert len(run.world.starts) == 3
    by_config = {c.spec.config: c.reason for c in run.state.plan_cells if c.state == "skipped"}
    assert by_config["a"] == "a leads" and "50.0% below a" in by_config["b"]


def test_precision_stops_when_all_is_known() -> None:
    run = rig(
        Rules(rule="precision", most=4, precision=0.05), a=(1.0, 1.001, 1.0, 1.0), b=(1.0, 1.001, 1.0, 1.0)
    )
    run.run()
    assert decided(run)[-1].start == 1 and decided(run)[-1].ended == "every value is known to ±5%"
    assert len(run.world.starts) == 6


def test_a_person_brings_one_back() -> None:
    run = rig()

    def back(event: ev.Event, _: Controller) -> None:
        if isinstance(event, ev.RaceRound) and event.start == 0:
            asyncio.get_running_loop().call_later(1.0, lambda: run.give(ev.Retry, config="c"))

    run.on_event = back
    assert run.run().word == "done"
    assert all(c.state == "done" for c in run.state.plan_cells if c.spec.config == "c")
    assert "c" in decided(run)[-1].left, "the numbers stay what they are"


def test_a_configuration_that_cannot_start_ends_no_race() -> None:
    run = rig()
    run.world.faults = {"--context-length 8192": "crash"}
    run.run()
    assert run.states("b") == ["failed"] * 8
    assert decided(run)[0].ended == "a leads" and "b" not in decided(run)[0].left


def test_a_configuration_that_came_up_late_is_compared_with_the_leader() -> None:
    """`b` hangs in the first round: the others are settled by then, and it alone is started in the second one."""
    run = rig(b=(0.7,) * 4)
    run.world.faults, run.world.limits = {"--context-length 8192": "hang"}, {"--context-length 8192": 2}
    run.run()
    first, second = decided(run)
    assert first.go_on == ("b",) and "below a" in first.left["c"] and first.left["a"] == "a leads"
    assert second.ended == "a leads" and second.left["b"].startswith("30.0% below a")
    assert run.states("b")[:4] == ["failed", "failed", "done", "done"]


def test_the_baseline_against_itself_goes_on_as_long_as_the_baseline() -> None:
    run = rig(c=(1.0,) * 4, b=(0.5,) * 4)
    cells = [
        ev.CellSpec(
            **{
                **{f: getattr(c, f) for f in c.__struct_fields__},
                "aa": c.config == "c",
                "baseline": c.config == "b",
            }
        )
        for c in run.sweep.cells
    ]
    run.sweep = dataclasses.replace(run.sweep, cells=tuple(cells), baseline="b")
    run.run()
    assert {r for d in decided(run) for r in (*d.go_on, *d.left)} == {"a", "b"}


UNKILLED = rig()
UNKILLED.run()
SAID, TOTAL = said(UNKILLED), len(UNKILLED.events)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(min_value=3, max_value=TOTAL), min_size=1, max_size=3))
def test_killed_after_any_event_it_decides_the_same(deaths: list[int]) -> None:
    run = rig()
    for death in deaths:
        run.die_after = len(run.events) + death
        try:
            run.run()
        except Dead:
            pass
        run.die_after = None
    if run.state.run.ended is None:
        assert run.run().word == "done"
    assert said(run) == SAID
    assert {c.id: (c.state, c.by == "race") for c in run.state.plan_cells} == {
        c.id: (c.state, c.by == "race") for c in UNKILLED.state.plan_cells
    }


@pytest.mark.parametrize("at", [i for i, e in enumerate(UNKILLED.events) if isinstance(e, ev.RaceRound)])
@pytest.mark.parametrize("after", [-1, 0, 1])
def test_killed_around_a_decision_it_decides_the_same(at: int, after: int) -> None:
    run = rig()
    run.die_after = at + 1 + after
    with pytest.raises(Dead):
        run.run()
    run.run()
    assert said(run) == SAID
