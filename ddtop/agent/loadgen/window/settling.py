"""When a load has settled, so that the window may begin: decided from the requests before it (the burst). Pure.

All streams start at once, so the first requests queue behind one another; they say what a herd feels, not what a steady
load feels. Nothing stops or drains in between: the window's zero is set while the load runs.
"""

from __future__ import annotations

import math
from typing import Sequence

from ..response.exchange import Exchange
from .slo import figures_ms

LIMIT_ROUNDS = 3  # requests a stream after which the window begins in any case
LIMIT_SHARE = 0.25  # of the time limit
ENOUGH = 16  # samples of which a median is good to a few percent; with fewer, `pct` is widened by the root
NOISE = 3.0  # standard errors between two medians that are no difference
MEDIAN_ERROR = 1.2533 * math.sqrt(2)  # of the difference of two medians, in standard deviations over √n
LEAST_ARRIVALS = (
    16  # in a block of an open loop, or an eighth of the window's, which take as long as they take
)
LIMIT_BLOCKS = 6
IN_FLIGHT_NOISE = (
    1.5  # standard deviations of a Poisson count, for the mean over a block of about one residence
)


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def agree(before: Sequence[float], after: Sequence[float], pct: float, noise: bool) -> bool:
    """Whether two blocks of as many samples have the same median: within `pct` %, or with `noise` also where their own
    scatter allows for the difference."""
    a, b, n = median(before), median(after), len(after)
    allowed = pct / 100 * max(1.0, math.sqrt(ENOUGH / n)) * b
    if noise:
        scatter = median([abs(x - a) for x in before] + [abs(x - b) for x in after]) * 1.4826
        allowed = max(allowed, NOISE * MEDIAN_ERROR * scatter / math.sqrt(n))
    return abs(a - b) <= allowed


def figures(exchange: Exchange) -> tuple[float, float]:
    """(TTFT in ms, tokens per second over its whole time) of a parsed exchange; where the server does not say them, its
    whole time and its chunks stand in: what is compared is only whether they change."""
    known = figures_ms(exchange)
    e2e = known.get("e2e_ms") or 0.0
    tokens = exchange.account.tokens or exchange.account.text_chunks
    return known.get("ttft_ms") or e2e, tokens * 1e3 / e2e if e2e else 0.0


class ClosedLoop:
    """`streams` streams have settled when each has finished a request and TTFT and tok/s agree between the last two blocks
    of as many requests (a queue that forms anew in every round is steady), or between the last two half-blocks of the
    requests after each stream's first. At the latest after LIMIT_ROUNDS requests a stream.

    With several `turns` to a conversation a block holds all of them, the first ones do not count (all streams begin at the
    first turn), half-blocks say nothing, and there are as many more rounds."""

    def __init__(self, streams: int, pct: float, turns: int = 1) -> None:
        self.streams, self.pct, self.turns = streams, pct, turns
        self.limit = (LIMIT_ROUNDS + turns - 1) * streams
        self.first_open = streams
        self.ended = 0
        self.ttft: list[float] = []
        self.rate: list[float] = []
        self.settled = False

    def add(self, first: bool, good: bool, exchange: Exchange) -> bool:
        """A request ended, `first`: its stream's first. True: the window may begin."""
        self.ended += 1
        self.first_open -= first
        if good:
            ttft, rate = figures(exchange)
            self.ttft.append(ttft)
            self.rate.append(rate)
        self.settled = not self.first_open and self._steady()
        return self.settled or self.ended >= self.limit

    def _steady(self) -> bool:
        n = max(self.streams, self.turns)
        half = n // 2 if self.turns == 1 else 0
        if len(self.ttft) < (self.turns - 1) * self.streams + 2 * n:
            return False
        return all(
            agree(one[-2 * n : -n], one[-n:], self.pct, noise=False)
            or (half > 0 and agree(one[-2 * half : -half], one[-half:], self.pct, noise=True))
            for one in (self.ttft, self.rate)
        )


class OpenLoop:
    """Arrivals have settled when the mean number in flight agrees between two blocks of arrivals, each about as long as a
    request takes (by Little's law as many arrivals as are in flight). At the latest after LIMIT_BLOCKS blocks."""

    def __init__(self, requests: int, pct: float) -> None:
        self.pct = pct
        self.least = max(2, min(LEAST_ARRIVALS, requests // 8))
        self.block: list[int] = []
        self.means: list[float] = []
        self.ended = 0
        self.settled = False

    def arrived(self, in_flight: int) -> bool:
        """A request went out beside so many. True: the window may begin."""
        self.block.append(in_flight)
        if len(self.block) < max(self.least, in_flight):
            return False
        self.means.append(sum(self.block) / len(self.block))
        self.block = []
        if len(self.means) > 1 and self.ended:
            before, after = self.means[-2:]
            allowed = max(self.pct / 100, IN_FLIGHT_NOISE / math.sqrt(max(1.0, after)))
            self.settled = abs(before - after) <= allowed * after
        return self.settled or len(self.means) >= LIMIT_BLOCKS
