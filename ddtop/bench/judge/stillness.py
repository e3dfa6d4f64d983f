"""Whether a server stood still during a cell: the longest time without a byte while requests were open. Pure.

A long prefill is silent too, so a silence is measured against what the same cell needed elsewhere: its first tokens
where a request waits for one, its longest other silence in any case. What has no measure is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ddtop.bench.figures.requests import Request
from ddtop.bench.figures.stats import percentile

STILL_S = 10.0
TIMES = 5.0
"""A silence stands out from this many times what was needed elsewhere, plus STILL_S."""
PAUSE_S, PAUSE_SHARE = 1.0, 0.1
"""A shorter one that is a pause: longer than this, so much of the cell, and twice TIMES what was needed elsewhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """A time in which requests were open and no byte came, in seconds after the window's zero."""

    begin: float
    end: float
    open: int
    awaiting: int
    """Open requests that had no token yet: they may have been in their prefill."""

    @property
    def length_s(self) -> float:
        return self.end - self.begin


def stood_still(
    requests: Sequence[Request], bins: Mapping[str, Any] | None, wall_s: float
) -> tuple[str, str] | None:
    """(reason, words) of the silence that stands out; None where none does, or nothing says what would.

    Longer than STILL_S the server stood still. A shorter one is a pause, where it took a tenth of the cell.
    """
    if not requests or not all(r.streamed for r in requests):
        return None
    counted = bins is not None and not bins.get("left_out")
    if not counted and any(r.chunks > 2 and not r.gaps for r in requests):
        return None  # their chunk times were let go, and no bin counts them: what looks like a silence may be tokens
    silences = _silences(requests, _arrivals(requests, bins), wall_s)
    if not silences or silences[0].length_s <= PAUSE_S:
        return None
    longest = silences[0]
    other = silences[1].length_s if len(silences) > 1 else 0.0
    needed = other
    if longest.awaiting:
        waits = sorted(
            r.ttft_s
            for r in requests
            if r.ttft_s is not None and r.first_s is not None and not _inside(r, longest)
        )
        if not waits:
            return None
        needed = max(needed, percentile(waits, 50) or 0.0)
    words = (
        f"no byte came for {longest.length_s:.1f} of {wall_s:.1f} s while {longest.open} requests were open; "
        f"its longest other silence was {other:.1f} s"
    )
    if longest.length_s > STILL_S + TIMES * needed:
        return "server-stood-still", words
    paused = longest.length_s > max(PAUSE_SHARE * wall_s, 2 * TIMES * needed)
    return ("server-paused", words) if paused else None


def _inside(request: Request, silence: Silence) -> bool:
    """Whether the request waited for its first token during the silence."""
    return request.start_s < silence.end and (request.first_s is None or request.first_s >= silence.end)


def _arrivals(requests: Sequence[Request], bins: Mapping[str, Any] | None) -> list[float]:
    """Moments at which something came, in order: of requests whose chunks are kept, and of all by bins of tokens."""
    found: list[float] = []
    for r in requests:
        if r.first_s is not None:
            at = r.first_s
            found.append(at)
            for gap in r.gaps:
                at += gap
                found.append(at)
        found += [at for at in (r.last_s, r.last_event_s) if at is not None]
        if r.cls not in ("timeout", "unfinished", "refused") and r.end_s is not None:
            found.append(r.end_s)  # an answer of any kind is life
    if bins:
        width = float(bins.get("bin_ns") or 0) / 1e9
        start = int(bins.get("start") or 0)
        found += [(start + n) * width for n, tokens in enumerate(bins.get("tokens") or ()) if tokens]
    return sorted(found)


def _silences(requests: Sequence[Request], arrivals: Sequence[float], wall_s: float) -> list[Silence]:
    """Silences with open requests, the longest first."""
    found = []
    for a, b in pairwise([0.0, *(at for at in arrivals if 0.0 < at < wall_s), wall_s]):
        if b - a <= 0:
            continue
        mine = (
            [r for r in requests if r.start_s < b and (r.end_s is None or r.end_s > a)] if b - a > 1 else []
        )
        begin = max(a, min((r.start_s for r in mine), default=a))
        if b - a > 1 and not mine:
            continue
        awaiting = sum(r.first_s is None or r.first_s >= b for r in mine)
        found.append(Silence(begin=begin, end=b, open=len(mine), awaiting=awaiting))
    return sorted(found, key=lambda s: -s.length_s)
