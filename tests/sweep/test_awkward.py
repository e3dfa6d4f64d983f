"""Commands and troubles at awkward moments: nothing a person decided is forgotten, and no alert stays for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ddtop import events as ev
from ddtop.sweep.controller import Controller
from tests.sweep.fakehost import JumpingSelector
from tests.sweep.test_controller import Dead, Rig, at_cell


def later(seconds: float, act: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(seconds, act)


def test_an_answer_counts_though_the_dashboard_is_closed_right_after_it() -> None:
    """`x`, then `q`: both arrive in one look at the commands."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "hang"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted | ev.PhaseSeen):
            rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised):
            rig.give(ev.Skip, alert_id=event.alert_id)
            rig.give(ev.Attend, leaving=True)

    rig.on_event = see
    rig.run()
    assert rig.states("b") == ["skipped", "skipped"]
    assert sum("8192" in " ".join(argv) for argv in rig.world.starts) == 1, "it was not started once more"


def test_consent_counts_though_the_dashboard_is_closed_right_after_it() -> None:
    rig = Rig()
    reboot = at_cell("b0", lambda _: rig.world.reboot())

    def see(event: ev.Event, controller: Controller) -> None:
        reboot(event, controller)
        if isinstance(event, ev.HostConnected | ev.HostLost):
            rig.give(ev.Attend)
        if isinstance(event, ev.StepsPlanned) and event.answer_by_s:
            rig.give(ev.Approve, plan_id=event.plan_id, leave_out=("stage",))
            rig.give(ev.Attend, leaving=True)

    rig.on_event = see
    rig.run()
    assert [e.by for e in rig.events if isinstance(e, ev.StepTaken) and e.state == "left-out"] == ["me"]


def test_a_decision_taken_while_the_link_was_lost_is_kept() -> None:
    """The alert asks, the link breaks, the person skips: the configuration is not started again after the reconnect."""
    rig, lost = Rig(), []
    rig.world.faults = {"--context-length 8192": "hang"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted | ev.PhaseSeen):
            rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised) and event.verdict == "stalled" and not lost:
            lost.append(True)
            rig.world.link_up = False
            rig.world.drop()
            later(5.0, lambda: rig.give(ev.Skip, alert_id=event.alert_id))
            later(20.0, lambda: setattr(rig.world, "link_up", True))

    rig.on_event = see
    rig.run()
    assert rig.states("b") == ["skipped", "skipped"]
    assert sum("8192" in " ".join(argv) for argv in rig.world.starts) == 1
    assert rig.state.open_alerts == []


def test_the_alert_of_a_start_that_a_person_gave_up_is_closed() -> None:
    """The policy tries again; meanwhile the person skips the configuration from the list of cells."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "hang"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.attempt_id.endswith("-b-tp1-2"):
            later(2.0, lambda: rig.give(ev.Skip, config="b"))

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.states("b") == ["skipped", "skipped"]
    assert rig.state.open_alerts == [], [a.raised.title for a in rig.state.open_alerts]


def test_the_alert_of_a_start_is_closed_when_a_person_skips_before_the_next_try() -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "hang"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised):
            rig.give(ev.Skip, config="b")

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.states("b") == ["skipped", "skipped"] and rig.state.open_alerts == []


def test_the_alert_of_a_cell_is_closed_when_its_server_does_not_start_again() -> None:
    """The server dies under a cell, and then never comes up: all of it is settled by the failed start."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "exit-mid"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised) and event.cell_ids == ("b1",):
            rig.world.faults = {"--context-length 8192": "crash"}

    rig.on_event = see
    assert rig.run().word == "some-failed"
    assert rig.states("b") == ["done", "failed"]
    assert rig.state.open_alerts == [], [a.raised.cause_text for a in rig.state.open_alerts]


def test_the_alert_of_a_cell_is_closed_when_a_person_skips_it() -> None:
    rig = Rig()
    rig.world.broken_cells = {"b1"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.attempt_id.endswith("-b-tp1-2"):
            rig.give(ev.Skip, cell_id="b1")

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.states("b") == ["done", "skipped"]
    assert rig.state.open_alerts == []


def test_a_stop_ends_a_copy_under_way() -> None:
    """A copy takes minutes, and a download an hour: whoever says stop does not wait for it, and it does not go on alone."""
    rig = Rig()
    rig.world.model, rig.world.stage_s = False, 3600.0

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.StageProgress) and event.state == "checking":
            later(10.0, lambda: rig.give(ev.StopRun))

    rig.on_event = see
    began = rig_time()
    outcome = rig.run()
    assert outcome.word == "stopped" and outcome.left_behind == ()
    assert rig_time() - began < 60
    assert [j.state for j in rig.world.jobs.values()] == ["killed"]
    assert rig.state.stage is not None and not rig.state.stage.active
    rig.on_event = None
    rig.world.stage_s = 5.0
    assert rig.run().word == "done", "the next run stages the rest"


def test_a_stop_while_a_failed_copy_asks() -> None:
    rig = Rig()
    rig.world.model, rig.world.stage_s = False, 5.0

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.StageProgress) and event.state == "checking":
            rig.give(ev.Attend)
            rig.world.model_on_disk = False
        if isinstance(event, ev.AlertRaised) and event.verdict == "staging-failed":
            assert event.answer_by_s is not None
            rig.give(ev.StopRun)

    rig.on_event = see
    began = rig_time()
    assert rig.run().word == "stopped"
    assert rig_time() - began < 30, "the 60 s for an answer are not waited out"


def rig_time() -> float:
    return JumpingSelector.clock[0]


def test_a_host_that_is_down_when_a_run_is_taken_up_is_told_and_waited_for() -> None:
    """The machine is in maintenance: the resumed run says so at once, and goes on when the host is back."""
    rig = Rig()
    rig.on_event = at_cell("b0", lambda _: setattr(rig, "die_after", len(rig.events) + 1))
    with pytest.raises(Dead):
        rig.run()
    rig.world.link_up = False

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.HostConnecting) and event.error and not seen:
            seen.append(True)
            later(300.0, lambda: setattr(rig.world, "link_up", True))

    seen: list[bool] = []
    rig.on_event = see
    assert rig.run().word == "done"
    (alert,) = [a for a in rig.state.alerts.values() if a.raised.verdict == "lost-host"]
    assert "timed out" in alert.raised.cause_text and not alert.open


def test_a_host_that_stays_down_ends_the_run_after_the_policys_time() -> None:
    rig = Rig(host_lost_wait_min=2.0)
    rig.world.link_up = False
    began = rig_time()
    assert rig.run().word == "host-lost"
    assert 110 < rig_time() - began < 140


def test_the_alert_of_a_lost_host_is_closed_by_the_next_runner() -> None:
    """Its runner died while the link was lost."""
    rig = Rig()

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised) and event.verdict == "lost-host":
            rig.die_after = len(rig.events) + 1

    cut = at_cell("b0", lambda _: (setattr(rig.world, "link_up", False), rig.world.drop()))
    rig.on_event = lambda event, controller: (cut(event, controller), see(event, controller))
    with pytest.raises(Dead):
        rig.run()
    assert rig.state.open_alerts
    rig.world.link_up, rig.on_event = True, None
    assert rig.run().word == "done"
    assert rig.state.open_alerts == []


def test_the_alert_of_a_failed_copy_is_closed_when_the_model_is_there() -> None:
    """The person copies it himself, and takes the run up again."""
    rig = Rig()
    rig.world.model = False

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.StageProgress) and event.state == "checking":
            rig.world.model_on_disk = False

    rig.on_event = see
    assert rig.run().word == "some-failed"
    assert [a.raised.verdict for a in rig.state.open_alerts] == ["staging-failed"]
    rig.world.model, rig.on_event = True, None
    assert rig.run().word == "done"
    assert rig.state.open_alerts == []
