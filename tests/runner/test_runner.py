"""The runner as a process: it starts detached, is the only one, obeys, ends cleanly, and never loads Textual."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddtop.errors import DdtopError, RefusedError
from ddtop.events import HostConnected, ProbeTaken, StopRun
from ddtop.journal.commands import append_command
from ddtop.journal.fold.apply import fold
from ddtop.journal.read.reader import JournalReader
from ddtop.plan import parse_plan
from ddtop.runner import RunOptions, _pack, _unpack, run, spawn_runner
from tests.stories.harness import plan_text
from tests.waiting import HANG_S


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path / "home"))


def events_of(path: Path) -> list:
    with JournalReader(path, check=False) as reader:
        return [event for _, event in reader.since()]


def wait_for(path: Path, kind: type, timeout_s: float = HANG_S) -> list:
    deadline = time.monotonic() + timeout_s
    while True:
        found = events_of(path)
        if any(isinstance(e, kind) for e in found):
            return found
        assert time.monotonic() < deadline, f"no {kind.__name__}"
        time.sleep(0.1)


def gone(pid: int, timeout_s: float = HANG_S) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except ChildProcessError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} still runs")


def test_watching_this_machine_until_it_is_stopped(tmp_path: Path) -> None:
    options = RunOptions(host="local", host_dir=str(tmp_path / "agent"))
    spawned = spawn_runner(options)
    try:
        assert os.getsid(spawned.pid) == spawned.pid, "a session of its own"
        wait_for(spawned.path, ProbeTaken)
        with pytest.raises(RefusedError, match="alive already"):
            spawn_runner(options)
        append_command(spawned.path, StopRun(id=secrets.token_hex(4), viewer="me", at_s=time.time()))
        gone(spawned.pid)
    finally:
        try:
            os.kill(spawned.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    state = fold(events_of(spawned.path))
    assert (
        state.run.mode == "monitor" and state.run.ended is not None and state.run.ended.outcome == "stopped"
    )
    assert state.commands[-1].outcome == "obeyed"
    assert not spawned.path.with_name(spawned.path.name + "-wal").exists(), "an ended run is one file"


def test_a_signal_ends_it_cleanly(tmp_path: Path) -> None:
    spawned = spawn_runner(RunOptions(host="local", host_dir=str(tmp_path / "agent")))
    wait_for(spawned.path, HostConnected)
    os.kill(spawned.pid, signal.SIGTERM)
    gone(spawned.pid)
    ended = fold(events_of(spawned.path)).run.ended
    assert ended is not None and ended.exit_code == 130 and "SIGTERM" in ended.reason


def test_a_host_never_reached_is_exit_11(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "ssh_config"
    config.write_text(
        "Host *\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  ProxyCommand /bin/false\n"
    )
    plan, _ = parse_plan(plan_text("x", host="nowhere.invalid", policy="host_lost_wait_min = 0"))
    record = tmp_path / "x.ddtop"
    code = run(RunOptions(host="nowhere.invalid", plan=plan, record=record, ssh_config=config))
    assert code == 11
    ended = fold(events_of(record)).run.ended
    assert ended is not None and ended.outcome == "host-lost"
    assert "nowhere.invalid" in capsys.readouterr().err


def test_another_plans_recording_is_refused(tmp_path: Path) -> None:
    record, config = tmp_path / "x.ddtop", tmp_path / "cfg"
    config.write_text("Host *\n  ProxyCommand /bin/false\n")
    plan, _ = parse_plan(plan_text("x", host="nowhere.invalid", policy="host_lost_wait_min = 0"))
    run(RunOptions(host="nowhere.invalid", plan=plan, record=record, ssh_config=config, progress=False))
    other, _ = parse_plan(plan_text("another", host="nowhere.invalid"))
    with pytest.raises(RefusedError) as caught:
        run(RunOptions(host="nowhere.invalid", plan=other, record=record))
    assert caught.value.exit_code == 12


def test_a_runner_that_ends_at_once_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.ddtop").write_text("this is no recording")
    with pytest.raises(DdtopError) as caught:
        spawn_runner(RunOptions(host="local", record=tmp_path / "bad.ddtop"))
    assert "bad.ddtop" in str(caught.value) and "Traceback" not in str(caught.value)


def test_options_survive_the_way_to_the_process(tmp_path: Path) -> None:
    plan, _ = parse_plan(plan_text("x"))
    options = RunOptions(
        host="ct200",
        plan=plan,
        record=tmp_path / "r.ddtop",
        attended=True,
        leave_running=True,
        ssh_config=tmp_path / "c",
        host_dir="/x",
        simulated=True,
    )
    back = _unpack(_pack(options))
    assert back.plan is not None and back.plan.name == "x" and back.plan.configs == plan.configs
    assert (
        back.host,
        back.record,
        back.attended,
        back.leave_running,
        back.ssh_config,
        back.host_dir,
        back.simulated,
    ) == (
        "ct200",
        tmp_path / "r.ddtop",
        True,
        True,
        tmp_path / "c",
        "/x",
        True,
    )


def test_the_runner_never_loads_textual() -> None:
    code = "import sys, ddtop.runner, ddtop.sweep.controller; print([m for m in sys.modules if m.startswith(('textual', 'plotext'))])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_bug_is_a_sentence_and_the_run_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ExceptionGroup("tasks", [ZeroDivisionError("division by zero")])

    monkeypatch.setattr("ddtop.sweep.monitor.Monitor.run", broken)
    record = tmp_path / "x.ddtop"
    assert run(RunOptions(host="local", host_dir=str(tmp_path / "agent"), record=record)) == 1
    ended = fold(events_of(record)).run.ended
    assert (
        ended is not None
        and ended.outcome == "crashed"
        and "ZeroDivisionError: division by zero" in ended.reason
    )
    shown = capsys.readouterr().err
    assert "a bug in ddtop" in shown and "Traceback" not in shown
    assert "Traceback" in (tmp_path / "home" / "state" / "ddtop.log").read_text()


def test_a_closed_terminal_costs_the_run_nothing(tmp_path: Path) -> None:
    plan, _ = parse_plan(plan_text("x", host="nowhere.invalid", policy="host_lost_wait_min = 0"))
    config = tmp_path / "cfg"
    config.write_text("Host *\n  ProxyCommand /bin/false\n")
    options = RunOptions(host="nowhere.invalid", plan=plan, record=tmp_path / "x.ddtop", ssh_config=config)
    code = "import os, sys; os.close(1); os.close(2); from ddtop.runner import _unpack, run; os._exit(run(_unpack(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, _pack(options)], timeout=HANG_S, check=False)
    assert done.returncode == 11
