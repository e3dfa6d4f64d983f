"""Whether a load meets its service levels, decided while the window runs: the generator ends a point that is decided.

Every finished request either met all limits of the spec's `slo` or did not. The point is `met` or `missed` as soon as the
Clopper-Pearson interval of the share that met them lies on one side of `share`, and `over-saturated` when the queue of an
open loop grows without end (requests in flight and TTFT both rise). Definitions of the figures: docs/measuring.md.
"""

from __future__ import annotations

import math
from typing import Any

from ..chance import BLOCKS, CONFIDENCE, at_most, clopper_pearson, rises
from ..response.exchange import Exchange
from ..spec import LoadSpec

FIRST_LOOK = 16  # requests
LOOK_AGAIN = 1.25  # a look at every request would find a difference by chance sooner or later
SERIES = 4096  # newest values of a series that are looked at
BEHIND_FROM, BEHIND, BEHIND_SD = 64, 0.15, 2.0


def meets(limits: dict[str, float], figures: dict[str, float | None]) -> bool:
    """Whether figures (ms, by the names of the limits) are within all limits; one that is not known is not."""
    for name, limit in limits.items():
        value = figures.get(name)
        if value is None or value > limit:
            return False
    return True


def with_bounds(
    figures: dict[str, float | None], tokens: int | None, at_once: bool
) -> dict[str, float | None]:
    """`figures`, and what they can be at most where the whole streamed answer came in one moment (`at_once`): none of its
    tokens waited longer than it took. One token has none to wait for. Such are short answers, and servers that send ahead."""
    took = figures.get("e2e_ms")
    if not at_once or not tokens or took is None:
        return figures
    gaps = tokens - 1
    bounds = {"tpot_ms": took / gaps if gaps else 0.0, "icl_ms": took if gaps else 0.0}
    return {**bounds, **{name: value for name, value in figures.items() if value is not None}}


def figures_ms(exchange: Exchange) -> dict[str, float | None]:
    """ttft_ms, tpot_ms, e2e_ms and icl_ms (the longest gap) of a parsed exchange; None where not known."""
    account, times = exchange.account, exchange.account.chunk_ns
    end = account.last_event_ns or exchange.end_ns
    out: dict[str, float | None] = {"e2e_ms": (end - exchange.start_ns) / 1e6 if end else None}
    if not times or account.not_streamed:
        return out
    out["ttft_ms"] = (times[0] - exchange.start_ns) / 1e6
    out["icl_ms"] = max((times[i] - times[i - 1] for i in range(1, len(times))), default=0) / 1e6 or None
    tokens, first = account.tokens, account.chunk_tokens[0]
    if not account.trusted_chunks():
        first = 1 if tokens is not None and len(times) in (tokens, tokens - 1) else None
    if tokens is not None and first is not None and tokens > first and times[-1] > times[0]:
        out["tpot_ms"] = (times[-1] - times[0]) / 1e6 / (tokens - first)
    return out


def verdict_of(attained: int, n: int, share: float) -> str:
    """met or missed where the interval of the attained share lies on one side of `share`, else undecided."""
    tail = (1.0 - CONFIDENCE) / 2
    if 1.0 - at_most(attained - 1, n, share) <= tail:
        return "met"
    return "missed" if at_most(attained, n, share) <= tail else "undecided"


def falls_behind(in_flight: list[int]) -> bool:
    """Whether, over the newest half of the arrivals, more requests stayed than chance explains: BEHIND of them, and more than
    BEHIND_SD standard deviations of that many arrivals. A queue that is stable only fills up to its usual length."""
    half = len(in_flight) // 2
    if 2 * half < BEHIND_FROM:
        return False
    return in_flight[-1] - in_flight[-1 - half] > max(BEHIND * half, BEHIND_SD * math.sqrt(half))


class SloWatch:
    """Counts the finished requests of a window that met the limits, and says when the point is decided.

    `streams`: closed loop: `met` needs as many requests, because the first to finish are the fastest.
    """

    def __init__(self, spec: LoadSpec, streams: int) -> None:
        self.limits, self.share = spec.slo, spec.share
        self.least_to_meet = max(FIRST_LOOK, 0 if spec.mode == "open" else streams)
        self.n = self.attained = self.seen = 0
        self.verdict = ""
        self.in_flight: list[int] = []
        self.within: list[bool] = []
        self.ttft_ms: list[float] = []
        self._look_at = FIRST_LOOK

    def started(self, in_flight: int) -> None:
        """An open loop's request goes out beside so many."""
        self.in_flight.append(in_flight)

    def add(self, exchange: Exchange, name: str, counts: bool = True) -> None:
        """A parsed exchange of class `name`. One that was cut by us is not judged, nor what ends after the verdict; one of
        the burst does not count, but its TTFT tells whether a queue grows."""
        if name == "unfinished" or self.verdict:
            return
        figures, account = figures_ms(exchange), exchange.account
        times = account.chunk_ns
        at_once = bool(times) and not account.not_streamed and times[0] == times[-1]
        within = name == "ok" and meets(self.limits, with_bounds(figures, account.tokens, at_once))
        self.take(within, figures.get("ttft_ms"), counts)

    def take(self, within: bool, ttft_ms: float | None, counts: bool = True) -> None:
        """A request that has ended, `within` the limits or not."""
        if counts:
            self.n += 1
            self.attained += within
        self.seen += 1
        self.within.append(within)
        if ttft_ms is not None:
            self.ttft_ms.append(ttft_ms)

    def over_saturated(self) -> bool:
        """Open loop: requests in flight and TTFT both rise, and that is more than a queue's way to its usual length: most
        of the newest requests miss the limits (its usual length is longer still), or the server falls ever further behind."""
        if not (rises(self.in_flight[-SERIES:]) and rises(self.ttft_ms[-SERIES:])):
            return False
        newest = self.within[-max(2, len(self.within) // BLOCKS) :]
        return 2 * sum(newest) < len(newest) or falls_behind(self.in_flight[-SERIES:])

    def decide(self) -> str:
        """`verdict`, set if there is one now, else ""; asked after every request, it looks now and then."""
        if self.verdict or self.seen < self._look_at:
            return self.verdict
        self._look_at = max(self.seen + 1, int(self.seen * LOOK_AGAIN))
        verdict = "over-saturated" if self.over_saturated() else verdict_of(self.attained, self.n, self.share)
        if verdict == "missed" and self.n < FIRST_LOOK:
            return ""
        if verdict != "undecided" and (verdict != "met" or self.n >= self.least_to_meet):
            self.verdict = verdict
        return self.verdict


def slo_result(spec: LoadSpec, attained: int, n: int, verdict: str) -> dict[str, Any]:
    """What stands in a cell's result: {verdict, attained, n, low, high, share, limits}. `verdict`: what ended the window,
    "" where nothing did."""
    low, high = clopper_pearson(attained, n)
    return {
        "verdict": verdict or verdict_of(attained, n, spec.share),
        "attained": attained,
        "n": n,
        "low": low,
        "high": high,
        "share": spec.share,
        "limits": dict(spec.slo),
    }
