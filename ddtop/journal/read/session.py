"""What a view sees of a run: events in batches, and a way to send commands. Live or replayed alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Protocol

from ddtop.errors import JournalError
from ddtop.events import Command, Event, RunEnded, RunStarted
from ddtop.journal.commands import append_command
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.locks import is_live
from ddtop.journal.read.reader import Follower

FOLLOW_S = 0.1
REST_S = 1.0
"""Seconds between looks at a recording that no runner writes."""
APPEAR_S = 10.0
"""Seconds that a live session waits for its runner to create the recording."""
BATCH = 1000


class Batch(list[Event]):
    """Some events in order. `seqs` are their places in the journal; with `reset` the fold starts anew."""

    def __init__(self, numbered: Iterable[tuple[int, Event]] = (), *, reset: bool = False) -> None:
        pairs = list(numbered)
        super().__init__(event for _seq, event in pairs)
        self.seqs: list[int] = [seq for seq, _event in pairs]
        self.reset = reset


def fold_batch(state: State, batch: Batch) -> State:
    """The state after `batch`: `state` itself, changed, or a new one where the batch says so."""
    result = State() if batch.reset else state
    for seq, event in zip(batch.seqs, batch, strict=True):
        apply(result, event, seq)
    return result


class Session(Protocol):
    """A run as a view sees it."""

    @property
    def path(self) -> Path:
        """The recording."""

    @property
    def live(self) -> bool:
        """True while a runner holds the recording: commands are then heard."""

    def events(self) -> AsyncIterator[Batch]:
        """Batches of events, from the first on. Ends after `close`. Raises JournalError."""

    async def send(self, command: Command) -> None:
        """Give a command to the runner. Raises RefusedError where no runner would read it."""

    def close(self) -> None:
        """End `events`, and let go of the file."""


class LiveSession:
    """Follows a recording that a runner is writing, at 10 Hz.

    When the run ends, or its runner dies, it lets go of the file and looks once a second: a runner that takes
    the recording up again is followed on.
    """

    def __init__(self, path: Path, viewer: str) -> None:
        self._path = path
        self.viewer = viewer
        self._closed = False
        self._sending = asyncio.Lock()
        self._live_until = 0.0
        self._live = False

    @property
    def path(self) -> Path:
        return self._path

    @property
    def live(self) -> bool:
        """As of at most half a second ago; the lock is not tested at every key press."""
        now = time.monotonic()
        if now >= self._live_until:
            self._live, self._live_until = is_live(self._path), now + 0.5
        return self._live

    async def events(self) -> AsyncIterator[Batch]:
        """See Session.events. A recording that is not there yet is waited for, 10 s."""
        await self._appear()
        follower = Follower(self._path)
        ended = False
        seen = (0, 0)
        leap = follower.leap()
        try:
            while not self._closed:
                batch, leap = Batch(leap or follower.poll(BATCH)), []
                for event in batch:
                    if isinstance(event, RunStarted | RunEnded):
                        ended = isinstance(event, RunEnded)
                if batch:
                    yield batch
                if len(batch) >= BATCH:
                    await asyncio.sleep(0)
                    continue
                if (ended or not self.live) and not batch:
                    follower.rest()
                    seen = self._mark()
                    # Nothing notifies us of another process's writes: the file must be polled.
                    while not self._closed and not self.live and self._mark() == seen:  # noqa: ASYNC110
                        await asyncio.sleep(REST_S if ended else FOLLOW_S * 3)
                    if ended and self.live and not self._closed:
                        await asyncio.sleep(FOLLOW_S)
                else:
                    await asyncio.sleep(FOLLOW_S)
        finally:
            follower.close()

    async def _appear(self) -> None:
        deadline = time.monotonic() + APPEAR_S
        while not self._closed and not (self._path.exists() and self._path.stat().st_size):
            if time.monotonic() > deadline:
                raise JournalError(
                    f"{self._path} did not appear within {APPEAR_S:.0f} s",
                    means="no runner began to record there",
                    do="ddtop runs lists the recordings here; ddtop connect HOST starts a runner",
                )
            await asyncio.sleep(FOLLOW_S)

    def _mark(self) -> tuple[int, int]:
        """Size and time of the file and its log: changes with every write."""
        total, latest = 0, 0
        for name in (self._path.name, self._path.name + "-wal"):
            try:
                stat = self._path.with_name(name).stat()
            except OSError:
                continue
            total, latest = total + stat.st_size, max(latest, stat.st_mtime_ns)
        return total, latest

    async def send(self, command: Command) -> None:
        """See Session.send."""
        # Apart from the loop: it may wait for the runner's write, and keys must not. One after the other, as given.
        async with self._sending:
            await asyncio.to_thread(append_command, self._path, command)

    def close(self) -> None:
        self._closed = True
