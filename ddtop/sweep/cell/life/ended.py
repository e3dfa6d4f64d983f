"""Which of a server's processes ended first: an engine dies before the process that answers for it."""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.services.unit.exits import signal_ending, status_ending


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """A process of the server that ended while its main process still ran."""

    name: str
    pid: int
    wait_status: int | None = None
    """As wait() gives it, where the process was still to be seen as a zombie; None: its parent has taken it."""
    spoke: bool = True
    """It logged an error of its own before it ended, or whether it did is not known."""

    @property
    def words(self) -> str:
        """How it ended, as far as that is known."""
        status = self.wait_status
        if not status and not self.spoke:
            how = "was ended by a signal: it left no word of its own, as after SIGKILL or a crash in native code"
        elif not status:
            how = "ended before the others; by a signal or by itself is not known, its parent has taken the exit status"
        elif status & 0x7F:
            how = signal_ending(status & 0x7F, dumped=bool(status & 0x80)).words
        else:
            how = status_ending(status >> 8).words
        return f"its process {self.name} (pid {self.pid}) {how}"
