"""The events that make a state, without those that leave nothing in it: a day's recording is then read in a third of a second.

Nine tenths of a long recording are readings of which the fold keeps the newest (GPU samples, log lines, round trips) or what
a CellSeries says again once a cell is over (the server's figures, the load generator's reports). All other events are read.
The state is that of all events, with one exception: of log lines the last LINES of all units are read, so tails that are older
are not there, and `LogTail.total` counts from there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec

from ddtop.events import (
    AnyEvent,
    CellSeries,
    CellStarted,
    CellStateSet,
    Event,
    LogRead,
    RunStarted,
)
from ddtop.journal.fold.series import GPU_HISTORY, unpack
from ddtop.journal.tables import last_lines, last_of, last_samples, read_part, tag_of

LINES = 20_000
REPORTS = ("server-figures", "cell-progress")
"""Reports of a try at a cell."""
LOGS = ("log", "log-gap")
BULK = ("gpu", "rtt", *LOGS, *REPORTS)
RARE = tuple(tag for kind in get_args(AnyEvent) if (tag := tag_of(kind)) not in BULK)

Numbered = tuple[int, Event]


def short(db: sqlite3.Connection, until: int) -> tuple[list[Numbered], list[tuple[int, str]]]:
    """((seq, event) in order, what could not be read) up to seq `until`. Raises sqlite3.Error."""
    found: dict[int, Event] = {}
    unread: list[tuple[int, str]] = []

    def read(first: int, last: int, kinds: Sequence[str]) -> None:
        events, bad = read_part(db, first, last, kinds)
        found.update(events)
        unread.extend(bad)

    def read_one(seq: int) -> None:
        """An event for its time alone: whoever folds an absence of the runner asks when the event before it was."""
        events, _ = read_part(db, seq, seq, BULK) if seq not in found else ([], [])
        found.update((at, _without_lines(event)) for at, event in events)

    db.execute("BEGIN")  # all is read as of one moment, whatever a runner writes meanwhile
    try:
        read(0, until, RARE)
        rare = sorted(found.items())
        samples = last_samples(db, GPU_HISTORY, until)
        read(samples, until, ("gpu",))
        for first, last in reports(rare, until):
            before = last_of(db, first, "gpu")  # the power of this moment is that of the sample before it
            read(before, min(last, samples), ("gpu",))
            read(first, last, REPORTS)
        read(last_lines(db, LINES, until), until, LOGS)
        read_one(last_of(db, until, "rtt"))
        read_one(last_of(db, until))
        for seq, event in rare:
            if isinstance(event, RunStarted):
                read_one(last_of(db, seq - 1))
    finally:
        db.execute("ROLLBACK")
    return sorted(found.items()), sorted(unread)


def _without_lines(event: Event) -> Event:
    return msgspec.structs.replace(event, lines=()) if isinstance(event, LogRead) else event


def reports(events: Iterable[Numbered], until: int) -> list[tuple[int, int]]:
    """From which seq to which the reports of tries lie that no CellSeries has. Pure."""
    kept = {
        (event.cell_id, event.attempt): seq
        for seq, event in events
        if isinstance(event, CellSeries) and unpack(event) is not None
    }
    out: list[tuple[int, int]] = []
    begun: dict[str, int] = {}
    for seq, event in events:
        if isinstance(event, CellStarted):
            _close(out, begun.pop(event.cell_id, None), seq)
            if kept.get((event.cell_id, event.attempt), 0) < seq:
                begun[event.cell_id] = seq
        elif isinstance(event, CellStateSet) and event.state != "running":
            _close(out, begun.pop(event.cell_id, None), seq)
    return _joined([*out, *((first, until) for first in begun.values())])


def _close(out: list[tuple[int, int]], first: int | None, last: int) -> None:
    if first is not None:
        out.append((first, last))


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in order, those that overlap as one."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out
