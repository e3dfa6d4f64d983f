"""ddtop itself dies: kill -9 of the runner at six moments, the window with it. `ddtop connect HOST` again takes the run up:
what is under way on the host is watched, what was measured meanwhile is collected, nothing is measured twice."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import AlertRaised, StepTaken
from tests.stories.desk import Desk, Terminal, assert_once_each, finished, served
from tests.stories.harness import states_of, took
from tests.stories.moments import CELLS, MARKS, MOMENTS, REQUESTS, at_moment, faults, plan

BACK = "from typing `ddtop connect` again to the run going on"
AGAIN = "answered requests that were asked for again (not seconds)"


def trial(host: Any, tmp_path: Path, moment: str, seed: int, *, by_hand: bool) -> None:
    """One sweep, one kill -9, one `ddtop connect` again: answered by r and enter, or left to the countdown."""
    host.stage()
    before = host.snapshot()
    host.fault(*faults(moment))
    began = host.bed.now()
    rng = random.Random(f"killed{moment}{seed}")
    with Desk(host, tmp_path, plan(f"killed-{seed}", 60 if by_hand else 3)) as desk:
        with desk.sit(plan=True):
            desk.mark_broken_at_alert("z")
            with at_moment(desk, moment, seed):
                desk.signal_runner(signal.SIGKILL)
        had = finished(desk.state())
        time.sleep(rng.random() * 5)
        typed = host.bed.now()
        with desk.sit(plan=False) as screen:
            desk.until(lambda _: desk.state().run.segment == 1, 20, "second runner")
            goes_on(desk, screen, typed, moment, by_hand)
            state = desk.until_end(150)
            events = desk.events()
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
    times = served(host, MARKS, began)
    took(AGAIN, moment, float(len(times.repeated())))
    assert not times.repeated(), times.times
    assert [times.of(c) for c in ("a", "z", "b", "c")] == [
        CELLS * REQUESTS,
        0,
        CELLS * REQUESTS,
        CELLS * REQUESTS,
    ]
    assert host.oracle.settled(host.name, before) == []


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
