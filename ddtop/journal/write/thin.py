"""`[record] log_mib`: when the logs grow too large, the middle is thinned, and a LogGap says so.

Starts, the surroundings of alerts and the ends of cells are kept whole, and so is the newest part.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ddtop.events import LogGap, encode

KEEP_BEFORE_ALERT = 100
KEEP_AFTER_ALERT = 50
KEEP_BEFORE_CELL_END = 20
"""Log events (each of one or more lines) kept around these marks."""

SHRINK_TO = 0.75
NEWEST = 0.25
"""Parts of the limit: what thinning leaves, and how much of the end it never touches."""

LOG_BYTES_SQL = "SELECT coalesce(sum(length(text) + coalesce(length(cursor), 0) + 60), 0) FROM log"

_START, _ENDS, _ALERT = "restart-started", ("restart-ready", "restart-failed"), "alert"
_CELL_END = "cell-measured"


class LogRef(NamedTuple):
    """One log event: where it is, of which unit, how many bytes and lines."""

    seq: int
    unit: str
    size: int
    lines: int


class Mark(NamedTuple):
    """An event that makes the log around it worth keeping."""

    seq: int
    kind: str


def choose(logs: Sequence[LogRef], marks: Sequence[Mark], limit: float) -> list[LogRef]:
    """The log events to drop, the oldest first, so that the rest is at most 0.75 × `limit` bytes.

    `logs` and `marks` are in seq order. May be less than needed (even nothing) where what must be kept is
    more than that.
    """
    total = float(sum(log.size for log in logs))
    keep = _kept(logs, marks)
    newest, at = 0.0, len(logs)
    while at > 0 and newest < NEWEST * limit:
        at -= 1
        newest += logs[at].size
    drop: list[LogRef] = []
    for index, log in enumerate(logs[:at]):
        if total <= SHRINK_TO * limit:
            break
        if index not in keep:
            drop.append(log)
            total -= log.size
    return drop


def _kept(logs: Sequence[LogRef], marks: Sequence[Mark]) -> set[int]:
    seqs = [log.seq for log in logs]
    keep: set[int] = set()
    started: int | None = None
    for mark in marks:
        here = bisect_left(seqs, mark.seq)
        if mark.kind == _START:
            started = here
        elif mark.kind in _ENDS and started is not None:
            keep.update(range(started, here))
            started = None
        elif mark.kind == _ALERT:
            keep.update(range(max(0, here - KEEP_BEFORE_ALERT), here + KEEP_AFTER_ALERT))
        elif mark.kind == _CELL_END:
            keep.update(range(max(0, here - KEEP_BEFORE_CELL_END), here))
    if started is not None:
        keep.update(range(started, len(logs)))
    return keep


def thin(db: sqlite3.Connection, limit: float, log_mib: float) -> float:
    """Thin the logs of the recording behind `db`, in a transaction; returns the bytes of log that are left.

    Each run of dropped events of one unit becomes one LogGap in its place. Raises sqlite3.Error.
    """
    logs = [
        LogRef(*row)
        for row in db.execute(
            "SELECT e.seq, json_extract(e.body, '$.unit'), "
            "sum(length(l.text) + coalesce(length(l.cursor), 0) + 60), count(*) "
            "FROM events e JOIN log l USING (seq) WHERE e.kind = 'log' GROUP BY e.seq ORDER BY e.seq"
        )
    ]
    kinds = (_START, *_ENDS, _ALERT, _CELL_END)
    marks = [
        Mark(*row)
        for row in db.execute(
            f"SELECT seq, kind FROM events WHERE kind IN ({', '.join('?' * len(kinds))}) ORDER BY seq", kinds
        )
    ]
    drop = choose(logs, marks, limit)
    if drop:
        db.execute("BEGIN IMMEDIATE")
        for run in _runs(logs, drop):
            _replace(db, run, log_mib)
        db.execute("COMMIT")
    return float(sum(log.size for log in logs) - sum(log.size for log in drop))


def _runs(logs: Sequence[LogRef], drop: Sequence[LogRef]) -> list[list[LogRef]]:
    """Dropped events grouped so that between those of a group no log event of the same unit is kept."""
    dropped = {log.seq for log in drop}
    runs: list[list[LogRef]] = []
    open_run: dict[str, list[LogRef]] = {}
    for log in logs:
        if log.seq not in dropped:
            open_run.pop(log.unit, None)
        elif log.unit in open_run:
            open_run[log.unit].append(log)
        else:
            open_run[log.unit] = [log]
            runs.append(open_run[log.unit])
    return runs


def _replace(db: sqlite3.Connection, run: Sequence[LogRef], log_mib: float) -> None:
    first = run[0]
    at_s, mono_s, host = db.execute(
        "SELECT at_s, mono_s, host FROM events WHERE seq = ?", (first.seq,)
    ).fetchone()
    lines = sum(log.lines for log in run)
    reason = f"{lines} lines left out here, to keep the logs under [record] log_mib = {log_mib:g}"
    gap = LogGap(at_s=at_s, mono_s=mono_s, host=host, unit=first.unit, reason=reason)
    db.executemany("DELETE FROM log WHERE seq = ?", [(log.seq,) for log in run])
    db.executemany("DELETE FROM events WHERE seq = ?", [(log.seq,) for log in run[1:]])
    db.execute(
        "UPDATE events SET kind = 'log-gap', body = ? WHERE seq = ?", (encode(gap).decode(), first.seq)
    )
