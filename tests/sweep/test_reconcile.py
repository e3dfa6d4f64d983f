"""RECOVERY's table: what the journal remembers × what the probe shows → steps with reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.sweep.recovery.probe_gpus import used_mib
from ddtop.sweep.recovery.reconcile import KEEP_JOBS, consequences, reconcile, spent_jobs
from tests.sweep.test_controller import make_sweep

SWEEP = make_sweep()
INVOCATION = "a" * 32
GENERATION = ev.Generation(boot="boot-1/1", id=INVOCATION, main_pid=9)


def at(**fields: Any) -> dict[str, Any]:
    return {"at_s": 1.0, "mono_s": 1.0, "host": "fake", **fields}


def remembered(*more: ev.Event, ready: bool = True, done: tuple[str, ...] = ("a0",)) -> State:
    """A run whose first configuration became ready, with some cells done."""
    events: list[ev.Event] = [
        ev.RunStarted(**at(run_id="r", name="t", mode="sweep", segment=0)),
        ev.CellsPlanned(**at(cells=SWEEP.cells)),
        ev.RestartStarted(
            **at(attempt_id="r-a-1", config="a", tp=1, unit="s.service", cell_ids=("a0", "a1"))
        ),
    ]
    if ready:
        events.append(
            ev.RestartReady(**at(attempt_id="r-a-1", generation=GENERATION, ready_s=5.0, engine="sglang"))
        )
    for cell in done:
        events.append(ev.CellStarted(**at(cell_id=cell, attempt=1, job="r-job", generation=GENERATION)))
        events.append(ev.CellMeasured(**at(cell_id=cell, attempt=1, validity="VALID")))
        events.append(ev.CellStateSet(**at(cell_id=cell, state="done", attempt=1)))
    return fold([*events, *more])


def unit(
    active: str = "active", invocation: str = INVOCATION, pid: int = 9, reload: str = "no"
) -> dict[str, str]:
    return {
        "ActiveState": active,
        "SubState": "running",
        "InvocationID": invocation,
        "MainPID": str(pid),
        "NeedDaemonReload": reload,
    }


def probed(**fields: Any) -> dict[str, Any]:
    return {
        "boot": "boot-1/1",
        "at_s": 1000.0,
        "unknown": [],
        "units": {"s.service": unit()},
        "listeners": [],
        "gpu_procs": [],
        "model": {"verdict": "complete"},
        "jobs": [],
        "overrides": [],
        "disks": {},
        **fields,
    }


DEAD = {"s.service": unit("inactive", pid=0)}
GONE = {
    "verdict": "restage-needed",
    "cause": "tmpfs-empty",
    "sources": [{"path": "/data/m", "verdict": "complete"}],
}
PART = {**GONE, "verdict": "incomplete", "present_shards": 3, "missing": ["model-2.safetensors"]}
JOB = {"job": "r-job", "kind": "loadgen", "run": "r", "results": 1}

TABLE = [
    ("same boot, generation, arguments", remembered(), probed(), ["go-on"]),
    ("a job still runs", remembered(), probed(jobs=[{**JOB, "state": "running"}]), ["wait-job"]),
    (
        "a job has ended meanwhile",
        remembered(),
        probed(jobs=[{**JOB, "state": "done", "results": 2}]),
        ["collect", "go-on"],
    ),
    ("a job that was collected", remembered(), probed(jobs=[{**JOB, "state": "done"}]), ["go-on"]),
    (
        "a job of another run",
        remembered(),
        probed(jobs=[{**JOB, "run": "other", "state": "running"}]),
        ["go-on"],
    ),
    ("unit down, model whole", remembered(), probed(units=DEAD), ["restart"]),
    (
        "rebooted, model missing",
        remembered(),
        probed(boot="boot-2/1", units=DEAD, model=GONE),
        ["stage", "restart"],
    ),
    ("model partly there", remembered(), probed(units=DEAD, model=PART), ["stage", "restart"]),
    ("old arguments run", remembered(), probed(units={"s.service": unit(reload="yes")}), ["restart"]),
    ("another start runs", remembered(), probed(units={"s.service": unit(invocation="b" * 32)}), ["restart"]),
    (
        "a start was under way",
        remembered(ready=False, done=()),
        probed(units={"s.service": unit(invocation="b" * 32)}),
        ["go-on"],
    ),
    ("it died meanwhile", remembered(ready=False, done=()), probed(units=DEAD), ["restart"]),
    (
        "foreign process on the GPUs",
        remembered(),
        probed(gpu_procs=[{"pid": 7, "comm": "x", "unit": "y.service", "mem_mib": 9000.0}]),
        ["ask", "go-on"],
    ),
    (
        "a monitor on the GPUs",
        remembered(),
        probed(gpu_procs=[{"pid": 7, "comm": "x", "unit": None, "mem_mib": 90.0}]),
        ["go-on"],
    ),
    (
        "our own server on the GPUs",
        remembered(),
        probed(gpu_procs=[{"pid": 9, "comm": "x", "unit": "s.service", "mem_mib": 9000.0}]),
        ["go-on"],
    ),
    (
        "foreign process on the port",
        remembered(),
        probed(listeners=[{"pid": 7, "comm": "nc", "unit": None, "port": 30000}]),
        ["ask", "go-on"],
    ),
    (
        "the unit's own container",
        remembered(),
        probed(
            containers={"s.service": "c1d@t@"},
            listeners=[{"pid": 7, "unit": "docker-c1d.scope", "docker": "c1d", "port": 30000}],
            gpu_procs=[{"pid": 7, "unit": "docker-c1d.scope", "mem_mib": 9000.0}],
        ),
        ["go-on"],
    ),
    (
        "a foreign container",
        remembered(),
        probed(
            containers={"s.service": "c1d@t@"},
            listeners=[{"pid": 7, "unit": "docker-eee.scope", "docker": "eee", "port": 30000}],
        ),
        ["ask", "go-on"],
    ),
    ("an owner that cannot be seen", remembered(), probed(listeners=[{"port": 30000}]), ["go-on"]),
    (
        "override of a dead run",
        remembered(),
        probed(overrides=[{"unit": "z.service", "run": "old", "expires_at_s": 1.0, "path": "/run/z"}]),
        ["restore", "go-on"],
    ),
    (
        "override of our own run",
        remembered(),
        probed(overrides=[{"unit": "s.service", "run": "r", "expires_at_s": 1.0, "path": "/run/s"}]),
        ["go-on"],
    ),
    ("something cannot be read", remembered(), probed(unknown=["ports"]), ["warn", "go-on"]),
    ("GPM not tried yet in this boot", remembered(), probed(unknown=["gpm"]), ["go-on"]),
    (
        "a section failed",
        remembered(),
        probed(model={"error": "no answer within 9 s"}, units=DEAD),
        ["warn", "warn", "restart"],
    ),
    (
        "no source for the model",
        remembered(),
        probed(units=DEAD, model={**GONE, "sources": []}),
        ["ask", "restart"],
    ),
    (
        "everything done",
        remembered(done=("a0", "a1", "b0", "b1", "c0", "c1")),
        probed(units=DEAD, model=GONE),
        [],
    ),
]


@pytest.mark.parametrize(("state", "probe", "actions"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_steps(state: State, probe: dict[str, Any], actions: list[str]) -> None:
    steps = reconcile(state, probe, SWEEP, run_id="r")
    assert [s.action for s in steps] == actions
    assert all(s.reason and s.title for s in steps)
    assert len({s.id for s in steps}) == len(steps)


def test_a_foreign_process_on_the_port_of_a_plain_process() -> None:
    """While it runs, what listens may be one of its children; while it does not, it cannot."""
    launches = {k: replace(x, kind="process", unit="srv") for k, x in SWEEP.launches.items()}
    sweep, row = (
        replace(SWEEP, launches=launches),
        {"pid": 7, "comm": "nc", "unit": "rented.service", "port": 30000},
    )
    for running, asked in ((unit("inactive", pid=0), True), (unit(), False)):
        found = probed(units={"srv": running}, listeners=[row])
        steps = reconcile(remembered(), found, sweep, run_id="r")
        assert ("ask" in [s.action for s in steps]) is asked, steps


def test_every_damaged_file_is_counted() -> None:
    model = {
        **PART,
        "missing": ["a", "b"],
        "truncated": ["c"],
        "sparse": ["d"],
        "corrupt": [],
        "pointer_files": 2,
    }
    step = next(
        s
        for s in reconcile(remembered(), probed(units=DEAD, model=model), SWEEP, run_id="r")
        if s.action == "stage"
    )
    assert "6 files are missing or damaged" in step.reason
    one = next(
        s
        for s in reconcile(remembered(), probed(units=DEAD, model=PART), SWEEP, run_id="r")
        if s.action == "stage"
    )
    assert "1 file is missing or damaged" in one.reason


def test_what_costs_nothing_needs_no_consent() -> None:
    free = {"go-on", "collect", "wait-job", "warn"}
    for _, state, probe, _actions in TABLE:
        for step in reconcile(state, probe, SWEEP, run_id="r"):
            if step.action in free:
                assert not step.needs_consent
            if step.action in ("stage", "restart", "ask"):
                assert step.needs_consent
    first = reconcile(remembered(), probed(units=DEAD, model=GONE), SWEEP, run_id="r", resumed=False)
    assert not any(s.needs_consent for s in first), "the person who starts a run has just ordered it"


def test_a_broken_cell_is_not_run_again() -> None:
    broken = ev.CellStateSet(**at(cell_id="a1", state="broken"))
    steps = reconcile(remembered(broken), probed(), SWEEP, run_id="r")
    assert [s.title for s in steps] == ["restart s.service for b"]


def test_a_restart_after_a_reboot_says_so_whatever_the_reboot_broke_off() -> None:
    """A start that was broken off has no generation yet: the one before it tells."""
    loading = ev.RestartStarted(
        **at(
            attempt_id="r-b-1",
            config="b",
            tp=1,
            unit="s.service",
            cell_ids=("b0",),
            generation_before=GENERATION,
        )
    )
    rebooted = probed(boot="boot-2/1", units=DEAD)
    for state in (remembered(), remembered(loading)):
        assert "the host was rebooted" in reconcile(state, rebooted, SWEEP, run_id="r")[-1].reason
        same_boot = reconcile(state, probed(units=DEAD), SWEEP, run_id="r")[-1]
        assert same_boot.reason == "s.service is inactive"


def test_changed_hardware_is_warned_of() -> None:
    csv = {
        "fields": ["index", "memory.used", "power.limit", "driver_version"],
        "csv": "0, 5, 600.00, 580.1\n1, 7, 600.00, 580.1",
    }
    state = remembered(ev.ProbeTaken(**at(probe=probed(gpus=csv, kernel="6.1"))))
    now = probed(gpus={**csv, "csv": "0, 5, 450.00, 581.0"}, kernel="6.2")
    titles = [s.title for s in reconcile(state, now, SWEEP, run_id="r") if s.action == "warn"]
    assert titles == [
        "the kernel changed",
        "the driver changed",
        "the number of GPUs changed",
        "the power limit changed",
    ]
    assert used_mib(now) == [5.0]


def test_consequences_of_a_reboot_in_words() -> None:
    csv = {"fields": ["index", "memory.used"], "csv": "0, 0\n1, 0"}
    words = consequences(probed(gpus=csv, units=DEAD, model=GONE), SWEEP)
    assert words == ("GPUs 0 MiB", "s.service inactive", "model MISSING in /dev/shm/m")


def ended(name: str, **fields: Any) -> dict[str, Any]:
    return {"job": name, "kind": "loadgen", "run": "r", "state": "done", "results": 0, **fields}


@pytest.mark.parametrize(
    ("job", "spent"),
    [
        ({**JOB, "state": "done"}, True),
        ({**JOB, "state": "lost"}, True),
        ({**JOB, "state": "done", "results": 2}, False),  # one is not recorded: resuming collects it
        ({**JOB, "state": "running"}, False),
        ({**JOB, "state": "done", "run": "other"}, False),
        (
            ended("r-script", kind="exec", results=1),
            True,
        ),  # it set up a service; its output is in the recording
        (ended("r-job", kind="exec", results=2), False),
        (ended("r-stage", kind="stage"), True),
        (ended("r-server", kind="supervise"), False),
        (ended("r-new", kind="something-new"), False),
    ],
)
def test_the_host_keeps_what_resuming_needs(job: dict[str, Any], spent: bool) -> None:
    newer = [ended(f"r-{n}") for n in range(KEEP_JOBS)]
    assert spent_jobs(remembered(), [job, *newer], "r") == ([job["job"]] if spent else [])
    assert spent_jobs(remembered(), [*newer[1:], job], "r") == [], "the newest are kept"
