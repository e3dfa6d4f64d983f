"""Which run is meant, and what it is now."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

import msgspec

from ddtop.errors import JournalError, NobodyError, UsageError
from ddtop.events import AnyEvent, CellStarted, Event
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.locks import is_live, live_recordings
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.read.runs import list_runs, resolve_path, resolve_run

PROGRESS = "cell-progress"
BULK = frozenset(
    {"gpu", "log", "server-figures", "rtt", "bound", "cell-outputs", "cell-series", "provenance", "probe"}
)
"""Kinds of events that a status does not need: nearly all of a long recording."""

KINDS = tuple(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent))
APPEAR_S = 10.0
"""How long a file that is to be recorded is waited for: its runner may have been started a moment ago."""


@dataclass
class Now:
    """A run as it was read a moment ago."""

    path: Path
    live: bool
    state: State = field(default_factory=State)
    events: list[tuple[int, Event]] = field(default_factory=list)
    """(seq, event) of those that were read, in order: all but BULK, and of reports those of the last cell alone."""


def read_now(path: Path) -> Now:
    """The run recorded at `path`. Raises JournalError where there is none."""
    if not path.is_file():
        raise JournalError(
            f"there is no recording {path}", means="it was moved or deleted", do="list recordings: ddtop runs"
        )
    now = Now(path, is_live(path))  # asked first, so that all that a runner wrote before its end is read
    with JournalReader(path, check=False) as reader:
        last = reader.last_seq()
        now.events = reader.kinds(kind for kind in KINDS if kind not in BULK and kind != PROGRESS)
        begun = max((seq for seq, event in now.events if isinstance(event, CellStarted)), default=0)
        now.events = sorted([*now.events, *reader.kinds([PROGRESS], begun)], key=itemgetter(0))
    for seq, event in now.events:
        apply(now.state, event, seq)
    now.state.seq = max(last, now.state.seq)
    return now


def which(text: str | None, *, live: bool = False) -> Path:
    """The recording that is meant; without `text`, that of the only runner of this machine.

    `live`: a file that is not there yet is waited for, since its runner may just be starting. Raises NobodyError where no
    run is live, UsageError where several are or the name fits none or several.
    """
    if text is not None:
        path = Path(text).expanduser()
        until = time.monotonic() + (APPEAR_S if live and path.suffix == ".ddtop" else 0.0)
        while not path.exists() and time.monotonic() < until and not _known(text):
            time.sleep(0.2)
        return resolve_path(text)
    found = live_recordings()
    if len(found) == 1:
        return found[0]
    if not found:
        known = [f"{r.path.stem} ({r.state})" for r in list_runs(elsewhere=True)[:3]]
        means = "there is nothing to watch or to steer"
        raise NobodyError(
            "no run is live on this machine",
            means=f"{means}; recorded here, newest first: {', '.join(known)}" if known else means,
            do="start one: ddtop connect HOST --plan PLAN --detach; or name a recording: ddtop runs lists them",
        )
    raise UsageError(
        f"{len(found)} runs are live here: {', '.join(str(p) for p in found)}",
        do="name one: its run id, host, plan or recording",
    )


def _known(text: str) -> bool:
    try:
        resolve_run(text)
    except UsageError:
        return False
    return True


def as_json(values: Any) -> str:
    """JSON on one line, for standard output."""
    return msgspec.json.encode(values).decode()
