"""The demo as a newcomer meets it: on a real terminal, with the keys it names, and nothing left behind after it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtop.demo.machine import World
from tests.terminal import Terminal
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the demo's host is Linux only")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Terminal]:
    """`ddtop demo` on a terminal, its folder made under `tmp_path`."""
    env = {k: v for k, v in os.environ.items() if k not in ("DDTOP_HOME", "NO_COLOR", "DDTOP_DEMO_DIR")}
    env |= {"TMPDIR": str(tmp_path), "HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    opened = Terminal([sys.executable, "-m", "ddtop.cli", "demo"], env=env)
    try:
        yield opened
    finally:
        opened.close()


def after_the_screen(demo: Terminal) -> str:
    """What was printed after the dashboard gave the terminal back (the log it showed has tracebacks of its own)."""
    return demo.raw.rpartition(b"\x1b[?1049l")[2].decode(errors="replace")


def folder(tmp_path: Path) -> Path:
    (found,) = tmp_path.glob("ddtop-demo-*")
    return found


def assert_nothing_left(root: Path, seconds: float) -> None:
    """No process of the demo's machine, no process that names its folder, and no folder."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (root.exists() or left_of(root)):
        time.sleep(0.1)
    assert not left_of(root), f"still run: {left_of(root)}"
    assert not root.exists(), sorted(path.name for path in root.iterdir())


def left_of(root: Path) -> list[str]:
    found = [f"{pid} of its machine" for pid in World(root).processes()]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if root.name in words:
            found.append(f"{entry.parent.name} {words}")
    return found


def newcomer(demo: Terminal, tmp_path: Path, dashboard_s: float) -> Path:
    """Sees SIMULATED, the first cell done, the alert; presses `s` and enter; sees the run end; leaves. The demo's folder."""
    began = time.monotonic()
    demo.wait_for("SIMULATED", seconds=dashboard_s)
    print(f"the dashboard after {time.monotonic() - began:.1f} s")
    root = folder(tmp_path)
    demo.wait_for("1 of 24", seconds=HANG_S)
    seen = demo.wait_for(
        "NOT STARTING?", "A weight file is damaged", "re-stage and retry b16", seconds=HANG_S
    )
    print(f"the alert after {time.monotonic() - began:.1f} s")
    assert "SIMULATED" in seen
    demo.press("s")
    demo.wait_for("enter", "b16", seconds=HANG_S)
    demo.press("\r")
    done = demo.wait_for("17 of 24", seconds=4 * HANG_S)
    print(f"all cells after {time.monotonic() - began:.1f} s")
    assert "NOT STARTING?" not in done
    assert re.search(r"b16\s+\d", done), "the cells of the configuration that was retried are measured"
    demo.press("q")
    assert demo.wait_end(HANG_S) == 0
    said = after_the_screen(demo)
    assert "Traceback" not in said
    assert "Warning" not in said
    assert "The demo has ended" in said
    assert "come back" not in said, "there is nothing to come back to"
    return root


def test_a_newcomer_meets_the_alert_and_sees_the_run_end(demo: Terminal, tmp_path: Path) -> None:
    root = newcomer(demo, tmp_path, HANG_S)
    assert_nothing_left(root, HANG_S)
    assert not (tmp_path / "home" / ".local").exists(), "nothing is written outside the demo's folder"


@pytest.mark.stories
def test_make_demo_from_a_fresh_clone(tmp_path: Path) -> None:
    """Installation included (it asks the package index): under 90 s to the dashboard, on a machine that is not busy."""
    busy = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("DDTOP_HOME", "NO_COLOR", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL")
    }
    terminal = Terminal(["make", "-C", str(clone), "demo"], env={**env, "TMPDIR": str(tmp_path)})
    try:
        assert_nothing_left(newcomer(terminal, tmp_path, 400 if busy else 90), HANG_S)
    finally:
        terminal.close()


@pytest.mark.parametrize("way", ["ctrl-c", "closed", "killed", "terminated"])
def test_however_it_ends_nothing_is_left(demo: Terminal, tmp_path: Path, way: str) -> None:
    demo.wait_for("SIMULATED", "load", seconds=HANG_S)  # a server is being started
    root = folder(tmp_path)
    assert World(root).processes(), "its machine runs"
    match way:
        case "ctrl-c":
            demo.press("\x03")
            demo.wait_end(HANG_S)
            assert "Traceback" not in after_the_screen(demo)
        case "closed":
            demo.hang_up()
        case "killed":
            os.kill(demo.process.pid, signal.SIGKILL)
        case "terminated":
            os.kill(demo.process.pid, signal.SIGTERM)
            demo.wait_end(HANG_S)
            assert "Traceback" not in after_the_screen(demo)
    demo.process.wait(HANG_S)
    assert_nothing_left(root, HANG_S)
