"""Whether the dashboard can be drawn here, asked before anything is started for it."""

from __future__ import annotations

import os
import sys

from ddtop.errors import UsageError

DUMB = ("dumb", "unknown")
"""Values of TERM for which Rich places nothing and colours nothing: the screen would lie there in pieces."""


def need_terminal(instead: str) -> None:
    """Raises UsageError where the screen cannot be drawn; `instead` is what to do then."""
    for stream, name in ((sys.stdin, "input"), (sys.stdout, "output"), (sys.stderr, "error")):
        if not stream.isatty():
            raise UsageError(f"the dashboard needs a terminal, and standard {name} is none", do=instead)
    term = os.environ.get("TERM", "")
    if term.lower() in DUMB:
        raise UsageError(
            f"the dashboard cannot be drawn on this terminal: TERM is {term}",
            means="such a terminal takes text line by line, and has no cursor to place",
            do=f"set TERM to what the terminal is, such as xterm-256color; or {instead}",
        )
