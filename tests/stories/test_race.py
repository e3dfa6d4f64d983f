"""A race on the bed whose runner is killed (kill -9) at six moments: nothing is measured twice, and the decisions are those of
the race that is not killed. `b` and `c` are three times slower than `a`, far beyond the noise of a busy machine; `c` is killed
in its first start, so that it alone is in the second round."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import CellMeasured, Event, RaceRound
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.stats.race import Rules
from ddtop.sweep.configuration.rounds import due, to_skip
from tests.stories.desk import finished
from tests.stories.harness import Runner, plan_text
from tests.stories.moments import wait_for_jobs

MOST = 2
RULES = Rules(rule="race", most=MOST)
SLOW = "STEP_MS=120"
FAULTS = (
    *("SPEED=4", "LOAD_S=4", "WARM_S=2", "STEP_MS=40", "WHEN=--context-length 8192", SLOW),
    *("WHEN=--context-length 4096", SLOW, "STARTS=3", "LOAD_S=80", "STARTS=4", "LOAD_S=12", "STOP_S=8"),
)
"""`c` is the third start and the fourth: it loads for 20 s, in which it is killed, and then for 3 s."""
MOMENTS = ("collecting", "decision", "stopping", "loading", "mid-cell", "between cells")


def plan(name: str) -> str:
    go_on = 'transient = "fail-and-go-on"\nbug = "fail-and-go-on"'
    text = plan_text(name, tokens="40, 56", requests=3, answer_s=1, policy=go_on)
    return text.replace('baseline = "a"', f'baseline = "a"\nrace = true\nmax_starts = {MOST}')


def is_there(state: State, moment: str) -> bool:
    """`collecting`: the job of `b` in the first round; the rest: the second round's start of `c` and after it."""
    first = [c for c in state.plan_cells if c.spec.start == 0]
    second = [c for c in state.plan_cells if c.spec.start == 1]
    phases = state.restart.phases if state.restart is not None and state.races else {}
    match moment:
        case "collecting":
            return any(c.state == "done" for c in first if c.spec.config == "b")
        case "decision":
            return bool(state.races)
        case "stopping" | "loading":
            return moment in phases and phases[moment].state == "running"
        case "mid-cell":
            return any(c.state == "running" for c in second)
    return any(c.state == "done" for c in second)


def kill_at(runner: Runner, host: Any, moment: str) -> None:
    """kill -9 at `moment`; of `collecting`, after the job has ended and before its results are taken."""

    def come(events: list[Event]) -> bool:
        return is_there(fold(events), moment)

    runner.until(come, 240, f"moment: {moment}")
    if moment == "collecting":
        os.kill(runner.process.pid, signal.SIGSTOP)
        wait_for_jobs(host)
    elif moment != "decision":
        time.sleep(random.Random(moment).random() * 0.3)
    runner.kill()


def spoil(runner: Runner, host: Any) -> None:
    """Kills the server of `c` in its first load, as the OOM killer would."""

    def loads(events: list[Event]) -> bool:
        last = fold(events).restart
        phase = last.phases.get("loading") if last is not None and last.config == "c" else None
        return phase is not None and phase.state == "running"

    runner.until(loads, 240, "load of c")
    host.sh("systemctl kill --kill-whom=all --signal=KILL sglang-bench")


def raced(host: Any, tmp_path: Path, moment: str | None) -> list[Event]:
    """One whole race, killed once at `moment`; its events."""
    host.fault(*FAULTS)
    text = plan(f"race-{(moment or 'whole').replace(' ', '-')}")
    recording, home = tmp_path / "race.ddtop", tmp_path / "home"
    early = moment == "collecting"
    if moment is not None:
        with Runner(host.bed, text, recording, home) as runner:
            if not early:
                spoil(runner, host)
            kill_at(runner, host, moment)
    with Runner(host.bed, text, recording, home) as runner:
        if early or moment is None:
            spoil(runner, host)
        assert runner.wait(420) == 10, runner.text()[-4000:]
        return runner.events()


def judge(host: Any, before: Any, events: list[Event]) -> None:
    """Decisions in order, each once, each what the results before it give; what they left was never begun again."""
    state = fold(events)
    races = [(i, e) for i, e in enumerate(events) if isinstance(e, RaceRound)]
    assert [race.start for _, race in races] == list(range(len(races)))
    assert races[-1][1].ended and not any(race.ended for _, race in races[:-1])
    for at, race in races:
        again = due(fold(events[:at]), RULES, 1)
        assert again is not None
        assert (race.start, race.go_on, race.left, race.ended, race.leaders) == (
            again["start"],
            again["go_on"],
            again["left"],
            again["ended"],
            again["leaders"],
        )
    one, two = (race for _, race in races)
    assert one.go_on == ("c",) and one.left["a"].endswith("a leads") and "below a" in one.left["b"]
    assert two.go_on == () and "below a" in two.left["c"] and set(two.leaders.values()) == {"a"}
    states = {(c.spec.config, c.spec.start): (c.state, c.by == "race") for c in state.plan_cells}
    assert states == {
        **dict.fromkeys((("a", 0), ("b", 0), ("c", 1)), ("done", False)),
        **dict.fromkeys((("a", 1), ("b", 1)), ("skipped", True)),
        ("c", 0): ("failed", False),
    }
    assert not [c for c in state.plan_cells if c.state == "skipped" and c.attempts]
    assert not list(to_skip(state))
    results = [e.cell_id for e in events if isinstance(e, CellMeasured) and e.raw]
    assert sorted(results) == sorted(set(results)) == sorted(finished(state)), "measured once each"
    assert host.oracle.settled(host.name, before) == []


def trial(host: Any, tmp_path: Path, moment: str | None) -> None:
    host.stage()
    before = host.snapshot()
    judge(host, before, raced(host, tmp_path, moment))


@pytest.mark.bed
def test_a_race_goes_on_after_its_runner_was_killed(ct200: Any, tmp_path: Path) -> None:
    trial(ct200, tmp_path, "collecting")


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("moment", [None, *MOMENTS[1:]], ids=lambda m: m or "not killed")
def test_a_race_killed_at_any_moment(ct200: Any, tmp_path: Path, moment: str | None) -> None:
    trial(ct200, tmp_path, moment)
