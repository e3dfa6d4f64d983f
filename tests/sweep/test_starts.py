"""Rounds of starts on a SIMULATED host in virtual time: a server for each round, and fates that all rounds share."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from ddtop import events as ev
from ddtop.sweep.cell.host_doubts import DRIFT
from ddtop.sweep.controller import Controller
from ddtop.sweep.shared.plan import Sweep
from tests.sweep.test_controller import CONFIGS, Dead, Rig, make_sweep, once_each


def in_rounds(sweep: Sweep, starts: int) -> Sweep:
    """The sweep with every configuration started `starts` times: cell `b1` of round 2 is `b1.2`."""
    cells, launches = [], {}
    for n in range(starts):
        for spec in sweep.cells:
            key = f"{spec.restart_key}+{n}" if n else spec.restart_key
            launches[key] = dataclasses.replace(sweep.launches[spec.restart_key], key=key)
            name = f"{spec.id}.{n}" if n else spec.id
            cells.append(msgspec.structs.replace(spec, id=name, start=n, restart_key=key))
    bench = dataclasses.replace(sweep.bench, cells={c.id: {} for c in cells})
    return dataclasses.replace(sweep, cells=tuple(cells), launches=launches, bench=bench)


def rig(starts: int = 2) -> Rig:
    made = Rig()
    made.sweep = in_rounds(make_sweep(), starts)
    return made


def test_every_round_starts_every_server_anew() -> None:
    run = rig(3)
    assert run.run().word == "done"
    assert len(run.world.starts) == 3 * len(CONFIGS)
    assert run.world.served == [c.id for c in run.sweep.cells]
    generations = {(c.spec.config, c.spec.start): c.generation for c in run.state.plan_cells}
    assert len({g.id for g in generations.values() if g}) == 9


def test_the_same_configuration_twice_running_is_started_twice() -> None:
    """The last of a round and the first of the next one may be the same: its server is not measured on."""
    run = rig(2)
    only = tuple(c for c in run.sweep.cells if c.config == "a")
    run.sweep = dataclasses.replace(run.sweep, cells=only)
    assert run.run().word == "done"
    assert len(run.world.starts) == 2


def test_arguments_that_cannot_start_are_tried_in_one_round_only() -> None:
    run = rig(3)
    run.world.faults = {"--context-length 8192": "crash"}
    assert run.run().word == "some-failed"
    assert run.states("b") == ["failed"] * 6
    assert len({c.cause for c in run.state.plan_cells if c.spec.config == "b"}) == 1
    assert len(run.world.starts) == 3 * 2 + 1


def test_a_start_that_hung_says_nothing_of_the_next_round() -> None:
    run = rig(2)
    run.world.faults = {"--context-length 8192": "hang"}
    run.world.limits = {"--context-length 8192": 2}
    assert run.run().word == "some-failed"
    assert run.states("b") == ["failed", "failed", "done", "done"]


def test_a_cell_without_tokens_is_broken_in_every_round() -> None:
    run = rig(3)
    run.world.broken_cells = {"b1"}
    run.run()
    assert run.states("b") == ["done", "broken", "done", "broken", "done", "broken"]
    assert not {"b1.1", "b1.2"} & set(run.world.served)


def test_a_server_that_never_gives_a_token_is_broken_in_every_round() -> None:
    run = rig(2)
    run.world.faults = {"--context-length 8192": "zero"}
    run.run()
    assert set(run.states("b")) == {"broken"}


@pytest.mark.parametrize("part", [0.2, 0.45, 0.6, 0.8, 0.95])
def test_killed_in_any_round_nothing_is_measured_twice(part: float) -> None:
    whole = rig(2)
    whole.run()
    run = rig(2)
    run.die_after = int(len(whole.events) * part)
    with pytest.raises(Dead):
        run.run()
    assert run.run().word == "done"
    once_each(run.events)
    assert sorted(set(run.world.served)) == sorted(c.id for c in run.sweep.cells)


@pytest.mark.parametrize(("command", "state"), [(ev.MarkBroken, "broken"), (ev.Skip, "skipped")])
def test_what_a_person_says_of_a_cell_holds_for_all_its_starts(command: type[ev.Command], state: str) -> None:
    run = rig(3)

    def say(event: ev.Event, _: Controller) -> None:
        if isinstance(event, ev.CellStateSet) and event.cell_id == "a0" and event.state == "done":
            run.give(command, cell_id="b1.1")

    run.on_event = say
    run.run()
    assert run.states("b") == ["done", state] * 3
    assert {"a1.1", "c1.2"} <= set(run.world.served)


def with_sentinels(sweep: Sweep) -> Sweep:
    """Each start's first load again at its end: `a0s` after `a0` and `a1`."""
    cells = list(sweep.cells)
    for key in dict.fromkeys(c.restart_key for c in sweep.cells):
        mine = [c for c in sweep.cells if c.restart_key == key]
        again = msgspec.structs.replace(mine[0], id=f"{mine[0].id}s", sentinel=True)
        cells.insert(cells.index(mine[-1]) + 1, again)
    bench = dataclasses.replace(sweep.bench, cells={c.id: {} for c in cells})
    return dataclasses.replace(sweep, cells=tuple(cells), bench=bench)


def test_a_server_that_drifted_makes_its_whole_start_suspect() -> None:
    run = rig(2)
    run.sweep = with_sentinels(run.sweep)
    run.world.speeds["b0s"] = 0.9
    assert run.run().word == "done"
    doubted = {c.id for c in run.state.plan_cells if "drift-in-start" in c.reasons}
    assert doubted == {"b0", "b1", "b0s"}
    assert all(c.state == "done" for c in run.state.plan_cells)
    assert {c.validity for c in run.state.plan_cells if c.id in doubted} == {"SUSPECT"}


def test_a_server_that_drifts_in_every_start_is_doubted_in_every_start() -> None:
    """Those that drifted say nothing of how far healthy ones vary: llama.cpp on an H200, 1,220 tok/s before and 490 after."""
    run = rig(4)
    run.sweep = with_sentinels(run.sweep)
    again = [c.id for c in run.sweep.cells if c.sentinel]
    for cell in again:
        run.world.speeds[cell] = 0.4
    assert run.run().word == "done"
    doubted = {c.id for c in run.state.plan_cells if "drift-in-start" in c.reasons}
    assert set(again) <= doubted


def test_killed_while_a_start_is_doubted_all_of_it_is() -> None:
    def made() -> Rig:
        run = rig(1)
        run.sweep = with_sentinels(run.sweep)
        run.world.speeds["b0s"] = 0.9
        return run

    whole = made()
    whole.run()
    at = [i for i, e in enumerate(whole.events) if isinstance(e, ev.CellMeasured) and DRIFT in e.reasons]
    assert len(at) == 3
    for death in at:
        run = made()
        run.die_after = death + 1
        with pytest.raises(Dead):
            run.run()
        run.run()
        assert {c.id for c in run.state.plan_cells if DRIFT in c.reasons} == {"b0", "b1", "b0s"}
