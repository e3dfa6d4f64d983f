"""Two people, one host: SIMULATED, in virtual time. The lease itself is the agent's own code, in a folder of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.runner import EXIT_CODES, exit_code
from ddtop.sweep.controller import Controller
from ddtop.sweep.host import lease as room
from ddtop.sweep.shared.context import Outcome
from tests.sweep.fakehost import FakeHost, World, run_jumping
from tests.sweep.test_controller import Dead, Rig, at_cell, once_each
from tests.sweep.test_leaving import as_found, running_before
from tests.sweep.test_restore import UNIT, own

ALL = ["a0", "a1", "b0", "b1", "c0", "c1"]


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "client_name", lambda: "anna@laptop")


def second(world: World, if_taken: Any = "refuse") -> Rig:
    rig = Rig(world, run_id="bb")
    rig.if_taken = if_taken
    return rig


def both(first: Rig, other: Rig, *, at: str = "a0", attended: bool = False) -> tuple[Outcome | None, Outcome]:
    """Both runs in one loop: the other begins when the first is at cell `at`. None: the first was killed."""

    async def go() -> tuple[Outcome | None, Outcome]:
        begin = asyncio.Event()
        inner, ready = first.on_event, at_cell(at, lambda _: begin.set())

        def see(event: ev.Event, controller: Controller) -> None:
            if inner is not None:
                inner(event, controller)
            ready(event, controller)

        first.on_event = see

        async def one() -> Outcome | None:
            try:
                return await first.go(first=False)
            except Dead:
                return None

        async def two() -> Outcome:
            await begin.wait()
            return await other.go(attended, first=False)

        one_end, two_end = await asyncio.gather(one(), two())
        return one_end, two_end

    found: tuple[Outcome | None, Outcome] = run_jumping(go)
    first.world.forget_loop()
    return found


def lease(world: World, **args: Any) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        return FakeHost(world).op_lease(**args)

    found: dict[str, Any] = run_jumping(ask)
    world.hosts.clear()
    return found


def test_a_second_run_is_refused_by_name_and_touches_nothing() -> None:
    first = running_before()
    other = second(first.world)
    one, two = both(first, other, at="b0")
    assert one == Outcome(word="done") and as_found(first)
    assert two.word == "refused" and EXIT_CODES[two.word] == 12 and two.left_behind == ()
    for words in (
        "anna@laptop",
        "run r",
        "10.0.0.9",
        "ddtop connect fake",
        "--if-taken wait",
        "--if-taken take-over",
    ):
        assert words in two.reason, two.reason
    assert len(first.world.starts) == 4, "three starts of the first run, and the owner's own at the end"
    assert not [e for e in other.events if isinstance(e, ev.StepTaken | ev.RestartStarted | ev.CellStarted)]
    once_each(first.events)
    assert first.world.served == ALL


def test_the_second_waits_in_line_and_begins_where_the_first_has_put_the_host_back() -> None:
    first = running_before()
    other = second(first.world, "wait")
    one, two = both(first, other)
    assert (one, two) == (Outcome(word="done"), Outcome(word="done"))
    assert first.world.served == ALL + ALL, "never two at once"
    assert as_found(first), "the first's server was not taken for the state to restore"
    (alert,) = [a for a in other.state.alerts.values() if a.raised.cause == "host-taken"]
    assert alert.resolved is not None and "waits in line: 1. after anna@laptop" in (alert.raised.policy or "")
    assert not [a for a in first.state.alerts.values() if a.raised.cause == "host-wanted"]


def test_asked_for_the_host_the_first_hands_it_over_by_stopping() -> None:
    first = running_before()
    other = second(first.world, "take-over")

    def consent(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised) and event.cause == "host-wanted":
            controller.stop("anna")

    first.on_event = consent
    one, two = both(first, other)
    assert one is not None and one.word == "stopped" and one.left_behind == ()
    assert two == Outcome(word="done") and as_found(first)
    assert any(c.state in ("planned", "interrupted") for c in first.state.plan_cells)


def test_asked_for_the_host_and_nobody_answers_the_first_goes_on() -> None:
    first = Rig()
    other = second(first.world, "take-over")
    one, two = both(first, other)
    assert (one, two) == (Outcome(word="done"), Outcome(word="done"))
    (wanted,) = [a for a in first.state.alerts.values() if a.raised.cause == "host-wanted"]
    assert "ddtop stop r" in wanted.raised.advice and wanted.raised.policy == "this run goes on; they wait"
    assert first.world.served == ALL + ALL


def killed_at(first: Rig, cell: str) -> None:
    first.on_event = at_cell(cell, lambda _: setattr(first, "die_after", len(first.events) + 1))


def test_a_killed_run_with_a_job_is_not_dead() -> None:
    first = Rig(World(cell_s=600.0))
    killed_at(first, "a0")
    with pytest.raises(Dead):
        first.run()
    shown = lease(first.world, action="show")["holder"]
    assert shown["state"] == "away" and "its jobs go on" in shown["why"]
    assert not lease(first.world, action="take", run="bb")["held"]


def test_a_dead_run_is_taken_over_with_the_state_from_before_it() -> None:
    """The first is killed with its server up: what its owner had is what the second puts back."""
    first = running_before()
    killed_at(first, "b0")
    other = second(first.world, "wait")
    one, two = both(first, other)
    assert one is None and two == Outcome(word="done")
    assert as_found(first), "not the dead run's server, and not `inactive`"
    notes = [e.text for e in other.events if isinstance(e, ev.Note)]
    assert any("taken over from anna@laptop" in text and "none of its jobs runs" in text for text in notes)
    waited = next(e for e in other.events if isinstance(e, ev.RestartStarted)).mono_s - other.events[0].mono_s
    assert waited > 600, "the first may have come back"


def test_what_was_put_back_once_is_not_inherited_again() -> None:
    first = running_before()
    killed_at(first, "b0")
    other = second(first.world, "wait")
    both(first, other)
    unit = first.world.unit(UNIT)
    run_jumping(lambda: _stopped(first.world))
    third = Rig(first.world, run_id="cc")
    assert third.run() == Outcome(word="done")
    assert unit.active == "inactive", "its owner has stopped it since"


async def _stopped(world: World) -> None:
    world.stop(world.unit(UNIT))
    await asyncio.sleep(2)


def test_a_reboot_ends_the_lease() -> None:
    first = Rig()
    killed_at(first, "b0")
    with pytest.raises(Dead):
        first.run()
    first.world.reboot()
    assert lease(first.world, action="show")["holder"] is None
    assert second(first.world).run() == Outcome(word="done")


def test_the_same_run_goes_on_at_once() -> None:
    first = Rig()
    killed_at(first, "b0")
    with pytest.raises(Dead):
        first.run()
    first.on_event = None
    assert first.run() == Outcome(word="done")
    assert lease(first.world, action="show")["holder"] is None, "given back"


def test_one_that_comes_back_after_it_was_taken_over_touches_nothing() -> None:
    first = running_before()
    killed_at(first, "b0")
    with pytest.raises(Dead):
        first.run()
    world = first.world
    for job in world.jobs.values():
        job.state = "lost"
    run_jumping(lambda: asyncio.sleep(1000))
    other, back = second(world, "wait"), Rig(world, run_id="r")
    back.events, back.if_taken = first.events, "refuse"
    one, two = both(other, back, at="b0")
    assert one == Outcome(word="done")
    assert two.word == "refused" and exit_code(two) == 12
    assert "was not put back: anna@laptop has the host now" in two.left_behind[0]
    assert as_found(first)


Answer = Callable[[Rig, str], None]


@pytest.mark.parametrize(
    ("give", "word"),
    [
        (lambda rig, ident: rig.give(ev.Wait, alert_id=ident), "done"),
        (lambda rig, ident: rig.give(ev.Resume, alert_id=ident), "done"),
        (None, "refused"),
    ],
)
def test_a_dashboard_asks(give: Answer | None, word: str) -> None:
    first = Rig()
    other = second(first.world)

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.HostConnected):
            other.give(ev.Attend)
        if isinstance(event, ev.AlertRaised) and event.cause == "host-taken" and event.answer_by_s and give:
            assert [a.key for a in event.actions] == ["r", "w"]
            give(other, event.alert_id)

    other.on_event = see
    _, two = both(first, other, attended=True)
    assert two.word == word
    wanted = [a for a in first.state.alerts.values() if a.raised.cause == "host-wanted"]
    assert len(first.world.served) == (12 if word == "done" else 6)
    assert not (wanted and word == "refused")


def test_who_waits_first_comes_first_and_who_leaves_is_passed_over() -> None:
    world = World()
    assert lease(world, action="take", run="a", who="anna", grace_s=900)["held"]

    async def line() -> None:
        b, c, d = (FakeHost(world) for _ in range(3))
        assert not b.op_lease(action="wait", run="b", who="ben", grace_s=900)["held"]
        await asyncio.sleep(1)
        found = c.op_lease(action="wait", run="c", who="cleo", grace_s=900)
        assert found["holder"]["who"] == "anna" and [x["who"] for x in found["line"]] == ["ben"]
        FakeHost(world).op_lease(action="release", run="a")
        found = c.op_lease(action="wait", run="c", who="cleo", grace_s=900)
        assert not found["held"] and found["holder"] is None and found["line"][0]["who"] == "ben"
        assert not d.op_lease(action="take", run="d")["held"], "one who has just come does not overtake"
        await b.close()
        assert c.op_lease(action="wait", run="c", who="cleo", grace_s=900)["held"], "ben is gone"
        assert not d.op_lease(action="take", run="d")["held"]

    run_jumping(line)


def test_a_lease_that_another_run_has_by_now_stops_ours() -> None:
    """Whatever took it: the server is not touched any more."""
    rig = Rig(World(cell_s=60.0))

    def steal(_: Controller) -> None:
        host = FakeHost(rig.world)
        host.op_lease(action="release", run="r")
        assert host.op_lease(action="take", run="x", who="ben@desk", grace_s=900)["held"]

    rig.on_event = at_cell("a0", steal)
    outcome = rig.run()
    assert outcome.word == "stopped" and "ben@desk has taken it over" in outcome.reason
    assert "was not put back: ben@desk has the host now" in outcome.left_behind[0]
    assert not own(rig.world.unit(UNIT)) and rig.world.unit(UNIT).active == "active"


def test_where_no_lease_can_be_had_the_run_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddtop.errors import AgentError

    def refuse(self: FakeHost, **_: Any) -> Any:
        raise AgentError("/run/lock/ddtop-lease.lock is no regular file", code="failed")

    monkeypatch.setattr(FakeHost, "op_lease", refuse)
    rig = Rig()
    assert rig.run() == Outcome(word="done")
    notes = [e.text for e in rig.events if isinstance(e, ev.Note) and "no lease" in e.text]
    assert len(notes) == 1 and "would not be seen" in notes[0]


def test_a_cut_while_one_waits_in_line_asks_nobody_again() -> None:
    """The person pressed `w` and went home; the link is cut and comes back: the place in line is kept."""
    first = Rig(World(cell_s=60.0))
    other = second(first.world)

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.HostConnected) and not other.state.alerts:
            other.give(ev.Attend)
        if isinstance(event, ev.AlertRaised) and event.cause == "host-taken":
            if event.answer_by_s:
                other.give(ev.Wait, alert_id=event.alert_id)
            else:
                loop = asyncio.get_running_loop()
                loop.call_later(60.0, lambda: [h.lose("cut") for h in first.world.hosts if h.pid == pids[0]])

    pids: list[int] = []
    other.on_event = see
    taken = FakeHost.op_lease

    def note(self: FakeHost, **args: Any) -> dict[str, Any]:
        if args.get("run") == "bb" and not pids:
            pids.append(self.pid)
        return taken(self, **args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeHost, "op_lease", note)
        one, two = both(first, other, attended=True)
    assert one == Outcome(word="done") and two == Outcome(word="done"), two
    asked = [
        e for e in other.events if isinstance(e, ev.AlertRaised) and e.cause == "host-taken" and e.answer_by_s
    ]
    assert len(asked) == 1
    assert len([e for e in other.events if isinstance(e, ev.HostConnected)]) == 2
