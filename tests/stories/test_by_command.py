"""Stories 1 and 2 carried through by the command line alone, as an agent or a cron job does: no pty, JSON and exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.commands.live.codes import Code
from tests.bed.config import REPO
from tests.stories.harness import plan_text
from tests.stories.moments import AFTERWARDS, faults, plan

LIMIT_S = 180
"""Longer than anything here takes: only a hang reaches it."""


class Script:
    """A script of commands: every one a process without a terminal. Use as a context manager: its runner ends with it."""

    def __init__(self, host: Any, home: Path) -> None:
        self.host, self.home = host, home
        self.recording = home / "night.ddtop"
        self.seq = 0
        kept = {k: v for k, v in os.environ.items() if k not in ("TERM", "NO_COLOR")}
        self.env = {**kept, "DDTOP_HOME": str(home / "ddtop"), "PYTHONPATH": str(REPO)}

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        if self.recording.exists() and (pid := self("status", self.recording)[1].get("pid")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __call__(self, *words: object) -> tuple[int, dict[str, Any]]:
        """(exit code, JSON) of `ddtop WORDS --json`."""
        done = subprocess.run(
            [sys.executable, "-m", "ddtop", *map(str, words), "--json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S + 60,
            env=self.env,
            start_new_session=True,
            check=False,
        )
        assert done.stdout and "Traceback" not in done.stderr, (words, done.returncode, done.stderr)
        values = json.loads(done.stdout)
        assert values["schema"] == 1
        return done.returncode, values

    def start(self, text: str) -> None:
        path = self.home / "plan.toml"
        path.write_text(text)
        words = ("--plan", path, "--record", self.recording, "--ssh-config", self.host.bed.ssh_config)
        code, run = self("connect", self.host.name, *words, "--detach", "--ask")
        assert code == 0 and run["host"] == self.host.name and Path(run["path"]) == self.recording

    def status(self) -> dict[str, Any]:
        code, found = self("status", self.recording)
        assert code == 0
        return found

    def wait(self, kinds: str) -> dict[str, Any]:
        """The next of `kinds` after the last one that was waited for."""
        code, found = self("wait", self.recording, "--for", kinds, "--since", self.seq, "--timeout", LIMIT_S)
        assert code == 0, (found, self.status())
        self.seq = found["seq"]
        return found

    def alert(self, verdict: str) -> dict[str, Any]:
        """The next alert of a verdict; others before it are read and left."""
        while True:
            what = self.wait("alert")["what"]
            if what.get("verdict") == verdict:
                return what

    def until(self, found: Any, what: str) -> dict[str, Any]:
        """Asks for the status until it is so."""
        deadline = time.monotonic() + LIMIT_S
        while not found(status := self.status()):
            assert time.monotonic() < deadline, f"never {what}: {status}"
        return status

    def states(self) -> dict[str, set[str]]:
        """Configuration → states of its cells."""
        states: dict[str, set[str]] = {}
        for cell in self("cells", self.recording)[1]["cells"]:
            states.setdefault(cell["config"], set()).add(cell["state"])
        return states


@pytest.mark.bed
def test_the_machine_was_down_resume(ct200: Any, tmp_path: Path) -> None:
    """Story 1: the host reboots in the middle of a cell. What is lost is said, the steps are looked at, and done."""
    ct200.stage()
    before = ct200.snapshot()
    ct200.fault(*faults("mid-cell"))
    with Script(ct200, tmp_path) as ddtop:
        ddtop.start(plan("by-command", 120))
        broken = ddtop.alert("no-tokens")
        assert broken["asks"] and "b" in {c["key"] for c in broken["choices"]}
        code, said = ddtop("do", ddtop.recording, "answer", "b")
        assert (code, said["outcome"]) == (0, "done"), said

        def halfway(one: dict[str, Any]) -> bool:
            cell = one.get("cell", {})
            return cell.get("config") == "b" and cell.get("requests_done", 0) >= 1

        ddtop.until(halfway, "in the middle of a cell of b")
        had = {c["id"] for c in ddtop("cells", ddtop.recording, "--state", "done")[1]["cells"]}
        ct200.bed.reboot(ct200.name, wait=False)
        lost = ddtop.alert("lost-host")
        assert lost["choices"][0]["label"] == "reconnect now"
        assert ddtop.status()["doing"] in ("host-lost", "connecting")
        ct200.bed.wait_on(ct200.name)
        ct200.fault(*AFTERWARDS)

        rebooted = ddtop.alert("rebooted")
        for words in ("GPUs 0 MiB", "sglang-bench.service inactive", "model MISSING"):
            assert words in rebooted["cause_text"]
        steps = {s["action"]: s for s in ddtop.wait("steps")["what"]["steps"]}
        assert steps["stage"]["reason"] and "sglang-bench.service" in steps["restart"]["title"]
        code, said = ddtop("do", ddtop.recording, "resume")
        assert (code, said["outcome"]) == (Code.REFUSED, "needs-yes")
        assert said["host"] == "ct200" and said["unit"] == "sglang-bench.service"
        assert any("sglang-bench.service" in value for name, value in said["facts"] if name == "step")
        code, said = ddtop("do", ddtop.recording, "resume", "--yes")
        assert (code, said["outcome"]) == (0, "done"), said

        ended = ddtop.wait("end")["what"]
        assert ended == {"outcome": "some-failed", "exit_code": 10}
        assert ddtop.states() == {"a": {"done"}, "b": {"done"}, "c": {"done"}, "z": {"broken"}}
        code, report = ddtop("report", ddtop.recording)
        assert code == 0
        cells = {c["id"]: c for c in report["cells"]}
        assert had and all(len(cells[i]["attempts"]) == 1 for i in had), "no finished cell was run again"
        done = {s["action"]: s["by"] for s in report["steps"] if s["state"] == "done"}
        assert done["stage"] == done["restart"] and done["stage"].endswith("-cli"), done
        assert not ddtop.status()["ended"].get("left_behind")
    left = ct200.oracle.settled(ct200.name, before)
    assert [line for line in left if ".ddtop-staged.json" not in line] == []


@pytest.mark.bed
def test_not_starting(ct200: Any, tmp_path: Path) -> None:
    """Story 2: the second configuration's restart fails in silence while the old server answers. The alert comes by itself with
    cause and choices; the answer is a command."""
    ct200.stage()
    before = ct200.snapshot()
    ct200.fault(
        "SPEED=20", "LOAD_S=2", "WARM_S=0.3", "STOP_S=20", "WHEN=--context-length 8192", "LOAD_FAULT=cuda"
    )
    with Script(ct200, tmp_path) as ddtop:
        ddtop.start(plan_text("by-command-2", answer_s=120))
        alert = ddtop.alert("failed")
        assert alert["title"] == "NOT STARTING?" and alert["cause"] == "oom-loading-weights"
        assert alert["asks"] and alert["evidence"] and alert["advice"] and alert["default"]
        one = ddtop.status()
        assert (one["doing"], one["start"]["config"], one["advised"]) == ("asking", "b", alert["alert"])
        log = subprocess.run(
            [sys.executable, "-m", "ddtop", "log", str(ddtop.recording), "--errors", "-n", "0"],
            capture_output=True,
            text=True,
            env=ddtop.env,
            check=True,
        )
        assert "out of memory" in log.stdout.lower()
        skip = next(c["key"] for c in alert["choices"] if c["command"] == "skip")
        code, said = ddtop("do", ddtop.recording, "answer", skip, "--alert", alert["alert"])
        assert (code, said["outcome"]) == (0, "done"), said
        ready = ddtop.wait("ready,end")
        while ready["happened"] == "ready" and ready["what"]["config"] != "c":
            ready = ddtop.wait("ready,end")
        assert ready["what"]["config"] == "c"
        assert ddtop.wait("end")["what"] == {"outcome": "done", "exit_code": 0}
        assert ddtop.states() == {"a": {"done"}, "b": {"skipped"}, "c": {"done"}}
        _, report = ddtop("report", ddtop.recording)
        (told,) = report["alerts"]
        assert told["cause"] == "oom-loading-weights" and told["decided_by"].endswith("-cli")
        assert ddtop("do", ddtop.recording, "pause")[0] == Code.NOBODY
    assert ct200.oracle.settled(ct200.name, before) == []
