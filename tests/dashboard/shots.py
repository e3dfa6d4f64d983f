"""Writes the pictures of the README: `python -m tests.dashboard.shots [FOLDER]`, `assets/` by default.

They show the scripted run of `story.py`, which is made up; SIMULATED stands in the header of each.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddtop.dashboard.app import DashboardApp
from ddtop.dashboard.watched import Watched
from ddtop.dashboard.widgets.plots import PlotGrid
from tests.dashboard import story
from tests.dashboard.memory import MemorySession


@dataclass(frozen=True)
class Shot:
    """One picture: a moment of the story, what is pressed then, in which size and theme."""

    name: str
    moment: str
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (120, 40)
    theme: str = "ddtop-dark"


SHOTS: Sequence[Shot] = (
    Shot("dashboard", "failed"),
    Shot("dashboard-light", "failed", theme="ddtop-light"),
    Shot("dashboard-80x24", "failed", size=(80, 24), theme="deuteranopia"),
    Shot("dashboard-200x60", "finished", size=(200, 60)),
    Shot("loading", "loading"),
    Shot("measuring", "running", size=(150, 40)),
    Shot("steps", "rebooted", ("r", "down", "space"), size=(110, 34)),
    Shot("results", "finished", ("v",), size=(170, 46)),
    Shot("plots", "finished", ("v", "v"), size=(120, 40)),
    Shot("cell", "finished", ("up", "up", "up", "enter"), size=(130, 40)),
    Shot("log", "failed", ("l",), size=(110, 24)),
    Shot("history", "finished", ("H",), size=(120, 30)),
)


def moments() -> dict[str, story.Script]:
    """The moments of the story that are shown."""
    rebooted = story.failed()
    story.rebooted(rebooted)
    return {
        "running": story.running(),
        "loading": story.loading(),
        "failed": story.failed(),
        "rebooted": rebooted,
        "finished": story.finished(),
    }


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
            return app.export_screenshot(title=f"ddtop · {story.HOST} · SIMULATED")


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


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "assets")
