"""Whether the dashboard can be drawn here, asked before anything is started for it."""

from __future__ import annotations

import os
import sys

from ddtop.errors import UsageError

DUMB = ("dumb", "unknown")
"""Values of TERM for which Rich neither moves the cursor nor uses colour: the screen would be unreadable."""


def need_terminal(instead: str) -> None:
    """Raises UsageError where the dashboard cannot be drawn. `instead`: the command to use without it."""
    for stream, name in ((sys.stdin, "input"), (sys.stdout, "output"), (sys.stderr, "error")):
        if not stream.isatty():
            raise UsageError(
                f"the dashboard needs a terminal, but standard {name} is not a terminal", do=instead
            )
    term = os.environ.get("TERM", "")
    if term.lower() in DUMB:
        raise UsageError(
            f"the dashboard cannot be drawn on this terminal: TERM is {term}",
            means="such a terminal prints line by line and cannot place a cursor",
            do=f"set TERM to your terminal's type, such as xterm-256color, or: {instead}",
        )
