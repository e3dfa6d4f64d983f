"""The same small sweep over every way a server is run and every kind of login: a container under a unit, a user's own
unit, a user with sudo, and a rented container without systemd. Each leaves its host as found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtop.events import GateSeen
from tests.bed import trouble
from tests.stories.harness import Runner, alerts, plan_text, ready_configs, states_of

FAST = ("SPEED=20", "LOAD_S=2", "WARM_S=0.3")
TWO = """
a = {}
b = { args = ["--context-length", "8192"] }
"""


def sweep(host: Any, tmp_path: Path, text: str) -> Runner:
    """Runs it to the end; everything is done and every gate has five proven parts."""
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(150)
    events, state = runner.events(), runner.state()
    assert code == 0, runner.text()[-5000:]
    assert alerts(events) == set(), runner.text()[-5000:]
    assert ready_configs(events) == ["a", "b"] and states_of(state, "a") == states_of(state, "b") == {"done"}
    for restart in state.restarts:
        parts = {
            e.part for e in events if isinstance(e, GateSeen) and e.attempt_id == restart.attempt_id and e.ok
        }
        assert parts == {"generation", "listener", "mark", "arguments", "token"}
    return runner


@pytest.mark.bed
def test_a_unit_whose_main_process_is_docker_run(ct200: Any, tmp_path: Path) -> None:
    ct200.stage()
    before = ct200.snapshot()
    ct200.fault(*FAST)
    docker = (
        '"/usr/bin/docker", "run", "--rm", "--name", "qwen", "--gpus", "all", "--network", "host", "-v", "/dev/shm:/dev/shm",'
        ' "lmsysorg/sglang:v0.5.16", "python3", "-m", "sglang.launch_server"'
    )
    text = plan_text("docker", configs=TWO).replace(
        '"/opt/sglang/bin/python", "-m", "sglang.launch_server"', docker
    )
    runner = sweep(ct200, tmp_path, text.replace("sglang-bench.service", "docker-qwen.service"))
    generations = [r.generation.id for r in runner.state().restarts if r.generation]
    assert all("/" in g and "@" in g for g in generations), "the container is a part of the generation"
    assert ct200.oracle.settled(ct200.name, before) == []


def as_user(text: str, user: str) -> str:
    return text.replace('host = "ct200"', f'host = "{user}@ct200"')


@pytest.mark.bed
def test_a_users_own_unit(ct200: Any, tmp_path: Path) -> None:
    ct200.stage()
    ct200.sh("loginctl enable-linger bench; chmod -R a+rX /dev/shm/Qwen3.6-27B")
    ct200.fault(*FAST)
    text = as_user(plan_text("user", configs=TWO), "bench")
    text = text.replace("sglang-bench.service", "sglang-user.service").replace(
        "port = 30000", "port = 30001\nuser = true"
    )
    sweep(ct200, tmp_path, text)


@pytest.mark.bed
def test_a_user_with_sudo(ct200: Any, tmp_path: Path) -> None:
    ct200.stage()
    before = ct200.snapshot()
    ct200.fault(*FAST)
    sweep(ct200, tmp_path, as_user(plan_text("sudo", configs=TWO), "bench"))
    assert ct200.oracle.settled(ct200.name, before) == []


@pytest.mark.bed
def test_a_rented_container_without_systemd(ct200: Any, tmp_path: Path) -> None:
    name = trouble.rent(ct200.bed, ct200.name)
    ct200.fault(*FAST)
    text = plan_text("rented", host=name, configs=TWO).replace('kind = "systemd"', 'kind = "process"')
    sweep(ct200, tmp_path, text.replace("sglang-bench.service", "sglang"))


@pytest.mark.bed
def test_a_plain_user_is_told_what_he_may_not(ct200: Any, tmp_path: Path) -> None:
    """Who may do nothing gets a refusal that names the remedy, and nothing is touched."""
    ct200.stage()
    before = ct200.snapshot()
    ct200.fault(*FAST)
    text = as_user(plan_text("plain", configs=TWO, policy='host = "stop"'), "plain")
    with Runner(ct200.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(60)
    assert code == 10, runner.text()[-4000:]
    assert alerts(runner.events()) == {("refused", "not-permitted")}, runner.text()[-4000:]
    assert "Traceback" not in runner.text() and "root" in runner.text()
    assert ct200.oracle.settled(ct200.name, before) == []
