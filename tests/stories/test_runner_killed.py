"""ddtop itself dies: kill -9 of the runner at six moments, the window with it. `ddtop connect HOST` again takes the run up:
what is under way on the host is watched, what was measured meanwhile is collected, nothing is measured twice."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import AlertRaised, Event, StepTaken
from ddtop.journal.fold.state import State
from tests.stories.desk import Desk, Terminal, assert_once_each, finished, served
from tests.stories.harness import noted, states_of, took
from tests.stories.moments import CELLS, MARKS, MOMENTS, REQUESTS, at_moment, faults, plan

SEEN = "from kill -9 to `no runner` on the open dashboard"
BACK = "from typing `ddtop connect` (or r, enter) again to the run going on"
AGAIN = "answered requests that were asked for again"

WHOLE = [0 if config == "z" else CELLS * REQUESTS for config in MARKS]


def trial(host: Any, tmp_path: Path, moment: str, seed: int, *, by_hand: bool) -> None:
    """One sweep, one kill -9. By hand: the window is closed too, `ddtop connect` is typed again and what it asks is answered by
    r and enter. Else: a runner is started from the window that is still open, and what it asks is left to the countdown."""
    host.stage()
    before = host.snapshot()
    host.fault(*faults(moment))
    began = host.bed.now()
    rng = random.Random(f"killed{moment}{seed}")
    with Desk(host, tmp_path, plan(f"killed-{seed}", 60 if by_hand else 3)) as desk:
        with desk.sit(plan=True) as first:
            desk.mark_broken_at_alert("z")
            with at_moment(desk, moment, seed):
                desk.signal_runner(signal.SIGKILL)
            killed = host.bed.now()
            had = finished(desk.state())
            said = first.until(lambda: first.shows("no runner"), 10, "word of the runner's death")
            took(SEEN, moment, (said - killed) / 1e9)
            time.sleep(rng.random() * 5)
            with contextlib.ExitStack() as windows:
                typed = host.bed.now()
                if by_hand:
                    first.kill()
                    screen = windows.enter_context(desk.sit(plan=False))
                else:
                    screen = first
                    start_anew(screen)
                desk.until(lambda _: desk.state().run.segment == 1, 20, "second runner")
                goes_on(desk, screen, typed, moment, by_hand)
                state = desk.until_end(150)
                events = desk.events()
    judge(host, before, events, state, had)
    times = served(host, MARKS, began)
    noted(AGAIN, moment, float(len(times.repeated())))
    assert not times.repeated(), times.times
    assert [times.of(c) for c in MARKS] == WHOLE


def judge(host: Any, before: Any, events: list[Event], state: State, had: set[str]) -> None:
    """What the recording must hold, and the host."""
    text = f"{state.run.ended}\n" + "\n".join(
        f"{c.spec.config} {c.state} {c.reason}" for c in state.plan_cells
    )
    assert had <= finished(state), text
    assert states_of(state, "a") == states_of(state, "b") == states_of(state, "c") == {"done"}, text
    assert states_of(state, "z") == {"broken"}, text
    assert_once_each(events)
    assert [
        (e.verdict, e.cause) for e in events if isinstance(e, AlertRaised) and e.verdict != "interrupted"
    ] == [("no-tokens", "zero-tokens")]
    assert state.run.ended is not None and state.run.ended.exit_code == 10 and not state.run.ended.left_behind
    assert not state.open_alerts
    assert host.oracle.settled(host.name, before) == []


def start_anew(screen: Terminal) -> None:
    """On the window that is still open: `r` offers a runner, `enter` starts it."""
    screen.press("r")
    screen.until(lambda: screen.shows("Start a runner?"), 10, "offer of a runner")
    screen.press("\r")


def goes_on(desk: Desk, screen: Terminal, typed: int, moment: str, by_hand: bool) -> None:
    """Where the new runner asks, answers it; where nothing needs consent, it goes on by itself."""

    def settled(_: Any) -> bool:
        state = desk.state()
        asks = state.proposed is not None and state.proposed.answer_by_s is not None
        return asks or any(isinstance(e, StepTaken) and e.at_s > typed / 1e9 for e in desk.events())

    desk.until(settled, 30, "steps of the second runner")
    state = desk.state()
    if state.proposed is not None and state.proposed.answer_by_s is not None and by_hand:
        screen.until(lambda: screen.shows("INTERRUPTED"), 10, "alert")
        screen.press("r")
        screen.until(lambda: screen.shows("Proposed steps", "enter do"), 10, "steps")
        screen.press("\r")
    took(BACK, moment, (desk.host.bed.now() - typed) / 1e9)


@pytest.mark.bed
def test_runner_killed(ct200: Any, tmp_path: Path) -> None:
    trial(ct200, tmp_path, "mid-cell", 0, by_hand=True)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("by_hand", (True, False), ids=("r-enter", "countdown"))
@pytest.mark.parametrize("moment", MOMENTS)
def test_runner_killed_at_all_moments(ct200: Any, tmp_path: Path, moment: str, by_hand: bool) -> None:
    trial(ct200, tmp_path, moment, 1 + by_hand, by_hand=by_hand)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("by_hand", (True, False), ids=("r-enter", "countdown"))
@pytest.mark.parametrize("how", ("killed", "stopped"))
def test_runner_and_server_are_gone(ct200: Any, tmp_path: Path, how: str, by_hand: bool) -> None:
    """The server dies too while nobody looks: what its job measured before counts, what it could not measure is no verdict
    on the configuration, and the restart is asked about."""
    host = ct200
    host.stage()
    before = host.snapshot()
    host.fault(*faults("mid-cell"))
    began = host.bed.now()
    with Desk(host, tmp_path, plan(f"both-{how}", 60 if by_hand else 3)) as desk:
        with desk.sit(plan=True):
            desk.mark_broken_at_alert("z")
            with at_moment(desk, "between cells", 5):
                desk.signal_runner(signal.SIGKILL)
        had = finished(desk.state())
        time.sleep(0.5)
        if how == "killed":
            host.sh("systemctl kill --kill-whom=all --signal=KILL sglang-bench")
        else:
            host.sh("systemctl stop sglang-bench")
        time.sleep(4)
        typed = host.bed.now()
        with desk.sit(plan=False) as screen:
            screen.until(lambda: screen.shows("INTERRUPTED"), 20, "alert")
            goes_on(desk, screen, typed, f"server {how}", by_hand)
            state = desk.until_end(150)
            events = desk.events()
    judge(host, before, events, state, had)
    times = served(host, MARKS, began)
    noted(AGAIN, f"server {how}", float(len(times.repeated())))
    assert all(config == "b" for config, _ in times.repeated()) and len(times.repeated()) < REQUESTS, (
        times.times
    )
    assert [times.of(c) for c in MARKS] == WHOLE
    by = {e.by for e in events if isinstance(e, StepTaken) and e.action == "restart" and e.at_s > typed / 1e9}
    assert by and ("policy" in by) != by_hand, by
