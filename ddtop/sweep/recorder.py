"""Writing the recording. A full disk pauses the run; where it cannot be written for another reason, the run is ended.

Everything committed stays. While the disk is full, events wait in memory, results on the host too; once there is room they
are written in their order, and the run goes on. Ended: the run is stopped as by a signal, so the host is put back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ddtop.errors import DiskFullError, JournalError
from ddtop.events import DURABLE, AnyCommand, Event, LogRead
from ddtop.journal.write.reserve import RESERVE_B, Reserve
from ddtop.journal.write.writer import FLUSH_S, JournalWriter

STOPPED_BY = "a recording that cannot be written"
AGAIN_S = 2.0
"""Between two looks whether a full disk has room."""
ROOM_B = 2 << 20
"""Free bytes, beyond what waits, from which the run goes on."""
HELD_B = 64 << 20
"""Events that wait while the disk is full take so much memory at most: readings and log lines beyond it are dropped."""


class Recorder:
    """Wraps the writer. While `stop` is None there is no run to end or to pause, and JournalError is raised."""

    def __init__(self, writer: JournalWriter, *, mono: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._mono = mono
        self.stop: Callable[[str], object] | None = None
        self.filled: Callable[[JournalError], object] = lambda error: None
        """Called when the disk is full. What it emits is written into the room kept for it."""
        self.room: Callable[[int], object] = lambda dropped: None
        """Called when there is room again, with how many readings and log events were dropped meanwhile."""
        self.trouble: JournalError | None = None
        """The first error that ends the run; None while every write succeeded."""
        self.full: DiskFullError | None = None
        """Why the run is paused; None while there is room."""
        self._reserve = Reserve(writer.path.parent)
        self._held: list[Event] = []
        self._held_b = self._dropped = 0
        self._telling = False
        self._looked = 0.0

    def append(self, event: Event) -> None:
        """Writes an event down, as JournalWriter.append does."""
        if self.full is not None and not self._telling:
            self._hold(event)
            return
        try:
            self._writer.append(event)
        except JournalError as error:
            self._failed(error)

    async def keep_flushed(self) -> None:
        """Commits waiting events every 100 ms, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            if self.full is not None:
                self._look_for_room()
                continue
            try:
                self._writer.flush()
            except JournalError as error:
                self._failed(error)

    def pending_commands(self) -> Sequence[AnyCommand]:
        """Commands that came since the last call; none where they cannot be read."""
        try:
            return self._writer.pending_commands()
        except JournalError as error:
            self._failed(error)
            return []

    def shows(self, event: Event) -> bool:
        """Whether an event may be shown: it is on disk. Of a full disk itself and its end people are told in any case."""
        return self.trouble is None and (self.full is None or self._telling)

    def close(self) -> None:
        """Gives back the room that was kept. The writer is closed by who opened it."""
        self._reserve.release_all()

    # ---- a full disk

    def _failed(self, error: JournalError) -> None:
        if self.stop is None:
            raise error
        if isinstance(error, DiskFullError):
            self._pause(error)
        elif self.trouble is None:
            self.trouble = error
            self.stop(STOPPED_BY)

    def _pause(self, error: DiskFullError) -> None:
        if self.full is not None:
            return
        self.full, self._looked = error, self._mono()
        self._reserve.release()
        with suppress(JournalError):
            self._writer.flush()
        self._tell(lambda: self.filled(error))

    def _tell(self, say: Callable[[], object]) -> None:
        self._telling = True
        try:
            say()
        finally:
            self._telling = False

    def _hold(self, event: Event) -> None:
        lines = event.lines if isinstance(event, LogRead) else ()
        size = 500 + sum(len(line.text) + 200 for line in lines)
        if self._held_b + size > HELD_B and not isinstance(event, DURABLE):
            self._dropped += 1
            return
        self._held.append(event)
        self._held_b += size

    def _look_for_room(self) -> None:
        now = self._mono()
        if now - self._looked < AGAIN_S:
            return
        self._looked = now
        if (
            self._writer.waiting
        ):  # the alert itself is not on disk yet: another took the room that was kept for it
            self._reserve.release()
            with suppress(JournalError):
                self._writer.flush()
        free = self._reserve.free_b()
        if free is not None and free < ROOM_B + RESERVE_B + self._held_b:
            return
        self._write_held()

    def _write_held(self) -> bool:
        """Writes all that waits; whether that worked."""
        held, self._held = self._held, []
        try:
            self._writer.extend(held)  # with what the writer has still; it keeps all of it where this fails
        except DiskFullError:
            return False
        except JournalError as error:
            self.full = None
            self._failed(error)
            return False
        dropped, self._dropped, self._held_b, self.full = self._dropped, 0, 0, None
        self._reserve.take()
        self.room(dropped)
        return True

    def error(self, left_behind: Sequence[str] = ()) -> JournalError | None:
        """The error that ends the run; None where everything was written. A full disk gets a last try."""
        if self.full is not None and self._write_held():
            return None
        trouble = self.trouble or self.full
        if trouble is None:
            return None
        host = "the host is as it was found" if not left_behind else "left behind: " + "; ".join(left_behind)
        return JournalError(
            f"the run was ended: {trouble.what}",
            means=f"everything recorded before is kept; {host}",
            do=trouble.do,
        )
