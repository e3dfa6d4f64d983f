"""Nothing is waited for in silence, driven whole over a host in memory: the alert, its holder, and what comes after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.sweep.configuration import waits
from ddtop.sweep.controller import Controller
from tests.sweep.test_controller import Rig

STRANGER: dict[str, Any] = {
    "pid": 77,
    "comm": "python3",
    "cmdline": ["python3", "train.py"],
    "unit": None,
    "user": "ann",
    "pgrp": 77,
    "mem_mib": 140083.0,
}


def raised(rig: Rig) -> list[ev.AlertRaised]:
    return [e for e in rig.events if isinstance(e, ev.AlertRaised)]


def test_a_gpu_held_by_a_stranger_is_an_alert_and_the_sweep_goes_on_by_itself() -> None:
    rig = Rig()
    rig.world.gpu_procs = [STRANGER]

    def leave(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised):
            rig.world.gpu_procs = []

    rig.on_event = leave
    assert rig.run().word == "done"
    (alert,) = raised(rig)
    assert (alert.verdict, alert.cause) == ("foreign", "gpu-memory-held-by-other-process")
    assert all(word in alert.cause_text for word in ("pid 77", "train.py", "ann", "140083 MiB"))
    assert "10 min" in (alert.policy or "")
    assert not rig.state.open_alerts
    first_start = next(e for e in rig.events if isinstance(e, ev.RestartStarted))
    assert alert.mono_s < first_start.mono_s, "it is said before anything is started"


def test_one_that_never_leaves_ends_the_run_as_said() -> None:
    rig = Rig()
    rig.world.gpu_procs = [STRANGER]
    outcome = rig.run()
    assert outcome.word == "some-failed" and "pid 77" in outcome.reason
    assert len(raised(rig)) == 1 and not rig.state.open_alerts and rig.world.starts == []


def test_one_that_leaves_while_the_link_is_lost_leaves_no_open_alert() -> None:
    """Seed 6002 of the campaign: it went with a reboot, and its alert stayed open for the whole run."""
    rig = Rig()
    rig.world.gpu_procs = [STRANGER]

    def cut(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised) and event.verdict == "foreign":
            rig.world.gpu_procs = []
            rig.world.drop()

    rig.on_event = cut
    assert rig.run().word == "done"
    assert "foreign" in [a.verdict for a in raised(rig)] and not rig.state.open_alerts


def test_memory_taken_while_the_sweep_runs_is_named_at_the_start_that_lacks_it() -> None:
    """Out of memory because of a stranger is no fault of the configuration: it is waited for, then measured."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "crash"}
    rig.world.limits = {"--context-length 8192": 1}

    def act(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.config == "b":
            rig.world.gpu_procs = [STRANGER]
        if isinstance(event, ev.AlertDecided):
            rig.world.gpu_procs = []

    rig.on_event = act
    rig.run()
    found = [a for a in raised(rig) if a.verdict == "foreign"]
    assert found and "pid 77" in found[0].cause_text and found[0].kind == "host"
    assert all(c.state == "done" for c in rig.state.plan_cells)


class ListedOnce(list[dict[str, Any]]):
    """GPU processes that are gone when nvidia-smi is asked again."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rows = [self[i] for i in range(len(self))]
        self.clear()
        return iter(rows)


def test_what_the_failed_start_itself_held_for_a_moment_is_no_holder() -> None:
    """nvidia-smi lists a process that has just died: looked at again, it is gone, and the start failed by itself."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "crash"}
    seen: list[ListedOnce] = []

    def act(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.config == "b":
            seen.append(ListedOnce([{**STRANGER, "comm": None, "cmdline": [], "user": None}]))
            rig.world.gpu_procs = seen[-1]

    rig.on_event = act
    rig.run()
    assert seen and not any(len(rows) for rows in seen), "it was listed, and looked at"
    assert {a.verdict for a in raised(rig)} == {"failed"}


def test_a_path_that_staging_cannot_repair_is_started_once() -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "nopath"}
    assert rig.run().word == "some-failed"
    mine = [s for s in rig.world.starts if "8192" in s]
    assert len(mine) == 1, "the plan's own model is whole: the same path fails again"
    (alert,) = raised(rig)
    assert alert.cause == "model-path-missing" and "again" not in (alert.policy or "")


def test_a_missing_path_of_a_plan_without_a_model_is_a_fault_of_the_configuration() -> None:
    rig = Rig()
    rig.sweep = replace(rig.sweep, model=None)
    rig.world.faults = {"--port": "nopath"}
    assert rig.run().word == "some-failed"
    assert len(rig.world.starts) == len(set(map(tuple, rig.world.starts))), (
        "each configuration is started once"
    )
    assert {(a.cause, a.kind) for a in raised(rig)} == {("model-path-missing", "config")}


def test_a_path_that_staging_can_repair_is_started_again() -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "nopath"}
    rig.world.limits = {"--context-length 8192": 1}

    def lose(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and len(rig.world.starts) >= 1:
            rig.world.model = False

    rig.on_event = lose
    assert rig.run().word == "done"
    assert len([s for s in rig.world.starts if "8192" in s]) == 2


NO_ROOM = "/dev/shm/M: no room for the model: 52.0 GiB are needed"


@pytest.mark.parametrize(
    ("why", "failures", "host_policy", "word"),
    [
        (NO_ROOM, 3, "wait-clean", "done"),
        ("hf download: Network is unreachable", 3, "wait-clean", "done"),
        (NO_ROOM, 10_000, "wait-clean", "some-failed"),
        (NO_ROOM, 3, "stop", "some-failed"),
        ("no source holds a whole copy", 3, "wait-clean", "some-failed"),
    ],
)
def test_room_for_the_model_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, why: str, failures: int, host_policy: str, word: str
) -> None:
    """Seed 6517 of the campaign: /dev/shm was full for a moment, and the run ended before its first start."""
    real, calls = waits.stage, 0

    async def stage(*args: Any) -> str | None:
        nonlocal calls
        calls += 1
        return why if calls <= failures else await real(*args)

    monkeypatch.setattr(waits, "stage", stage)
    rig = Rig(host=host_policy)
    rig.world.model = False
    outcome = rig.run()
    assert outcome.word == word
    (alert,) = {a.alert_id: a for a in raised(rig)}.values()
    assert alert.verdict == "staging-failed" and (alert.policy or "").endswith("the sweep stops")
    assert bool(rig.state.open_alerts) is (word != "done")
    waited = calls if word == "done" else 1 + 60 * 60 // 45
    assert calls == (waited if failures > 3 or word == "done" else 1)
