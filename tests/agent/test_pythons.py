"""ddtop on every Python it promises, as far as this machine has them: start, stream, one cell, clean end, no word too many.

The client needs its dependencies for each Python: they are installed once into a cache. Where that cannot be done (no
network), or there is no such Python, the test is skipped with that reason.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtop.journal.read.reader import read_state
from tests.agent.helpers import agent, pythons
from tests.runner.rig import Rig
from tests.waiting import HANG_S

REPO = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddtop-pythons"
CLIENT, AGENT = ["3.11", "3.12", "3.13"], ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="hosts are Linux machines")


def client(version: str) -> str:
    """A Python of this version with ddtop's dependencies; skips where there is none."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    found = pythons().get(version)
    if found is None:
        pytest.skip(f"this machine has no Python {version}")
    wanted = hashlib.sha256((REPO / "pyproject.toml").read_bytes()).hexdigest()[:12]
    folder = CACHE / f"{version}-{wanted}"
    python = folder / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers that install into one folder leave half of it
        if not works(python):
            install = [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                str(REPO),
            ]
            for words in ([found, "-m", "venv", "--clear", str(folder)], install):
                done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
                if done.returncode:
                    pytest.skip(f"ddtop cannot be installed for Python {version} here: {done.stderr[-300:]}")
    return str(python)


def works(python: Path) -> bool:
    """Whether this Python is there and has all that ddtop imports."""
    if not python.exists():
        return False
    return (
        subprocess.run([str(python), "-c", "import ddtop.cli"], capture_output=True, check=False).returncode
        == 0
    )


def words_of(python: str, *words: object) -> list[str]:
    """`ddtop` by this Python; what is not closed is a warning, and a warning is a word too many."""
    return [python, "-X", "dev", "-W", "error::ResourceWarning", "-m", "ddtop.cli", *map(str, words)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="ddtop-pythons-", dir="/var/tmp"))
    try:
        with Rig(folder) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("version", CLIENT)
def test_the_client_streams_and_ends_without_a_word_too_many(version: str, tmp_path: Path) -> None:
    python, file = client(version), tmp_path / "run.ddtop"
    env = {**os.environ, "DDTOP_HOME": str(tmp_path / "home"), "PYTHONPATH": str(REPO)}
    argv = words_of(python, "connect", "local", "--record", file)
    run = subprocess.Popen(
        argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=tmp_path
    )
    until = time.monotonic() + HANG_S
    while time.monotonic() < until and not (file.exists() and _rtt(file)):
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=HANG_S)
    assert run.returncode == 130 and out == "", err
    assert "Traceback" not in err and "Warning" not in err and "Exception ignored" not in err, err


def _rtt(file: Path) -> bool:
    from ddtop.errors import DdtopError

    try:
        return read_state(file, check=False).host.rtt_ms is not None
    except DdtopError:
        return False


@pytest.mark.parametrize("version", CLIENT)
def test_the_client_measures_a_cell_over_ssh(version: str, rig: Rig, tmp_path: Path) -> None:
    python = client(version)
    plan, file = tmp_path / "plan.toml", tmp_path / "run.ddtop"
    plan.write_text(rig.plan())
    env = {**os.environ, "DDTOP_HOME": str(tmp_path / "home"), "PYTHONPATH": str(REPO)}
    argv = words_of(
        python, "connect", "demo", "--plan", plan, "--record", file, "--ssh-config", rig.world.ssh_config
    )
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=HANG_S, env=env, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    err = done.stderr
    assert "Traceback" not in err and "Warning" not in err and "Exception ignored" not in err, err
    assert [c.state for c in read_state(file).plan_cells] == ["done"]


@pytest.mark.parametrize("version", AGENT)
async def test_the_agent_streams_and_ends_without_a_word(
    version: str, state_dir: Path, tmp_path: Path
) -> None:
    python = sys.executable if sys.version_info[:2] == tuple(map(int, version.split("."))) else None
    python = python or pythons().get(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    log = tmp_path / "log"
    log.write_text("first\n")
    env = {**os.environ, "DDTOP_LEASE_DIR": str(tmp_path)}
    async with agent(state_dir, python=python, env=env) as host:
        assert host.hello.python.startswith(version + ".")
        found = await host.call("probe", timeout_s=10)
        assert found["lease"]["holder"] is None
        assert (await host.call("lease", action="take", run="r", who="x", grace_s=1))["held"]
        async with host.stream("file-follow", path=str(log), offset=0) as batches:
            async for batch in batches:
                assert batch[0]["text"] == "first"
                break
        assert host.stderr_tail() == ""
