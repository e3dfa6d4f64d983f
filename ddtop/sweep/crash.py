"""A bug of ddtop ends a run with a sentence, never with a traceback on a person's screen."""

from __future__ import annotations

import contextlib
import os
import time
import traceback

from ddtop import paths
from ddtop.errors import JournalError
from ddtop.sweep.controller import Outcome
from ddtop.sweep.shared.tasks import first_of


def crashed(error: Exception) -> Outcome:
    """A bug of ours ends the run with a sentence; what a developer needs goes to ddtop's own log.

    An error of the recording itself (a full disk) is not ours to write into it, and is raised.
    """
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
    return Outcome(word="crashed", reason=f"{what}; connect again to go on; see {log}")
