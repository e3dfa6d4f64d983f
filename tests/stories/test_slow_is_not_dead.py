"""Slow is not dead: healthy starts that look dead raise no alert; the faulty twin of each does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtop.events import AlertRaised
from tests.stories.harness import Runner, plan_text, ready_configs, states_of, took

CONFIGS = """
a = {}
b = { args = ["--context-length", "8192"] }
"""
VICTIM = "WHEN=--context-length 8192"
SHAPES = (
    "slow-load",
    "silent-memory",
    "reading",
    "compile",
    "cache",
    "capture",
    "waiting",
    "bursts",
    "draft",
    "nccl",
    "warm",
    "mount",
    "drain",
)
SHAPE_S = 40
TITLE = f"healthy shapes of {SHAPE_S} s, and the seconds from the fault to the alert of each dead twin"


def settings(shape: str) -> tuple[str, ...]:
    """A drain belongs to the old process, all other shapes to the new one's start."""
    where = () if shape.startswith("drain") else (VICTIM,)
    seconds = (
        25 if shape == "nccl" else SHAPE_S
    )  # nothing at all moves in it: that may last less than the least limit
    load = 4 if shape.startswith("slow-load") else 1
    return (f"LOAD_S={load}", "WARM_S=0.3", f"SHAPE_S={seconds}", *where, f"SHAPE={shape}")


def run(host: Any, tmp_path: Path, shape: str) -> tuple[Runner, int]:
    host.stage()
    host.fault(*settings(shape))
    text = plan_text(
        "shapes",
        configs=CONFIGS,
        policy='transient = "fail-and-go-on"\nbug = "fail-and-go-on"',
    )
    with Runner(host.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        return runner, runner.wait(330)


def healthy(host: Any, tmp_path: Path, shape: str) -> None:
    runner, code = run(host, tmp_path, shape)
    assert [e for e in runner.events() if isinstance(e, AlertRaised)] == [], runner.text()[-4000:]
    assert ready_configs(runner.events()) == ["a", "b"], runner.text()[-4000:]
    assert code == 0


def dead(host: Any, tmp_path: Path, shape: str) -> None:
    began = host.bed.now()
    runner, _code = run(host, tmp_path, f"{shape}-dead")
    raised = [e for e in runner.events() if isinstance(e, AlertRaised)]
    assert raised, runner.text()[-4000:]
    if shape != "drain":  # systemd ends a process that does not hear SIGTERM, and the next start is fine
        assert "b" not in ready_configs(runner.events())
        assert states_of(runner.state(), "b") <= {"failed", "broken"}, runner.text()[-4000:]
    acted = [
        e for e in host.faults(since_ns=began) if str(e["kind"]).startswith(("shape:", "ignores-sigterm"))
    ]
    assert acted
    took(TITLE, f"{shape}-dead ({raised[0].verdict})", raised[0].at_s - acted[0]["t_ns"] / 1e9)


@pytest.mark.bed
@pytest.mark.parametrize("shape", ("reading",))
def test_healthy_shapes_raise_nothing(ct200: Any, tmp_path: Path, shape: str) -> None:
    healthy(ct200, tmp_path, shape)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("shape", SHAPES)
def test_all_healthy_shapes_raise_nothing(ct200: Any, tmp_path: Path, shape: str) -> None:
    healthy(ct200, tmp_path, shape)


@pytest.mark.bed
@pytest.mark.parametrize("shape", ("reading",))
def test_a_dead_twin_is_told(ct200: Any, tmp_path: Path, shape: str) -> None:
    dead(ct200, tmp_path, shape)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("shape", SHAPES)
def test_all_dead_twins_are_told(ct200: Any, tmp_path: Path, shape: str) -> None:
    dead(ct200, tmp_path, shape)
