"""A step of a Slurm job as the agent sees it: whose boot it is, what may start there, and what holds the step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddtop.agent.host.facts import boot_identity
from ddtop.agent.rights import has_systemd
from tests.bed.config import REPO

HOLDS = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from ddtop.agent.slurm import hold_step
hold_step()
folder = sys.argv[2]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        while not os.path.exists(folder + "/go"):
            time.sleep(0.02)
        open(folder + "/done", "w").close()
    os._exit(0)
os._exit(3)
"""


def test_the_boot_is_that_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = boot_identity()
    for name, value in (("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURMD_NODENAME", "n1")):
        monkeypatch.setenv(name, value)
    assert boot_identity() == f"7:n1:{plain}"
    assert not has_systemd(), "what systemd starts would outlive the job"
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert boot_identity() != f"7:n1:{plain}"


def test_a_shell_of_salloc_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    assert ":" not in boot_identity()


def test_a_step_lasts_as_long_as_what_was_started_in_it(tmp_path: Path) -> None:
    """The agent's end is not the step's: a detached process of it goes on, and the step ends with that one."""
    step = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(REPO), str(tmp_path)],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert step.stdout is not None and step.stdout.read() == b"", "the agent's end is seen at once"
    assert step.poll() is None
    (tmp_path / "go").touch()
    assert step.wait(60) == 3
    assert (tmp_path / "done").exists()
