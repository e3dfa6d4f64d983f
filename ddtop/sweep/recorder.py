"""Writing the recording. Where it cannot be written any more (a full disk) the run is ended cleanly.

Everything committed stays. The run is stopped as by a signal, so the host is put back; events meanwhile wait in memory
and are written if there is room again. Results that lie on the host are collected when the run is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ddtop.errors import JournalError
from ddtop.events import AnyCommand, Event
from ddtop.journal.write.writer import FLUSH_S, JournalWriter

STOPPED_BY = "a recording that cannot be written"


class Recorder:
    """Wraps the writer. While `stop` is None there is no run to end, and JournalError is raised."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self.stop: Callable[[str], object] | None = None
        self.trouble: JournalError | None = None
        """The first error; None while every write succeeded."""

    def append(self, event: Event) -> None:
        """Writes an event down, as JournalWriter.append does."""
        try:
            self._writer.append(event)
        except JournalError as error:
            self._failed(error)

    async def keep_flushed(self) -> None:
        """Commits waiting events every 100 ms, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
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

    def _failed(self, error: JournalError) -> None:
        if self.stop is None:
            raise error
        if self.trouble is None:
            self.trouble = error
            self.stop(STOPPED_BY)

    def error(self, left_behind: Sequence[str] = ()) -> JournalError | None:
        """The error that ends the run; None where everything was written."""
        if self.trouble is None:
            return None
        host = "the host is as it was found" if not left_behind else "left behind: " + "; ".join(left_behind)
        return JournalError(
            f"the run was ended: {self.trouble.what}",
            means=f"everything recorded before is kept; {host}",
            do=self.trouble.do,
        )
