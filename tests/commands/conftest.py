"""The command line as a person has it: real processes, a place of their own for recordings, and the demo's host."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ddtop.demo.machine import World
from ddtop.paths import shipped
from tests.commands.record_demo import write_recording
from tests.runner.conftest import rig  # noqa: F401 - the demo's machine, for live runners
from tests.waiting import HANG_S


@dataclass(frozen=True)
class Done:
    rc: int
    out: str
    err: str


@dataclass
class Cli:
    """`ddtop` as a process. `home`: where its recordings and settings are."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("DDTOP_THEME", "NO_COLOR", "DDTOP_DEMO_DIR")}
        return {**kept, "DDTOP_HOME": str(self.home), **self.env}

    def argv(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "ddtop.cli", *map(str, words)]

    def __call__(self, *words: object, stdin: str = "", seconds: float = HANG_S) -> Done:
        done = subprocess.run(
            self.argv(*words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=self.environ(),
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert "a bug in ddtop" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ(),
        )


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Places of this test's own, also for what runs within pytest: a lock in a person's own place would be met by others."""
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def ddtop(own_places: Path) -> Cli:
    return Cli(own_places)


@pytest.fixture(scope="session")
def kept_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kept run of the demo: a whole sweep with one start that failed."""
    path = tmp_path_factory.mktemp("kept") / "demo.ddtop"
    write_recording(path)
    return path


@pytest.fixture
def recording(kept_recording: Path, tmp_path: Path) -> Path:
    """A copy of it, where this test's ddtop keeps its own."""
    path = tmp_path / "home" / "data" / "runs" / "demo.ddtop"
    path.parent.mkdir(parents=True)
    shutil.copy(kept_recording, path)
    return path


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class DemoHost:
    """The demo's machine, served over SSH as `demo` of `ssh_config`."""

    world: World
    server: subprocess.Popen[str]

    @property
    def ssh_config(self) -> Path:
        return self.world.ssh_config

    def plan(self, folder: Path) -> Path:
        """The demo's plan for this machine, on a free port."""
        path = folder / "demo.toml"
        text = (shipped("plans") / "demo.toml").read_text()
        path.write_text(text.replace("port = 31997", f"port = {free_port()}"))
        return path

    @contextlib.contextmanager
    def engine(self, *args: str) -> Iterator[str]:
        """A running stand-in for SGLang on that machine; its URL."""
        port = free_port()
        shutil.copytree(
            self.world.root / "disk" / "Sim-27B", self.world.root / "shm" / "Sim-27B", dirs_exist_ok=True
        )
        shim = (
            self.world.root / "site" / "sglang"
        )  # named as the real one, so that it is found by its command line
        shim.mkdir(parents=True, exist_ok=True)
        (shim / "__init__.py").touch()
        (shim / "launch_server.py").write_text("from ddtop.demo.engine import main\n\nmain()\n")
        argv = ["-m", "sglang.launch_server", "--model-path", str(self.world.root / "shm" / "Sim-27B")]
        child = subprocess.Popen(
            [str(self.world.bin / "python3"), *argv, "--port", str(port), *args],
            cwd=self.world.home,
            env={
                **self.world.environment(),
                "SIM_LOAD_S": "0.1",
                "PYTHONPATH": f"{shim.parent}:{Path(__file__).parents[2]}",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(1200):
                with contextlib.suppress(urllib.error.URLError, OSError):
                    if urllib.request.urlopen(url + "/health", timeout=2).status == 200:
                        break
                time.sleep(0.05)
            else:
                pytest.fail("the stand-in engine did not become ready")
            yield url
        finally:
            child.terminate()
            child.wait(HANG_S)

    def engines(self) -> list[int]:
        """Engine processes on that machine."""
        found = []
        for pid in self.world.processes():
            with contextlib.suppress(OSError):
                if b"ddtop.demo.engine" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found


@pytest.fixture
def demo_host(tmp_path: Path) -> Iterator[DemoHost]:
    world = World(tmp_path / "machine")
    world.build()
    env = {**os.environ, "DDTOP_DEMO_DIR": str(world.root)}
    server = subprocess.Popen(
        [sys.executable, "-m", "ddtop.demo.server", str(world.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        world.write_ssh_config(int(server.stdout.readline()))
        yield DemoHost(world, server)
    finally:
        server.stdin.close()
        server.wait(HANG_S)
    assert not world.processes()
    assert not world.root.exists()
