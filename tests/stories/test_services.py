"""Every other way in which a server is run, through what can happen to it: a plain process on a rented host without systemd,
and a unit whose main process is `docker run` (SIMULATED docker). And what stands in the way of a sweep before it begins: a
model that is not whole, a source that is gone, a stranger on the GPUs or the port."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import (
    AlertRaised,
    CellMeasured,
    Event,
    HostLost,
    Restage,
    RestartStarted,
    StageProgress,
    StepsPlanned,
)
from tests.bed import trouble
from tests.stories.desk import assert_once_each
from tests.stories.harness import Runner, alerts, plan_text, ready_configs, states_of

FAST = ("SPEED=20", "LOAD_S=2", "WARM_S=0.3")
TWO = """
a = {}
b = { args = ["--context-length", "8192"] }
"""
THREE = TWO + 'c = { args = ["--context-length", "4096"] }\n'
B, C = "--context-length 8192", "--context-length 4096"
TOKENS = "16, 24"


def starts(events: Sequence[Event]) -> list[str]:
    return [e.config for e in events if isinstance(e, RestartStarted)]


# ---- a plain process on a rented host: sshd, and nothing else


def rented_plan(name: str, configs: str, **more: Any) -> str:
    text = plan_text(name, host="ct200-rented", configs=configs, **more)
    return text.replace('kind = "systemd"', 'kind = "process"').replace("sglang-bench.service", "sglang")


def left_by(host: Any, before: dict[str, Any]) -> list[str]:
    """What differs from `before`, but for the model that ddtop was to stage."""
    return [x for x in host.oracle.settled(host.name, before) if not x.startswith("model file new")]


def server_pid(host: Any) -> int:
    """The present server's pid as the host itself counts."""
    return int(host.sh("pgrep -of sglang.launch_server").split()[0])


@pytest.mark.bed
def test_a_plain_process_dies_and_the_sweep_goes_on(ct200: Any, tmp_path: Path) -> None:
    """b dies at load: its own log names the cause. c's server, then its next one's supervisor, is killed within a cell."""
    host = ct200
    trouble.rent(host.bed, host.name)
    before = host.snapshot()
    host.fault("SPEED=10", "LOAD_S=3", f"WHEN={B}", "LOAD_FAULT=cuda", f"WHEN={C}", "SPEED=2", "LOAD_S=1")
    text = rented_plan("rented", THREE, tokens=TOKENS, requests=3)
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        runner.until_measuring("c")
        time.sleep(0.5)
        host.sh(f"kill -9 {server_pid(host)}")
        killed = host.bed.now()

        runner.until(lambda es: starts(es).count("c") == 2, 20, "second start of c")
        assert (time.time_ns() - killed) / 1e9 < 15
        runner.until(lambda es: ready_configs(es).count("c") == 2, 40, "c ready again")
        code = runner.wait(90)
    events, state = runner.events(), runner.state()
    assert code == 10, runner.text()[-5000:]
    assert states_of(state, "a") == states_of(state, "c") == {"done"} and states_of(state, "b") == {"failed"}
    assert alerts(events) == {("failed", "oom-loading-weights"), ("failed", "main-process-killed")}, (
        runner.text()[-5000:]
    )
    assert_once_each(events)
    assert left_by(host, before) == []


@pytest.mark.bed
@pytest.mark.stories
def test_a_plain_process_over_a_cut_a_dead_runner_and_a_dead_supervisor(ct200: Any, tmp_path: Path) -> None:
    """The link is cut within a cell of a, the runner dies within one of b: neither costs a restart. Then the supervisor alone
    is killed under c: whatever that does to the server, every cell ends with a result of its own."""
    host = ct200
    trouble.rent(host.bed, host.name)
    before = host.snapshot()
    host.fault("SPEED=3", "LOAD_S=4", "WARM_S=0.5")
    text = rented_plan("rented2", THREE, tokens="40, 56", requests=4)
    path, home = tmp_path / "run.ddtop", tmp_path / "home"
    with Runner(host.bed, text, path, home) as runner:
        runner.until_measuring("a", 90)
        host.bed.cut(host.name)
        runner.until(lambda es: any(isinstance(e, HostLost) for e in es), 30, "loss of the host")
        host.bed.heal(host.name)
        runner.until_measuring("b", 90)
        time.sleep(0.3)
        runner.kill()
    assert starts(runner.events()) == ["a", "b"] and states_of(runner.state(), "a") == {"done"}
    with Runner(host.bed, text, path, home) as runner:
        runner.until_measuring("c", 90)
        assert starts(runner.events()) == ["a", "b", "c"] and states_of(runner.state(), "b") == {"done"}
        time.sleep(0.3)
        host.sh("kill -9 $(pgrep -f 'zip [s]upervise')")
        code = runner.wait(120)
    events, state = runner.events(), runner.state()
    assert code == 0 and "Traceback" not in runner.text(), runner.text()[-5000:]
    assert {c.state for c in state.plan_cells} == {"done"}
    assert_once_each(events)
    assert left_by(host, before) == []


# ---- a unit whose main process is `docker run`


def docker_plan(name: str, configs: str, **more: Any) -> str:
    docker = (
        '"/usr/bin/docker", "run", "--rm", "--name", "qwen", "--gpus", "all", "--network", "host", "-v", "/dev/shm:/dev/shm",'
        ' "lmsysorg/sglang:v0.5.16", "python3", "-m", "sglang.launch_server"'
    )
    text = plan_text(name, configs=configs, **more)
    text = text.replace('"/opt/sglang/bin/python", "-m", "sglang.launch_server"', docker)
    return text.replace("sglang-bench.service", "docker-qwen.service")


@pytest.mark.bed
def test_a_container_outlives_its_client_and_is_not_taken_for_ready(ct200: Any, tmp_path: Path) -> None:
    """The runner dies within a cell of a: the next one knows the container as its own. The client of b is killed as it loads:
    the container goes on to answer, and is neither b's nor ready; b is started again, with a container of its own."""
    host = ct200
    host.stage()
    before = host.snapshot()
    host.fault("SPEED=5", "LOAD_S=4", f"WHEN={B}", "LOAD_S=4", "WARM_S=10")
    text = docker_plan("docker", TWO, tokens="40, 56", requests=3)
    path, home = tmp_path / "run.ddtop", tmp_path / "home"
    with Runner(host.bed, text, path, home) as runner:
        runner.until_measuring("a")
        time.sleep(0.3)
        runner.kill()
    with Runner(host.bed, text, path, home) as runner:
        runner.until(lambda es: starts(es).count("b") == 1, 60, "start of b")
        assert starts(runner.events()) == ["a", "b"], "the container of a went on; it needed no restart"
        host.wait(
            "listening", since_ns=host.ledger("listening")[0]["t_ns"] + 1
        )  # b's, and it warms up for 2 s
        host.sh("kill -9 $(systemctl show docker-qwen -P MainPID)")
        code = runner.wait(90)
    events, state = runner.events(), runner.state()
    assert code == 0, runner.text()[-5000:]
    assert states_of(state, "a") == states_of(state, "b") == {"done"}
    assert starts(events)[:3] == ["a", "b", "b"] and ready_configs(events) == ["a", "b"]
    # Its client's death first; the container that stays behind is named as a stranger where it still holds the port then.
    found = alerts(events)
    assert ("failed", "main-process-killed") in found, runner.text()[-5000:]
    assert found <= {("failed", "main-process-killed"), ("foreign", "port-in-use")}, runner.text()[-5000:]
    generations = {r.generation.id for r in state.restarts if r.generation}
    assert len(generations) == 2 and all("/" in g and "@" in g for g in generations), (
        "the container is a part of it"
    )
    assert_once_each(events)
    assert host.oracle.settled(host.name, before) == []


# ---- the model before the sweep


def stage_events(events: Sequence[Event]) -> list[StageProgress]:
    return [e for e in events if isinstance(e, StageProgress)]


@pytest.mark.bed
def test_only_what_is_missing_of_the_model_is_staged(ct200: Any, tmp_path: Path) -> None:
    """One shard is missing, one cut short, one a pointer of git-lfs; the others are not touched. Then `s` on a whole model."""
    host = ct200
    host.stage()
    damaged = {trouble.damage_model(host.bed, host.name, kind) for kind in ("missing-shard", "truncated")}
    pointer = "version https://git-lfs.github.com/spec/v1\\noid sha256:0\\nsize 1\\n"
    damaged.add(
        host.sh(
            f"shard=$(ls {host.spec.model}/*.safetensors | sed -n 7p); printf '{pointer}' > $shard; echo $shard"
        ).strip()
    )
    assert len(damaged) == 3
    stamps = f"cd {host.spec.model}; stat -c '%n %i %Z' *.safetensors"
    was = dict(line.split(" ", 1) for line in host.sh(stamps).splitlines())
    host.fault("SPEED=8", "LOAD_S=2", "WARM_S=0.3")
    with Runner(
        host.bed,
        plan_text("part", configs="a = {}", tokens="40, 56"),
        tmp_path / "run.ddtop",
        tmp_path / "home",
    ) as runner:
        runner.until_measuring("a")
        asked = runner.send(Restage)
        code = runner.wait(90)
    events, state = runner.events(), runner.state()
    assert code == 0, runner.text()[-5000:]
    now = dict(line.split(" ", 1) for line in host.sh(stamps).splitlines())
    names = {Path(p).name for p in damaged}
    assert {n for n in now if now[n] != was.get(n)} == names, "others than the damaged ones were written"
    sizes = host.sh(f"cd {host.spec.source}; stat -c '%n %s' *.safetensors")
    assert host.sh(f"cd {host.spec.model}; stat -c '%n %s' *.safetensors") == sizes
    step = next(s for e in events if isinstance(e, StepsPlanned) for s in e.steps if s.action == "stage")
    assert host.spec.source in step.title and "3 files" in step.reason, step
    told = [e for e in stage_events(events) if e.source]
    assert (
        told
        and {e.source for e in told} == {host.spec.source}
        and told[-1].bytes_done == told[-1].bytes_total
    )
    seen = next(c for c in state.commands if c.command_id == asked)
    assert seen.outcome == "obeyed" and any(": nothing to stage" in n.text for n in state.notes)
    assert [e.state for e in stage_events(events)].count("done") == 1, "the whole model was staged again"


@pytest.mark.bed
def test_no_room_is_said_before_a_byte_is_copied(ct200: Any, tmp_path: Path) -> None:
    host = ct200
    trouble.fill_shm(host.bed, host.name, leave_mib=4)
    with Runner(
        host.bed, plan_text("full", configs=TWO, tokens=TOKENS), tmp_path / "run.ddtop", tmp_path / "home"
    ) as runner:
        runner.until(
            lambda events: any(isinstance(e, AlertRaised) for e in events), 60, "the alert of no room"
        )
        assert not host.sh(f"ls {host.spec.model} 2>/dev/null || true").strip()
        assert not starts(runner.events())
        host.sh("rm /dev/shm/somebody-elses.bin")
        code = runner.wait(180)
    text = runner.text()
    assert code == 0 and "Traceback" not in text, text[-4000:]
    raised = next(e for e in runner.events() if isinstance(e, AlertRaised))
    assert "no room" in raised.cause_text and "MiB" in raised.cause_text, raised
    assert host.sh(f"ls {host.spec.model}").strip(), "staged once there was room, and left for the next run"


HF = 'sources = ["/data/models/Qwen3.6-27B", "/root/.cache/huggingface/hub/models--Qwen--Qwen3.6-27B", "hf:Qwen/Qwen3.6-27B"]'


def with_download(text: str) -> str:
    return text.replace('sources = ["/data/models/Qwen3.6-27B"]', HF)


@pytest.mark.bed
@pytest.mark.stories
def test_a_lost_source_leads_to_the_download_which_outlives_the_runner(ct200: Any, tmp_path: Path) -> None:
    """The disk's copy is gone and the cache holds a config alone. The runner is killed as the download runs: it goes on, and
    the next runner watches it instead of beginning another."""
    host = ct200
    trouble.lose_source(host.bed, host.name, cached_metadata="Qwen/Qwen3.6-27B")
    host.fault(*FAST, "HF_S=160")
    text = with_download(plan_text("lost", configs=TWO, tokens=TOKENS))
    path, home = tmp_path / "run.ddtop", tmp_path / "home"
    with Runner(host.bed, text, path, home) as runner:

        def moving(events: list[Event]) -> bool:
            return any(
                e.state == "downloading" and (e.bytes_done or 0) > 1 << 20 for e in stage_events(events)
            )

        runner.until(moving, 40, "download")
        runner.kill()
    with Runner(host.bed, text, path, home) as runner:
        code = runner.wait(120)
    events = runner.events()
    assert code == 0, runner.text()[-5000:]
    told = [e for e in stage_events(events) if e.state == "downloading"]
    assert {e.source for e in told} == {"hf:Qwen/Qwen3.6-27B"}
    assert any(e.rate_mib_s for e in told) and all(e.bytes_done is not None for e in told)
    jobs = host.sh("ls /root/.local/state/ddtop/jobs").split()
    assert len([j for j in jobs if "-stage-" in j]) == 1, jobs
    assert ready_configs(events) == ["a", "b"]


HF_FAULTS = {
    "offline": "host-offline",
    "auth": "download-not-allowed",
    "missing": "download-not-found",
    "cut:3": "download-cut",
}


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("fault", HF_FAULTS)
def test_a_download_that_fails_says_why(ct200: Any, tmp_path: Path, fault: str) -> None:
    host = ct200
    trouble.lose_source(host.bed, host.name)
    before = host.snapshot()
    host.fault(*FAST, f"HF_FAULT={fault}", "HF_S=20")
    text = with_download(plan_text("hf", configs=TWO, tokens=TOKENS))
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(60)
    assert code == 10 and "Traceback" not in runner.text(), runner.text()[-4000:]
    raised = next(e for e in runner.events() if isinstance(e, AlertRaised))
    assert (raised.verdict, raised.cause) == ("staging-failed", HF_FAULTS[fault]), raised
    # Only what may go better a second time is tried twice.
    jobs = host.sh("ls /root/.local/state/ddtop/jobs").split()
    assert sum("-stage-" in j for j in jobs) == (2 if fault == "cut:3" else 1), jobs
    assert not starts(runner.events())
    assert left_by(host, before) == []


# ---- strangers


@pytest.mark.bed
@pytest.mark.stories
def test_strangers_are_named_and_waited_for(ct200: Any, tmp_path: Path) -> None:
    """One holds GPU memory, one the port: both are named before anything is stopped; once they are gone the sweep begins."""
    host = ct200
    host.stage()
    host.fault(*FAST)
    trouble.hog(host.bed, host.name)
    trouble.squat(host.bed, host.name)
    with Runner(
        host.bed, plan_text("foreign", configs=TWO, tokens=TOKENS), tmp_path / "run.ddtop", tmp_path / "home"
    ) as runner:

        def planned(events: list[Event]) -> StepsPlanned | None:
            return next((e for e in events if isinstance(e, StepsPlanned) and e.steps), None)

        steps = runner.until(planned, 20, "steps").steps
        words = " ".join(f"{s.title} {s.reason}" for s in steps if s.action == "ask")
        assert "foreign-gpu-0.service" in words and "foreign-app-30000.service" in words, steps
        assert "40000 MiB" in words and "port 30000" in words
        time.sleep(1)
        assert not starts(runner.events()) and not host.ledger("start")
        host.sh("systemctl stop foreign-gpu-0 foreign-app-30000")
        code = runner.wait(90)
    assert code == 0, runner.text()[-5000:]
    assert ready_configs(runner.events()) == ["a", "b"]


@pytest.mark.bed
def test_a_stranger_who_stays_stops_the_sweep(ct200: Any, tmp_path: Path) -> None:
    host = ct200
    host.stage()
    trouble.squat(host.bed, host.name)
    before = host.snapshot()
    text = plan_text("stays", configs=TWO, tokens=TOKENS, policy='foreign = "stop"')
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(60)
    state = runner.state()
    assert code == 10 and "Traceback" not in runner.text(), runner.text()[-4000:]
    assert state.run.ended is not None and "foreign-app-30000.service" in state.run.ended.reason, (
        state.run.ended
    )
    assert not starts(runner.events()) and not any(isinstance(e, CellMeasured) for e in runner.events())
    assert host.oracle.settled(host.name, before) == []
