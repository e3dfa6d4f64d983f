"""A Slurm allocation as the host, on a real Slurm: sweeps end done, and allocations that are lost are asked for again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtop.errors import HostUnreachableError
from ddtop.events import AllocationSeen, CellMeasured, CellStarted, Event, RestartStarted
from ddtop.hosts.inventory import connector_for
from ddtop.journal.fold.state import State
from ddtop.plan.model import SlurmSettings
from tests.bed.config import REPO
from tests.bed.slurm import Cluster
from tests.stories.harness import Runner

CONFIGS = """
a = {}
b = { args = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "/data/models/Qwen3.6-27B-DFlash"] }
"""


def plan(name: str, *, policy: str = "", slurm: str = "", answer_s: float = 2, host: str = "h200") -> str:
    """Twelve cells by two starts of a plain process."""
    return f"""
name = "{name}"
host = "{host}"
[slurm]
partition = "gpu"
gpus = 4
time = 30
account = "bench"
{slurm}
[model]
path = "/data/models/Qwen3.6-27B"
[service]
kind = "process"
engine = "sglang"
unit = "server"
port = 30000
command = ["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "{{model.path}}", "--tp", "{{tp}}",
           "--port", "{{port}}", "--enable-metrics"]
[configs]{CONFIGS}
[matrix]
tp = [1]
concurrency = [1, 2, 4]
context = [0]
baseline = "a"
[[workload]]
name = "fib"
prompts = ["Write a Python program that prints the first 50 Fibonacci numbers."]
output_tokens = [16, 32]
[bench]
requests_per_stream = 2
warmup = 0
time_limit_s = 60
[policy]
answer_s = {answer_s}
{policy}
"""


@pytest.fixture
def home(cluster: Cluster, tmp_path: Path) -> Path:
    """ddtop's own folder, with the host `h200`: an allocation by way of login1."""
    home = tmp_path / "home"
    (home / "config").mkdir(parents=True)
    (home / "config/config.toml").write_text(
        "".join(f'[hosts.{name}]\nvia = "login1"\nuser = "bench"\n' for name in ("h200", "other"))
    )
    return home


@pytest.fixture(autouse=True)
def _clean(cluster: Cluster) -> Iterator[None]:
    for node in cluster.nodes:
        cluster.bed.fault(node, "SPEED=20")
    yield
    for node in cluster.nodes:
        if cluster.bed.status()["hosts"][node]["state"] != "on":
            cluster.bed.on(node)


def runner(cluster: Cluster, text: str, tmp_path: Path, home: Path) -> Runner:
    return Runner(cluster.bed, text, tmp_path / "run.ddtop", home)


def allocations(events: list[Event]) -> list[tuple[str, str]]:
    """(job, state) as they were seen, each change once."""
    return [(e.job, e.state) for e in events if isinstance(e, AllocationSeen)]


def job_of(run: Runner, number: int = 0) -> str:
    """The id of the run's so manieth allocation, once it runs."""

    def found(events: list[Event]) -> str | None:
        jobs = [job for job, state in allocations(events) if state == "RUNNING"]
        return list(dict.fromkeys(jobs))[number : number + 1] and list(dict.fromkeys(jobs))[number]

    job: str = run.until(found, 60, f"allocation {number}")
    return job


def measured(events: list[Event]) -> list[str]:
    return [e.cell_id for e in events if isinstance(e, CellMeasured)]


def assert_whole(cluster: Cluster, state: State, events: list[Event]) -> None:
    """Twelve cells, each measured once, and nothing of ours on the cluster."""
    assert [c.state for c in state.plan_cells] == ["done"] * 12, state.run.ended
    assert sorted(measured(events)) == sorted(c.id for c in state.plan_cells)
    assert state.run.ended is not None and (state.run.ended.outcome, state.run.ended.left_behind) == (
        "done",
        (),
    )
    assert cluster.left() == []


def preempt(cluster: Cluster, run: Runner) -> None:
    """A job of the partition with priority takes the nodes, and leaves them again."""
    job = job_of(run)
    node = cluster.slurm(f"squeue -j {job} -h -o %N").strip()
    cluster.slurm(f"sbatch -p urgent -A bench -w {node} --gpus=4 -t 5 -o /dev/null --wrap 'sleep 3'")


def test_twelve_cells_with_a_preemption_end_done(cluster: Cluster, tmp_path: Path, home: Path) -> None:
    with runner(cluster, plan("twelve"), tmp_path, home) as run:
        run.until(lambda events: len(measured(events)) >= 4, 120, "fourth result")
        run.until(
            lambda events: isinstance(
                [e for e in events if isinstance(e, CellStarted | CellMeasured)][-1], CellStarted
            ),
            30,
            "cell under way",
        )
        preempt(cluster, run)
        assert run.wait(180) == 0, run.text()[-3000:]
        events, state = run.events(), run.state()
    assert_whole(cluster, state, events)
    first, second = state.allocations.values()
    assert first.seen.state == "PREEMPTED" and "higher priority" in first.seen.reason
    assert second.seen.reason.endswith("was given back")
    assert (first.seen.account, first.seen.partition, first.seen.gpus) == ("bench", "gpu", 4)


BAD: dict[str, tuple[SlurmSettings, str]] = {
    "partition": (SlurmSettings(partition="nope", gpus=1), "there is no partition nope"),
    "account": (SlurmSettings(partition="gpu", account="wrong"), "Slurm refuses the account wrong"),
    "time": (SlurmSettings(partition="gpu", time=1000), "asks for more time than the partition allows"),
    "gpus": (SlurmSettings(partition="gpu", gpus=99), "no node of the partition has what is asked for"),
    "word": (SlurmSettings(partition="gpu", time="soon"), "Slurm refuses the walltime soon"),
    "feature": (SlurmSettings(partition="gpu", constraint="a100"), "no node has the feature a100"),
    "option": (SlurmSettings(extra=("--bogus",)), "does not know an option"),
}


@pytest.fixture
def connector(cluster: Cluster, home: Path) -> Callable[[SlurmSettings, str], Any]:
    def make(wanted: SlurmSettings, owner: str = "bad") -> Any:
        config = [home / "config/config.toml"]
        found: Any = connector_for(
            "h200", config_paths=config, ssh_config=[Path(cluster.bed.ssh_config)], slurm=wanted, owner=owner
        )
        found.poll_s = 0.5
        return found

    return make


def test_what_slurm_refuses_is_one_sentence_and_leaves_nothing(cluster: Cluster, connector: Any) -> None:
    async def refused(wanted: SlurmSettings) -> HostUnreachableError:
        with pytest.raises(HostUnreachableError) as caught:
            await connector(wanted).connect()
        return caught.value

    for name, (wanted, words) in BAD.items():
        error = asyncio.run(refused(wanted))
        assert words in error.what and error.do, (name, str(error))
    cluster.bed.sh("login1", "mv /usr/bin/salloc /usr/bin/salloc.away")
    try:
        assert "there is no salloc on the login node" in asyncio.run(refused(SlurmSettings(gpus=1))).what
    finally:
        cluster.bed.sh("login1", "mv /usr/bin/salloc.away /usr/bin/salloc")
    assert cluster.left() == []


# ---- the long form


def under_way(run: Runner, kind: type[Event], results: int = 2) -> None:
    """Until a cell, or a start, is under way after so many results."""

    def found(events: list[Event]) -> bool:
        last = [e for e in events if isinstance(e, CellStarted | CellMeasured | RestartStarted)]
        return len(measured(events)) >= results and bool(last) and isinstance(last[-1], kind)

    run.until(found, 120, f"{kind.__name__} after {results} results")


def dead(cluster: Cluster, run: Runner) -> str:
    """The node of the present allocation loses its power, for good."""
    present = run.state().allocation
    assert present is not None
    cluster.bed.kill(present.seen.nodes[0])
    return "NODE_FAIL"


def crash(cluster: Cluster, run: Runner) -> str:
    """It comes back before Slurm has noticed: the job goes on, and nothing that ran in it."""
    present = run.state().allocation
    assert present is not None
    cluster.bed.crash(present.seen.nodes[0], wait=False)
    return "CANCELLED"  # by ddtop, at the end


def walltime(cluster: Cluster, run: Runner) -> str:
    """The walltime is over in this moment: as an administrator can have it."""
    present = run.state().allocation
    assert present is not None
    cluster.bed.sh("login1", f"scontrol update JobId={present.seen.job} TimeLimit=1")
    return "TIMEOUT"


def preempted(cluster: Cluster, run: Runner) -> str:
    preempt(cluster, run)
    return "PREEMPTED"


LOSSES: dict[str, tuple[Callable[[Cluster, Runner], str], type[Event], int]] = {
    "node-in-a-cell": (dead, CellStarted, 2),
    "node-in-a-start": (dead, RestartStarted, 0),
    "node-reboots-in-a-cell": (crash, CellStarted, 4),
    "preempted-in-a-start": (preempted, RestartStarted, 6),
    "preempted-after-a-result": (preempted, CellMeasured, 5),
    "preempted-in-the-last-cells": (preempted, CellStarted, 10),
    "walltime-in-a-cell": (walltime, CellStarted, 3),
}


@pytest.mark.stories
@pytest.mark.parametrize("moment", LOSSES)
def test_a_lost_allocation_is_asked_for_again(
    cluster: Cluster, tmp_path: Path, home: Path, moment: str
) -> None:
    """Whatever ends it, at whatever moment: no finished cell is lost or measured again, and none is blamed for it."""
    lose, kind, results = LOSSES[moment]
    slow = moment == "walltime-in-a-cell"  # Slurm looks at walltimes every half minute
    text = plan("lost").replace(
        "output_tokens = [16, 32]", "output_tokens = [2000, 2001]" if slow else "output_tokens = [16, 32]"
    )
    with runner(cluster, text, tmp_path, home) as run:
        under_way(run, kind, results)
        had = measured(run.events())
        state_word = lose(cluster, run)
        assert run.wait(600) == 0, run.text()[-6000:]
        events, state = run.events(), run.state()
    assert_whole(cluster, state, events)
    assert measured(events)[: len(had)] == had
    first = next(iter(state.allocations.values()))
    assert first.seen.state == state_word, first.seen
    assert {c.cause for c in state.plan_cells} == {None}
    assert not [r for r in state.restarts if r.outcome == "failed" and r.verdict != "rebooted"]


@pytest.mark.stories
@pytest.mark.parametrize("moment", ["queued", "cell"])
def test_the_next_connect_finds_the_allocation_of_a_killed_runner(
    cluster: Cluster, tmp_path: Path, home: Path, moment: str
) -> None:
    if moment == "queued":
        cluster.slurm(
            "sbatch -p urgent -A bench -N2 --gpus-per-node=4 -t 5 -o /dev/null --wrap 'srun sleep 25'"
        )
    with runner(cluster, plan("killed"), tmp_path, home) as run:
        if moment == "queued":
            run.until(lambda events: any(s == "PENDING" for _, s in allocations(events)), 60, "queued job")
            seen = next(e for e in run.events() if isinstance(e, AllocationSeen))
            assert seen.reason in ("Resources", "Priority"), seen
        else:
            under_way(run, CellStarted)
        run.process.send_signal(signal.SIGKILL)
        run.process.wait(10)
        job = allocations(run.events())[0][0]
    with runner(cluster, plan("killed"), tmp_path, home) as run:
        assert run.wait(300) == 0, run.text()[-6000:]
        events, state = run.events(), run.state()
    assert_whole(cluster, state, events)
    assert list(state.allocations) == [job]


@pytest.mark.stories
@pytest.mark.parametrize("moment", ["queued", "cell"])
def test_stop_cancels_what_a_killed_runner_left(
    cluster: Cluster, tmp_path: Path, home: Path, moment: str
) -> None:
    others = cluster.slurm(
        "sbatch -p gpu -A bench -w n2 --gpus=4 -t 5 -o /dev/null --wrap 'sleep 300'"
    ).split()[-1]
    if moment == "queued":
        cluster.slurm("sbatch -p gpu -A bench -w n1 --gpus=4 -t 5 -o /dev/null --wrap 'sleep 300'")
    with runner(cluster, plan("stopped"), tmp_path, home) as run:
        if moment == "queued":
            run.until(lambda events: any(s == "PENDING" for _, s in allocations(events)), 60, "queued job")
        else:
            under_way(run, CellStarted)
        run.process.send_signal(signal.SIGKILL)
        run.process.wait(10)
    env = {"DDTOP_HOME": str(home), "PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"}
    words = [
        sys.executable,
        "-m",
        "ddtop",
        "stop",
        str(tmp_path / "run.ddtop"),
        "--ssh-config",
        cluster.bed.ssh_config,
    ]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [x.split()[0] for x in cluster.jobs() if "ddtop" in x] == []
    assert others in "".join(cluster.jobs()), "a job of somebody else was cancelled"
    cluster.slurm("scancel --user=bench")
    assert cluster.left() == []


@pytest.mark.stories
def test_two_runs_share_no_allocation(cluster: Cluster, tmp_path: Path, home: Path) -> None:
    one = Runner(cluster.bed, plan("one"), tmp_path / "one.ddtop", home)
    two = Runner(cluster.bed, plan("two", host="other"), tmp_path / "two.ddtop", home)
    with one, two:
        assert (one.wait(300), two.wait(300)) == (0, 0), one.text()[-3000:] + two.text()[-3000:]
        states = [one.state(), two.state()]
    jobs = [job for state in states for job in state.allocations]
    assert len(jobs) == len(set(jobs)) == 2
    for state in states:
        assert [c.state for c in state.plan_cells] == ["done"] * 12
    assert cluster.left() == []


@pytest.mark.stories
def test_a_cell_that_cannot_end_is_not_begun(cluster: Cluster, tmp_path: Path, home: Path) -> None:
    """Too little is left: the allocation is given back in good time, and the rest is measured in another one."""
    text = plan("short").replace("time = 30", "time = 2").replace("[16, 32]", "[1000, 1001]")
    with runner(cluster, text, tmp_path, home) as run:
        assert run.wait(900) == 0, run.text()[-6000:]
        events, state = run.events(), run.state()
    assert_whole(cluster, state, events)
    assert len(state.allocations) > 1
    assert all(len(c.attempts) == 1 for c in state.plan_cells)
    assert all(a.seen.reason.endswith("was given back") for a in state.allocations.values())


@pytest.mark.stories
@pytest.mark.parametrize("how", ["policy", "person"])
def test_no_other_allocation_is_asked_for(cluster: Cluster, tmp_path: Path, home: Path, how: str) -> None:
    """`allocation = "stop"`, or somebody who cancels the job: the run ends, and a later connect takes it up again."""
    text = plan("ends", policy='allocation = "stop"' if how == "policy" else "")
    with runner(cluster, text, tmp_path, home) as run:
        under_way(run, CellStarted, 3)
        if how == "policy":
            preempt(cluster, run)
        else:
            cluster.slurm(f"scancel {job_of(run)}")
        assert run.wait(120) == 11, run.text()[-6000:]
        state = run.state()
    assert len(state.allocations) == 1 and state.run.ended is not None
    words = "higher priority" if how == "policy" else "it was cancelled"
    assert words in state.run.ended.reason, state.run.ended
    assert [x for x in cluster.jobs() if "ddtop" in x] == []
    with runner(cluster, text, tmp_path, home) as run:
        assert run.wait(300) == 0, run.text()[-6000:]
        events, state = run.events(), run.state()
    assert_whole(cluster, state, events)


@pytest.mark.stories
def test_a_cut_of_the_link_costs_no_server(cluster: Cluster, tmp_path: Path, home: Path) -> None:
    with runner(cluster, plan("cut"), tmp_path, home) as run:
        under_way(run, CellStarted, 2)
        cluster.bed.cut("login1")
        time.sleep(20)
        cluster.bed.heal("login1")
        assert run.wait(300) == 0, run.text()[-6000:]
        events, state = run.events(), run.state()
    assert_whole(cluster, state, events)
    assert len(state.allocations) == 1 and len(state.restarts) == 2


@pytest.mark.stories
def test_a_login_node_that_ends_long_processes_is_named(cluster: Cluster, connector: Any) -> None:
    """salloc killed while the job waits: one sentence, and nothing is left in the queue."""
    cluster.slurm("sbatch -p urgent -A bench -N2 --gpus-per-node=4 -t 5 -o /dev/null --wrap 'srun sleep 60'")

    async def ask() -> tuple[HostUnreachableError, str]:
        one = connector(SlurmSettings(partition="gpu", gpus=4, account="bench"), "forbidden")
        task = asyncio.create_task(one.connect())
        while one.last is None:
            await asyncio.sleep(0.2)
        await asyncio.to_thread(cluster.slurm, "pkill -KILL -u bench -x salloc")
        with pytest.raises(HostUnreachableError) as caught:
            await task
        return caught.value, await one.release()

    error, left = asyncio.run(ask())
    assert "salloc on the login node was killed by SIGKILL" in error.what and "long processes" in error.means
    assert left == ""
    assert [x for x in cluster.jobs() if "ddtop" in x] == []
