"""`ddtop demo`: build the SIMULATED machine, serve it over SSH, run the real sweep on it, and show it.

Everything lives in one temporary folder, recordings included, and ends with the command.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddtop import paths
from ddtop.agent.host.state_folder import TMPFS, filesystem_of
from ddtop.commands.terminal import need_terminal
from ddtop.config import Settings, load_settings
from ddtop.demo.machine import World
from ddtop.errors import DdtopError, UsageError
from ddtop.journal.read.runs import remember
from ddtop.paths import shipped

START_S = 20.0


def run_demo(*, record: Path | None, keep: bool) -> int:
    """The command. With `record` headless, as `connect --record` is; else the dashboard."""
    if not sys.platform.startswith("linux"):
        raise UsageError(
            "the demo needs Linux",
            means="the agent runs from memory files (memfd), which other systems do not have",
            do="connect to a Linux host, or play a recording: ddtop replay FILE",
        )
    if record is None:
        need_terminal("ddtop demo --record FILE")
    else:
        remember(record)  # before DDTOP_HOME is that of the demo
    # The user's theme, keys and bell apply; the hosts of the settings do not.
    mine = load_settings()
    settings = Settings(theme=mine.theme, bell=mine.bell, keys=mine.keys)
    root = demo_folder((Path(tempfile.gettempdir()), Path("/var/tmp"), paths.data_dir().parent, Path.cwd()))
    try:
        world = World(root)
        world.build()
        os.environ["DDTOP_HOME"] = str(root / "ddtop")
        os.environ["DDTOP_DEMO_DIR"] = str(root)
        with _serving(world, keep):
            return _run(world, record, settings)
    finally:
        if keep:
            print(f"kept the demo's folder: {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)


def demo_folder(places: Iterable[Path]) -> Path:
    """A new folder in the first of `places` that lies on a disk: hosts keep their jobs where a reboot leaves them,
    and the agent refuses a tmpfs, which /tmp is on many machines. Raises UsageError."""
    for place in places:
        if filesystem_of(str(place)) not in TMPFS and os.access(place, os.W_OK):
            return Path(tempfile.mkdtemp(prefix="ddtop-demo-", dir=place))
    raise UsageError(
        "the demo needs a folder on a disk",
        means="the folders it tried are in memory (tmpfs) or not writable",
        do="name one: TMPDIR=/some/folder ddtop demo",
    )


def _run(world: World, record: Path | None, settings: Settings) -> int:
    from ddtop.commands.connect import show, starter
    from ddtop.journal.act.pending import viewer_name
    from ddtop.journal.read.session import LiveSession
    from ddtop.plan import parse_plan
    from ddtop.runner import RunOptions, run, spawn_runner

    plan_path = shipped("plans") / "demo.toml"
    text = plan_path.read_text(encoding="utf-8").replace("port = 31997", f"port = {free_port()}")
    plan, _ = parse_plan(text, name=str(plan_path), folder=plan_path.parent)
    options = RunOptions(
        host="demo",
        plan=plan,
        record=record,
        attended=record is None,
        ssh_config=world.ssh_config,
        simulated=True,
    )
    if record is not None:
        print("SIMULATED: the GPUs and the engine of this host are not real", file=sys.stderr)
        return run(options)
    spawned = spawn_runner(options)
    viewer = viewer_name()
    try:
        session = LiveSession(spawned.path, viewer)
        return show([session], viewer, settings, starter(world.ssh_config), farewell=False)
    finally:
        _end_runner(spawned.pid)
        print("The demo has ended; its SIMULATED host and its recording are deleted.")
        print("  record it:  ddtop demo --record demo.ddtop")
        print("              ddtop replay demo.ddtop, ddtop report demo.ddtop")
        print("  your host:  ddtop connect HOST    (HOST as in ~/.ssh/config)")


def _end_runner(pid: int) -> None:
    """Ends the runner at once: the demo's host ends with the demo, so there is nothing to restore."""
    with contextlib.suppress(OSError):
        os.kill(pid, 15)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and not _reaped(pid):
            time.sleep(0.05)
        if not _reaped(pid):
            os.kill(pid, 9)


def _reaped(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _serving(world: World, keep: bool) -> Iterator[None]:
    """Runs the demo's SSH server as a child. It ends and removes its folder when its standard input closes."""
    child = subprocess.Popen(
        [sys.executable, "-m", "ddtop.demo.server", str(world.root), *(["keep"] if keep else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None and child.stdin is not None and child.stderr is not None
    try:
        line = child.stdout.readline()
        if not line.strip().isdigit():
            child.wait(START_S)
            raise DdtopError(f"the demo's SSH server did not start: {child.stderr.read().strip()[-500:]}")
        world.write_ssh_config(int(line))
        yield
    finally:
        child.stdin.close()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
