"""Exit codes of the commands on a run. docs/commands.md has them in one table."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """What became of it."""

    DONE = 0
    REFUSED = 12
    NOBODY = 13
    """No runner is alive, or none answered in time: nothing was done, and nothing will happen."""
    UNKNOWN_TARGET = 14
    ENDED = 15
    """`wait`: the run ended before what was waited for."""
    TIMED_OUT = 124
    """`wait`: as `timeout` has it."""
