"""Each of the six packages ddtop is built on does its work on a path of ddtop: its functions are really called there.

| package | path |
|---|---|
| textual | `DashboardApp` draws a session (`ddtop connect`, `replay`) |
| plotext | the dashboard's plots of results (`v`, `v`) |
| asyncssh | the SSH connector (`ddtop connect HOST`) |
| pynvml | `ddtop connect local --once` |
| httpx | `ddtop bench URL` asks the endpoint of itself; webhooks (tests/sweep/test_notify.py) |
| tomli | `ddtop plan check` |
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WATCH = """
import sys, threading
calls = set()
def seen(frame, event, arg):
    if event == "call":
        name = frame.f_globals.get("__name__", "")
    elif event == "c_call":
        name = getattr(arg, "__module__", None) or ""
    else:
        return
    if name.partition(".")[0] == {package!r}:
        calls.add(name)
        if len(calls) > 3:
            sys.setprofile(None)
threading.setprofile(seen)
"""
"""Functions of the package that run after it was imported: importing alone does not count."""

DASHBOARD = """
import asyncio
from ddtop.dashboard.app import DashboardApp
from tests.dashboard import story
from tests.dashboard.memory import MemorySession
from ddtop.dashboard.widgets.plots import PlotGrid
sys.setprofile(seen)
async def main():
    app = DashboardApp([MemorySession(story.running().out)])
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause(1.0)
        for key in ("v", "v"):
            await pilot.press(key)
            await pilot.pause(0.5)
        for _ in range(600):  # plots are drawn in threads, which a busy machine makes late
            grids = list(app.screen.query(PlotGrid))
            if grids and grids[0].shown is not None and not grids[0].drawing:
                break
            await pilot.pause(0.1)
asyncio.run(main())
"""

PATHS = {
    "textual": DASHBOARD,
    "plotext": DASHBOARD,
    "asyncssh": """
import asyncio, asyncssh, pathlib
from ddtop.errors import HostError
from ddtop.hosts.inventory import connector_for
config = pathlib.Path(sys.argv[1]) / "ssh_config"
config.write_text("Host box\\n HostName 127.0.0.1\\n Port 1\\n")
sys.setprofile(seen)
try:
    asyncio.run(connector_for("box", config_paths=[], ssh_config=[config], host_dir=None).connect())
except HostError as error:
    assert "127.0.0.1:1" in str(error)
else:
    raise AssertionError("something listens on port 1")
""",
    "pynvml": """
import pynvml
from ddtop.commands.connect import local_gpus
sys.setprofile(seen)
local_gpus()
""",
    "httpx": """
import httpx
from ddtop.commands.measure.endpoint import ask_endpoint
sys.setprofile(seen)
assert ask_endpoint("http://127.0.0.1:1").trouble
""",
    "tomli": """
import tomli
from pathlib import Path
from ddtop.plan import check_plan
from ddtop.paths import shipped
sys.setprofile(seen)
check_plan(shipped("plans") / "quick.toml")
""",
}


@pytest.mark.parametrize("package", PATHS)
def test_it_is_used(package: str, tmp_path: Path) -> None:
    script = (
        WATCH.format(package=package)
        + PATHS[package]
        + "\nsys.setprofile(None)\nprint(sorted(calls))\nassert calls"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
        env={**os.environ, "DDTOP_HOME": str(tmp_path)},
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
