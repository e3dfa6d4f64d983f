"""What viewers ask of the sweep. The command handler writes each request; the part that can act on it takes it.

| request                 | taken by                                             |
|-------------------------|------------------------------------------------------|
| `stopped_by`            | every wait, through `check_stop`                     |
| `paused_by`             | the controller, between cells                        |
| `take_restart`          | the controller, before it chooses a configuration    |
| `take_restage`          | the controller, before it chooses a configuration    |
| `take_changed`          | the measurement in flight                            |
| `questions`             | the part that asked (`configuration.ask`)            |
| `host_wait`             | the wait for a clean host, or for a process to leave |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from ddtop.events import AnyCommand
from ddtop.sweep.shared.context import StopSweepError

ATTEND_S = 15.0
"""A viewer that sent nothing for so long has left."""
EXPECTED = "(starting)"
"""Stands for the dashboard that is about to open, until its first sign of life."""


class Viewers:
    """Who watches the run. All times are the runner's monotonic clock."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._last)

    def expect(self, now: float, within_s: float) -> None:
        """Counts a dashboard that is about to open as a viewer for `within_s` seconds."""
        self._last[EXPECTED] = now + within_s - ATTEND_S

    def attend(self, viewer: str, now: float, *, leaving: bool = False) -> None:
        """Takes a sign of life; with `leaving`, the last one."""
        self._last.pop(EXPECTED, None)
        if leaving:
            self._last.pop(viewer, None)
        else:
            self._last[viewer] = now

    def forget_silent(self, now: float) -> None:
        self._last = {v: at for v, at in self._last.items() if now - at <= ATTEND_S}


class Questions:
    """Alerts and proposed steps that wait for a decision, and the decisions that viewers gave, by alert or plan id."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._decisions: dict[str, AnyCommand] = {}

    @contextmanager
    def asked(self, *ids: str) -> Iterator[None]:
        """While these ids wait for a decision. One that came as the question closed is dropped with it: the next question
        of the same id is another one."""
        self._open |= set(ids)
        try:
            yield
        finally:
            self._open -= set(ids)
            for ident in ids:
                self._decisions.pop(ident, None)

    def __contains__(self, ident: str | None) -> bool:
        return ident in self._open

    def decide(self, ident: str | None, command: AnyCommand) -> bool:
        """Keeps a viewer's decision; False where nothing with this id waits for one."""
        if ident is None or ident not in self._open:
            return False
        self._decisions[ident] = command
        return True

    def take(self, ident: str) -> AnyCommand | None:
        return self._decisions.pop(ident, None)


@dataclass(slots=True)
class HostWait:
    """A wait for the host that a viewer can end by `resume`."""

    resumed: bool = False


@dataclass
class Requests:
    """All open requests of one run."""

    stopped_by: str | None = None
    leave_running: bool = False
    """At the end the server is left as it is, instead of being put back."""
    if_taken: Literal["refuse", "wait", "take-over"] = "refuse"
    """What is done where another run has the host and nobody is asked."""
    paused_by: str | None = None
    no_room: bool = False
    """The disk of the recording is full: nothing new is begun until there is room."""
    restart_by: str | None = None
    restage: bool = False
    changed_cells: set[str] = field(default_factory=set)
    """Cells whose state a viewer changed since the measurement in flight last looked."""
    questions: Questions = field(default_factory=Questions)
    viewers: Viewers = field(default_factory=Viewers)
    host_wait: HostWait | None = None
    ask: bool = False
    """Questions wait for an answer whether a dashboard is open or not: an agent or a person answers by `ddtop do`."""

    @property
    def paused(self) -> bool:
        return self.paused_by is not None

    @property
    def attended(self) -> bool:
        return self.ask or len(self.viewers) > 0

    @property
    def stop_reason(self) -> str:
        return f"stopped by {self.stopped_by}"

    def check_stop(self) -> None:
        """Raises StopSweepError where a viewer or a signal stopped the run."""
        if self.stopped_by is not None:
            raise StopSweepError("stopped", self.stop_reason)

    def answer_by_s(self, now_s: float, answer_s: float) -> float | None:
        """Until when a question waits for a person; None where nobody attends."""
        return now_s + answer_s if self.attended else None

    def take_restart(self) -> bool:
        taken, self.restart_by = self.restart_by is not None, None
        return taken

    def take_restage(self) -> bool:
        taken, self.restage = self.restage, False
        return taken

    def take_changed(self, cell_ids: Collection[str]) -> set[str]:
        taken = self.changed_cells & set(cell_ids)
        self.changed_cells -= taken
        return taken

    @contextmanager
    def waiting_for_host(self) -> Iterator[HostWait]:
        """While the sweep waits for the host to become clean, or for a process to leave it."""
        self.host_wait = HostWait()
        try:
            yield self.host_wait
        finally:
            self.host_wait = None
