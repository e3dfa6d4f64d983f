"""A session in memory: batches are put in by the test, commands are kept for it to look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from ddtop import events as ev
from ddtop.errors import RefusedError

FILE = Path(__file__)
"""Stands in for a recording; only its name and its size are asked for, and `size_b` is fixed in tests."""


class Batch(list[ev.Event]):
    """As the journal's batches."""

    def __init__(self, events: Sequence[ev.Event], first: int, reset: bool = False) -> None:
        super().__init__(events)
        self.seqs = list(range(first, first + len(events)))
        self.reset = reset


class MemorySession:
    """A live session without a file."""

    def __init__(self, events: Sequence[ev.Event] = (), *, live: bool = True) -> None:
        self.path = FILE
        self.live = live
        self.sent: list[ev.Command] = []
        self.answer: Callable[[ev.Command], ev.Event | None] | None = None
        self._queue: asyncio.Queue[Batch | None] = asyncio.Queue()
        self._next = 1
        if events:
            self.put(*events)

    def put(self, *events: ev.Event, reset: bool = False) -> None:
        """Let events come."""
        self._queue.put_nowait(Batch(events, self._next, reset))
        self._next += len(events)

    def end(self) -> None:
        """Nothing more comes."""
        self._queue.put_nowait(None)

    async def events(self) -> AsyncIterator[Batch]:
        while True:
            batch = await self._queue.get()
            if batch is None:
                return
            yield batch

    async def send(self, command: ev.Command) -> None:
        if not self.live:
            raise RefusedError("no runner holds this recording", host="ct200", do="ddtop connect ct200")
        self.sent.append(command)
        if self.answer is not None:
            answer = self.answer(command)
            if answer is not None:
                self.put(answer)

    def close(self) -> None:
        self.end()

    def commands(self) -> list[ev.Command]:
        """What was sent, signs of life aside."""
        return [c for c in self.sent if not isinstance(c, ev.Attend)]
