"""A unit's state before the run, and putting it back: over several segments, killed runners and edited plans."""

from __future__ import annotations

import pytest

from ddtop import events as ev
from ddtop.services.base import OriginalState
from ddtop.services.systemd import SystemdService
from ddtop.sweep.recovery.restore import original_states, service_of
from ddtop.sweep.shared.context import SweepContext
from tests.sweep.fakehost import FakeHost, Unit, World, run_jumping
from tests.sweep.test_controller import Dead, Rig, at_cell

UNIT = "s.service"


def started_by_owner(world: World) -> None:
    """The owner's own start, with the unit's own arguments."""

    async def start() -> None:
        world.start(world.unit(UNIT))
        world._up(world.unit(UNIT), world.unit(UNIT).invocation)

    run_jumping(start)
    world.starts.clear()


def own(unit: Unit) -> bool:
    return unit.active == "active" and unit.argv[0] == "/bin/own"


def test_what_was_put_back_belongs_to_its_owner_again() -> None:
    """Between two segments of one run the owner starts the server: at the end of the second it must run."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "crash"}
    assert rig.run().word == "some-failed"
    assert rig.world.unit(UNIT).active == "inactive" and original_states(rig.state) == {}
    started_by_owner(rig.world)
    rig.world.faults = {}
    again = ev.CellStateSet(at_s=1.0, mono_s=1.0, host="fake", cell_id="b0", state="planned", by="me")
    rig.events.append(again)
    rig.run()
    assert rig.states("b") == ["done", "failed"]
    assert own(rig.world.unit(UNIT)) and rig.world.unit(UNIT).override is None


def test_a_server_that_ran_before_runs_again() -> None:
    rig = Rig()
    started_by_owner(rig.world)
    assert rig.run().word == "done"
    assert own(rig.world.unit(UNIT))


def test_a_unit_whose_stop_ended_in_a_kill_is_not_left_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds 7012 and 7513 of the campaign; a server that does not end within TimeoutStopSec is the same."""
    real = World._gone

    def killed(self: World, unit: Unit) -> None:
        real(self, unit)
        unit.active, unit.sub, unit.result = "failed", "failed", "signal"

    monkeypatch.setattr(World, "_gone", killed)
    rig = Rig()
    outcome = rig.run()
    assert (outcome.word, outcome.left_behind) == ("done", ())
    assert rig.world.unit(UNIT).active == "inactive"


def test_killed_between_removing_the_override_and_the_restart() -> None:
    """The sweep's server still runs, with the sweep's arguments, and nothing says so but the recording."""
    rig = Rig()
    started_by_owner(rig.world)
    rig.on_event = at_cell("a0", lambda _: setattr(rig, "die_after", len(rig.events) + 1))
    with pytest.raises(Dead):
        rig.run()
    unit = rig.world.unit(UNIT)
    assert not own(unit) and unit.active == "active"
    unit.override = None  # a first try to put it back came so far
    was = original_states(rig.state)[UNIT]
    assert was.active and unit.invocation in was.ours

    async def put_back() -> list[str]:
        return await SystemdService(UNIT).restore(FakeHost(rig.world), was)

    assert run_jumping(put_back) == []
    assert own(rig.world.unit(UNIT))


def test_a_unit_that_the_edited_plan_no_longer_names_is_put_back_as_what_it_was() -> None:
    rig = Rig()
    rig.run()
    ctx = SweepContext(run_id="r", host_name="fake", sink=lambda e: None, state=rig.state, sweep=rig.sweep)
    assert service_of(ctx, OriginalState(unit="old", kind="process", active=True)).kind == "process"
    assert service_of(ctx, OriginalState(unit=UNIT, kind="docker", active=True)).kind == "docker"
    assert service_of(ctx, OriginalState(unit=UNIT, kind="systemd", active=True)) is ctx.feed(UNIT).service
