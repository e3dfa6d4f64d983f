"""The way in: `run_dashboard` on sessions, for the command line."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddtop.dashboard.app import StartRunner
    from ddtop.journal.read.session import Session


def run_dashboard(
    sessions: Sequence[Session],
    *,
    theme: str | None = None,
    keymap: Mapping[str, str] | None = None,
    bell: bool = True,
    start_runner: StartRunner | None = None,
    viewer: str | None = None,
    themes_folder: Path | None = None,
    fault_log: Path | None = None,
    looks: Path | None = None,
    farewell: bool = True,
) -> int:
    """Show `sessions` until the person leaves; returns the exit code.

    `keymap` maps binding ids (`dashboard/keys.py`) to keys. `start_runner` starts a runner for a recording that
    none holds, and answers with a sentence; without it a command to such a recording is refused with words.
    `viewer` is the name under which commands are given, and must be the one the sessions were made with.
    What is printed after leaving says how to come back and how to stop the run; without `farewell` nothing is.
    """
    if not sessions:
        print("ddtop: there is no recording to show", file=sys.stderr)
        return 2
    # Textual reads from standard input and draws on standard error; both must be the terminal.
    for stream, name in ((sys.stdin, "input"), (sys.stdout, "output"), (sys.stderr, "error")):
        if not stream.isatty():
            print(
                f"ddtop: the dashboard needs a terminal, and standard {name} is not a terminal.\n"
                "  do:    use --record FILE for a run without a dashboard",
                file=sys.stderr,
            )
            return 2
    from ddtop.dashboard.app import DashboardApp

    app = DashboardApp(
        sessions,
        theme=theme,
        keymap=keymap,
        bell=bell,
        start_runner=start_runner,
        viewer=viewer,
        themes_folder=themes_folder,
        fault_log=fault_log,
        looks=looks,
    )

    # What is loaded stays: the collector need not look at it again and again while keys wait.
    gc.collect()
    gc.freeze()

    async def shown() -> int | None:
        try:
            return await app.run_async()
        finally:
            await app.goodbye()

    code = asyncio.run(shown())
    if app.words and farewell:
        from ddtop.dashboard.draw.paint import clean

        print("\n".join(clean(row) for row in app.words.splitlines()))
    return app.return_code or code or 0
