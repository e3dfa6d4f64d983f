"""The demo's machine: where it may lie, and what its host can and cannot reach."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ddtop.agent.state import filesystem_of
from ddtop.commands.demo import demo_folder
from ddtop.demo.world import World
from ddtop.errors import UsageError


def test_its_folder_is_on_a_disk(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if filesystem_of(str(memory)) == "tmpfs":
        assert demo_folder([memory, tmp_path]).parent == tmp_path
        with pytest.raises(UsageError, match="on a disk"):
            demo_folder([memory])
    with pytest.raises(UsageError):
        demo_folder([tmp_path / "not-there"])


def test_its_host_sees_nothing_of_the_service_manager(tmp_path: Path) -> None:
    world = World(tmp_path / "machine")
    world.build()
    env = world.environment()
    assert env["PATH"] == str(world.bin)
    for tool in ("systemctl", "journalctl", "systemd-run", "sudo", "docker", "loginctl"):
        found = subprocess.run(
            ["/bin/sh", "-c", f"command -v {tool}"], env=env, capture_output=True, text=True, check=False
        )
        assert found.returncode != 0, f"{tool}: {found.stdout}"
    shown = subprocess.run(
        ["/bin/sh", "-c", "nvidia-smi -L"], env=env, capture_output=True, text=True, check=False
    )
    assert shown.stdout.count("SIMULATED") == 8
    assert not set(os.listdir(world.home)) & {".ssh", ".config"}


def test_processes_are_found_by_their_world_and_ended(tmp_path: Path) -> None:
    world, other = World(tmp_path / "a"), World(tmp_path / "b")
    child = subprocess.Popen(["sleep", "300"], env={**os.environ, "DDTOP_DEMO_DIR": str(world.root)})
    try:
        assert world.processes() == [child.pid]
        assert other.processes() == []
        other.end_processes()
        assert child.poll() is None
        world.end_processes()
        assert child.wait(5) == -15
    finally:
        child.kill()
        child.wait()
