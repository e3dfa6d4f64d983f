"""The burst before a window's zero: requests of its own, and the moment at which the load is handed over to the window.

With several processes each says when its streams have settled, and the parent names one zero for all (`shards`).
"""

from __future__ import annotations

import os
import random
import struct
from typing import Any, Callable, Iterator

from ..asked.conversation import first_of, place
from ..response.exchange import Exchange
from ..spec import LoadSpec
from .settling import LIMIT_SHARE, ClosedLoop, OpenLoop

ZERO = struct.Struct("<q")


class HandOver:
    """What is sent before the window's zero. `ready` is called once, when the window may begin.

    Its requests have the indices -1, -2, …: prompts and nonces of their own, so that the window's requests are the same
    for every configuration, however long the burst was. `by` says what ended it: settled, requests or time.
    The first conversation of stream s has 1 + s mod `turns` turns, so that streams are at different turns at the window's
    zero, as they are later on; a conversation that has begun is the burst's to its end.
    """

    def __init__(
        self, spec: LoadSpec, streams: int, processes: int, control: int, ready: Callable[[], None]
    ) -> None:
        self.streams = streams
        self.turns = max(1, spec.turns)
        self.closed = ClosedLoop(streams, spec.settle_pct, self.turns)
        self.open = OpenLoop(spec.requests, spec.settle_pct)
        self.open_loop = spec.mode == "open"
        self.limit_ns = int(spec.time_limit_s * LIMIT_SHARE * 1e9)
        self.burst: list[Exchange] = []
        self.begun_ns = 0
        self.by = ""
        self.control = control  # the parent's end says the common zero; -1: one process decides alone
        self._ready = ready
        self._gaps = _gaps(spec, processes)
        self._conversation = 0

    def index(self) -> int:
        """Index of the next conversation's first request."""
        self._conversation -= 1
        return first_of(self._conversation, self.turns)

    def ends_with(self, index: int) -> bool:
        """Whether a conversation of the burst ends with this request, though it could go on."""
        conversation, turn = place(index, self.turns)
        staggered = -self.streams <= conversation < 0 and not self.open_loop
        return staggered and turn >= (-1 - conversation) % self.turns

    def gap_ns(self) -> int:
        """Open loop: time from one arrival to the next."""
        return next(self._gaps)

    def ended(self, exchange: Exchange, good: bool) -> None:
        """A request of the burst has ended and been parsed."""
        self.open.ended += 1
        if self.open_loop or self.by:
            return
        conversation, turn = place(exchange.index, self.turns)
        if self.closed.add(conversation >= -self.streams and not turn, good, exchange):
            self._over("settled" if self.closed.settled else "requests")

    def arrived(self, in_flight: int) -> None:
        """Open loop: a request went out beside so many."""
        if not self.by and self.open.arrived(in_flight):
            self._over("settled" if self.open.settled else "requests")

    def tick(self, moment: int) -> int:
        """Now and then: the time limit, and the parent's word. Returns the common zero if it has come, else 0."""
        if not self.by and moment - self.begun_ns > self.limit_ns:
            self._over("time")
        if self.by and self.control >= 0:
            try:
                data = os.read(self.control, ZERO.size)
            except BlockingIOError:
                return 0
            return int(ZERO.unpack(data)[0]) if len(data) == ZERO.size else moment
        return 0

    def _over(self, by: str) -> None:
        self.by = by
        self._ready()

    def about(self, zero_ns: int) -> dict[str, Any]:
        """{by, requests, seconds}: what the result says of it."""
        before = sum(1 for exchange in self.burst if exchange.start_ns <= zero_ns)
        return {"by": self.by, "requests": before, "seconds": (zero_ns - self.begun_ns) / 1e9}


def _gaps(spec: LoadSpec, processes: int) -> Iterator[int]:
    """Other arrivals than the window's, at the same rate."""
    source = random.Random("%d/burst" % spec.seed)
    rate = spec.rate / processes
    while True:
        yield int((source.expovariate(rate) if spec.arrival == "poisson" else 1.0 / rate) * 1e9)
