"""Two people with two homes against one host, and leaving it: a cut and a kill while the host is put back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import AlertRaised, Event, StepTaken, StopRun
from tests.bed.config import REPO
from tests.stories.harness import THREE, Runner, left_behind, plan_text

BUT = ("/dev/shm/models", "/dev/shm/Qwen3.6-27B")
ONE = "a = {}"


def begin(host: Any, tmp_path: Path, who: str, configs: str = ONE) -> Runner:
    (tmp_path / who).mkdir(exist_ok=True)
    plan = plan_text(f"two-{who}", configs=configs, requests=4)
    return Runner(host.bed, plan, tmp_path / who / "run.ddtop", tmp_path / who / "home")


def ddtop(host: Any, tmp_path: Path, who: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DDTOP_HOME": str(tmp_path / who / "home"), "PYTHONPATH": str(REPO)}
    argv = [sys.executable, "-m", "ddtop.cli", *words, "--ssh-config", str(host.bed.ssh_config)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env, check=False)


def putting_back(events: list[Event]) -> bool:
    return any(isinstance(e, StepTaken) and e.action == "restore" and e.state == "started" for e in events)


def test_two_homes_one_host(ct200: Any, tmp_path: Path) -> None:
    """The second is told who has it, touches nothing, and has it once the first has given it back."""
    ct200.stage()
    ct200.fault("SPEED=4", LOAD_S=1)
    ct200.sh("systemctl start sglang-bench")
    before = ct200.snapshot()
    with begin(ct200, tmp_path, "anna", THREE) as first:
        first.until_measuring("a")
        shown = ddtop(ct200, tmp_path, "ben", "connect", "ct200", "--once").stdout
        assert "lease " in shown and "its runner is connected" in shown, shown
        with begin(ct200, tmp_path, "ben") as second:
            assert second.wait(60) == 12, second.text()
            said = second.text()
        assert first.state().run.run_id in said and "Nothing was touched" in said, said
        assert not [e for e in second.events() if isinstance(e, StepTaken)]
        first.send(StopRun)
        assert first.wait(60) in (0, 130), first.text()
    with begin(ct200, tmp_path, "ben") as second:
        assert second.wait(90) == 0, second.text()
    assert left_behind(ct200, before, BUT) == []


@pytest.mark.stories
def test_a_cut_while_the_host_is_put_back(ct200: Any, tmp_path: Path) -> None:
    ct200.stage()
    ct200.fault("SPEED=20", LOAD_S=1, STOP_S=3)
    ct200.sh("systemctl start sglang-bench")
    before = ct200.snapshot()
    with begin(ct200, tmp_path, "anna") as runner:
        runner.until(putting_back, 120, "step that puts it back")
        ct200.cut()
        time.sleep(25)
        assert runner.process.poll() is None, "it waits for the host"
        ct200.heal()
        assert runner.wait(90) == 0, runner.text()
        assert any(isinstance(e, AlertRaised) and e.verdict == "lost-host" for e in runner.events())
    assert left_behind(ct200, before, BUT) == []


@pytest.mark.stories
def test_killed_while_the_host_is_put_back(ct200: Any, tmp_path: Path) -> None:
    ct200.stage()
    ct200.fault("SPEED=20", LOAD_S=1, STOP_S=3)
    ct200.sh("systemctl start sglang-bench")
    before = ct200.snapshot()
    with begin(ct200, tmp_path, "anna") as runner:
        runner.until(putting_back, 120, "step that puts it back")
        runner.kill()
    done = ddtop(ct200, tmp_path, "anna", "stop", str(tmp_path / "anna" / "run.ddtop"))
    assert done.returncode == 0 and "as it was found" in done.stdout, (done.stdout, done.stderr)
    assert left_behind(ct200, before, BUT) == []


@pytest.mark.stories
def test_root_and_a_plain_user_see_one_another(ct200: Any, tmp_path: Path) -> None:
    """`/run/lock` is everybody's: the lease of root is seen by `bench`, and the other way round."""
    ct200.stage()
    config = Path(ct200.bed.ssh_config).read_text()
    plain = tmp_path / "ssh_bench"
    plain.write_text(config.replace("User root", "User bench"))
    with begin(ct200, tmp_path, "anna") as first:
        first.until(lambda es: any(isinstance(e, StepTaken) for e in es), 60, "first step")
        env = {**os.environ, "DDTOP_HOME": str(tmp_path / "ben"), "PYTHONPATH": str(REPO)}
        argv = [sys.executable, "-m", "ddtop.cli", "connect", "ct200", "--once", "--ssh-config", str(plain)]
        seen = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env, check=False)
        assert "(root from" in seen.stdout, seen.stdout + seen.stderr
