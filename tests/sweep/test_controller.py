"""The controller against a SIMULATED host in virtual time: many scenarios, each in milliseconds."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.hosts.reconnect import Backoff
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.services.base import Launch
from ddtop.sweep.controller import Controller
from ddtop.sweep.shared.context import Outcome, SweepContext
from ddtop.sweep.shared.plan import Bench, ModelWanted, Sweep
from ddtop.sweep.shared.policy import Policy
from ddtop.sweep.tell.alerts import CELL_TITLES, TITLES
from tests.sweep.fakehost import FakeConnector, JumpingSelector, World, run_jumping

CONFIGS = ("a", "b", "c")
CELLS = 2
LENGTHS = {"a": "1024", "b": "8192", "c": "4096"}


def make_sweep(**policy: Any) -> Sweep:
    """Three configurations of one unit, two cells each."""
    cells, launches = [], {}
    for config in CONFIGS:
        key = f"key-{config}"
        launches[key] = Launch(
            key=key,
            config=config,
            tp=1,
            kind="systemd",
            unit="s.service",
            engine="sglang",
            port=30000,
            argv=(
                "/usr/bin/python3",
                "-m",
                "sglang.launch_server",
                "--model-path",
                "/dev/shm/m",
                "--port",
                "30000",
                "--context-length",
                LENGTHS[config],
            ),
        )
        cells += [
            ev.CellSpec(
                id=f"{config}{n}",
                config=config,
                tp=1,
                workload="w",
                output_tokens=32,
                concurrency=1,
                context=0,
                repeat=n,
                restart_key=key,
            )
            for n in range(CELLS)
        ]
    return Sweep(
        name="t",
        cells=tuple(cells),
        launches=launches,
        model=ModelWanted(path="/dev/shm/m", sources=("/data/m",)),
        bench=Bench(cells={c.id: {} for c in cells}),
        policy=Policy(**policy),
    )


class Dead(BaseException):
    """kill -9: nothing of ours runs any more."""


class Rig:
    """A recording in memory over one or more runners, and the world they act on."""

    def __init__(self, world: World | None = None, *, run_id: str = "r", **policy: Any) -> None:
        self.world = world or World()
        self.run_id = run_id
        self.if_taken: Literal["refuse", "wait", "take-over"] = "refuse"
        self.sweep = make_sweep(**policy)
        self.events: list[ev.Event] = []
        self.on_event: Callable[[ev.Event, Controller], None] | None = None
        self.commands: list[ev.AnyCommand] = []
        self.die_after: int | None = None

    def run(self, *, attended: bool = False) -> Outcome:
        """One runner, from its start to its end (or death)."""
        return run_jumping(lambda: self.go(attended))

    async def go(self, attended: bool = False, *, first: bool = True) -> Outcome:
        """As `run`, in a loop that is there already. `first`: no other runner is in it."""
        loop = asyncio.get_running_loop()
        state = fold(self.events)
        died = loop.create_future()
        boxed: list[Controller] = []

        def sink(event: ev.Event) -> None:
            if died.done():
                raise asyncio.CancelledError
            self.events.append(event)
            if self.die_after is not None and len(self.events) >= self.die_after:
                self.die_after = None
                died.set_result(None)
            elif self.on_event is not None and boxed:
                loop.call_soon(self.on_event, event, boxed[0])

        ctx = SweepContext(
            run_id=self.run_id,
            host_name="fake",
            sink=sink,
            state=state,
            sweep=self.sweep,
            mono=loop.time,
            wall=lambda: 1e9 + loop.time(),
        )
        ctx.emit(
            ev.RunStarted,
            run_id=self.run_id,
            name="t",
            mode="sweep",
            segment=state.run.segment + 1 if self.events else 0,
        )
        ctx.emit(ev.CellsPlanned, cells=self.sweep.cells)
        controller = Controller(
            ctx, FakeConnector(self.world), self._poll, backoff=Backoff(first_s=0.5, most_s=2.0)
        )
        boxed.append(controller)
        controller.requests.if_taken = self.if_taken
        if first:
            self.world.wake()
        work = asyncio.create_task(controller.run(attended=attended))
        await asyncio.wait([work, died], return_when=asyncio.FIRST_COMPLETED)
        if died.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if first:
                self.world.forget_loop()
            raise Dead
        if first:
            self.world.forget_loop()
        outcome = work.result()
        ctx.emit(ev.RunEnded, outcome=outcome.word, exit_code=0)
        return outcome

    def _poll(self) -> list[ev.AnyCommand]:
        found, self.commands = self.commands, []
        return found

    @property
    def state(self) -> State:
        return fold(self.events)

    def states(self, config: str) -> list[str]:
        return [c.state for c in self.state.plan_cells if c.spec.config == config]

    def alerts(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((e.verdict, e.cause) for e in self.events if isinstance(e, ev.AlertRaised)))

    def give(self, make: type[ev.Command], **fields: Any) -> None:
        self.commands.append(
            make(
                id=f"c{len(self.events)}-{time.monotonic_ns()}",
                viewer="me",
                at_s=1e9 + self.clock(),
                **fields,
            )
        )

    def clock(self) -> float:
        return asyncio.get_running_loop().time()


def test_a_whole_sweep() -> None:
    rig = Rig()
    assert rig.run() == Outcome(word="done")
    assert all(c.state == "done" and c.metrics["output_tok_s"] > 0 for c in rig.state.plan_cells)
    assert rig.world.served == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert len(rig.world.starts) == 3, "one start for each configuration"
    assert rig.alerts() == []
    assert rig.world.unit("s.service").override is None and rig.world.unit("s.service").active == "inactive"


@pytest.mark.parametrize(
    ("kind", "verdict", "cause", "states", "starts"),
    [
        ("crash", "failed", "oom-loading-weights", "failed", 3),
        ("hang", "stalled", "hang-asleep", "failed", 4),
        ("silent", "never-began", "never-began", "broken", 2),
        ("zero", "no-tokens", "zero-tokens", "broken", 4),
    ],
)
def test_a_configuration_that_does_not_start(
    kind: str, verdict: str, cause: str, states: str, starts: int
) -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": kind}
    assert rig.run().word == "some-failed"
    assert rig.alerts() == [(verdict, cause)]
    assert rig.states("a") == rig.states("c") == ["done", "done"]
    assert rig.states("b") == [states, states]
    assert len(rig.world.starts) == starts
    assert rig.state.open_alerts == []
    assert len({c.cause for c in rig.state.plan_cells if c.spec.config == "b"}) == 1


@pytest.mark.parametrize("kind", ["crash", "hang", "silent"])
def test_the_old_servers_port_is_no_listener_of_a_start_that_failed(kind: str) -> None:
    """`a` is served first, so that an old server listens when `b` is started."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": kind}
    rig.run()
    failed = {e.attempt_id for e in rig.events if isinstance(e, ev.RestartFailed)}
    ready = {e.attempt_id for e in rig.events if isinstance(e, ev.RestartReady)}
    state = fold(rig.events)
    assert failed and ready
    for restart in state.restarts:
        seen = restart.gate.get("listener")
        if restart.attempt_id in failed:
            assert seen is None or seen.ok is not True, seen
        elif restart.attempt_id in ready:
            assert seen is not None and seen.ok


def test_a_transient_failure_is_tried_once_more() -> None:
    rig = Rig()
    rig.world.faults, rig.world.limits = {"--context-length 8192": "hang"}, {"--context-length 8192": 1}
    assert rig.run().word == "done"
    assert [a.resolved.how for a in rig.state.alerts.values() if a.resolved] == ["b is ready"]


def test_the_server_dies_under_a_cell() -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "exit-mid"}
    assert rig.run().word == "done"
    assert ("failed", "cuda-illegal-memory-access") in rig.alerts()
    assert rig.world.served.count("b0") == 1, "the cell that was finished is not measured again"


def test_a_server_that_is_stopped_on_request_under_a_cell_breaks_nothing() -> None:
    """Its requests are refused while the unit still stops: that is the stop, and no verdict on the cell."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "stop-mid"}
    assert rig.run().word == "done"
    assert rig.alerts() == [("failed", "stopped-by-request")]
    assert rig.states("b") == ["done", "done"]


def test_zero_tokens_twice_is_broken() -> None:
    rig = Rig()
    rig.world.broken_cells = {"b1"}
    assert rig.run().word == "some-failed"
    assert rig.states("b") == ["done", "broken"]
    assert rig.world.served.count("b1") == 2
    cell = rig.state.cells["b1"]
    assert cell.cause == "zero-tokens" and "twice" in cell.reason


def test_a_server_that_never_gives_a_token_breaks_its_whole_configuration() -> None:
    rig = Rig()
    rig.world.broken_cells = {"b0", "b1"}
    rig.run()
    assert rig.states("b") == ["broken", "broken"]
    assert rig.world.served.count("b0") == 2 and "b1" not in rig.world.served


def at_cell(cell: str, act: Callable[[Controller], None]) -> Callable[[ev.Event, Controller], None]:
    """Acts once, when `cell` is begun."""
    done: list[bool] = []

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.CellStarted) and event.cell_id == cell and not done:
            done.append(True)
            asyncio.get_running_loop().call_later(1.0, act, controller)

    return see


def once_each(events: list[ev.Event]) -> None:
    done: set[str] = set()
    for event in events:
        if isinstance(event, ev.CellMeasured):
            assert event.cell_id not in done, f"{event.cell_id} was measured again"
        if isinstance(event, ev.CellStateSet) and event.state == "done":
            done.add(event.cell_id)


def test_a_cut_link_loses_nothing() -> None:
    rig = Rig()

    def cut(_: Controller) -> None:
        rig.world.link_up = False
        rig.world.drop("no answer to keepalive")
        asyncio.get_running_loop().call_later(30.0, lambda: setattr(rig.world, "link_up", True))

    rig.on_event = at_cell("b0", cut)
    assert rig.run().word == "done"
    once_each(rig.events)
    assert rig.world.served == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert len(rig.world.starts) == 3
    lost = [a for a in rig.state.alerts.values() if a.raised.verdict == "lost-host"]
    assert len(lost) == 1 and lost[0].resolved is not None


def test_a_reboot_restages_and_goes_on() -> None:
    rig = Rig()
    rig.on_event = at_cell("b0", lambda _: rig.world.reboot())
    assert rig.run().word == "done"
    once_each(rig.events)
    rebooted = [e for e in rig.events if isinstance(e, ev.HostRebooted)]
    assert len(rebooted) == 1 and "s.service inactive" in rebooted[0].consequences
    taken = [e.action for e in rig.events if isinstance(e, ev.StepTaken) and e.state == "done"]
    assert "stage" in taken and "restart" in taken
    assert rig.world.served.count("a0") == rig.world.served.count("b1") == 1


def test_a_reboot_is_asked_about_while_a_person_is_there() -> None:
    rig = Rig()
    rig.on_event = at_cell("b0", lambda _: rig.world.reboot())
    inner = rig.on_event
    approved: list[str] = []

    def see(event: ev.Event, controller: Controller) -> None:
        inner(event, controller)
        if isinstance(event, ev.HostConnected | ev.HostLost):
            rig.give(ev.Attend)
        if isinstance(event, ev.StepsPlanned) and event.answer_by_s and not approved:
            approved.append(event.plan_id)
            rig.give(ev.Approve, plan_id=event.plan_id)

    rig.on_event = see
    assert rig.run().word == "done"
    assert approved
    assert {e.by for e in rig.events if isinstance(e, ev.StepTaken) and e.action == "stage"} == {"me"}


def test_a_lost_host_ends_the_run_after_the_policys_time() -> None:
    rig = Rig(host_lost_wait_min=2.0)

    def cut(_: Controller) -> None:
        rig.world.link_up = False
        rig.world.drop()

    rig.on_event = at_cell("a0", cut)
    outcome = rig.run()
    assert outcome.word == "host-lost" and outcome.left_behind


def test_stop_skip_and_undo() -> None:
    rig = Rig()

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.CellStarted) and event.cell_id == "a0":
            rig.give(ev.Skip, config="b")
            rig.give(ev.Skip, cell_id="c0")
            rig.give(ev.Undo)
            rig.give(ev.Skip, cell_id="nope")
        if isinstance(event, ev.CellStarted) and event.cell_id == "c1":
            rig.give(ev.StopRun)

    rig.on_event = see
    assert rig.run().word == "stopped"
    assert rig.states("b") == ["skipped", "skipped"] and rig.states("c") == ["done", "interrupted"]
    outcomes = [e.outcome for e in rig.events if isinstance(e, ev.CommandSeen)]
    assert outcomes.count("refused") == 1
    assert rig.world.unit("s.service").active == "inactive"


def test_skipping_the_cell_in_flight_breaks_it_off() -> None:
    rig = Rig()
    rig.on_event = at_cell("b0", lambda _: rig.give(ev.Skip, cell_id="b0"))
    assert rig.run().word == "done"
    assert rig.states("b") == ["skipped", "done"] and "b0" not in rig.world.served


def skipping_the_last(undo: Callable[[Rig], None]) -> Rig:
    """A run whose last open configuration a viewer skips while its first cell runs; `undo` follows in the pause."""
    rig = Rig()

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.CellStarted) and event.cell_id == "c0" and event.attempt == 1:
            rig.give(ev.Attend)
            rig.give(ev.Skip, config="c")
        if isinstance(event, ev.SweepPaused):
            undo(rig)

    rig.on_event = see
    return rig


def test_a_skip_that_leaves_nothing_to_run_can_be_undone_before_the_run_ends() -> None:
    """It ended as 6 of 6 at once, and `u` asked to start a runner."""
    rig = skipping_the_last(lambda rig: rig.give(ev.Undo))
    assert rig.run(attended=True).word == "done"
    assert rig.states("c") == ["done", "done"]
    (paused,) = (e for e in rig.events if isinstance(e, ev.SweepPaused))
    assert paused.by == "sweep" and "u undoes it" in paused.reason


def test_the_run_ends_when_nobody_undoes_it_or_a_person_goes_on() -> None:
    for undo in (lambda rig: None, lambda rig: rig.give(ev.GoOn)):
        rig = skipping_the_last(undo)
        assert rig.run(attended=True).word == "done"
        assert rig.states("c") == ["skipped", "skipped"]
        assert sum(isinstance(e, ev.SweepPaused) for e in rig.events) == 1
        assert sum(isinstance(e, ev.SweepResumed) for e in rig.events) == 1


def test_a_stop_ends_a_pause_before_the_host_is_put_back() -> None:
    """Right after the time to undo was offered, and in a pause that a person asked for."""

    def pausing() -> Rig:
        rig = Rig()

        def see(event: ev.Event, controller: Controller) -> None:
            if isinstance(event, ev.CellStarted) and event.cell_id == "a0":
                rig.give(ev.Pause)
            if isinstance(event, ev.SweepPaused):
                asyncio.get_running_loop().call_later(60.0, lambda: rig.give(ev.StopRun))

        rig.on_event = see
        return rig

    for rig in (skipping_the_last(lambda rig: rig.give(ev.StopRun)), pausing()):
        assert rig.run(attended=True).word == "stopped"
        kinds = [
            type(e) for e in rig.events if isinstance(e, ev.SweepPaused | ev.SweepResumed | ev.StepTaken)
        ]
        last = len(kinds) - 1 - kinds[::-1].index(ev.SweepPaused)
        assert kinds[last + 1] is ev.SweepResumed and ev.StepTaken in kinds[last + 2 :]
        assert rig.state.paused is None


def test_a_run_that_nobody_watches_ends_at_once_after_its_last_skip() -> None:
    rig = Rig()
    rig.on_event = at_cell("c0", lambda _: rig.give(ev.Skip, config="c"))
    assert rig.run().word == "done"
    assert not any(isinstance(e, ev.SweepPaused) for e in rig.events)


def test_pause_is_after_the_cell_in_flight() -> None:
    rig = Rig()

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.CellStarted) and event.cell_id == "a0":
            rig.give(ev.Pause)
        if isinstance(event, ev.SweepPaused):
            asyncio.get_running_loop().call_later(500.0, lambda: rig.give(ev.GoOn))

    rig.on_event = see
    assert rig.run().word == "done"
    at = {e.cell_id: e.mono_s for e in rig.events if isinstance(e, ev.CellStateSet) and e.state == "done"}
    assert at["a1"] - at["a0"] > 400


def test_no_other_server_is_restarted_than_the_one_that_was_named() -> None:
    """With several units in a plan, the one at work was restarted whatever was asked."""
    rig = Rig()

    def ask(_: Controller) -> None:
        rig.give(ev.RestartService, unit="another.service")
        rig.give(ev.RestartService, unit="s.service")

    rig.on_event = at_cell("b0", ask)
    assert rig.run().word == "done"
    seen = [(e.outcome, e.reason) for e in rig.events if isinstance(e, ev.CommandSeen)]
    assert [outcome for outcome, _ in seen] == ["refused", "obeyed"]
    assert "another.service is not the server at work: s.service is" in seen[0][1]
    assert len(rig.world.starts) == 4


def test_a_late_command_is_refused_as_late() -> None:
    rig = Rig()
    rig.commands.append(ev.Pause(id="old", viewer="me", at_s=1e9 + JumpingSelector.clock[0] - 60))
    rig.run()
    assert [e.outcome for e in rig.events if isinstance(e, ev.CommandSeen)] == ["late"]


def test_a_failed_start_asks_and_a_person_decides() -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "crash"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted):
            rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised):
            assert (
                event.answer_by_s is not None
                and event.actions[0].key == "x"
                and event.actions[0].command == "skip"
            )
            rig.give(ev.MarkBroken, alert_id=event.alert_id)

    rig.on_event = see
    rig.run()
    assert rig.states("b") == ["broken", "broken"]
    assert {c.by for c in rig.state.plan_cells if c.spec.config == "b"} == {"me"}


def dies_attended(answer: Callable[[Rig, ev.AlertRaised], None]) -> tuple[Rig, list[float]]:
    """A server that dies under a cell while a dashboard is open; the moments of alert and decision."""
    rig, moments = Rig(), []
    rig.world.faults = {"--context-length 8192": "exit-mid"}

    def see(event: ev.Event, controller: Controller) -> None:
        rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised):
            assert event.answer_by_s == event.at_s + 60.0 and event.cell_ids == ("b1",)
            assert rig.state.cells["b1"].state == "interrupted", "nothing runs while a person is asked"
            answer(rig, event)
        if isinstance(event, ev.AlertRaised | ev.AlertDecided):
            moments.append(event.at_s)

    rig.on_event = see
    rig.run()
    return rig, moments


def test_a_server_that_died_under_a_cell_asks_and_a_person_decides() -> None:
    rig, moments = dies_attended(lambda rig, alert: rig.give(ev.Skip, alert_id=alert.alert_id, cell_id="b1"))
    assert rig.states("b") == ["done", "skipped"] and rig.states("c") == ["done", "done"]
    assert rig.state.cells["b1"].by == "me" and moments[1] - moments[0] < 2
    (alert,) = rig.state.alerts.values()
    assert alert.decided is not None and alert.decided.by == "me" and "is skipped by me" in alert.decided.what
    assert not alert.open
    rig, moments = dies_attended(lambda rig, alert: rig.give(ev.Retry, alert_id=alert.alert_id, cell_id="b1"))
    assert rig.states("b") == ["done", "done"] and moments[1] - moments[0] < 2


def test_a_server_that_died_under_a_cell_is_left_to_the_policy_when_no_viewer_decides() -> None:
    rig, moments = dies_attended(lambda rig, alert: None)
    assert rig.states("b") == ["done", "done"] and 59 < moments[1] - moments[0] < 63
    (alert,) = rig.state.alerts.values()
    assert alert.decided is not None and alert.decided.by == "policy" and not alert.open


def test_a_question_about_a_cell_ends_when_a_person_settles_the_cell_otherwise() -> None:
    rig, moments = dies_attended(lambda rig, alert: rig.give(ev.MarkBroken, cell_id="b1"))
    assert rig.states("b") == ["done", "broken"] and moments[1] - moments[0] < 2


@pytest.mark.parametrize("fault", ["crash", "exit-mid"])
def test_no_question_outlives_the_connection_it_is_about(fault: str) -> None:
    """The host goes down while a person is asked: what it is like afterwards is said at once, not after the question."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": fault}
    moments: dict[str, float] = {}

    def back() -> None:
        rig.world.faults = {}
        rig.world.reboot()
        rig.world.link_up = True

    def see(event: ev.Event, controller: Controller) -> None:
        rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised) and event.answer_by_s and "asked" not in moments:
            moments["asked"] = event.at_s
            rig.world.link_up = False
            rig.world.drop()
            asyncio.get_running_loop().call_later(10.0, back)
        if isinstance(event, ev.HostRebooted | ev.StepsPlanned):
            moments.setdefault(type(event).__name__, event.at_s)

    rig.on_event = see
    assert rig.run().word == "done"
    once_each(rig.events)
    assert moments["HostRebooted"] - moments["asked"] < 15 and moments["StepsPlanned"] - moments["asked"] < 15
    assert rig.state.open_alerts == []


@pytest.mark.parametrize("attended", [False, True])
def test_a_server_that_is_stopped_because_its_host_goes_down_is_no_fault_of_its_cell(attended: bool) -> None:
    rig = Rig()
    done: list[str] = []

    def see(event: ev.Event, controller: Controller) -> None:
        if attended:
            rig.give(ev.Attend)
        if isinstance(event, ev.CellStarted) and event.cell_id == "b0" and not done:
            done.append("down")
            rig.world.stop(rig.world.unit("s.service"))
            asyncio.get_running_loop().call_later(1.4, rig.world.reboot)

    rig.on_event = see
    assert rig.run().word == "done"
    once_each(rig.events)
    assert done and {verdict for verdict, _ in rig.alerts()} <= {"lost-host", "rebooted"}
    assert [e.cell_id for e in rig.events if isinstance(e, ev.AlertRaised) and e.cell_ids] == []


def test_a_server_that_another_user_stopped_raises_an_alert() -> None:
    rig = Rig()
    rig.on_event = at_cell("b0", lambda _: rig.world.stop(rig.world.unit("s.service")))
    assert rig.run().word == "done"
    assert [verdict for verdict, _ in rig.alerts()] == ["failed"]


def test_an_invalid_result_asks_before_the_restart() -> None:
    rig, asked = Rig(), []
    rig.world.broken_cells = {"b1"}

    def see(event: ev.Event, controller: Controller) -> None:
        rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised):
            asked.append(event.answer_by_s)
            rig.give(ev.MarkBroken, alert_id=event.alert_id, cell_id="b1")

    rig.on_event = see
    assert rig.run().word == "some-failed"
    assert len(asked) == 1 and asked[0] is not None
    assert rig.states("b") == ["done", "broken"] and rig.world.served.count("b1") == 1
    assert rig.state.cells["b1"].by == "me" and not rig.state.open_alerts
    assert len(rig.world.starts) == 3, "no restart for a cell that a person gave up"


def test_an_invalid_result_that_a_viewer_restages_is_staged() -> None:
    rig, staged = Rig(), []
    rig.world.broken_cells = {"b1"}

    def see(event: ev.Event, controller: Controller) -> None:
        rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised) and event.answer_by_s is not None:
            rig.world.model, rig.world.broken_cells = False, set()
            rig.give(ev.Restage, alert_id=event.alert_id)
        if (
            isinstance(event, ev.StageProgress)
            and event.state == "done"
            and rig.world.served.count("b1") == 1
        ):
            staged.append(event)

    rig.on_event = see
    assert rig.run().word == "done"
    assert staged and rig.states("b") == ["done", "done"] and rig.world.model


def test_without_a_decision_the_policy_decides() -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "crash"}
    rig.on_event = lambda e, _: (
        rig.give(ev.Attend) if isinstance(e, ev.RestartStarted | ev.PhaseSeen) else None
    )
    rig.run()
    assert rig.states("b") == ["failed", "failed"]


def test_a_foreign_process_is_waited_for() -> None:
    rig = Rig()

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.attempt_id.endswith("b-tp1-1"):
            rig.world.foreign_on_port = True
            asyncio.get_running_loop().call_later(120.0, lambda: setattr(rig.world, "foreign_on_port", False))

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.alerts() == [("foreign", "port-in-use")]


def test_a_server_that_exits_for_its_port_names_who_has_it() -> None:
    rig = Rig()
    rig.world.faults, rig.world.limits = {"--context-length 8192": "port"}, {"--context-length 8192": 1}
    seen: list[ev.AlertRaised] = []

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised):
            seen.append(event)
            asyncio.get_running_loop().call_later(60.0, lambda: setattr(rig.world, "foreign_on_port", False))

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.alerts() == [("foreign", "port-in-use")]
    assert "which is not s" in seen[0].cause_text and {"ss", "log"} <= {e.source for e in seen[0].evidence}


def test_a_new_runner_goes_on_without_a_restart() -> None:
    """Killed between two cells of one configuration: the server still runs, and is not restarted."""
    rig = Rig()
    rig.run()
    cut = next(
        i
        for i, e in enumerate(rig.events)
        if isinstance(e, ev.CellStateSet) and e.cell_id == "b0" and e.state == "done"
    )
    rig = Rig()
    rig.die_after = cut + 1
    with pytest.raises(Dead):
        rig.run()
    starts = len(rig.world.starts)
    assert rig.run().word == "done"
    assert len(rig.world.starts) == starts + 1, "only c was started"
    once_each(rig.events)


def total_events() -> int:
    rig = Rig()
    rig.run()
    return len(rig.events)


TOTAL = total_events()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(min_value=3, max_value=TOTAL), min_size=1, max_size=3), st.booleans())
def test_killed_after_any_event_nothing_is_lost_or_repeated(kill_points: list[int], reboot: bool) -> None:
    rig = Rig()
    for death in kill_points:
        rig.die_after = len(rig.events) + death
        try:
            rig.run()
        except Dead:
            if reboot:
                run_jumping(lambda: _reboot(rig.world))
        rig.die_after = None
    if rig.state.run.ended is None or any(c.state != "done" for c in rig.state.plan_cells):
        assert rig.run().word == "done"
    once_each(rig.events)
    assert all(c.state == "done" for c in rig.state.plan_cells)
    assert rig.world.unit("s.service").override is None and rig.world.unit("s.service").active == "inactive"
    if not reboot:
        # A finished cell is never sent again, whoever died in between.
        assert sorted(set(rig.world.served)) == sorted(c.id for c in rig.sweep.cells)


async def _reboot(world: World) -> None:
    world.reboot()


def test_a_run_that_had_ended_and_got_new_cells_was_not_interrupted() -> None:
    rig = Rig()
    whole = rig.sweep.cells
    rig.sweep = dataclasses.replace(rig.sweep, cells=whole[:4])
    assert rig.run().word == "done"
    rig.sweep = dataclasses.replace(rig.sweep, cells=whole)
    assert rig.run().word == "done"
    texts = [e.cause_text for e in rig.events if isinstance(e, ev.AlertRaised) and e.verdict == "interrupted"]
    assert texts and all("the run had ended (done), and cells are left to run" in text for text in texts)
    assert rig.states("c") == ["done", "done"]


def test_a_run_that_was_cut_off_was_interrupted() -> None:
    rig = Rig()
    rig.die_after = TOTAL // 2
    with pytest.raises(Dead):
        rig.run()
    for unit in rig.world.units.values():
        unit.active, unit.sub, unit.pid, unit.listening = "inactive", "dead", 0, False
    rig.run()
    texts = [e.cause_text for e in rig.events if isinstance(e, ev.AlertRaised) and e.verdict == "interrupted"]
    assert texts and all("the run was interrupted" in text for text in texts)


def test_a_new_engine_build_reopens_what_was_broken() -> None:
    rig = Rig()
    rig.world.broken_cells = {"a1"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.CellStateSet) and event.cell_id == "a1" and event.state == "broken":
            rig.world.broken_cells, rig.world.version = set(), "0.6.0"

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.states("a") == ["done", "done"]
    assert any(isinstance(e, ev.Note) and "is sglang 0.6.0 now" in e.text for e in rig.events)


def test_a_person_gives_a_stalled_start_more_time() -> None:
    rig = Rig(answer_s=30.0)
    rig.world.faults = {"--context-length 8192": "late"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted | ev.PhaseSeen):
            rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised):
            rig.give(ev.Wait, alert_id=event.alert_id)

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.alerts() == [("stalled", "hang-asleep")]
    assert len(rig.world.starts) == 3, "it was waited for, not started again"


def test_a_start_tells_what_moves_and_what_its_phases_usually_take() -> None:
    rig = Rig()
    rig.run()
    moved = [e.moving for e in rig.events if isinstance(e, ev.PhaseSeen) and e.moving is not None]
    assert all(e.moving is None for e in rig.events if isinstance(e, ev.PhaseSeen) and e.state != "running")
    assert any(m.what for m in moved)
    starts = [e for e in rig.events if isinstance(e, ev.RestartStarted)]
    assert len(starts) > 1
    assert not starts[0].usual, "nothing is known before the first start"
    assert starts[-1].usual.get("loading") is not None


@pytest.mark.parametrize("titles", [TITLES, CELL_TITLES])
def test_a_title_has_four_words_at_most(titles: dict[ev.Verdict, str]) -> None:
    assert all(0 < len(title.split()) <= 4 for title in titles.values())
    assert set(TITLES) == set(ev.Verdict.__args__)  # type: ignore[attr-defined]
    for verdict in ("failed", "crash-loop", "never-began", "refused", "stalled", "hung-gpu"):
        assert "STARTING" not in CELL_TITLES[verdict], "a server that was ready has started"  # type: ignore[index]
