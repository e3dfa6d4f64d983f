"""The owner's reconfigure script over cuts and changes of mind: it never runs twice at once, nor goes on unwanted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ddtop import events as ev
from ddtop.sweep.controller import Controller
from tests.sweep.fakehost import SCRIPT, Job
from tests.sweep.test_controller import LENGTHS, Rig, once_each


def script_rig() -> Rig:
    rig = Rig()
    launches = {
        key: replace(x, kind="command", argv=(), configure=(SCRIPT, LENGTHS[x.config]))
        for key, x in rig.sweep.launches.items()
    }
    rig.sweep = replace(rig.sweep, launches=launches)
    rig.world.script_s = 60.0
    return rig


def scripts(rig: Rig) -> list[Job]:
    return [j for j in rig.world.begun if j.kind == "exec" and j.spec["argv"][0] == SCRIPT]


def in_script(rig: Rig, config: str, act: object) -> None:
    """Acts once, 10 s after the first script of `config` was begun."""
    done: list[bool] = []

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.config == config and not done:
            done.append(True)
            asyncio.get_running_loop().call_later(10.0, act)  # type: ignore[arg-type]

    rig.on_event = see


def test_a_whole_sweep() -> None:
    rig = script_rig()
    assert rig.run().word == "done"
    assert [j.spec["argv"][1] for j in scripts(rig)] == ["1024", "8192", "4096"]


def test_a_cut_does_not_make_it_run_twice() -> None:
    rig = script_rig()

    def cut() -> None:
        rig.world.link_up = False
        rig.world.drop()
        asyncio.get_running_loop().call_later(15.0, lambda: setattr(rig.world, "link_up", True))

    in_script(rig, "b", cut)
    assert rig.run().word == "done"
    assert [j.spec["argv"][1] for j in scripts(rig)] == ["1024", "8192", "4096"]
    assert len(rig.world.starts) == 3 and rig.state.open_alerts == []
    once_each(rig.events)


def test_a_person_restarts_it_while_it_runs() -> None:
    """It hangs, say: the one under way is ended, and another begun."""
    rig = script_rig()
    in_script(rig, "b", lambda: rig.give(ev.RestartService))
    assert rig.run().word == "done"
    assert [(j.spec["argv"][1], j.state) for j in scripts(rig)] == [
        ("1024", "done"),
        ("8192", "killed"),
        ("8192", "done"),
        ("4096", "done"),
    ]
    assert all(j.at_once == 1 for j in scripts(rig))


def test_a_person_skips_the_configuration_while_it_runs() -> None:
    rig = script_rig()
    in_script(rig, "b", lambda: rig.give(ev.Skip, config="b"))
    assert rig.run().word == "done"
    assert [(j.spec["argv"][1], j.state) for j in scripts(rig)] == [
        ("1024", "done"),
        ("8192", "killed"),
        ("4096", "done"),
    ]
    assert all(j.at_once == 1 for j in scripts(rig))


@pytest.mark.parametrize(("script_s", "states"), [(8.0, {"done"}), (600.0, {"killed"})])
def test_a_start_that_failed_leaves_its_script_time_to_end(script_s: float, states: set[str]) -> None:
    """The server is seen dead while the script still waits for it: the alert comes at once, the next script after the old."""
    rig = script_rig()
    rig.world.script_s, rig.world.script_acts_s = script_s, 1.0
    rig.world.faults = {"8192": "crash"}
    rig.run()
    assert rig.states("a") == rig.states("c") == ["done", "done"] and rig.states("b") == ["failed", "failed"]
    assert {j.state for j in scripts(rig) if j.spec["argv"][1] == "8192"} == states
    assert all(j.at_once == 1 for j in scripts(rig))
    (alert,) = rig.state.alerts.values()
    started = next(r for r in rig.state.restarts if r.config == "b")
    assert alert.at_s - started.started_at_s < 8.0, "no alert waits for a script"


def test_a_stop_ends_it() -> None:
    rig = script_rig()
    in_script(rig, "b", lambda: rig.give(ev.StopRun))
    assert rig.run().word == "stopped"
    assert [j.state for j in scripts(rig)] == ["done", "killed"]
