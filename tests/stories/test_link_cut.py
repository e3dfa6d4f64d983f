"""The link is cut from the first cell of a configuration until after its last: the job on the host does not notice. As a
user whose processes logind ends at logout, with a model that logind would delete, neither job nor model is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import CellMeasured, HostRebooted, RestartStarted
from tests.bed import trouble
from tests.stories.desk import Desk, Terminal, assert_once_each, served
from tests.stories.harness import plan_text, states_of, took
from tests.stories.moments import wait_for_jobs

LOSS = "from the cut to the dashboard's screen"
BACK = "from the healed link to the results"
CONFIGS = """
a = {}
b = { args = ["--context-length", "8192"] }
"""
MARKS = {"a": "", "b": "--context-length 8192"}
CELLS, REQUESTS = 3, 3
TOKENS = "40, 56, 72"


def cut_over_a_configuration(
    host: Any,
    desk: Desk,
    screen: Terminal,
    began: int,
    at_least_s: float = 0.0,
    meanwhile: Callable[[], None] | None = None,
) -> tuple[int, float]:
    """Cuts at the first cell of b and heals after its last. Returns (when it healed, seconds until the screen said it)."""

    def measuring(_: Any) -> bool:
        return any(c.state == "running" for c in desk.state().plan_cells if c.spec.config == "b")

    desk.until(measuring, 90, "first cell of b")
    host.bed.cut(host.name)
    cut = host.bed.now()
    shown = screen.until(lambda: screen.shows("HOST LOST"), 40, "loss on the screen")
    assert (shown - cut) / 1e9 <= 15
    if meanwhile is not None:
        meanwhile()
    deadline = time.monotonic() + 90
    while served(host, MARKS, began).of("b") < CELLS * REQUESTS:
        assert time.monotonic() < deadline, "the job on the host came to nothing"
        time.sleep(0.5)
    wait_for_jobs(host)
    time.sleep(max(0.0, at_least_s - (time.time_ns() - cut) / 1e9))
    assert not [e for e in desk.events() if isinstance(e, CellMeasured) and e.at_s > cut / 1e9]
    host.bed.heal(host.name)
    return host.bed.now(), (shown - cut) / 1e9


def judge(host: Any, desk: Desk, began: int, healed: int, kind: str) -> None:
    """All cells of b came, without a restart and without a person; each request was answered once."""

    def complete(_: Any) -> bool:
        return states_of(desk.state(), "b") == {"done"}

    desk.until(complete, 45, "results of b after the link was healed")
    took(BACK, kind, (host.bed.now() - healed) / 1e9)
    state = desk.until_end(60)
    events = desk.events()
    assert states_of(state, "a") == states_of(state, "b") == {"done"}
    assert state.run.ended is not None and state.run.ended.exit_code == 0, state.run.ended
    assert_once_each(events)
    assert not state.open_alerts and not [e for e in events if isinstance(e, HostRebooted)]
    assert [e.config for e in events if isinstance(e, RestartStarted)] == ["a", "b"]
    times = served(host, MARKS, began)
    assert not times.repeated() and times.of("a") == times.of("b") == CELLS * REQUESTS, times.times


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("seed", range(3))
def test_link_cut_over_a_whole_configuration(ct200: Any, tmp_path: Path, seed: int) -> None:
    host = ct200
    host.stage()
    before = host.snapshot()
    host.fault("SPEED=10", "LOAD_S=5", f"STEP_MS={30 + 20 * seed}")
    began = host.bed.now()
    text = plan_text(f"cut-{seed}", configs=CONFIGS, tokens=TOKENS, requests=REQUESTS, answer_s=60)
    with Desk(host, tmp_path, text) as desk, desk.sit(plan=True) as screen:
        healed, loss_s = cut_over_a_configuration(host, desk, screen, began)
        took(LOSS, "root", loss_s)
        judge(host, desk, began, healed, "root")
    assert host.oracle.settled(host.name, before) == []


@pytest.mark.bed
@pytest.mark.parametrize("cut_s", (24.0, pytest.param(40.0, marks=pytest.mark.stories)))
def test_a_user_is_logged_out_by_a_cut(ct200: Any, tmp_path: Path, cut_s: float) -> None:
    """User bench, KillUserProcesses=yes and RemoveIPC=yes; the model was staged by ddtop."""
    host = ct200
    trouble.kill_user_processes(host.bed, host.name)
    before = host.snapshot()
    host.fault("SPEED=10", "LOAD_S=5", "WHEN=--context-length 8192", "SPEED=1", "LOAD_S=1")
    began = host.bed.now()
    text = plan_text("bench", configs=CONFIGS, tokens=TOKENS, requests=REQUESTS, answer_s=60)

    def log_out() -> None:
        """What sshd does at last with a connection that is dead; logind then ends and deletes what it may."""
        job = "systemctl list-units --no-legend --state=running 'ddtop-job-*'"
        assert host.sh(job).strip(), "the job is to be running at the logout"
        host.sh("loginctl terminate-user bench")
        time.sleep(4)
        assert "bench" not in host.sh("loginctl list-users --no-legend || true")
        assert host.sh(job).strip(), "logind has ended the job"
        assert not host.sh("find /dev/shm -user bench").strip()

    with Desk(host, tmp_path, text, user="bench") as desk, desk.sit(plan=True) as screen:
        healed, loss_s = cut_over_a_configuration(host, desk, screen, began, cut_s, log_out)
        took(LOSS, "bench", loss_s)
        judge(host, desk, began, healed, "bench")
    model = host.spec.model
    left = host.oracle.settled(host.name, before)
    assert [line for line in left if not line.startswith(f"model file new: {model}")] == []
    assert "model file new" in " ".join(left), "the model that ddtop staged is gone"
