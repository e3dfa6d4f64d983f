"""What a login may do decides what ddtop does: with sudo all of it, with a user's own manager his units, with neither a
refusal that names the remedy. What cannot be read is called unknown; nothing is touched by a refusal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ddtop.errors import JournalError
from ddtop.events import GateSeen
from ddtop.journal.read.reader import read_state
from tests.bed import trouble
from tests.bed.config import REPO
from tests.stories.harness import Runner, alerts, plan_text, ready_configs, states_of

FAST = ("SPEED=20", "LOAD_S=2", "WARM_S=0.3")
TWO = """
a = {}
b = { args = ["--context-length", "8192"] }
"""
TOKENS = "16, 24"
DROP_IN = "50-ddtop.conf"


def as_user(text: str, user: str) -> str:
    return text.replace('host = "ct200"', f'host = "{user}@ct200"')


def own_unit(text: str) -> str:
    """The same plan for the user's own unit."""
    text = text.replace("sglang-bench.service", "sglang-user.service")
    return text.replace("port = 30000", "port = 30001\nuser = true")


def gate_parts(runner: Runner, config: str) -> dict[str, str]:
    """The proven parts of the gate of `config`'s start, with their evidence."""
    ids = {r.attempt_id for r in runner.state().restarts if r.config == config}
    return {
        e.part: e.evidence.text
        for e in runner.events()
        if isinstance(e, GateSeen) and e.attempt_id in ids and e.ok
    }


def said(runner: Runner) -> str:
    """What the alerts said, in one line."""
    state = runner.state()
    return " ".join(f"{a.raised.cause_text} {a.raised.advice}" for a in state.alerts.values())


def assert_refused(runner: Runner, code: int, *remedy: str) -> None:
    """Told in words: what is missing and what to do; nothing was measured, and no traceback was shown."""
    text = runner.text()
    assert code in (10, 12), text[-4000:]
    assert "Traceback" not in text, text[-4000:]
    assert not any(c.state == "done" for c in runner.state().plan_cells)
    for words in remedy:
        assert words in text, f"{words!r} is not said:\n{text[-4000:]}"


@pytest.mark.bed
def test_a_user_with_sudo_does_what_root_does(ct200: Any, tmp_path: Path) -> None:
    """Override, restart, journal, listener's owner, a job of its own unit, and a staged model that outlives the logout."""
    host = ct200
    trouble.kill_user_processes(host.bed, host.name)
    before = host.snapshot()
    host.fault(*FAST)
    text = as_user(plan_text("sudo", configs=TWO, tokens=TOKENS), "bench")
    override = f"/run/systemd/system/sglang-bench.service.d/{DROP_IN}"
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        runner.until_measuring("b")
        written = host.sh(f"stat -c %U {override} && cat {override}")
        code = runner.wait(90)
    assert code == 0, runner.text()[-5000:]
    assert written.startswith("root") and "ExecStart=\n" in written and "8192" in written
    assert alerts(runner.events()) == set() and ready_configs(runner.events()) == ["a", "b"]
    assert states_of(runner.state(), "a") == states_of(runner.state(), "b") == {"done"}
    parts = gate_parts(runner, "b")
    assert set(parts) == {"generation", "listener", "mark", "arguments", "token"}
    assert "fired up" in parts["mark"] and "sglang-bench.service" in parts["listener"]
    assert runner.state().stage is not None and runner.state().stage.progress.state == "done"
    host.sh("loginctl terminate-user bench || true")
    time.sleep(2)  # UserStopDelaySec=1: then RemoveIPC has deleted what was his
    assert not host.sh("find /dev/shm -user bench").strip()
    left = host.oracle.settled(host.name, before)
    assert [x for x in left if not x.startswith(f"model file new: {host.spec.model}")] == []
    shards = host.sh(f"ls {host.spec.source}/*.safetensors | wc -l")
    assert host.sh(f"ls {host.spec.model}/*.safetensors | wc -l") == shards, (
        "the staged model did not outlive the login"
    )


@pytest.mark.bed
def test_a_users_own_unit_with_linger(ct200: Any, tmp_path: Path) -> None:
    """The drop-in lies in the user's run-time folder; the unit that ran before runs again at the end, as it was."""
    host = ct200
    host.stage()
    host.sh(f"loginctl enable-linger bench; chmod -R a+rX {host.spec.model}")
    host.fault(*FAST)
    host.ssh("systemctl --user start sglang-user", user="bench")
    host.wait("ready")
    before = host.snapshot()
    argv = host.ledger("start")[-1]["argv"]
    override = f"/run/user/1000/systemd/user/sglang-user.service.d/{DROP_IN}"
    with Runner(
        host.bed,
        own_unit(as_user(plan_text("own", configs=TWO, tokens=TOKENS), "bench")),
        tmp_path / "run.ddtop",
        tmp_path / "home",
    ) as runner:
        runner.until_measuring("b")
        written = host.sh(
            f"stat -c %U {override} && cat {override}; ls -d /run/systemd/system/sglang-user* 2>/dev/null || true"
        )
        code = runner.wait(90)
    assert code == 0, runner.text()[-5000:]
    assert (
        written.startswith("bench") and "8192" in written and "/run/systemd/system/sglang-user" not in written
    )
    assert alerts(runner.events()) == set() and ready_configs(runner.events()) == ["a", "b"]
    parts = gate_parts(runner, "b")
    assert (
        set(parts) == {"generation", "listener", "mark", "arguments", "token"} and "fired up" in parts["mark"]
    )
    generations = {r.generation.id for r in runner.state().restarts if r.generation}
    assert len(generations) == 2, "each start has a generation of its own"
    left = [x for x in host.oracle.settled(host.name, before) if not x.startswith("process")]
    assert left == []
    assert host.ledger("start")[-1]["argv"] == argv, "what runs now is what ran before"
    assert host.ssh("systemctl --user is-active sglang-user", user="bench").strip() == "active"


@pytest.mark.bed
def test_a_users_own_unit_without_linger_is_refused(ct200: Any, tmp_path: Path) -> None:
    """His manager ends with his last session, and the server with it: said before anything is touched."""
    host = ct200
    host.stage()
    host.sh(f"chmod -R a+rX {host.spec.model}")
    before = host.snapshot()
    host.fault(*FAST)
    with Runner(
        host.bed,
        own_unit(as_user(plan_text("own", configs=TWO, tokens=TOKENS, policy='host = "stop"'), "bench")),
        tmp_path / "run.ddtop",
        tmp_path / "home",
    ) as runner:
        code = runner.wait(60)
    assert_refused(runner, code, "linger", "loginctl enable-linger bench")
    assert not host.ledger("start")
    assert host.oracle.settled(host.name, before) == []


@contextmanager
def units_of_plain(host: Any) -> Iterator[None]:
    """`plain` lingers, and has the unit that bench has."""
    home, there = "/home/plain/.config/systemd/user", "/home/bench/.config/systemd/user/sglang-user.service"
    host.sh(f"install -d {home} && cp {there} {home}/ && chown -R plain:plain /home/plain/.config")
    host.sh("loginctl enable-linger plain")
    try:
        yield
    finally:
        host.sh(
            "loginctl disable-linger plain; loginctl terminate-user plain; rm -rf /home/plain/.config/systemd; true"
        )


@pytest.mark.bed
@pytest.mark.stories
def test_a_plain_user_who_lingers_sweeps_his_own_unit(ct200: Any, tmp_path: Path) -> None:
    """No root, no sudo: his own manager is enough for override, restart, log, port and detached job."""
    host = ct200
    host.stage()
    host.sh(f"chmod -R a+rX {host.spec.model}")
    host.fault(*FAST)
    text = own_unit(as_user(plan_text("mine", configs=TWO, tokens=TOKENS), "plain"))
    with units_of_plain(host), Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(90)
        assert code == 0, runner.text()[-5000:]
        assert alerts(runner.events()) == set() and ready_configs(runner.events()) == ["a", "b"]
        assert set(gate_parts(runner, "b")) == {"generation", "listener", "mark", "arguments", "token"}
        assert not host.sh("ls /run/user/1001/systemd/user/*.d 2>/dev/null || true").strip()


MONITOR = """
import sys
from pathlib import Path
from ddtop.runner import RunOptions, run
sys.exit(run(RunOptions(host=sys.argv[1], record=Path(sys.argv[2]), ssh_config=Path(sys.argv[3]))))
"""


@pytest.mark.bed
def test_a_plain_user_is_told_what_he_may_not(ct200: Any, tmp_path: Path) -> None:
    """Who may do nothing gets one refusal that names the remedy, before the first configuration; nothing is touched."""
    ct200.stage()
    before = ct200.snapshot()
    ct200.fault(*FAST)
    text = as_user(plan_text("plain", configs=TWO, policy='host = "stop"'), "plain")
    with Runner(ct200.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(60)
    assert code == 12, runner.text()[-4000:]
    assert alerts(runner.events()) == {("refused", "not-permitted")}, runner.text()[-4000:]
    assert len(runner.state().alerts) == 1 and not runner.state().restarts, runner.text()[-4000:]
    assert all(c.state == "planned" for c in runner.state().plan_cells)
    assert "Traceback" not in runner.text() and "root" in runner.text()
    assert ct200.oracle.settled(ct200.name, before) == []


@pytest.mark.bed
def test_a_plain_user_may_watch(ct200: Any, tmp_path: Path) -> None:
    """Without a plan: GPUs and host are shown, and what he may not see is unknown, never absent."""
    host = ct200
    host.stage()
    host.fault(*FAST)
    host.sh("systemctl start sglang-bench")
    host.wait("ready")
    before = host.snapshot()
    path = tmp_path / "watch.ddtop"
    env = {**os.environ, "DDTOP_HOME": str(tmp_path / "home"), "PYTHONPATH": str(REPO), "COLUMNS": "200"}
    argv = [sys.executable, "-c", MONITOR, "plain@ct200", str(path), host.bed.ssh_config]
    with subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        state = None
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (state is None or not state.gpus or not state.probe):
            time.sleep(0.3)
            with contextlib.suppress(JournalError):
                state = read_state(path, check=False)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=20)
    state = read_state(path)
    assert process.returncode == 130 and "Traceback" not in text, text[-3000:]
    assert len(state.gpus) == 8 and state.probe, text[-3000:]
    assert {"ports", "journal"} <= set(state.probe["unknown"]), state.probe["unknown"]
    assert "restart" not in state.host.can
    assert not state.alerts and state.run.ended is not None and state.run.ended.exit_code == 130
    assert host.oracle.settled(host.name, before) == []


@contextmanager
def may_not(host: Any, *programs: str) -> Iterator[None]:
    """bench's sudo is for all but these programs."""
    words = ", ".join(f"!/usr/bin/{p}" for p in programs)
    rule = f"bench ALL=(ALL) NOPASSWD: ALL, {words}"
    host.sh(f"echo '{rule}' > /etc/sudoers.d/zz-bed")
    try:
        yield
    finally:
        host.sh("rm -f /etc/sudoers.d/zz-bed")


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize(("program", "part", "remedy"), [("ss", "listener", "sudo")])
def test_a_gate_part_that_cannot_be_proven_refuses(
    ct200: Any, tmp_path: Path, program: str, part: str, remedy: str
) -> None:
    """He may restart the unit but not see who listens: no cell is measured, and he is told why."""
    host = ct200
    host.stage()
    before = host.snapshot()
    host.fault(*FAST)
    with (
        may_not(host, program),
        Runner(
            host.bed,
            as_user(plan_text("blind", configs="a = {}", tokens=TOKENS), "bench"),
            tmp_path / "run.ddtop",
            tmp_path / "home",
        ) as runner,
    ):
        code = runner.wait(120)
        assert_refused(runner, code, remedy)
        assert alerts(runner.events()) == {("refused", "not-permitted")}, runner.text()[-4000:]
        assert f"cannot be proven ready ({part})" in said(runner), said(runner)
        assert ready_configs(runner.events()) == []
        assert host.oracle.settled(host.name, before) == []


@pytest.mark.bed
@pytest.mark.stories
def test_a_log_that_may_not_be_read_is_proven_by_a_real_generation(ct200: Any, tmp_path: Path) -> None:
    """He may restart the unit but not read its log: the mark is unknown, which is said, and the cells are measured."""
    host = ct200
    host.stage()
    host.fault(*FAST)
    text = as_user(plan_text("blind", configs="a = {}", tokens=TOKENS), "bench")
    with (
        may_not(host, "journalctl"),
        Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner,
    ):
        assert runner.wait(120) == 0, runner.text()[-4000:]
        assert ready_configs(runner.events()) == ["a"] and not alerts(runner.events())
        marks = [e for e in runner.events() if isinstance(e, GateSeen) and e.part == "mark"]
        assert marks and marks[-1].ok is None and "systemd-journal" in marks[-1].evidence.text
