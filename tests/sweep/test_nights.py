"""Bad nights, by chance: cuts, reboots, deaths of the runner and commands at any moment, on a host with faults of its own.

Whatever came, a last quiet run ends with every cell settled, no alert open, no finished cell measured twice, never two
loads or two scripts at once, and the host as it was found.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

from ddtop import events as ev
from ddtop.sweep.controller import Controller
from tests.sweep.fakehost import SCRIPT, run_jumping
from tests.sweep.test_controller import Dead, Rig
from tests.sweep.test_external_benchmark import command_rig
from tests.sweep.test_restore import UNIT, own, started_by_owner
from tests.sweep.test_script import script_rig

SEGMENTS = 4


class Night:
    """One night of chance `seed`: what the host is like, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.kind = chance.choice(["units", "script", "bench"])
        makers: dict[str, Callable[[], Rig]] = {"units": Rig, "script": script_rig, "bench": command_rig}
        self.rig = rig = makers[self.kind]()
        world = rig.world
        world.late_results, world.model = chance.random() < 0.5, chance.random() < 0.7
        world.stage_s, world.script_s = chance.choice([0.0, 20.0]), chance.choice([5.0, 60.0])
        self.was_active = chance.random() < 0.5
        if self.was_active:
            started_by_owner(world)
        fault = chance.choice([None, "crash", "hang", "silent", "zero", "exit-mid"])
        if fault is not None:
            world.faults = {chance.choice(["8192", "1024"]): fault}
        if chance.random() < 0.3:
            world.broken_cells = {chance.choice(["a0", "b1", "c0"])}
        self.left, self.share = 0, 0.0
        self.happened: list[str] = []
        self.at_once: list[list[str]] = []

    def see(self, event: ev.Event, controller: Controller) -> None:
        self.check_jobs()
        if self.left and self.chance.random() < self.share:
            self.left -= 1
            what = self.chance.choice(THINGS)
            self.happened.append(what.__name__)
            what(self)

    def check_jobs(self) -> None:
        live = [j for j in self.rig.world.jobs.values() if j.state == "running"]
        scripts = [j for j in live if j.kind == "exec" and j.spec["argv"][0] == SCRIPT]
        loads = [j for j in live if j.kind != "stage" and j not in scripts]
        if len(scripts) > 1 or len(loads) > 1:  # an error raised here would be the event loop's alone
            self.at_once.append([j.name for j in live])

    def segment(self) -> None:
        rig, chance = self.rig, self.chance
        self.left, self.share = chance.randint(0, 6), chance.choice([0.01, 0.03, 0.1])
        rig.on_event, rig.die_after, rig.commands, rig.world.link_up = self.see, None, [], True
        with contextlib.suppress(Dead):
            outcome = rig.run(attended=chance.random() < 0.3)
            assert outcome.word != "crashed", self.happened
            return
        if chance.random() < 0.3:
            run_jumping(self.reboot_alone)

    async def reboot_alone(self) -> None:
        self.rig.world.reboot()

    def last(self) -> None:
        rig, world = self.rig, self.rig.world
        rig.on_event, rig.die_after, rig.commands = None, None, []
        world.link_up, world.model_on_disk, world.faults, world.broken_cells = True, True, {}, set()
        outcome = rig.run()
        assert outcome.left_behind == (), self.happened


def cut(night: Night) -> None:
    world = night.rig.world
    world.link_up = False
    world.drop()
    back_s = night.chance.choice([1.0, 20.0, 200.0])
    asyncio.get_running_loop().call_later(back_s, lambda: setattr(world, "link_up", True))


def reboot(night: Night) -> None:
    night.rig.world.reboot()


def die(night: Night) -> None:
    night.rig.die_after = len(night.rig.events) + night.chance.randint(1, 10)


def look(night: Night) -> None:
    night.rig.give(ev.Attend)


def leave(night: Night) -> None:
    night.rig.give(ev.Attend, leaving=True)


def pause(night: Night) -> None:
    night.rig.give(ev.Pause)
    asyncio.get_running_loop().call_later(30.0, lambda: night.rig.give(ev.GoOn))


def settle(night: Night) -> None:
    config = night.chance.choice("abc")
    kind = night.chance.choice([ev.Skip, ev.MarkBroken, ev.Retry])
    night.rig.give(kind, **night.chance.choice([{"config": config}, {"cell_id": f"{config}1"}]))


def request(night: Night) -> None:
    night.rig.give(night.chance.choice([ev.Undo, ev.RestartService, ev.Restage, ev.StopRun, ev.Resume]))


def answer(night: Night) -> None:
    kinds = [ev.Skip, ev.Retry, ev.MarkBroken, ev.Wait, ev.Restage]
    for alert in night.rig.state.open_alerts:
        night.rig.give(night.chance.choice(kinds), alert_id=alert.id)


THINGS: list[Callable[[Night], None]] = [
    cut,
    reboot,
    die,
    die,
    look,
    look,
    leave,
    pause,
    settle,
    settle,
    request,
    request,
    answer,
    answer,
]


@pytest.mark.parametrize("seed", range(40))
def test_a_bad_night(seed: int) -> None:
    night = Night(seed)
    for _ in range(SEGMENTS):
        night.segment()
    night.last()
    rig, state, unit = night.rig, night.rig.state, night.rig.world.unit(UNIT)
    told = night.happened
    assert night.at_once == [], told
    assert state.open_alerts == [], (told, [a.raised.cause_text for a in state.open_alerts])
    assert {c.state for c in state.plan_cells} <= {"done", "failed", "broken", "skipped"}, told
    assert not [j.name for j in rig.world.jobs.values() if j.state == "running"], told
    assert_none_measured_twice(rig, told)
    rebooted = rig.world.boots > 1  # then what its owner had started is gone by itself
    if night.kind != "script":
        assert unit.override is None, told
    if not night.was_active:
        assert unit.active == "inactive", told
    elif night.kind != "script" and not rebooted:
        assert own(unit), (told, unit)


def assert_none_measured_twice(rig: Rig, told: list[str]) -> None:
    """Unless a viewer asked for it."""
    done: set[str] = set()
    for event in rig.events:
        if isinstance(event, ev.CellMeasured):
            assert event.cell_id not in done, (told, event.cell_id)
        if isinstance(event, ev.CellStateSet):
            (done.add if event.state == "done" else done.discard)(event.cell_id)
