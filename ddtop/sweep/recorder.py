"""The run's end of its recording. One that cannot be written any more (a full disk) ends the run, and nothing else.

Everything committed stays. The run is stopped as by a signal, so the host is put back as it was found; what happens
meanwhile waits in memory and is written if there is room again. What is on the host (a job's results) is collected
by the next runner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ddtop.errors import JournalError
from ddtop.events import AnyCommand, Event
from ddtop.journal.write.writer import FLUSH_S, JournalWriter

WORDS = "a recording that cannot be written"


class Recorder:
    """See the module. Until `stop` is set there is no run to end, and JournalError is raised."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self.stop: Callable[[str], object] | None = None
        self.trouble: JournalError | None = None
        """The first error; None while all is well."""

    def append(self, event: Event) -> None:
        """Writes an event down, as JournalWriter.append does."""
        try:
            self._writer.append(event)
        except JournalError as error:
            self._failed(error)

    async def keep_flushed(self) -> None:
        """Commits what waits every 100 ms, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                self._writer.flush()
            except JournalError as error:
                self._failed(error)

    def pending_commands(self) -> Sequence[AnyCommand]:
        """What viewers have asked; nothing while the recording is in trouble."""
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
            self.stop(WORDS)

    def error(self, left_behind: Sequence[str] = ()) -> JournalError | None:
        """What to tell the person at the end; None where all was written."""
        if self.trouble is None:
            return None
        host = "the host is as it was found" if not left_behind else "left behind: " + "; ".join(left_behind)
        return JournalError(
            f"the run was ended: {self.trouble.what}",
            means=f"everything recorded before is kept; {host}",
            do=self.trouble.do,
        )
