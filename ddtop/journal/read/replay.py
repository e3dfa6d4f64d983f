"""A recording played in its own time: paused, stepped, sought, faster and slower."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Literal

from ddtop.errors import RefusedError
from ddtop.events import AlertRaised, Command, Event, RunStarted
from ddtop.journal.fold.track import HANDLERS, Track
from ddtop.journal.read.reader import LEAP, JournalReader
from ddtop.journal.read.session import Batch
from ddtop.journal.read.timeline import Timeline
from ddtop.journal.tables import tag_of

CHECKED_LATER_B = 32 * 2**20
"""A longer recording is shown while SQLite looks through it for damage: that takes a second a gigabyte, and the disk's time."""
SETTLED_S = 1.0
"""So long after the first screen what it did without is read, and the file looked through."""
BEGIN = 20_000
"""Events whose times the first screen knows."""
TICK_S = 0.05
BATCH = 1000
TRACKED = tuple(tag_of(kind) for kind in HANDLERS)
SLOWEST, FASTEST = 1 / 16, 4096.0


class ReplaySession:
    """The Session of a recording that is over. Times of `seek` and `position` are the recording's wall time."""

    def __init__(self, path: Path, speed: float = 1.0, *, check: bool = True) -> None:
        """Raises JournalError where `path` is no recording, damaged, or of a newer version."""
        self._path = path
        long = path.is_file() and path.stat().st_size > CHECKED_LATER_B
        self._reader = JournalReader(path, check=check and not long)
        self._check_later = check and long
        events = self._reader.kinds(TRACKED)
        raised: dict[str, int] = {}
        for seq, event in events:
            if isinstance(event, AlertRaised):
                raised.setdefault(event.alert_id, seq)
        self._raised = list(raised.values())
        self._line = Timeline(self._reader.times(BEGIN), self._raised)
        self._partly = len(self._line) == BEGIN
        """Whether `_line` is of the first events alone."""
        self.track = self._whole(events)
        """What was at work when, over the whole recording."""
        self.speed = min(FASTEST, max(SLOWEST, speed))
        self._playing = True
        self._play_s = 0.0
        self._clock = time.monotonic()
        self._count: int | None = None
        """Events to show regardless of the time, after a step; None while time decides."""
        self._shown = 0
        self._closed = False
        self._wake: asyncio.Event | None = None

    @property
    def path(self) -> Path:
        return self._path

    @property
    def live(self) -> bool:
        """Never: a replay takes no commands."""
        return False

    @property
    def playing(self) -> bool:
        return self._playing and (self._partly or self._play_s < self._line.length_s)

    @property
    def position(self) -> float:
        """Wall time of the moment that is shown."""
        self._advance()
        return self._line.wall_at(self._play_s)

    @property
    def shown(self) -> int:
        """Events given out so far, of `len(timeline)`."""
        return self._shown

    def pause(self) -> None:
        self._advance()
        self._playing = False
        self._ring()

    def play(self) -> None:
        """Go on; from the start where the end was reached."""
        self._advance()
        if self._play_s >= self.timeline.length_s:
            self._play_s = 0.0
        self._count = None
        self._playing = True
        self._ring()

    def step(self, n: int = 1) -> None:
        """Pause, and show `n` more events (fewer, if negative)."""
        self.pause()
        self._show(self._aim() + n)

    def seek(self, at_s: float) -> None:
        """Go to wall time `at_s` (to an end, if outside)."""
        self._advance()
        self._play_s = self.timeline.play_at(at_s)
        self._count = None
        self._ring()

    def faster(self) -> None:
        self._set_speed(self.speed * 2)

    def slower(self) -> None:
        self._set_speed(self.speed / 2)

    def next_alert(self) -> None:
        """Pause at the next alert, if there is one."""
        self._go_alert(self.timeline.next_alert(self._aim()))

    def previous_alert(self) -> None:
        """Pause at the alert before the event shown last, if there is one."""
        self._go_alert(self.timeline.previous_alert(self._aim()))

    def to_alert(self, number: int) -> None:
        """Pause at the alert with this number, from 0; -1 is the last. Nothing where there is none."""
        alerts = self.timeline.alerts
        self._go_alert(alerts[number] if alerts and -len(alerts) <= number < len(alerts) else None)

    def can(self, what: Literal["step", "alert", "speed"], step: int) -> bool:
        """Whether there is anything that way: an event, an alert, a speed; `step` is 1 or -1."""
        aim = self._aim()
        match what:
            case "step":
                return 0 <= aim + step <= len(self.timeline)
            case "alert":
                there = self.timeline.next_alert if step > 0 else self.timeline.previous_alert
                return there(aim) is not None
        return self.speed < FASTEST if step > 0 else self.speed > SLOWEST

    @property
    def at_alert(self) -> int | None:
        """Number from 1 of the alert that was the last event shown; None where another event was."""
        aim = self._aim()
        return self.timeline.alerts_passed(aim) if aim - 1 in self.timeline.alerts else None

    @property
    def alerts(self) -> tuple[int, int]:
        """(alerts that were raised by the moment that is shown, alerts of the whole recording)."""
        return self._line.alerts_passed(self._aim()), len(self._raised)

    async def events(self) -> AsyncIterator[Batch]:
        """See Session.events. At the end it waits, because a viewer may seek back; it ends after `close`."""
        self._wake = asyncio.Event()
        self._clock = time.monotonic()
        later = asyncio.create_task(self._settle())
        later.add_done_callback(lambda _task: self._ring())
        try:
            async for batch in self._played(later):
                yield batch
        finally:
            later.cancel()
        self._reader.close()

    async def _settle(self) -> None:
        """What a long recording's first screen does without: its times, and the check of the whole file. Raises JournalError."""
        if self._partly or self._check_later:
            await asyncio.sleep(SETTLED_S)
            self._all_times()
        if self._check_later:
            await asyncio.to_thread(lambda: JournalReader(self._path).close())
            self._check_later = False

    async def _played(self, later: asyncio.Task[None]) -> AsyncIterator[Batch]:
        assert self._wake is not None
        while not self._closed:
            if later.done():
                later.result()
            self._wake.clear()  # before, not after: what is asked while batches go out must not be lost
            async for batch in self._up_to(self._aim()):
                yield batch
            try:
                await asyncio.wait_for(self._wake.wait(), TICK_S if self.playing else None)
            except TimeoutError:
                continue

    async def send(self, command: Command) -> None:
        """Refused: a recording cannot be changed."""
        raise RefusedError(
            f"{self._path.name} is a replay: a finished run takes no commands",
            do="to continue that run: ddtop connect HOST --plan PLAN",
        )

    def close(self) -> None:
        self._closed = True
        if self._wake is None:
            self._reader.close()
        self._ring()

    @property
    def timeline(self) -> Timeline:
        """The times of all events. Of a day they take a quarter of a second to read, so the first screen does without."""
        return self._all_times()

    def _all_times(self) -> Timeline:
        if self._partly:
            self._line, self._partly = Timeline(self._reader.times(), self._raised), False
            self.track.end_s = max(self.track.end_s, self._line.wall[-1])
        return self._line

    def _whole(self, events: Iterable[tuple[int, Event]]) -> Track:
        track = Track()
        for seq, event in events:
            before_s = self._reader.time_before(seq) if isinstance(event, RunStarted) else 0.0
            track.note(event, before_s)
        track.end_s = max(track.end_s, self._reader.time_before(self._reader.last_seq() + 1))
        return track

    async def _up_to(self, count: int) -> AsyncIterator[Batch]:
        """Batches that lead from what is shown to the first `count` events; anew where that is fewer, or far on."""
        reset = count < self._shown
        if reset and count == 0:
            self._shown = 0
            yield Batch(reset=True)
            return
        line = self._line if count <= len(self._line) else self.timeline
        if reset or count - self._shown > LEAP:
            self._shown = count
            yield Batch(self._reader.short(line.seqs[count - 1]), reset=True)
            return
        while self._shown < count and not self._closed:
            if self._aim() < self._shown:  # a hand on the timeline went back meanwhile
                return
            after = line.seqs[self._shown - 1] if self._shown else 0
            target = min(self._shown + BATCH, count)
            until = line.seqs[target - 1]
            events, _last = self._reader.batch(after, target - self._shown)
            self._shown = target
            yield Batch((seq, event) for seq, event in events if seq <= until)
            await asyncio.sleep(0)

    def _advance(self) -> None:
        now = time.monotonic()
        if self._playing and self._count is None:
            self._play_s += (now - self._clock) * self.speed
            if self._play_s >= self._line.length_s:
                self._play_s = min(self._play_s, self.timeline.length_s)
        self._clock = now

    def _aim(self) -> int:
        """How many events are to be shown by what was asked so far, shown already or not."""
        self._advance()
        return self._line.due(self._play_s) if self._count is None else self._count

    def _show(self, count: int) -> None:
        count = max(0, min(len(self.timeline), count))
        self._count = count
        self._play_s = self.timeline.play[count - 1] if count else 0.0
        self._ring()

    def _go_alert(self, index: int | None) -> None:
        if index is not None:
            self.pause()
            self._show(index + 1)

    def _set_speed(self, speed: float) -> None:
        self._advance()
        self.speed = min(FASTEST, max(SLOWEST, speed))
        self._ring()

    def _ring(self) -> None:
        if self._wake is not None:
            self._wake.set()
