"""The search for the knee: which load to try next, from those tried. Pure, so that a resume goes on where the steps end.

Doubles the load from the first one until one is missed (halves it where the first one is), then halves the interval until
it is an eighth of the load, and measures the highest load that was met once more, for longer, to confirm it. Where that
misses, the next lower one is confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ddtop.agent.loadgen.chance import clopper_pearson
from ddtop.events import Search

FINEST = 1 / 8
"""The interval in which the knee lies in the end, as a share of the load; one stream where that is more."""
LOWEST = 1 / 64
"""A rate is tried down to this share of the first one …"""
LEAST_REQUESTS = 5
"""… as long as so many requests are sent in `point_s`."""
GROWTH = 1.05
"""Without limits: twice the load must bring at least this much more throughput, else the server is saturated."""
MOST_STEPS = 60
MOST_REQUESTS = 10_000
"""Of one load: enough to decide a share half a percent away."""
EXPECTED = frozenset({"time-limit", "few-samples", "under-delivery", "not-settled"})
"""Doubts that say nothing of a load that may end early, or is more than the server can take."""
OVERLOAD = frozenset({"most-failed", "no-tokens"})
"""What too much load does to a server: at a load above one that was met, the load is missed, not the result spoiled."""

PointVerdict = Literal["met", "missed", "undecided", "over-saturated", "failed", "flat"]
"""`undecided`: the point ended before it was decided; `failed`: the server gave no usable result at this load;
`flat`: without limits, the throughput grew no more."""


@dataclass(frozen=True, slots=True)
class Point:
    """One load to measure. `confirm`: for the whole of `confirm_s`, without an early end."""

    load: float
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """One measured load. `attained`: share of its requests that met the limits, None where none ended."""

    load: float
    verdict: PointVerdict
    attained: float | None = None
    confirm: bool = False
    output_tok_s: float | None = None
    requests_s: float | None = None
    overlapped: bool = True
    """Whether requests were ever under way together. Where they were not, a lower load is no easier."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """What is known of the knee: the highest load that was met, and the lowest above it that was not; None: none yet."""

    low: float | None = None
    high: float | None = None
    confirmed: bool = False
    """Whether `low` was confirmed."""


def is_met(tried: Tried, search: Search) -> bool:
    """Whether a load counts as met; an undecided one as its requests so far say."""
    if tried.verdict == "undecided":
        return tried.attained is not None and tried.attained >= search.share
    return tried.verdict == "met"


def bracket(steps: Sequence[Tried], search: Search) -> Bracket:
    """What the steps say of the knee. A confirmation goes before what the same load seemed to be."""
    last = {tried.load: tried for tried in sorted(steps, key=lambda tried: tried.confirm)}
    missed = [load for load, tried in last.items() if not is_met(tried, search)]
    high = min(missed, default=None)
    met = [load for load, tried in last.items() if is_met(tried, search) and (high is None or load < high)]
    low = max(met, default=None)
    return Bracket(low, high, low is not None and last[low].confirm)


def next_point(steps: Sequence[Tried], search: Search) -> Point | None:
    """The next load to try; None when the knee is found, or nothing lower can be tried."""
    if not steps:
        return Point(search.start)
    if len(steps) >= MOST_STEPS:
        return None
    known = bracket(steps, search)
    if known.high is None:
        assert known.low is not None
        if known.low < search.most:
            return Point(min(known.low * 2, search.most))
        return _confirm(known, search)
    if known.low is None:
        alone = any(tried.load == known.high and not tried.overlapped for tried in steps)
        return None if alone else _lower(known.high, search)
    if not _stops_at(steps, known.high) and (middle := _between(known.low, known.high, search)) is not None:
        return Point(middle)
    return _confirm(known, search)


def _confirm(known: Bracket, search: Search) -> Point | None:
    if known.confirmed or known.low is None or not search.slo or not search.confirm_s:
        return None
    return Point(known.low, confirm=True)


def _lower(high: float, search: Search) -> Point | None:
    if search.by == "concurrency":
        return Point(float(high // 2)) if high >= 2 else None
    lower = _rounded(high / 2)
    enough = lower >= search.start * LOWEST and lower * search.point_s >= LEAST_REQUESTS
    return Point(lower) if enough else None


def _between(low: float, high: float, search: Search) -> float | None:
    """The load in the middle; None where the interval is as small as it shall be."""
    if search.by == "concurrency":
        return (low + high) // 2 if high - low > max(1.0, low * FINEST // 1) else None
    return _rounded((low + high) / 2) if high - low > low * FINEST * (1 + 1e-9) else None


def _rounded(load: float) -> float:
    """Six digits: halves of decimal fractions stay readable."""
    return float(f"{load:.6g}")


def _stops_at(steps: Sequence[Tried], high: float) -> bool:
    """Whether the throughput grew no more there: between it and half of it there is nothing to find."""
    return any(tried.load == high and tried.verdict == "flat" for tried in steps)


def growth(steps: Sequence[Tried], load: float, output_tok_s: float | None, search: Search) -> PointVerdict:
    """The verdict on a load without limits: by its throughput, compared with that of the highest load met below it."""
    if output_tok_s is None:
        return "failed"
    below = [tried for tried in steps if tried.load < load and is_met(tried, search)]
    before = max(below, key=lambda tried: tried.load, default=None)
    if before is None or not before.output_tok_s:
        return "met"
    wanted = before.output_tok_s * GROWTH ** math.log2(load / before.load)
    return "met" if output_tok_s >= wanted else "flat"


def point_load(
    search: Search, point: Point, steps: Sequence[Tried], nonce: str = "", turns: int = 1
) -> dict[str, Any]:
    """The LoadSpec fields of one load, over those that hold for all. `turns`: requests of a conversation; a stream, and an
    arrival of a rate, is a conversation.

    A confirmation has as many requests as the load takes in `confirm_s`, and lasts that long; any other ends by itself, at the latest
    after `point_s` (what an open loop sent may be answered as long again).
    """
    seconds = search.confirm_s if point.confirm else search.point_s
    if search.by == "rate":
        load: dict[str, Any] = {
            "mode": "open",
            "rate": point.load,
            "requests": math.ceil(point.load * seconds) * turns,
        }
    else:
        streams = int(point.load)
        pace = next((t.requests_s for t in reversed(steps) if t.load == point.load and t.requests_s), 0.0)
        requests = max(streams * turns, math.ceil(pace * seconds)) if point.confirm else MOST_REQUESTS
        load = {"mode": "closed", "concurrency": streams, "requests": requests}
    load["min_window_s"] = search.confirm_s if point.confirm else 0.0
    if not point.confirm and search.slo:
        load["requests"] = min(MOST_REQUESTS, load["requests"])
        limit_s = search.point_s * (2.0 if search.by == "rate" else 1.0)
        load |= {"slo": dict(search.slo), "share": search.share, "time_limit_s": limit_s}
        load["min_window_s"] = 0.0  # it ends when it is decided
    if nonce:  # other text at each load: the server would have it in its prefix cache
        load["nonce"] = f"{nonce}-{point.load:g}{'-confirm' if point.confirm else ''}"
    return load


def measured_at(search: Search, asked: Mapping[str, Any]) -> Point:
    """The load that a result is of, by the LoadSpec that it carries."""
    load = float(asked.get(search.by) or search.start)
    return Point(load, confirm=bool(asked) and bool(search.slo) and not asked.get("slo"))


def verdict_on(
    validity: str,
    reasons: Sequence[str],
    metrics: Mapping[str, Any],
    point: Point,
    steps: Sequence[Tried],
    search: Search,
) -> PointVerdict | None:
    """The verdict on a measured load; None where its result is spoiled, and the load must be measured again."""
    if validity == "INVALID":
        below = bracket(steps, search).low
        if not OVERLOAD.isdisjoint(reasons) and (metrics.get("slo") or {}).get("verdict") == "over-saturated":
            return "over-saturated"  # its queue was cut by the generator: what was cut is no failure
        above = below is not None and (below < point.load or point.confirm)
        overloaded = above and not OVERLOAD.isdisjoint(reasons)
        return "failed" if overloaded else None
    if not search.slo:
        return growth(steps, point.load, metrics.get("output_tok_s"), search)
    if not point.confirm:
        verdict: PointVerdict = (metrics.get("slo") or {}).get("verdict", "undecided")
        return verdict
    return "met" if metrics.get("goodput_share", 0.0) >= search.share else "missed"


def attained(metrics: Mapping[str, Any], verdict: PointVerdict) -> dict[str, Any]:
    """How many requests met the limits, with the interval of their share: of a confirmation, in the form of the
    generator's own verdict on a load that it ended."""
    if metrics.get("slo") or "goodput_share" not in metrics:
        return dict(metrics.get("slo") or {})
    n = int(metrics.get("requests_ok", 0)) + int(metrics.get("requests_failed", 0))
    good = round(metrics["goodput_share"] * n)
    low, high = clopper_pearson(good, n)
    return {"verdict": verdict, "attained": good, "n": n, "low": low, "high": high}


def as_tried(
    point: Point, verdict: PointVerdict, metrics: Mapping[str, Any], slo: Mapping[str, Any]
) -> Tried:
    """A measured load as the search decides on it."""
    share = slo["attained"] / slo["n"] if slo.get("n") else None
    return Tried(
        load=point.load,
        verdict=verdict,
        attained=share,
        confirm=point.confirm,
        output_tok_s=metrics.get("output_tok_s"),
        requests_s=metrics.get("requests_s"),
        overlapped=metrics.get("in_flight_max") != 1,
    )
