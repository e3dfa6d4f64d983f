"""What all parts of a sweep share: the plan, the recording, the folded state, the clock, and the last readings.

Everything runs in one event loop. `emit` writes an event to the recording first, then folds it into the state; nothing
else changes the state.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ddtop.errors import HostLostError
from ddtop.events import AlertRaised, CellSeries, Event, LogLine, Note
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.fold.sweep import series_due
from ddtop.services.base import Launch, Service
from ddtop.services.kinds import service_for
from ddtop.services.log_file import FILE_CURSOR, LogFile
from ddtop.services.readings import UnitReading
from ddtop.sweep.shared.gpus.watch import GpuWatch
from ddtop.sweep.shared.kernel_faults import KernelFaults
from ddtop.sweep.shared.learned_limits import Limits
from ddtop.sweep.shared.plan import Sweep
from ddtop.sweep.shared.policy import Policy

E = TypeVar("E", bound=Event)
Sink = Callable[[Event], object]

RECENT_CURSORS = 20_000


class StopSweepError(Exception):
    """Ends the sweep. `outcome` is one of RunEnded's."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How the run ended: a word of RunEnded, its reason, and what could not be undone."""

    word: str
    reason: str = ""
    left_behind: tuple[str, ...] = ()


@dataclass
class UnitFeed:
    """The last reading of one unit, and the state of its log stream."""

    unit: str
    service: Service
    reading: UnitReading | None = None
    changes: int = 0
    cursor: str | None = None
    unreadable: str | None = None
    """Why this login may not read the log, and what to do; None while it can be read."""
    redirected: LogFile | None = None
    """The file to which the server's own command sends its output, once that was seen."""
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT_CURSORS))
    known: set[str] = field(default_factory=set)
    listeners: list[Callable[[LogLine], None]] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_new(self, line: LogLine) -> bool:
        """Whether a line was not delivered before; remembers it. A line without a cursor is always new."""
        if line.cursor is None:
            return True
        if line.cursor in self.known:
            return False
        if len(self.recent) == self.recent.maxlen:
            self.known.discard(self.recent[0])
        self.recent.append(line.cursor)
        self.known.add(line.cursor)
        return True


class SweepContext:
    """One run's shared values; every part of the sweep holds the same one."""

    def __init__(
        self,
        *,
        run_id: str,
        host_name: str,
        sink: Sink,
        state: State,
        sweep: Sweep | None,
        wall: Callable[[], float] = time.time,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_id = run_id
        self.host_name = host_name
        self.state = state
        self.sweep = sweep
        self.wall = wall
        self.mono = mono
        self.feeds: dict[str, UnitFeed] = {}
        self.clock_offset_s: float | None = None
        """Runner's monotonic clock less the agent's, within half the round trip. Measured anew after each boot."""
        self.clock_rtt_s: float | None = None
        self.on_event: Callable[[Event], object] | None = None
        """Called with each event after it is recorded and folded."""
        self.learned_limits: Mapping[str, Limits] = {}
        """Limits learned from earlier runs' starts, by restart key."""
        self.seen_before: Mapping[str, str] = {}
        """By cause: a sentence on what earlier runs on this host saw of it."""
        self.inherited: Mapping[str, Any] = {}
        """By unit: its state before a dead run, from which this one took the host over."""
        self.gpu_watch = GpuWatch()
        self.faults = KernelFaults()
        self._sink = sink
        self._waiters: set[asyncio.Event] = set()

    # ---- events

    def emit(self, kind: type[E], /, **fields: Any) -> E:
        """Records an event, then folds and shows it. Raises JournalError where it cannot be written.

        An alert gets `seen_before` where earlier runs met its cause.
        """
        if kind is AlertRaised and fields.get("seen_before") is None:
            fields["seen_before"] = self.seen_before.get(fields["cause"])
        event = kind(at_s=self.wall(), mono_s=self.mono(), host=self.host_name, **fields)
        self._sink(event)
        apply(self.state, event)
        if self.on_event is not None:
            self.on_event(event)
        if (series := series_due(self.state, event)) is not None:
            self.emit(CellSeries, **series)
        return event

    def note(self, level: str, text: str) -> None:
        self.emit(Note, level=level, text=text)

    @property
    def policy(self) -> Policy:
        """The plan's policy; the defaults where there is no plan."""
        return self.sweep.policy if self.sweep is not None else Policy()

    @property
    def connected(self) -> bool:
        return self.state.host.link not in ("lost", "connecting")

    def check_link(self) -> None:
        """Raises HostLostError where the connection is gone: a question about a host ends with its connection."""
        if not self.connected:
            raise HostLostError("lost while ddtop waited for a decision", host=self.host_name)

    # ---- waking up

    def wake(self) -> None:
        """Lets every `wait` return: there is a new reading or request."""
        for waiter in self._waiters:
            waiter.set()

    async def wait(self, timeout_s: float) -> None:
        """Returns when something new came, or after `timeout_s`."""
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.wait()
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)

    async def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until `ready()` holds, checked whenever something is new; False after `timeout_s`."""
        until = self.mono() + timeout_s
        while not ready():
            left = until - self.mono()
            if left <= 0:
                return False
            await self.wait(min(left, 1.0))
        return True

    # ---- services

    def feed(self, unit: str) -> UnitFeed:
        """The feed of a unit; made at first use, its log cursor taken from the recording."""
        if unit not in self.feeds:
            service = self.make_service(unit)
            tail = self.state.logs.get(unit)
            cursor = None
            if tail is not None:
                cursor = next(
                    (
                        t.line.cursor
                        for t in reversed(tail.lines)
                        if t.line.cursor and not t.line.cursor.startswith(FILE_CURSOR)
                    ),
                    None,
                )
            self.feeds[unit] = UnitFeed(unit=unit, service=service, cursor=cursor)
        return self.feeds[unit]

    def make_service(self, unit: str) -> Service:
        launch = self.launch_of(unit)
        return service_for(unit, launch.kind if launch else "systemd", user=bool(launch and launch.user))

    def launch_of(self, unit: str) -> Launch | None:
        """A launch that uses `unit`; None for a unit that must only be stopped."""
        if self.sweep is None:
            return None
        return next((x for x in self.sweep.launches.values() if x.unit == unit), None)

    def since_fault_s(self, host_mono_s: float | None) -> float | None:
        """Seconds since a moment on the agent's monotonic clock; None while the offset of the clocks is unknown."""
        if host_mono_s is None or self.clock_offset_s is None:
            return None
        return max(0.0, self.mono() - (host_mono_s + self.clock_offset_s))

    def take_reading(self, reading: UnitReading) -> None:
        """A newer reading of a unit."""
        feed = self.feed(reading.unit)
        if feed.reading is not None and reading.at < feed.reading.at:
            return  # two reads were under way at once, and the older one returned last
        feed.reading = reading
        feed.changes += 1
        self.wake()
