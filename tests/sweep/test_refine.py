"""Concurrencies added around a break-even, on a SIMULATED host in virtual time: which, on which start, and after any death."""

from __future__ import annotations

import dataclasses

import pytest

from ddtop import events as ev
from ddtop.sweep.configuration.refine import planned_now
from tests.sweep.test_controller import CONFIGS, Dead, Rig, make_sweep, once_each

GAIN = {"b": {1: 1.5, 2: 1.3, 3: 1.1, 5: 0.9, 8: 0.7}, "c": {1: 1.4, 8: 1.2}}
"""Speed-up over `a` by concurrency: `b` crosses 1 between 3 and 5, `c` does not."""


def rig(starts: int = 1, gain: dict[str, dict[int, float]] | None = None) -> Rig:
    """Three configurations at c 1 and 8, with 2, 3 and 5 to be added between them."""
    run = Rig()
    plain = make_sweep()
    cells: list[ev.CellSpec] = []
    further: list[ev.CellSpec] = []
    launches = {}
    for start in range(starts):
        for config in CONFIGS:
            key = f"key-{config}+{start}" if start else f"key-{config}"
            launches[key] = dataclasses.replace(plain.launches[f"key-{config}"], key=key)
            for c in (1, 8, 2, 3, 5):
                spec = ev.CellSpec(
                    id=f"{config}{c}.{start}",
                    config=config,
                    tp=1,
                    workload="w",
                    output_tokens=32,
                    concurrency=c,
                    context=0,
                    restart_key=key,
                    start=start,
                    baseline=config == "a",
                    refines=None if c in (1, 8) else (1, 8),
                )
                (cells if spec.refines is None else further).append(spec)
                run.world.speeds[spec.id] = (gain or GAIN).get(config, {}).get(c, 1.0)
    loads = {c.id: {} for c in (*cells, *further)}
    run.sweep = dataclasses.replace(
        plain,
        cells=tuple(cells),
        further=tuple(further),
        launches=launches,
        baseline="a",
        bench=dataclasses.replace(plain.bench, cells=loads),
    )
    return run


ONE_START = ["a1.0", "a8.0", "b1.0", "b8.0", "b2.0", "b3.0", "b5.0", "c1.0", "c8.0", "a2.0", "a3.0", "a5.0"]


def test_a_crossing_is_refined_on_the_server_that_runs() -> None:
    run = rig()
    assert run.run().word == "done"
    assert run.world.served == ONE_START
    assert len(run.world.starts) == 4, "the baseline starts once more, at the end"
    assert any(
        "of b crosses 1: c 2, 3, 5 are measured too" in e.text for e in run.events if isinstance(e, ev.Note)
    )
    assert [c.id for c in planned_now(run.sweep, run.state)] == [c.id for c in run.state.plan_cells]


@pytest.mark.parametrize(
    "gain",
    [
        {"b": {1: 1.5, 8: 1.1}, "c": {1: 0.9, 8: 0.8}},  # always and never
        {"b": {1: 0.8, 8: 1.3}, "c": {}},  # rises, which is no break-even
    ],
)
def test_without_a_crossing_nothing_is_added(gain: dict[str, dict[int, float]]) -> None:
    run = rig(gain=gain)
    assert run.run().word == "done"
    assert len(run.world.served) == 6 and len(run.world.starts) == 3


def test_a_configuration_that_cannot_start_is_not_refined() -> None:
    run = rig()
    run.world.faults = {"--context-length 8192": "crash"}
    run.run()
    assert not any(cell.startswith("b") for cell in run.world.served)
    assert len(run.state.plan_cells) == 6


def test_over_several_starts_no_start_is_added() -> None:
    """The baseline is measured there from its second start on, in the starts that the plan has anyway."""
    run = rig(starts=2)
    assert run.run().word == "done"
    assert len(run.world.starts) == 6
    added = [c for c in run.world.served if c[1] in "235"]
    assert added == ["b2.0", "b3.0", "b5.0", "a2.1", "a3.1", "a5.1", "b2.1", "b3.1", "b5.1"]


@pytest.mark.parametrize("part", [n / 12 for n in range(1, 12)])
def test_killed_anywhere_it_plans_and_measures_the_same(part: float) -> None:
    whole = rig()
    whole.run()
    run = rig()
    run.die_after = max(1, int(part * len(whole.events)))
    with pytest.raises(Dead):
        run.run()
    assert run.run().word == "done"
    once_each(run.events)
    assert {c.id for c in run.state.plan_cells} == set(ONE_START)
    assert {c.id for c in run.state.plan_cells if c.state == "done"} == set(ONE_START)


def test_what_was_planned_once_stays_planned() -> None:
    """A cell that is to be measured again, or says something else now, takes nothing back."""
    run = rig()
    run.run()
    state = run.state
    cell = state.cells["b8.0"]
    cell.metrics = {**cell.metrics, "output_tok_s": 10 * cell.metrics["output_tok_s"]}
    assert {c.id for c in planned_now(run.sweep, state)} == set(ONE_START)
    cell.state = "planned"
    assert {c.id for c in planned_now(run.sweep, state)} == set(ONE_START)
