"""`[bench] kind = "command"` through pauses, cuts and deaths: a benchmark that came to its end is never run again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ddtop import events as ev
from ddtop.sweep.controller import Controller
from ddtop.sweep.shared.plan import Bench
from tests.sweep.test_controller import Dead, Rig, at_cell, once_each


def command_rig() -> Rig:
    rig = Rig()
    bench = Bench(
        kind="command",
        commands={c.id: ("bench.sh", c.id, "{result}") for c in rig.sweep.cells},
        metrics={"output_tok_s": "tok_s"},
    )
    rig.sweep = replace(rig.sweep, bench=bench)
    return rig


def assert_all_once(rig: Rig) -> None:
    assert all(c.state == "done" and c.metrics["output_tok_s"] == 50 for c in rig.state.plan_cells)
    assert rig.world.served == ["a0", "a1", "b0", "b1", "c0", "c1"]
    once_each(rig.events)


def test_a_whole_sweep() -> None:
    rig = command_rig()
    assert rig.run().word == "done"
    assert_all_once(rig)


def test_a_pause_keeps_the_result_of_the_cell_in_flight() -> None:
    rig = command_rig()

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.CellStarted) and event.cell_id == "a0":
            rig.give(ev.Pause)
        if isinstance(event, ev.SweepPaused):
            asyncio.get_running_loop().call_later(100.0, lambda: rig.give(ev.GoOn))

    rig.on_event = see
    assert rig.run().word == "done"
    assert_all_once(rig)


def test_a_result_that_came_while_no_runner_watched_is_taken() -> None:
    rig = command_rig()
    rig.on_event = at_cell("b0", lambda _: setattr(rig, "die_after", len(rig.events) + 1))
    with pytest.raises(Dead):
        rig.run()
    rig.on_event = None
    job = next(j for j in rig.world.jobs.values() if j.state == "running")
    rig.world.executed(job)
    assert rig.run().word == "done"
    assert_all_once(rig)
    cell = rig.state.cells["b0"]
    assert cell.engine == "sglang" and cell.engine_version == rig.world.version


def test_a_result_that_came_while_the_link_was_cut_is_taken() -> None:
    rig = command_rig()

    def cut(_: Controller) -> None:
        rig.world.link_up = False
        rig.world.drop()
        asyncio.get_running_loop().call_later(30.0, lambda: setattr(rig.world, "link_up", True))

    rig.on_event = at_cell("b0", cut)
    assert rig.run().word == "done"
    assert_all_once(rig)


def test_a_result_without_its_server_is_no_verdict() -> None:
    """The server died with the runner: 0 tok/s says nothing of the configuration."""
    rig = command_rig()
    rig.on_event = at_cell("b0", lambda _: setattr(rig, "die_after", len(rig.events) + 1))
    with pytest.raises(Dead):
        rig.run()
    rig.on_event = None
    unit = rig.world.unit("s.service")
    unit.active = unit.sub = "failed"
    unit.pid, unit.listening = 0, False
    rig.world.executed(next(j for j in rig.world.jobs.values() if j.state == "running"))
    assert rig.run().word == "done"
    assert rig.states("b") == ["done", "done"]
    assert set(rig.alerts()) == {("interrupted", "interrupted")}, "the run was, and nothing else is said"
    assert rig.world.served.count("b0") == 2
