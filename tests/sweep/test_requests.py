"""What viewers ask: nobody's wish is overridden by a signal, and no decision is taken by another question than its own."""

from __future__ import annotations

import asyncio

import pytest

from ddtop import events as ev
from ddtop.sweep.controller import Controller
from ddtop.sweep.shared.requests import Questions
from tests.sweep.test_controller import Rig, at_cell


def retry() -> ev.Retry:
    return ev.Retry(id="1", viewer="anna", at_s=1.0, alert_id="a")


def test_a_decision_that_comes_as_its_question_closes_is_not_for_the_next() -> None:
    questions = Questions()
    with questions.asked("a"):
        assert questions.decide("a", retry())
    assert not questions.decide("a", retry()), "nothing waits for it"
    with questions.asked("a"):
        assert questions.take("a") is None, "the same alert, another question"
        assert questions.decide("a", retry()) and questions.take("a") is not None


def test_of_two_questions_that_are_open_one_that_closes_leaves_the_other_its_decision() -> None:
    questions = Questions()
    with questions.asked("b"):
        with questions.asked("a"):
            assert questions.decide("b", retry())
        assert questions.take("b") is not None


@pytest.mark.parametrize("by", ["SIGTERM", "a recording that cannot be written"])
def test_leave_running_outlives_a_signal_and_a_failing_recorder(by: str) -> None:
    rig = Rig()

    def stop(controller: Controller) -> None:
        controller.requests.leave_running = True  # as the runner sets it from its options
        controller.stop(by)

    rig.on_event = at_cell("a1", stop)
    assert rig.run().word == "stopped"
    unit = rig.world.unit("s.service")
    assert unit.active == "active" and unit.override is not None, "the server is left as it is"


def test_a_stop_by_a_viewer_says_itself_whether_the_server_is_left() -> None:
    rig = Rig()

    def stop(controller: Controller) -> None:
        controller.requests.leave_running = True
        rig.give(ev.StopRun)

    rig.on_event = at_cell("a1", stop)
    assert rig.run().word == "stopped"
    assert rig.world.unit("s.service").override is None


def test_the_hosts_connection_is_closed_with_the_run() -> None:
    """Else its transport dies with the event loop, and Python 3.12 prints `Event loop is closed`."""
    rig = Rig()
    seen: list[bool] = []

    def look(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.HostConnected):
            host = controller.link.host
            assert host is not None
            closing = host.close

            async def close() -> None:
                await asyncio.sleep(0.5)
                await closing()
                seen.append(True)

            host.close = close  # type: ignore[method-assign]

    rig.on_event = look
    assert rig.run().word == "done"
    assert seen == [True]
