"""Story 1: "machine was down, resume your testing". The host reboots, or loses power, at six moments of a sweep; the
dashboard says so, shows the way on, and `r` and `enter` go it. No finished cell is run again."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import Event, HostRebooted, StepsPlanned, StepTaken
from ddtop.journal.fold.state import State
from tests.stories.desk import Desk, Terminal, assert_once_each, finished, served
from tests.stories.harness import noted, states_of, took
from tests.stories.moments import AFTERWARDS, CELLS, MARKS, MOMENTS, REQUESTS, at_moment, faults, plan

LOSS_LIMIT_S = 15.0
DARK_S = 16.0
"""A power loss gives no sign at all for so long: the silence itself must be noticed."""
LOSS = "from the loss of the host to the dashboard's screen"
BACK = "from the host's sshd being back to the reboot on the dashboard's screen"
LOST = "answered requests that were asked for again (a cell has 5)"


def trial(host: Any, tmp_path: Path, moment: str, seed: int, *, power_loss: bool = False) -> None:
    """One sweep, one loss of the host, one person who presses r and enter."""
    host.stage()
    before = host.snapshot()
    host.fault(*faults(moment))
    began = host.bed.now()
    kind = f"{'power loss' if power_loss else 'reboot'} while {moment}"
    with Desk(host, tmp_path, plan(f"story1-{seed}", 60)) as desk, desk.sit(plan=True) as screen:
        desk.mark_broken_at_alert("z")
        with at_moment(desk, moment, seed):
            had, gone = finished(desk.state()), host.bed.now()
            if power_loss:
                host.bed.crash(host.name, dark_s=DARK_S, wait=False)
            else:
                host.bed.reboot(host.name, wait=False)
        shown = screen.until(lambda: screen.shows("HOST LOST"), 40, "loss on the screen")
        took(LOSS, kind, (shown - gone) / 1e9)
        assert (shown - gone) / 1e9 <= LOSS_LIMIT_S
        resume(desk, screen, kind)
        state = desk.until_end(150)
        events = desk.events()
    judge(host, before, events, state, had)
    once(host, state, kind, began)


def resume(desk: Desk, screen: Terminal, kind: str) -> None:
    """Waits for the host and for what the screen says of it, and does the steps."""
    host = desk.host
    host.bed.wait_on(host.name)
    host.fault(*AFTERWARDS)
    back = host.bed.now()
    seen = screen.until(lambda: screen.shows("REBOOTED", "resume at"), 60, "reboot on the screen")
    took(BACK, kind, (seen - back) / 1e9)
    go_on(desk, screen)


def go_on(desk: Desk, screen: Terminal) -> None:
    """Reads what is proposed and does it, with the two keys."""
    assert screen.shows("0 MiB", "sglang-bench.service inactive", "MISSING"), screen.text()
    screen.press("r")
    screen.until(
        lambda: screen.shows("Proposed steps", "re-stage", "restart sglang-bench.service"), 10, "steps"
    )
    time.sleep(0.5)
    taken = [e for e in desk.events() if isinstance(e, StepTaken) and e.action in ("stage", "restart")]
    assert not [e for e in taken if e.at_s > time.time() - 5], "a step was taken before anybody said so"
    screen.press("\r")


def judge(host: Any, before: Any, events: list[Event], state: State, had: set[str]) -> None:
    """What the recording must hold, and the host."""
    text = f"{state.run.ended}\n" + "\n".join(
        f"{c.spec.config} {c.state} {c.reason}" for c in state.plan_cells
    )
    rebooted = [e for e in events if isinstance(e, HostRebooted)]
    assert len(rebooted) == 1
    words = " ".join(rebooted[0].consequences)
    assert "GPUs 0 MiB" in words and "sglang-bench.service inactive" in words and "model MISSING" in words, (
        words
    )
    asked = [e for e in events if isinstance(e, StepsPlanned) and e.answer_by_s]
    assert asked and all(s.reason for s in asked[-1].steps)
    done = {
        e.action: e.by
        for e in events
        if isinstance(e, StepTaken) and e.state == "done" and e.plan_id == asked[-1].plan_id
    }
    assert done["stage"] == done["restart"] not in ("policy", "automatic", "colleague"), done
    assert had <= finished(state), text
    assert states_of(state, "a") == states_of(state, "b") == states_of(state, "c") == {"done"}, text
    assert states_of(state, "z") == {"broken"}, text
    assert_once_each(events)
    assert state.run.ended is not None and state.run.ended.exit_code == 10 and not state.run.ended.left_behind
    assert not state.open_alerts
    left = host.oracle.settled(host.name, before)
    assert [line for line in left if ".ddtop-staged.json" not in line] == []


def once(host: Any, state: State, kind: str, began: int) -> None:
    """By the server's own ledger: what was finished before was asked for once; only the cell in flight was begun anew."""
    all_of_it = served(host, MARKS, began)
    for config in ("a", "b", "c"):
        assert all_of_it.of(config) == CELLS * REQUESTS, all_of_it.times
    assert all_of_it.of("z") == 0
    again = all_of_it.repeated()
    assert all(n == 2 and config == "b" for (config, _), n in again.items()), again
    # A cell in flight may have got some answers; of a finished one nothing is asked again, so fewer than a cell's.
    noted(LOST, kind, float(len(again)))
    assert len(again) < REQUESTS, all_of_it.times
    attempts = [
        c for c in state.plan_cells if sum(a.validity in ("VALID", "SUSPECT") for a in c.attempts) > 1
    ]
    assert not attempts, "a cell has two results"


@pytest.mark.bed
def test_reboot(ct200: Any, tmp_path: Path) -> None:
    trial(ct200, tmp_path, "mid-cell", 0)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("seed", (1, 2))
@pytest.mark.parametrize("moment", MOMENTS)
def test_reboot_at_all_moments(ct200: Any, tmp_path: Path, moment: str, seed: int) -> None:
    trial(ct200, tmp_path, moment, seed)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("moment", MOMENTS)
def test_power_loss_at_all_moments(ct200: Any, tmp_path: Path, moment: str) -> None:
    trial(ct200, tmp_path, moment, 3, power_loss=True)


@pytest.mark.bed
@pytest.mark.stories
def test_reboot_while_nobody_looks_and_ddtop_is_dead(ct200: Any, tmp_path: Path) -> None:
    """The laptop is gone too: `ddtop connect` the next morning finds the run and the reboot."""
    host = ct200
    host.stage()
    before = host.snapshot()
    host.fault(*faults("mid-cell"))
    began = host.bed.now()
    with Desk(host, tmp_path, plan("story1-dead", 60)) as desk:
        with desk.sit(plan=True):
            desk.mark_broken_at_alert("z")
            with at_moment(desk, "mid-cell", 4):
                had = finished(desk.state())
                desk.signal_runner(signal.SIGKILL)
        host.bed.reboot(host.name)
        with desk.sit(plan=False) as screen:
            resume(desk, screen, "reboot while ddtop is dead")
            state = desk.until_end(150)
            events = desk.events()
    judge(host, before, events, state, had)
    once(host, state, "reboot while ddtop is dead", began)
