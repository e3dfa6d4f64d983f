"""Servers in containers of a real docker daemon that runs under a bed host's systemd: kind `docker`, and units whose main
process is `docker run`. The engine in the container is the SIMULATED one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import AlertRaised, RestartStarted
from tests.bed import trouble
from tests.bed.docker import HostDocker, why_no_docker
from tests.stories.desk import assert_once_each
from tests.stories.harness import Runner, alerts, plan_text, ready_configs, states_of, took

TWO = """
a = {}
b = { args = ["--context-length", "8192"] }
"""
FAST = ("SPEED=20", "LOAD_S=2", "WARM_S=0.3")
OPTIONS = ["--network", "host", "--pid", "host", "--ipc", "host", *HostDocker.MOUNTS, "-e", "PATH=/usr/bin"]


@pytest.fixture
def host(ct200: Any) -> Iterator[Any]:
    """ct200 with the model in place and a real docker daemon."""
    if reason := why_no_docker():
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI runs the docker tests always, but {reason}")
        pytest.skip(reason)
    ct200.stage()
    with HostDocker(ct200.bed, ct200.name):
        yield ct200


def words(*before: str, image: str = HostDocker.ENGINE) -> str:
    """Words of a plan's command, up to the server's own arguments."""
    return json.dumps([*before, *OPTIONS, image, "/opt/sglang/bin/python", "-m", "sglang.launch_server"])[
        1:-1
    ]


def unit_plan(name: str, configs: str = TWO, image: str = HostDocker.ENGINE, **more: Any) -> str:
    """A unit of systemd whose main process is `docker run`."""
    text = plan_text(name, configs=configs, **more)
    run = words("/usr/bin/docker", "run", "--rm", "--name", "qwen", image=image)
    text = text.replace('"/opt/sglang/bin/python", "-m", "sglang.launch_server"', run)
    return text.replace("sglang-bench.service", "docker-qwen.service")


def container_plan(name: str, configs: str = TWO, image: str = HostDocker.ENGINE, **more: Any) -> str:
    """Containers of ddtop's own."""
    text = plan_text(name, configs=configs, **more)
    text = text.replace('"/opt/sglang/bin/python", "-m", "sglang.launch_server"', words(image=image))
    return text.replace('kind = "systemd"', 'kind = "docker"').replace("sglang-bench.service", "qwen")


def starts(events: Any) -> list[str]:
    return [e.config for e in events if isinstance(e, RestartStarted)]


def judged(runner: Runner) -> set[tuple[str, str]]:
    """(verdict, cause) of all alerts, and no traceback anywhere."""
    assert "Traceback" not in runner.text(), runner.text()[-5000:]
    return alerts(runner.events())


@pytest.mark.parametrize(
    "plan", [container_plan, pytest.param(unit_plan, marks=pytest.mark.stories)], ids=["kind docker", "unit"]
)
def test_a_sweep(host: Any, tmp_path: Path, plan: Any) -> None:
    """Two configurations, a container each; nothing is left."""
    host.fault(*FAST)
    before = host.snapshot()
    with Runner(host.bed, plan("containers"), tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(90)
    events, state = runner.events(), runner.state()
    assert code == 0, runner.text()[-5000:]
    assert {c.state for c in state.plan_cells} == {"done"} and judged(runner) == set()
    assert ready_configs(events) == starts(events) == ["a", "b"]
    generations = {r.generation.id for r in state.restarts if r.generation}
    assert len(generations) == 2 and all("@" in g for g in generations), generations
    assert_once_each(events)
    assert host.sh("docker ps -aq") == "" and host.oracle.settled(host.name, before) == []


def test_what_docker_refuses_is_said_in_its_words_and_not_tried_again(host: Any, tmp_path: Path) -> None:
    """An image that is not there, for both kinds; then a name that somebody's container has, which is left alone."""
    host.fault(*FAST)
    no_image = {"configs": "a = {}", "image": "nosuch/image:1"}
    own = container_plan("missing", **no_image).replace("command = [", 'command = ["--pull", "never", ')
    unit = unit_plan("missing", **no_image).replace('"run", "--rm"', '"run", "--pull", "never", "--rm"')
    for number, (text, verdict) in enumerate(((own, "refused"), (unit, "failed"))):
        with Runner(host.bed, text, tmp_path / f"{number}.ddtop", tmp_path / "home") as runner:
            assert runner.wait(60) == 10, runner.text()[-5000:]
        assert judged(runner) == {(verdict, "container-not-started")}
        told = next(e for e in runner.events() if isinstance(e, AlertRaised))
        assert any("No such image: nosuch/image:1" in e.text for e in told.evidence), told
        assert starts(runner.events()) == ["a"]

    theirs = host.sh(
        f"docker run -d --name qwen --network host {' '.join(HostDocker.MOUNTS)} {HostDocker.ENGINE} /usr/bin/sleep 600"
    ).strip()
    unit_file = "[Service]\nExecStartPre=\nExecStop=\n"  # the shipped unit removes what has its name
    trouble.dropin(host.bed, host.name, "docker-qwen.service", unit_file)
    text = unit_plan("taken", configs="a = {}")
    with Runner(host.bed, text, tmp_path / "taken.ddtop", tmp_path / "home") as runner:
        assert runner.wait(60) == 10, runner.text()[-5000:]
    assert judged(runner) == {("failed", "container-not-started")}
    told = next(e for e in runner.events() if isinstance(e, AlertRaised))
    assert any('The container name "/qwen" is already in use' in e.text for e in told.evidence), told
    assert host.sh("docker ps -q --no-trunc").strip() == theirs


UNDER_A_CELL = {
    "its process is killed": (
        "kill -9 $(docker inspect -f '{{.State.Pid}}' qwen)",
        "main-process-killed",
        "(exit code 137)",
    ),
    "systemctl stop": ("systemctl stop docker-qwen", "stopped-by-request", "was stopped on request"),
    "the client is killed": (
        "kill -9 $(systemctl show docker-qwen -P MainPID)",
        "main-process-killed",
        "signal 9 (SIGKILL)",
    ),
    "the daemon restarts": ("systemctl restart dockerd", "container-daemon-away", "docker daemon"),
}
"""What is done → (the command on the host, the cause, words of the alert)."""


@pytest.mark.stories
@pytest.mark.parametrize("what", UNDER_A_CELL)
def test_under_a_cell_of_a_unit(host: Any, tmp_path: Path, what: str) -> None:
    """Named within seconds, and the cell is measured anew in a container of the next start."""
    command, cause, said = UNDER_A_CELL[what]
    host.fault("SPEED=10", "LOAD_S=2", "WARM_S=0.3")
    before = host.snapshot()
    text = unit_plan("under", configs="a = {}", tokens="400", requests=2)
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        runner.until_measuring("a")
        host.sh(command)
        done = time.monotonic()
        alert = runner.until_alert(30)
        took("real docker", f"{what}: to the alert", time.monotonic() - done)
        code = runner.wait(120)
    assert code == 0, runner.text()[-5000:]
    assert judged(runner) == {("failed", cause)} and said in alert.cause_text, alert
    assert starts(runner.events()) == ["a", "a"] and states_of(runner.state(), "a") == {"done"}
    assert_once_each(runner.events())
    assert host.sh("docker ps -aq") == "" and host.oracle.settled(host.name, before) == []
