"""Story 1 and its kin: the machine reboots, the runner is killed, the link is cut. No finished cell is run again, none is
lost, and the host is left as it was found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import (
    AlertRaised,
    Approve,
    Attend,
    CellMeasured,
    CellStateSet,
    Event,
    HostLost,
    HostRebooted,
    Resume,
    StepsPlanned,
    StepTaken,
)
from ddtop.journal.state import State, fold
from tests.bed.oracle import served_once
from tests.stories.harness import Runner, plan_text, states_of, took

CONFIGS = """
a = {}
b = { args = ["--context-length", "8192"] }
"""
SLOW = ("SPEED=4", "LOAD_S=8", "WARM_S=4", "STOP_S=6")
MOMENTS = ("stopping", "loading", "warm-up", "mid-cell", "between cells", "collecting")
LOSS = "from the reboot or cut to the loss on screen"
TOKENS = "24, 32, 48"


def plan(name: str, answer_s: float = 4) -> str:
    return plan_text(name, configs=CONFIGS, tokens=TOKENS, requests=4, answer_s=answer_s)


def at_moment(runner: Runner, moment: str) -> None:
    """Waits until the second configuration's start (or its cells) has come to `moment`."""

    def there(events: list[Event]) -> bool:
        state = fold(events)
        restart = state.restart
        phases = restart.phases if restart is not None and restart.config == "b" else {}
        cells = [c for c in state.plan_cells if c.spec.config == "b"]
        if moment == "stopping":
            return "stopping" in phases and phases["stopping"].state == "running"
        if moment == "loading":
            return "loading" in phases or "initialising" in phases
        if moment == "warm-up":
            return "listening" in phases or "capturing" in phases
        if moment == "mid-cell":
            return any(
                c.state == "running" and c.progress is not None and (c.progress.requests_done or 0) >= 1
                for c in cells
            )
        if moment == "between cells":
            return sum(c.state == "done" for c in cells) == 1
        return sum(c.state == "done" for c in cells) == 2

    runner.until(there, 120, moment)


def finished(state: State) -> set[str]:
    return {c.id for c in state.plan_cells if c.state == "done"}


def once_each(events: list[Event]) -> None:
    """Each finished cell was measured once with a usable result, and never begun again after it."""
    done: set[str] = set()
    for event in events:
        if isinstance(event, CellStateSet):
            assert not (event.state == "running" and event.cell_id in done), "a finished cell was begun again"
            if event.state == "done":
                done.add(event.cell_id)
        if isinstance(event, CellMeasured):
            assert event.cell_id not in done, "a finished cell was measured again"


def whole(runner: Runner, state: State, events: list[Event]) -> None:
    assert states_of(state, "a") == states_of(state, "b") == {"done"}, runner.text()[-6000:]
    assert len(state.plan_cells) == 6
    once_each(events)


def assert_served_once(host: Any, since: int) -> None:
    """By the server's own ledger: each request of each cell was answered as often as it is sent in one go: once for each
    of the two configurations, and the baseline's once more, for what its own answers differ by."""
    asked = [
        r for r in host.requests(since_ns=since) if r["tokens"] > 1
    ]  # less the gate's own one-token requests
    counts = served_once(asked)
    assert len(counts) == 3 * 4 and set(counts.values()) == {3}, counts


def reboot_trial(host: Any, tmp_path: Path, moment: str, by_hand: bool) -> None:
    host.stage()
    before = host.snapshot()
    host.fault(*SLOW)
    with Runner(host.bed, plan("story1", 20), tmp_path / "run.ddtop", tmp_path / "home") as runner:
        at_moment(runner, moment)
        had = finished(runner.state())
        stamp = time.time_ns()
        host.bed.reboot(host.name, wait=False)
        runner.until(lambda es: any(isinstance(e, HostLost) for e in es), 20, "loss")
        shown = runner.first_ns("LOST", stamp)
        assert shown is not None
        took(LOSS, f"reboot while {moment}", (shown - stamp) / 1e9)
        assert (shown - stamp) / 1e9 <= 15
        host.bed.wait_on(host.name)
        host.fault("SPEED=10", "LOAD_S=2")
        if by_hand:
            runner.send(Attend)
            steps: StepsPlanned = runner.until(
                lambda es: next((e for e in reversed(es) if isinstance(e, StepsPlanned) and e.steps and e.answer_by_s), None),
                60, "steps that ask",
            )  # fmt: skip
            alert = next(
                e for e in reversed(runner.events()) if isinstance(e, AlertRaised) and e.verdict == "rebooted"
            )
            runner.send(Resume, alert_id=alert.alert_id)
            runner.send(Approve, plan_id=steps.plan_id)
        code = runner.wait(150)
        events, state, text = runner.events(), runner.state(), runner.text()
    rebooted = [e for e in events if isinstance(e, HostRebooted)]
    assert len(rebooted) == 1, text[-5000:]
    words = " ".join(rebooted[0].consequences)
    assert "0 MiB" in words and "sglang-bench.service inactive" in words and "MISSING" in words, words
    taken = [
        (e.action, e.by)
        for e in events
        if isinstance(e, StepTaken) and e.state == "done" and e.action in ("stage", "restart")
    ]
    who = "tester" if by_hand else "policy"
    assert ("stage", who) in taken and ("restart", who) in taken, taken
    assert had <= finished(state)
    whole(runner, state, events)
    assert code == 0
    assert not state.open_alerts
    left = host.oracle.settled(host.name, before)
    assert [line for line in left if "model file" not in line] == []


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("moment", ("loading", "mid-cell"))
def test_reboot(ct200: Any, tmp_path: Path, moment: str) -> None:
    reboot_trial(ct200, tmp_path, moment, by_hand=moment == "mid-cell")


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("by_hand", (False, True))
@pytest.mark.parametrize("moment", MOMENTS)
def test_reboot_at_all_moments(ct200: Any, tmp_path: Path, moment: str, by_hand: bool) -> None:
    reboot_trial(ct200, tmp_path, moment, by_hand)


def kill_trial(host: Any, tmp_path: Path, moment: str, by_hand: bool) -> None:
    """kill -9 of the runner; another one takes the recording up."""
    host.stage()
    before = host.snapshot()
    host.fault(*SLOW)
    text = plan("killed", 6)
    began = host.bed.now()
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        at_moment(runner, moment)
        runner.kill()
        had = finished(runner.state())
    time.sleep(2.0)
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home", attended=by_hand) as runner:
        if by_hand:
            runner.until(lambda es: fold(es).run.segment == 1, 20, "second segment")
            runner.send(Attend)
        code = runner.wait(180)
        events, state = runner.events(), runner.state()
    assert state.run.segment == 1
    assert had <= finished(state)
    whole(runner, state, events)
    assert code == 0, runner.text()[-4000:]
    if moment in ("mid-cell", "between cells", "collecting"):
        # The job went on without us: what it measured is collected, and no request of a cell was sent twice.
        assert_served_once(host, began)
    left = host.oracle.settled(host.name, before)
    assert [line for line in left if "model file" not in line] == []


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("moment", ("stopping", "mid-cell"))
def test_runner_killed(ct200: Any, tmp_path: Path, moment: str) -> None:
    kill_trial(ct200, tmp_path, moment, by_hand=moment == "stopping")


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("by_hand", (False, True))
@pytest.mark.parametrize("moment", MOMENTS)
def test_runner_killed_at_all_moments(ct200: Any, tmp_path: Path, moment: str, by_hand: bool) -> None:
    kill_trial(ct200, tmp_path, moment, by_hand)


@pytest.mark.bed
@pytest.mark.stories
def test_link_cut_over_a_whole_configuration(ct200: Any, tmp_path: Path) -> None:
    """Cut from the first cell of a configuration until after its last: all are there when it heals."""
    host = ct200
    host.stage()
    host.fault("SPEED=10", "LOAD_S=2")
    began = host.bed.now()
    with Runner(host.bed, plan("cut"), tmp_path / "run.ddtop", tmp_path / "home") as runner:
        runner.until_measuring("b")
        stamp = time.time_ns()
        host.bed.cut(host.name)
        runner.until(lambda es: any(isinstance(e, HostLost) for e in es), 20, "loss")
        shown = runner.first_ns("LOST", stamp)
        assert shown is not None and (shown - stamp) / 1e9 <= 15
        took(LOSS, "link cut", (shown - stamp) / 1e9)
        wanted = 2 * 3 * 4  # configurations, cells, requests
        deadline = time.monotonic() + 60
        while len(host.requests(since_ns=began)) < wanted and time.monotonic() < deadline:
            time.sleep(0.5)
        host.bed.heal(host.name)
        code = runner.wait(90)
        events, state = runner.events(), runner.state()
    whole(runner, state, events)
    assert code == 0
    assert_served_once(host, began)
