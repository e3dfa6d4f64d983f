"""Reading a recording: all of it, what came since, or a few kinds; from any process, at any time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from ddtop.events import Event
from ddtop.journal.database import fail, open_for_reading, tidy
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.short import short
from ddtop.journal.tables import (
    last_of,
    last_seq,
    read_kinds,
    read_rows,
    read_texts,
    read_times,
    read_watts,
    time_of,
)

CHUNK = 2000
LEAP = 20_000
"""So many events are read one by one; of more, those that leave something in the state alone."""


class JournalReader:
    """A recording opened for reading only."""

    def __init__(self, path: Path, *, check: bool = True) -> None:
        """`check` runs a quick check of the whole file first, as a file from elsewhere deserves.

        Raises JournalError, with a sentence, where it is no recording, damaged, or of a newer version.
        """
        self.path = path
        self._db = open_for_reading(path, check=check)
        self.unreadable: list[tuple[int, str]] = []
        """(seq, why) of events this version could not read; the rest was read all the same."""

    def since(self, seq: int = 0, limit: int | None = None) -> Iterator[tuple[int, Event]]:
        """(seq, event) of all events after `seq`, in order, at most `limit`. Raises JournalError."""
        left = limit
        after = seq
        while left is None or left > 0:
            batch, after_now = self._read(after, CHUNK if left is None else min(CHUNK, left))
            if after_now == after:
                return
            after = after_now
            if left is not None:
                left -= len(batch)
            yield from batch

    def batch(self, after: int, limit: int, kinds: Sequence[str] = ()) -> tuple[list[tuple[int, Event]], int]:
        """Up to `limit` events after seq `after` (of these kinds, if any are named), and the seq from which to read on. GPU
        samples before the last one have what is drawn alone. Raises JournalError."""
        return self._read(after, limit, kinds, drawn=True)

    def short(self, until: int | None = None) -> list[tuple[int, Event]]:
        """The events that make the state up to seq `until` (None: the last one), without those that leave nothing in it: see
        `short.py`. Raises JournalError."""
        try:
            events, unread = short(self._db, last_seq(self._db) if until is None else until)
        except sqlite3.Error as error:
            fail(self.path, error)
        self.unreadable += unread
        return events

    def watts(self) -> Iterator[tuple[float, float, int, int, float, int]]:
        """Power of all GPUs together, sample by sample: see `read_watts`. Raises JournalError."""
        try:
            yield from read_watts(self._db)
        except sqlite3.Error as error:
            fail(self.path, error)

    def texts(self, after: int, before: int, n: int) -> list[str]:
        """The last `n` log lines that came between two places, the oldest first. Raises JournalError."""
        try:
            return read_texts(self._db, after, before, n)
        except sqlite3.Error as error:
            fail(self.path, error)

    def kinds(self, kinds: Iterable[str], after: int = 0) -> list[tuple[int, Event]]:
        """All events of a few kinds (their tags) after seq `after`, in order: quick, for they are few. Raises JournalError."""
        try:
            return read_kinds(self._db, kinds, after)
        except sqlite3.Error as error:
            fail(self.path, error)

    def last_seq(self) -> int:
        """Seq of the last event; 0 where there is none. Raises JournalError."""
        try:
            return last_seq(self._db)
        except sqlite3.Error as error:
            fail(self.path, error)

    def time_before(self, seq: int) -> float:
        """Wall time of the event before a place; 0 where there is none. Raises JournalError."""
        try:
            return time_of(self._db, last_of(self._db, seq - 1))
        except sqlite3.Error as error:
            fail(self.path, error)

    def times(self, limit: int | None = None) -> list[tuple[int, float]]:
        """(seq, at_s) of every event, or of the first ones, in order. Raises JournalError."""
        try:
            return read_times(self._db, limit)
        except sqlite3.Error as error:
            fail(self.path, error)

    def _read(
        self, after: int, limit: int, kinds: Sequence[str] = (), *, drawn: bool = False
    ) -> tuple[list[tuple[int, Event]], int]:
        try:
            events, unread, last = read_rows(self._db, after, limit, kinds, drawn=drawn)
        except sqlite3.Error as error:
            fail(self.path, error)
        self.unreadable += unread
        return events, last

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Follower:
    """Reads a recording that another process is writing: each event once, in order, as it grows."""

    def __init__(self, path: Path, after: int = 0, kinds: Sequence[str] = ()) -> None:
        """`kinds`: only events of these, if any are named; a long recording is then read in a fraction of the time."""
        self.path = path
        self._kinds = kinds
        self.seq = after
        """Seq up to which events were given out."""
        self._reader: JournalReader | None = None

    def poll(self, limit: int = CHUNK) -> list[tuple[int, Event]]:
        """Up to `limit` events that were committed since the last call. Raises JournalError."""
        if self._reader is None:
            self._reader = JournalReader(self.path, check=False)
        events, self.seq = self._reader.batch(self.seq, limit, self._kinds)
        return events

    def leap(self) -> list[tuple[int, Event]]:
        """The events that make the present state, without those that leave nothing in it; `poll` goes on after them. None
        where there are few in all. Raises JournalError."""
        if self._reader is None:
            self._reader = JournalReader(self.path, check=False)
        last = self._reader.last_seq()
        if last - self.seq < LEAP:
            return []
        events, self.seq = self._reader.short(last), last
        return events

    def rest(self) -> None:
        """Let go of the file; the next `poll` opens it again. So a run that ended can become one file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
            tidy(self.path)

    def close(self) -> None:
        """Let go of the file for good."""
        self.rest()


def read_state(path: Path, *, check: bool = True) -> State:
    """The state of the recording at `path` after all its events. Raises JournalError."""
    with JournalReader(path, check=check) as reader:
        events = reader.short()
    state = State()
    for seq, event in events:
        apply(state, event, seq)
    return state
