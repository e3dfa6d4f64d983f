"""Leaving is a step like others: cuts, reboots and kills while the host is put back; and what it is put back to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.runner import exit_code
from ddtop.sweep.controller import Controller
from ddtop.sweep.recovery.restore import not_undone, original_states
from tests.sweep.fakehost import Unit
from tests.sweep.test_controller import Dead, Rig, at_cell, once_each
from tests.sweep.test_restore import UNIT, own, started_by_owner

Act = Callable[[Controller], None]
BACK = "restore:" + UNIT


def running_before() -> Rig:
    """A host whose owner has started the server."""
    rig = Rig()
    started_by_owner(rig.world)
    return rig


def at_step(step_id: str, act: Act) -> Callable[[ev.Event, Controller], None]:
    """Acts once, when a step is started."""
    done: list[bool] = []

    def see(event: ev.Event, controller: Controller) -> None:
        if (
            isinstance(event, ev.StepTaken)
            and (event.step_id, event.state) == (step_id, "started")
            and not done
        ):
            done.append(True)
            act(controller)

    return see


def at_first(kind: type[ev.Event], act: Act) -> Callable[[ev.Event, Controller], None]:
    done: list[bool] = []

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, kind) and not done:
            done.append(True)
            act(controller)

    return see


def cut(rig: Rig, seconds: float) -> Act:
    def act(_: Controller) -> None:
        rig.world.link_up = False
        rig.world.drop("cut")
        asyncio.get_running_loop().call_later(seconds, lambda: setattr(rig.world, "link_up", True))

    return act


def die(rig: Rig, later: int = 1) -> Act:
    return lambda _: setattr(rig, "die_after", len(rig.events) + later)


def as_found(rig: Rig) -> bool:
    unit: Unit = rig.world.unit(UNIT)
    return own(unit) and unit.override is None


@pytest.mark.parametrize("minutes", [0.1, 3, 20, 59])
def test_a_cut_while_the_host_is_put_back_is_waited_out(minutes: float) -> None:
    rig = running_before()
    rig.on_event = at_step(BACK, cut(rig, minutes * 60))
    outcome = rig.run()
    assert (outcome.word, outcome.left_behind, exit_code(outcome)) == ("done", (), 0)
    assert as_found(rig) and original_states(rig.state) == {}


def test_a_cut_that_is_too_long_never_ends_with_0_and_the_next_runner_goes_on() -> None:
    rig = running_before()
    rig.on_event = at_step(BACK, cut(rig, 70 * 60))
    outcome = rig.run()
    assert outcome.word == "host-lost" and exit_code(outcome) == 11
    assert "all cells are measured" in outcome.reason and "ddtop stop r" in outcome.left_behind[0]
    assert not as_found(rig)
    rig.world.link_up, rig.on_event = True, None
    again = rig.run()
    assert (again.word, again.left_behind) == ("done", ())
    assert as_found(rig)
    once_each(rig.events)
    assert rig.world.served == ["a0", "a1", "b0", "b1", "c0", "c1"]


@pytest.mark.parametrize("active", [True, False])
def test_a_reboot_while_the_host_is_put_back(active: bool) -> None:
    rig = running_before() if active else Rig()
    rig.on_event = at_step(BACK, lambda _: rig.world.reboot())
    outcome = rig.run()
    assert (outcome.word, outcome.left_behind) == ("done", ())
    unit = rig.world.unit(UNIT)
    assert unit.override is None and (own(unit) if active else unit.active == "inactive")
    assert sum(isinstance(e, ev.HostRebooted) for e in rig.events) == 1


@pytest.mark.parametrize("later", range(1, 6))
def test_killed_while_the_host_is_put_back_the_next_runner_does_it(later: int) -> None:
    rig = running_before()
    rig.on_event = at_step(BACK, die(rig, later))
    try:
        rig.run()
    except Dead:
        rig.on_event = None
        assert rig.run().word == "done"
    assert as_found(rig)
    once_each(rig.events)


def test_stopped_and_cut_at_once() -> None:
    rig = running_before()

    def both(controller: Controller) -> None:
        controller.stop("SIGTERM")
        cut(rig, 600)(controller)

    rig.on_event = at_cell("b0", both)
    outcome = rig.run()
    assert (outcome.word, outcome.left_behind) == ("stopped", ())
    assert as_found(rig)


def test_a_unit_that_is_started_again_and_ends_at_once_is_said() -> None:
    """Its model lay in a tmpfs, and a reboot emptied that."""
    rig = running_before()

    def gone(_: Controller) -> None:
        rig.world.faults, rig.world.load_s = {"/bin/own": "crash"}, 1.0

    rig.on_event = at_step(BACK, gone)
    outcome = rig.run()
    assert exit_code(outcome) == 10 and not as_found(rig)
    (words,) = outcome.left_behind
    assert "was started again and ended" in words and "/dev/shm" in words


def test_two_cuts_and_a_reboot_while_it_is_put_back() -> None:
    rig = running_before()
    seen: list[int] = []

    def again(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.StepTaken) and (event.step_id, event.state) == (BACK, "started"):
            seen.append(1)
            if len(seen) == 2:
                rig.world.reboot()
            elif len(seen) < 4:
                cut(rig, 40 * 60)(controller)

    rig.on_event = again
    assert rig.run().word == "done"
    assert as_found(rig) and len(seen) == 4


def test_what_this_login_may_not_undo_is_said_and_is_not_0() -> None:
    rig = Rig()
    rig.on_event = at_cell("c1", lambda _: rig.world.stubborn.add(UNIT))
    outcome = rig.run()
    assert outcome.word == "done" and "Access denied" in outcome.left_behind[0]
    assert exit_code(outcome) == 10


def test_what_a_script_of_the_owner_wrote_is_no_failure() -> None:
    words = "kimi.service keeps the arguments that the reconfigure script wrote last"
    assert not_undone([words]) == [] and not_undone([words, "x is still active/running"]) != []


# ---- what it was when the run began


def test_a_reboot_before_the_unit_is_taken_over() -> None:
    """The reboot leaves it inactive; it was active when the run began."""
    rig = running_before()
    rig.on_event = at_first(ev.ProbeTaken, lambda _: rig.world.reboot())
    assert rig.run().word == "done"
    assert as_found(rig)
    former = [e for e in rig.events if isinstance(e, ev.StepTaken) and e.step_id == "former:" + UNIT]
    assert "it was active before the run" in former[0].reason


def test_killed_before_it_is_taken_over_then_rebooted() -> None:
    rig = running_before()
    rig.on_event = at_first(ev.ProbeTaken, die(rig))
    with pytest.raises(Dead):
        rig.run()
    assert original_states(rig.state) == {}, "nothing was touched"
    rig.world.reboot()
    rig.on_event = None
    assert rig.run().word == "done"
    assert as_found(rig)


def test_killed_before_it_is_taken_over_and_the_owner_stops_it_himself() -> None:
    """The same boot: what it is now is the owner's word."""
    rig = running_before()
    rig.on_event = at_first(ev.ProbeTaken, die(rig))
    with pytest.raises(Dead):
        rig.run()
    rig.world.units[UNIT] = Unit(UNIT)
    rig.on_event = None
    assert rig.run().word == "done"
    assert rig.world.unit(UNIT).active == "inactive"


def test_killed_before_it_is_taken_over_and_the_server_crashes_meanwhile() -> None:
    """The same boot, and nobody's word: a crash is not what its owner wants."""
    rig = running_before()
    rig.on_event = at_first(ev.ProbeTaken, die(rig))
    with pytest.raises(Dead):
        rig.run()
    unit = rig.world.units[UNIT]
    unit.active, unit.sub, unit.result, unit.pid, unit.listening = "failed", "failed", "signal", 0, False
    rig.on_event = None
    assert rig.run().word == "done"
    assert as_found(rig)


def test_it_is_noted_before_anything_is_touched_and_once() -> None:
    rig = running_before()
    rig.on_event = at_cell("b0", lambda _: rig.world.reboot())
    assert rig.run().word == "done"
    kinds = [e.step_id if isinstance(e, ev.StepTaken) else type(e).__name__ for e in rig.events]
    assert kinds.count("seen:" + UNIT) == kinds.count("former:" + UNIT) == 1
    assert kinds.index("seen:" + UNIT) < kinds.index("ProbeTaken")
    assert as_found(rig), "the reboot in between changes nothing"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    active=st.booleans(),
    acts=st.lists(
        st.tuples(st.floats(0.5, 90.0), st.sampled_from(["cut", "reboot", "kill", "stop"])), max_size=4
    ),
)
def test_whatever_happens_whenever_it_is_as_found_or_said(
    active: bool, acts: list[tuple[float, str]]
) -> None:
    rig, left = (running_before() if active else Rig()), list(acts)

    def schedule(event: ev.Event, controller: Controller) -> None:
        if not isinstance(event, ev.HostConnecting) or not left:
            return
        at_s, what = left.pop(0)

        def act() -> None:
            if what == "cut":
                cut(rig, 30.0)(controller)
            elif what == "reboot":
                rig.world.reboot()
            elif what == "stop":
                controller.stop("SIGTERM")
            else:
                die(rig)(controller)

        asyncio.get_running_loop().call_later(at_s, act)

    rig.on_event = schedule
    for _ in range(8):
        try:
            outcome = rig.run()
        except Dead:
            rig.world.link_up = True
            continue
        assert outcome.word in ("done", "stopped") and outcome.left_behind == (), outcome
        break
    unit = rig.world.unit(UNIT)
    assert unit.override is None
    assert own(unit) if active else unit.active != "active", (active, unit)


@pytest.mark.parametrize("leave_running", [False, True])
def test_a_run_that_is_stopped_in_a_cut_leaves_no_load_and_no_running_cell(leave_running: bool) -> None:
    """Its job went on for hours where the server was to be left running, and its cell was called running for ever."""
    rig = Rig()

    def cut(_: Controller) -> None:
        rig.world.link_up = False
        rig.world.drop("cut")
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, lambda: rig.give(ev.StopRun, leave_running=leave_running))
        loop.call_later(2.0, lambda: setattr(rig.world, "link_up", True))

    rig.world.cell_s = 500.0
    rig.on_event = at_cell("b0", cut)
    assert rig.run().word == "stopped"
    assert [j.state for j in rig.world.begun] == ["done", "killed"]
    assert rig.states("b") == ["interrupted", "planned"]
    assert (rig.world.serving is not None) == leave_running
    rig.world.cell_s = 3.0
    rig.on_event = None
    assert rig.run().word == "done"
    assert rig.states("b") == ["done", "done"]
