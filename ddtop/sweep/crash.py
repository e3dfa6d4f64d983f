"""A bug in ddtop ends a run with one sentence; the traceback goes to ddtop's own log."""

from __future__ import annotations

import contextlib
import os
import time
import traceback

from ddtop import paths
from ddtop.errors import JournalError
from ddtop.sweep.shared.context import Outcome
from ddtop.sweep.shared.tasks import first_of


def crashed(error: Exception) -> Outcome:
    """The outcome of a run that a bug ended. An error of the recording itself (a full disk) is raised instead."""
    lost = first_of(error, JournalError)
    if lost is not None:
        raise lost from error
    log = paths.state_dir() / "ddtop.log"
    with contextlib.suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out:
            out.write(f"{time.strftime('%F %T')} runner {os.getpid()}\n")
            traceback.print_exception(error, file=out)
    root = first_of(error, Exception) or error
    what = f"a bug in ddtop: {type(root).__name__}: {root}"
    return Outcome(
        word="crashed", reason=f"{what}; run the same command again to resume; the traceback is in {log}"
    )
