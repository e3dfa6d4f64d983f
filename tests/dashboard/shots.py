"""Writes the pictures of the README: `python -m tests.dashboard.shots [FOLDER]`, `assets/` by default.

Most show the kept run of the demo (tests/data/demo-run/pictures.jsonl): the real program with SIMULATED GPUs and engine. What the demo
does not come to (a reboot, a long load, eight configurations) is of the scripted run of `story.py`, which is made up.
SIMULATED stands in the header of each. The report is photographed by headless Chromium, where there is one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddtop import events as ev
from ddtop.dashboard.app import DashboardApp
from ddtop.dashboard.watched import Watched
from ddtop.dashboard.widgets.plots import PlotGrid
from ddtop.events import decode_event
from tests.commands.record_demo import PICTURES, write_recording
from tests.dashboard import story
from tests.dashboard.memory import MemorySession
from tests.dashboard.test_groups import script as groups


@dataclass(frozen=True)
class Shot:
    """One picture: a moment of the demo (`demo-…`) or of the story, what is pressed then, in which size and theme."""

    name: str
    moment: str
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (120, 40)
    theme: str = "ddtop-dark"


SHOTS: Sequence[Shot] = (
    Shot("dashboard", "demo-failed"),
    Shot("dashboard-light", "demo-failed", theme="ddtop-light"),
    Shot("dashboard-80x24", "demo-failed", size=(80, 24), theme="deuteranopia"),
    Shot("dashboard-200x60", "demo-ended", size=(200, 60)),
    Shot("alert", "demo-failed", ("a",)),
    Shot("measuring", "demo-measuring"),
    Shot("results", "demo-ended", ("v",), size=(150, 40)),
    Shot("plots", "demo-ended", ("v", "v")),
    Shot("groups", "groups", ("G",), size=(100, 16)),
    Shot("loading", "loading"),
    Shot("steps", "rebooted", ("r", "down", "space"), size=(110, 34)),
    Shot("cell", "finished", ("up", "up", "up", "enter"), size=(130, 40)),
    Shot("log", "failed", ("l",), size=(110, 24)),
    Shot("history", "finished", ("H",), size=(120, 30)),
)


def demo_moments() -> dict[str, story.Script]:
    """The moments of the demo that are shown: its alert, the fullest report of a measurement, its end."""
    events: list[ev.Event] = [decode_event(line) for line in PICTURES.read_text().splitlines()]
    failed = next(n for n, e in enumerate(events) if isinstance(e, ev.AlertRaised))
    seen = [
        (e.ttft.n, n) for n, e in enumerate(events) if isinstance(e, ev.CellProgress) and e.ttft and e.tpot
    ]
    ends = {"demo-failed": failed, "demo-measuring": max(seen)[1], "demo-ended": len(events) - 1}
    out = {}
    for name, last in ends.items():
        out[name] = story.Script(events[last].at_s - 3)  # `take` looks 4 s later
        out[name].out = events[: last + 1]
    return out


def moments() -> dict[str, story.Script]:
    """All moments that are shown."""
    rebooted = story.failed()
    story.rebooted(rebooted)
    return demo_moments() | {
        "groups": groups(),
        "loading": story.loading(),
        "failed": story.failed(),
        "rebooted": rebooted,
        "finished": story.finished(),
    }


def photograph_report(target: Path) -> None:
    """The first page of the demo's report as PNG. Without Chromium the picture is left as it is."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print(f"{target}: left as it is, no Chromium on PATH")
        return
    with tempfile.TemporaryDirectory() as folder:
        recording, page = Path(folder) / "demo.ddtop", Path(folder) / "report.html"
        write_recording(recording, PICTURES)
        env = {**os.environ, "DDTOP_HOME": f"{folder}/home"}
        report = [sys.executable, "-m", "ddtop.cli", "report", str(recording), "--html", str(page)]
        subprocess.run(report, env=env, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            [
                *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--screenshot={target}", "--window-size=1280,1100", page.as_uri()),
            ],
            check=True,
            capture_output=True,
        )
    print(target)


async def take(shot: Shot, script: story.Script) -> str:
    """The SVG of one picture."""
    now = script.now + 4
    time.time = lambda: now
    Watched._size_b = lambda self: 3_100_000  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        app = DashboardApp(
            [MemorySession(script.out)],
            theme=shot.theme,
            themes_folder=Path(folder),
            fault_log=Path(folder) / "faults.log",
            viewer="you@laptop",
        )
        async with app.run_test(size=shot.size) as pilot:
            await pilot.pause(0.3)
            for key in shot.keys:
                await pilot.press(key)
                await pilot.pause(0.1)
            for _ in range(3):
                app.refresh_screens()
                await pilot.pause(0.1)
                while any(grid.drawing for grid in app.screen.query(PlotGrid)):
                    await pilot.pause(0.05)  # plots are made and drawn in threads
            if app.faults.faults:
                raise SystemExit(f"{shot.name}: {app.faults.faults}")
            return app.export_screenshot(title=f"ddtop · {script.out[-1].host} · SIMULATED")


def main(folder: Path) -> None:
    """Write all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TZ"] = "UTC"
    time.tzset()
    known = moments()
    for shot in SHOTS:
        path = folder / f"{shot.name}.svg"
        path.write_text(asyncio.run(take(shot, known[shot.moment])), encoding="utf-8")
        print(path)
    photograph_report(folder / "report.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "assets")
