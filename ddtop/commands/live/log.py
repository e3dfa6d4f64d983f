"""`log`: the server's log lines of a run, as recorded, and as they come."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Literal, cast

from ddtop.commands.live.read import as_json, which
from ddtop.dashboard.log_window import Entry, Filter, FilterError, LogBuffer, LogIndex, level_of
from ddtop.errors import UsageError, plain
from ddtop.journal.act.now import known
from ddtop.journal.locks import is_live
from ddtop.journal.read.reader import Follower

FOLLOW_S = 0.2
KINDS = ("log", "log-gap", "kernel", "restart-started")
"""Events that say something of logs."""
MOST = 200_000
"""Lines of the past that are looked through, the newest."""
STARTS = ("this", "previous", "all")


def log(
    run: str | None,
    *,
    follow: bool,
    text: str,
    errors: bool,
    start: str,
    unit: str | None,
    last: int,
    json_out: bool,
) -> int:
    """Prints the lines. Returns the exit code."""
    if start not in STARTS:
        raise UsageError(f"log --start: `{start}` is none", do=f"name one of {', '.join(STARTS)}")
    path = which(run, live=follow)
    buffer = LogBuffer(MOST, whole=True)
    wanted = Filter(
        include=text,
        regex=True,
        level="error" if errors else "debug",
        start=cast(Literal["this", "previous", "all"], start),
        unit=unit,
    )
    try:
        index = LogIndex(buffer, wanted)
    except FilterError as error:
        raise UsageError(
            f"log --filter: {error}", do="escape what is meant literally: \\[ \\( \\."
        ) from error
    with closing(Follower(path, kinds=KINDS)) as follower:
        live = is_live(path)
        while batch := follower.poll():
            for _, event in batch:
                buffer.take(event)
        index.sync()
        rows = index.rows[-last:] if last else index.rows
        for number in rows:
            _print(buffer[number], json_out=json_out)
        if follow:
            shown = buffer.end
            for entry in _new(follower, buffer, wanted, shown, live=live):
                _print(entry, json_out=json_out)
            print("the run has ended, or its runner is gone", file=sys.stderr)
    return 0


def _new(follower: Follower, buffer: LogBuffer, wanted: Filter, shown: int, *, live: bool) -> Iterator[Entry]:
    """Lines that come from now on, until no runner writes any more. Those of a new start count as of this one."""
    index = LogIndex(buffer, Filter(wanted.include, "", True, wanted.level, "all", wanted.unit))
    path = follower.path
    while live:
        live = is_live(path)  # asked first, so that what came before its end is read below
        while batch := follower.poll():
            for _, event in batch:
                buffer.take(event)
        index.sync()
        for number in index.rows:
            if number >= shown:
                yield buffer[number]
        shown = buffer.end
        if live:
            sys.stdout.flush()
            time.sleep(FOLLOW_S)


def _print(entry: Entry, *, json_out: bool) -> None:
    line = entry.line
    if json_out:
        values = known(
            schema=1,
            unit=entry.unit,
            at_s=line.at_s,
            text=line.text,
            level=level_of(line),
            start=entry.start,
            gap=entry.gap or None,
            cursor=line.cursor,
        )
        print(as_json(values))
        return
    at = time.strftime("%H:%M:%S ", time.localtime(line.at_s)) if line.at_s is not None else ""
    print(f"{at}{'-- ' if entry.gap else ''}{plain(line.text)}")
