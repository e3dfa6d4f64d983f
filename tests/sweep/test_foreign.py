"""A process on the GPUs or the port that is not ours: for every kind of service, named, and never waited for in silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.journal.fold.state import State
from ddtop.plan import parse_plan
from ddtop.services.readings import UnitReading
from ddtop.sweep.recovery.foreign import gpu_holders, holder
from ddtop.sweep.recovery.reconcile import _model_steps, reconcile
from ddtop.sweep.setup.from_plan import sweep_from
from ddtop.sweep.shared.plan import ModelWanted
from ddtop.sweep.tell.alerts import wait_alert
from tests.sweep.test_from_plan import TWO
from tests.sweep.test_reconcile import probed

STRANGER = {
    "pid": 77,
    "comm": "python3",
    "cmdline": ["python3", "train.py", "--lr", "1"],
    "cgroup": "/user.slice/x",
    "unit": None,
    "user": "ann",
    "pgrp": 77,
    "mem_mib": 140083.0,
}


def unit(kind: str, generation: str | None, pid: int | None = 9) -> dict[str, UnitReading]:
    running = pid is not None
    reading = UnitReading(
        unit="one",
        at=0.0,
        kind=kind,
        active="active" if running else "inactive",
        main_pid=pid,
        generation=generation,
    )
    return {"one": reading}


def holders(kind: str, units: dict[str, UnitReading], *rows: dict[str, Any]) -> list[Any]:
    text = TWO.replace("KIND", kind)
    if kind == "systemd":
        text = (
            text.replace('"one"', '"one.service"')
            .replace('"two"', '"two.service"')
            .replace('"other"', '"o.service"')
        )
        text = text.replace('name = "two.service"', 'name = "two"')
    sweep = sweep_from(parse_plan(text)[0])
    return [row["pid"] for row in gpu_holders({"gpu_procs": list(rows)}, sweep, units)]


@pytest.mark.parametrize("kind", ["process", "docker", "systemd"])
def test_a_stranger_is_seen_whatever_runs_the_server(kind: str) -> None:
    for units in ({}, unit(kind, None, None), unit(kind, "9@123:boot"), unit(kind, "c0ffee123456aa@2026")):
        assert holders(kind, units, STRANGER) == [77]


OURS = [
    ("the process itself", "process", "9@1:b", 9, {"pid": 9, "comm": "llama-server", "pgrp": 9}),
    ("a rank of its group", "process", "9@1:b", 9, {"pid": 31, "comm": "sglang::scheduler", "pgrp": 9}),
    (
        "what its dead leader left",
        "process",
        "9@1:b",
        None,
        {"pid": 31, "comm": "sglang::scheduler", "pgrp": 9},
    ),
    (
        "a process of the container",
        "docker",
        "c0ffee123456aa@2026",
        9,
        {"pid": 31, "comm": "vllm", "cgroup": "/system.slice/docker-c0ffee123456aa.scope"},
    ),
    (
        "under ddtop's own unit",
        "process",
        "9@1:b",
        9,
        {"pid": 5, "comm": "x", "unit": "ddtop-proc-one.service"},
    ),
    ("little", "process", "9@1:b", 9, {**STRANGER, "mem_mib": 80.0}),
    ("a pid of another namespace while ours runs", "process", "9@1:b", 9, {"pid": 9999, "comm": ""}),
]


@pytest.mark.parametrize(
    ("kind", "generation", "pid", "row"), [x[1:] for x in OURS], ids=[x[0] for x in OURS]
)
def test_what_is_ours_or_hinders_nobody(
    kind: str, generation: str, pid: int | None, row: dict[str, Any]
) -> None:
    assert holders(kind, unit(kind, generation, pid), {"mem_mib": 9000.0, **row}) == []


def test_a_pid_of_another_namespace_while_ours_does_not_run() -> None:
    row = {"pid": 9999, "comm": "", "mem_mib": 9000.0}
    assert holders("process", unit("process", None, None), row) == [9999]
    assert "another namespace" in holder(row)


def test_the_holder_is_named_by_pid_command_user_and_memory() -> None:
    sweep = sweep_from(parse_plan(TWO.replace("KIND", "process"))[0])
    steps = reconcile(State(), probed(gpu_procs=[STRANGER], listeners=[], units={}), sweep, run_id="r")
    step = next(s for s in steps if s.action == "ask" and "GPUs" in s.title)
    text = wait_alert("ct200", step, "a1", port=30000)
    told = f"{text.cause_text} {text.advice} {text.evidence[0].text}"
    assert all(word in told for word in ("pid 77", "train.py", "ann", "140083 MiB"))
    assert (text.verdict, text.cause, text.kind) == ("foreign", "gpu-memory-held-by-other-process", "host")


@pytest.mark.parametrize(
    ("step_id", "title", "verdict", "cause"),
    [
        ("ask:pid7", "wait for x (pid 7) to leave the GPUs", "foreign", "gpu-memory-held-by-other-process"),
        ("ask:port30000", "wait for nginx (pid 8) to leave port 30000", "foreign", "port-in-use"),
        ("ask:model", "the model at /m is not complete", "model-missing", "model-weights-damaged"),
    ],
)
def test_each_wait_has_its_alert(step_id: str, title: str, verdict: str, cause: str) -> None:
    step = ev.Step(id=step_id, action="ask", title=title, reason="why", needs_consent=True)
    text = wait_alert("h", step, "a", port=30000)
    assert (text.verdict, text.cause) == (verdict, cause)
    assert text.advice and text.evidence and text.actions[0].key == "r"
    assert "why" in text.cause_text


def test_which_file_is_bad_here_and_in_each_source_is_said() -> None:
    sweep = sweep_from(parse_plan(TWO.replace("KIND", "process"))[0])
    sweep = replace(sweep, model=ModelWanted(path="/dev/shm/m", name="m", sources=("/data/m",)))
    model = {
        "verdict": "incomplete",
        "cause": "files-truncated",
        "truncated": ["model-00003-of-00008.safetensors"],
        "present_shards": 8,
        "sources": [
            {"path": "/data/m", "verdict": "incomplete", "truncated": ["model-00003-of-00008.safetensors"]}
        ],
    }
    probe = probed(model=model)
    (step,) = _model_steps(probe, sweep, consent=True)
    assert step.action == "ask" and step.reason.count("model-00003-of-00008.safetensors") == 2
    assert "/data/m" in step.reason and "names no source" not in step.reason


@pytest.mark.parametrize("running", [True, False])
def test_under_systemd_in_a_container_a_hidden_pid_may_be_our_server_s(running: bool) -> None:
    """LXC and the like: systemd runs the server, and nvidia-smi tells pids of the outer namespace."""
    hidden = {"pid": 40123, "comm": None, "cmdline": [], "cgroup": None, "unit": None, "mem_mib": 70000.0}
    reading = unit("systemd", "a" * 32, 9 if running else None)["one"]
    found = holders("systemd", {"one.service": replace(reading, unit="one.service")}, hidden)
    assert found == ([] if running else [40123])
