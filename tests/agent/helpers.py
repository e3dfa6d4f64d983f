"""A real agent for tests: a child process on this machine, by any Python."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ddtop.hosts.agent_zip import AgentZip, agent_zip, pack, start_argv
from ddtop.hosts.client import AgentHost
from ddtop.hosts.local import ChildPipe
from ddtop.hosts.start import new_nonce, open_host

PYENV = Path.home() / ".pyenv" / "versions"
FLOOR = (3, 8)
"""The oldest Python the agent runs on. vermin holds its source to that; these tests run it on what is to be had."""


def pythons() -> dict[str, str]:
    """version → path of the Pythons of this machine, ours among them."""
    found = {".".join(map(str, sys.version_info[:2])): sys.executable}
    for path in sorted(PYENV.glob("3.*/bin/python3")):
        major, minor = path.parent.parent.name.split(".")[:2]
        found.setdefault(f"{major}.{minor}", str(path))
    for minor in range(6, 20):
        path_of = shutil.which(f"python3.{minor}")
        if path_of and "/shims/" not in path_of:
            found.setdefault(f"3.{minor}", path_of)
    return found


def oldest_python() -> str:
    """The oldest Python to be had here that the agent promises to run on."""
    return min((_number(v), p) for v, p in pythons().items() if _number(v) >= FLOOR)[1]


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def agent_pythons() -> list[str]:
    """The oldest Python to be had, and ours."""
    return list(dict.fromkeys([oldest_python(), sys.executable]))


@contextlib.asynccontextmanager
async def agent(
    state: Path | str | None,
    *,
    python: str = sys.executable,
    zip_: AgentZip | None = None,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
) -> AsyncIterator[AgentHost]:
    """A connected agent with its state folder at `state`."""
    packed = zip_ or agent_zip()
    nonce = new_nonce()
    argv = start_argv(packed, nonce, str(state) if state else None, python)
    pipe = await ChildPipe.start(argv, env=env, cwd=cwd)
    host = await open_host("here", pipe, packed, nonce)
    try:
        yield host
    finally:
        await host.close()


def changed_zip(name: str, old: str, new: str) -> AgentZip:
    """The agent with one source line changed: shorter limits, so that a test need not wait for them."""
    import io
    import zipfile

    files = []
    with zipfile.ZipFile(io.BytesIO(agent_zip().data)) as archive:
        for entry in archive.namelist():
            content = archive.read(entry)
            if entry == name:
                assert old.encode() in content, (name, old)
                content = content.replace(old.encode(), new.encode())
            files.append((entry, content))
    return pack(files)


def runs(pid: int) -> bool:
    """Whether a process runs; one that nobody reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][:1] not in "ZX"


@contextlib.contextmanager
def disk_folder() -> Iterator[Path]:
    """A folder on a disk (a tmpfs is refused as state folder)."""
    import shutil
    import tempfile

    home = Path.home() / ".cache" / "ddtop-tests"
    home.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=home))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def state_dir() -> Iterator[Path]:
    with disk_folder() as path:
        yield path / "state"


def need_root(what: str) -> None:
    """Skips without root; CI has it."""
    if os.getuid() != 0:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must run {what} as root")
        pytest.skip(f"{what} needs root")


@pytest.fixture
def tiny_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A real tmpfs of 256 KiB."""
    import subprocess

    need_root("mounting a tmpfs")
    path = tmp_path / "tiny"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
