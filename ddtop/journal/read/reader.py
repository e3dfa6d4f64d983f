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
from ddtop.journal.fold.views import GPU_HISTORY
from ddtop.journal.tables import last_samples, last_seq, read_kinds, read_rows, read_times

CHUNK = 2000


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

    def since(
        self, seq: int = 0, limit: int | None = None, *, brief: bool = False
    ) -> Iterator[tuple[int, Event]]:
        """(seq, event) of all events after `seq`, in order, at most `limit`. `brief`: GPU samples have little more than their
        power, log lines their text, as a report needs them. Raises JournalError."""
        left = limit
        after = seq
        while left is None or left > 0:
            batch, after_now = self._read(after, CHUNK if left is None else min(CHUNK, left), brief=brief)
            if after_now == after:
                return
            after = after_now
            if left is not None:
                left -= len(batch)
            yield from batch

    def batch(
        self, after: int, limit: int, kinds: Sequence[str] = (), *, watts_until: int = 0
    ) -> tuple[list[tuple[int, Event]], int]:
        """Up to `limit` events after seq `after` (of these kinds, if any are named), and the seq from which to read on.

        `watts_until`: of GPU samples up to this seq their power alone (see `watts_until`). Raises JournalError.
        """
        return self._read(after, limit, kinds, watts_until=watts_until)

    def watts_until(self, seq: int) -> int:
        """Seq up to which GPU samples matter by their power alone to whoever folds the events up to `seq`: what is older than a
        GPU's history falls out of it again. Raises JournalError."""
        try:
            return max(0, last_samples(self._db, GPU_HISTORY, seq) - 1)
        except sqlite3.Error as error:
            fail(self.path, error)

    def kinds(self, kinds: Iterable[str]) -> list[tuple[int, Event]]:
        """All events of a few kinds (their tags), in order: quick, for they are few. Raises JournalError."""
        try:
            return read_kinds(self._db, kinds)
        except sqlite3.Error as error:
            fail(self.path, error)

    def last_seq(self) -> int:
        """Seq of the last event; 0 where there is none. Raises JournalError."""
        try:
            return last_seq(self._db)
        except sqlite3.Error as error:
            fail(self.path, error)

    def times(self) -> list[tuple[int, float, str]]:
        """(seq, at_s, kind) of every event, in order. Raises JournalError."""
        try:
            return read_times(self._db)
        except sqlite3.Error as error:
            fail(self.path, error)

    def _read(
        self,
        after: int,
        limit: int,
        kinds: Sequence[str] = (),
        *,
        brief: bool = False,
        watts_until: int = 0,
    ) -> tuple[list[tuple[int, Event]], int]:
        try:
            events, unread, last = read_rows(
                self._db, after, limit, kinds, brief=brief, watts_until=watts_until
            )
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
        self._watts_until = 0

    def poll(self, limit: int = CHUNK) -> list[tuple[int, Event]]:
        """Up to `limit` events that were committed since the last call. Raises JournalError."""
        if self._reader is None:
            self._reader = JournalReader(self.path, check=False)
            self._watts_until = self._reader.watts_until(self._reader.last_seq())
        events, self.seq = self._reader.batch(self.seq, limit, self._kinds, watts_until=self._watts_until)
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
    state = State()
    with JournalReader(path, check=check) as reader:
        for seq, event in reader.since():
            apply(state, event, seq)
    return state
