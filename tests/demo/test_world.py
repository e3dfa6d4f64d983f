"""The demo's machine: where it may lie, and what its host can and cannot reach."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import asyncssh
import pytest

from ddtop.agent.host.state_folder import filesystem_of
from ddtop.commands.demo import demo_folder
from ddtop.demo.machine import World
from ddtop.errors import UsageError
from tests.runner.rig import Rig
from tests.waiting import HANG_S


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


@pytest.mark.parametrize("errors", [0, 3_000_000])
def test_a_client_slower_than_its_command_keeps_the_connection(tmp_path: Path, errors: int) -> None:
    """The window is the smallest, so that the channel stops and goes on at every piece, on any machine: as it does
    where a server logs faster than it is read. All bytes come, then the status; the connection is the same."""
    rig = Rig(tmp_path)
    rig.world.build()

    async def read() -> None:
        async with asyncssh.connect(
            "127.0.0.1",
            rig.ssh_port,
            username="demo",
            client_keys=[str(rig.world.client_key)],
            known_hosts=str(rig.world.known_hosts),
            config=None,
        ) as connection:
            write = f"sys.stdout.write('x' * 3000000); sys.stdout.flush(); sys.stderr.write('y' * {errors})"
            command = f'python3 -c "import sys; {write}; sys.exit(3)"'
            done = await connection.run(command, encoding=None, window=1 << 15, max_pktsize=1 << 12)
            assert len(bytes(done.stdout or b"")) == 3_000_000
            assert len(bytes(done.stderr or b"")) == errors
            assert done.exit_status == 3
            again = await connection.run("echo here", encoding=None)
            assert again.stdout == b"here\n"

    try:
        rig.serve()
        asyncio.run(asyncio.wait_for(read(), HANG_S))
    finally:
        rig.end_server()


def test_processes_are_found_by_their_world_and_ended(tmp_path: Path) -> None:
    world, other = World(tmp_path / "a"), World(tmp_path / "b")
    child = subprocess.Popen(["sleep", "300"], env={**os.environ, "DDTOP_DEMO_DIR": str(world.root)})
    try:
        until = time.monotonic() + HANG_S  # its environment can be read a moment after it was started
        while world.processes() != [child.pid]:
            assert time.monotonic() < until
        assert other.processes() == []
        other.end_processes()
        assert child.poll() is None
        world.end_processes()
        assert child.wait(HANG_S) == -15
    finally:
        child.kill()
        child.wait()


def test_on_a_machine_of_systemd_its_host_has_none(tmp_path: Path) -> None:
    """systemd runs most machines on which the demo is tried; its host must not start units there."""
    world = World(tmp_path / "machine")
    world.build()
    script = (
        "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && "
        "exec python3 -c 'from ddtop.agent.rights import has_systemd; print(has_systemd())'"
    )
    paths = {"the demo's": str(world.bin), "a login's": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    unshare, mount = shutil.which("unshare"), shutil.which("mount")
    if unshare is None or mount is None or os.getuid() != 0:
        pytest.skip("may not mount here")
    said = {}
    for name, path in paths.items():
        env = {**world.environment(), "PATH": path, "PYTHONPATH": str(Path(__file__).parents[2])}
        script_here = script.replace("mount -t", f"{mount} -t", 1)
        done = subprocess.run(
            [unshare, "-m", "/bin/sh", "-c", script_here],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and "mount" in done.stderr:
            pytest.skip("may not mount here")
        assert done.returncode == 0, done.stderr
        said[name] = done.stdout.strip()
    assert said["the demo's"] == "False"
    assert said["a login's"] == str(shutil.which("systemctl", path=paths["a login's"]) is not None)
