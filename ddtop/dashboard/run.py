"""The way in: `run_dashboard` on sessions, for the command line."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import sys
import threading
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

    threading.Thread(target=_end_with_the_terminal, args=(sys.stdin.fileno(),), daemon=True).start()

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


def _end_with_the_terminal(stdin: int) -> None:
    """Ends this process once its terminal is gone. A shell that ends sends SIGHUP, but not to what was begun by `setsid` or
    `disown`: Textual would then wait for ever for what nobody reads, and its input thread would take a whole core."""
    if not hasattr(select, "poll"):
        return
    poll = select.poll()
    poll.register(stdin, 0)  # only an end is waited for, and that is always told
    for _fd, told in poll.poll():
        if told & (select.POLLHUP | select.POLLERR) and not told & select.POLLNVAL:
            os.kill(os.getpid(), signal.SIGHUP)
