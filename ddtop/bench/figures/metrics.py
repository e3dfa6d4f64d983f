"""A cell's metrics from its requests, by the definitions of docs/measuring.md. Pure; what is not known is absent."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddtop.agent.loadgen.spec import LIMITS
from ddtop.agent.loadgen.window.slo import meets, with_bounds
from ddtop.bench.figures.bounds import bounded_summary
from ddtop.bench.figures.requests import Request
from ddtop.bench.figures.stats import summary, weighted_summary


@dataclass(frozen=True, slots=True)
class Slo:
    """A service-level objective: every limit that is given must hold for a request to count as good. In ms."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    icl_ms: float | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are given, by name."""
        return {name: limit for name in LIMITS if (limit := getattr(self, name)) is not None}

    def met(self, request: Request) -> bool:
        """Whether an ok request met it; a figure that is not known, nor what it is at most, does not meet a limit."""
        figures = {
            "ttft_ms": request.ttft_s,
            "tpot_ms": request.tpot_s,
            "e2e_ms": request.e2e_s,
            "icl_ms": max(request.gaps, default=0.0) or None,
        }
        in_ms = {name: None if value is None else value * 1e3 for name, value in figures.items()}
        at_once = request.streamed and request.first_s is not None and request.first_s == request.last_s
        return request.ok and meets(self.limits, with_bounds(in_ms, request.tokens, at_once))


def cell_metrics(
    requests: list[Request],
    *,
    concurrency: int = 0,
    bins: dict[str, Any] | None = None,
    slo: Slo | None = None,
    burst: Sequence[Request] = (),
    window: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All metrics that the requests alone give. `bins`: tokens by time for cells whose chunk times were thinned. `burst`
    and `window` (wall_s, tokens, ended) of a cell whose load was handed over: the requests before its zero, of which some
    end in it, and what came between its zero and its close."""
    ok = [request for request in requests if request.ok]
    out: dict[str, Any] = counts(requests)
    if not requests:
        return out
    in_flight = in_flight_over_time([*burst, *requests])
    if in_flight:
        out["in_flight_max"] = max(count for _, count in in_flight)
    if not ok:
        return out  # no successful request: no measurement, never zeros
    out.update(_latencies(ok))
    out.update(_throughput(requests, ok, window))
    out.update(_over_time(requests, in_flight, concurrency, bins, window))
    if slo is not None and "wall_s" in out:
        good = sum(slo.met(request) for request in ok)
        judged = sum(request.cls != "unfinished" for request in requests)
        out["goodput_s"] = good / out["wall_s"]
        out["goodput_share"] = good / judged if judged else 0.0
    return out


def counts(requests: list[Request]) -> dict[str, Any]:
    """requests_ok, requests_failed, requests_unfinished, failures {class: n}."""
    classes = Counter(request.cls for request in requests)
    return {
        "requests_ok": classes.pop("ok", 0),
        "requests_unfinished": classes.pop("unfinished", 0),
        "requests_failed": sum(classes.values()),
        "failures": dict(sorted(classes.items())),
    }


def _ms(values: list[float | None]) -> dict[str, float]:
    return bounded_summary([value * 1e3 for value in values if value is not None])


def _latencies(ok: list[Request]) -> dict[str, Any]:
    streamed = [request for request in ok if request.streamed]
    figures: dict[str, Any] = {
        "ttft_ms": _ms([request.ttft_s for request in streamed]),
        "ttsc_ms": _ms([request.ttsc_s for request in streamed]),
        "icl_ms": summary([gap * 1e3 for request in streamed for gap in request.gaps]),
        "itl_ms": itl_ms(streamed),
        "tpot_ms": _ms([request.tpot_s for request in streamed]),
        "decode_tok_s": summary([rate for r in streamed if (rate := r.decode_tok_s) is not None]),
        "e2e_ms": _ms([request.e2e_s for request in ok]),
        "connect_ms": _ms([request.connect_s for request in ok]),
    }
    chunked = [request for request in streamed if request.tokens is not None and request.chunks]
    if chunked:
        figures["tokens_per_chunk"] = sum(r.tokens or 0 for r in chunked) / sum(r.chunks for r in chunked)
    lags = [request.start_s - request.sched_s for request in ok if request.sched_s is not None]
    if lags:
        figures["start_lag_ms"] = summary([lag * 1e3 for lag in lags])
        figures["e2e_from_schedule_ms"] = _ms(
            [r.e2e_s + r.start_s - r.sched_s for r in ok if r.sched_s is not None and r.e2e_s is not None]
        )
    return {key: value for key, value in figures.items() if value}


BURST_S = 0.5e-3
BURST_SHARE = 0.1


def itl_ms(requests: list[Request]) -> dict[str, float]:
    """Per token: each gap divided by the tokens it brought, weighted by them.

    A gap that brought none (its text had no new token) belongs to the next one that did. Chunks that follow one another
    within BURST_S and BURST_SHARE of the request's mean gap came together, as the tokens of one verification step do
    where the server sends each in a chunk of its own: their gaps and tokens are those of the step.
    """
    pairs: list[tuple[float, int]] = []
    for request in requests:
        if request.gap_tokens is None or not request.gaps:
            continue
        near = min(BURST_S, BURST_SHARE * sum(request.gaps) / len(request.gaps))
        waited, brought = 0.0, 0
        for gap, tokens in zip(request.gaps, request.gap_tokens, strict=True):
            if brought > 0 and gap > near:
                pairs.append((waited * 1e3 / brought, brought))
                waited, brought = 0.0, 0
            waited += gap
            brought += max(0, tokens)
        if brought > 0:
            pairs.append((waited * 1e3 / brought, brought))
    return weighted_summary(pairs)


def burst_metrics(burst: Sequence[Request], about: Mapping[str, Any]) -> dict[str, Any]:
    """What the requests before the window's zero felt: a true figure, of a herd. `about`: {by, requests, seconds}."""
    ok = [request for request in burst if request.ok]
    out = {**about, "requests_failed": sum(request.failed for request in burst)}
    for name, values in (
        ("ttft_ms", [r.ttft_s for r in ok if r.streamed]),
        ("e2e_ms", [r.e2e_s for r in ok]),
    ):
        if figures := _ms(values):
            out[name] = figures
    return out


def _throughput(
    requests: list[Request], ok: list[Request], window: Mapping[str, Any] | None
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    # Requests that the time limit cut were served too: their tokens and their time count, their latencies do not.
    served = [request for request in requests if request.ok or request.cls == "unfinished"]
    ends = [end for request in served if (end := request.end_s or request.last_event_s) is not None]
    wall_s = max(ends, default=0.0) - min(request.start_s for request in served)
    if window is not None:
        wall_s = float(window["wall_s"])
    if wall_s <= 0:
        return out
    out["wall_s"] = wall_s
    out["requests_s"] = (len(ok) if window is None else window["ended"]) / wall_s
    if all(request.tokens is not None for request in ok) and (window is None or "tokens" in window):
        output = sum(request.tokens or 0 for request in ok)
        cut = sum(request.tokens or 0 for request in served if not request.ok)
        if window is not None:  # of whichever requests they are
            output, cut = int(window["tokens"]), 0
        out["output_tokens"] = output
        if cut:
            out["output_tokens_unfinished"] = cut
        out["output_tok_s"] = (output + cut) / wall_s
        if all(request.prompt_tokens is not None for request in ok):
            prompt = sum(request.prompt_tokens or 0 for request in ok)
            out["input_tokens"] = prompt
            out["input_tok_s"] = prompt / wall_s
            out["total_tok_s"] = (output + cut + prompt) / wall_s
    cached = [
        (r.cached_tokens, r.prompt_tokens) for r in ok if r.cached_tokens is not None and r.prompt_tokens
    ]
    if cached:
        out["cached_tokens"] = sum(one or 0 for one, _ in cached)
        out["cached_share"] = out["cached_tokens"] / sum(all_ or 0 for _, all_ in cached)
    return out


def in_flight_over_time(requests: list[Request]) -> list[tuple[float, int]]:
    """[(time, requests under way from then on)], by start and end of every request, failed ones too."""
    steps: list[tuple[float, int]] = []
    for request in requests:
        end = request.end_s if request.end_s is not None else request.last_event_s
        if end is None or end < request.start_s:
            continue
        steps.append((request.start_s, 1))
        steps.append((end, -1))
    steps.sort(
        key=lambda step: (step[0], -step[1])
    )  # a request that starts as another ends is under way beside it
    out: list[tuple[float, int]] = []
    running = 0
    for at, step in steps:
        running += step
        if out and out[-1][0] == at:
            out[-1] = (at, max(out[-1][1], running) if step > 0 else running)
        else:
            out.append((at, running))
    return out


def steady_window(in_flight: list[tuple[float, int]], streams: int) -> tuple[float, float] | None:
    """From the moment all streams run to the moment the first one has nothing left to do; None if they never all ran."""
    full = [place for place, (_, count) in enumerate(in_flight) if count >= streams]
    if not full or full[-1] + 1 >= len(in_flight):
        return None
    begin, end = in_flight[full[0]][0], in_flight[full[-1] + 1][0]
    return (begin, end) if end > begin else None


def token_events(requests: list[Request]) -> list[tuple[float, int]] | None:
    """[(time, tokens)] of every chunk of served requests; None if some request's chunks have no known counts."""
    events: list[tuple[float, int]] = []
    for request in requests:
        if request.cls not in ("ok", "unfinished") or request.first_s is None or not request.streamed:
            continue
        if request.first_tokens is None or (request.chunks > 1 and request.gap_tokens is None):
            return None
        at = request.first_s
        events.append((at, request.first_tokens))
        for gap, tokens in zip(request.gaps, request.gap_tokens or (), strict=True):
            at += gap
            events.append((at, tokens))
    return sorted(events)


def peak_tok_s(events: list[tuple[float, int]], width_s: float = 1.0) -> float | None:
    """The most tokens in any `width_s` (half-open), per second; None if the tokens do not span that long."""
    if not events or events[-1][0] - events[0][0] < width_s:
        return None
    best = running = low = 0
    for at, tokens in events:
        running += tokens
        while events[low][0] <= at - width_s:
            running -= events[low][1]
            low += 1
        best = max(best, running)
    return best / width_s


def _over_time(
    requests: list[Request],
    in_flight: list[tuple[float, int]],
    concurrency: int,
    bins: dict[str, Any] | None,
    window: Mapping[str, Any] | None,
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    # the bins hold the tokens of the burst's last requests too
    events = token_events(requests) if window is None else None
    if events is None and bins and bins.get("tokens") and not bins.get("left_out"):
        width = bins["bin_ns"] / 1e9
        events = [((bins["start"] + place) * width, n) for place, n in enumerate(bins["tokens"]) if n]
    if events and (peak := peak_tok_s(events)) is not None:
        out["peak_tok_s"] = peak
    streams = min(concurrency, len(requests)) if concurrency else 0
    if window is not None and window["wall_s"] > 0:  # it is the steady state, by the way it was chosen
        out["in_flight_mean"] = _mean_in_flight(in_flight, 0.0, window["wall_s"])
        out["steady_s"] = window["wall_s"]
        if "tokens" in window:
            out["steady_tok_s"] = window["tokens"] / window["wall_s"]
        return out
    if not streams:
        return out
    steady = steady_window(in_flight, streams)
    if steady is None:
        return out
    begin, end = steady
    out["steady_s"] = end - begin
    out["in_flight_mean"] = _mean_in_flight(in_flight, begin, end)
    if events:
        # what arrived after the window began, up to its end; the last chunk of the stream that ends it is in it
        edge = 1e-7
        out["steady_tok_s"] = sum(n for at, n in events if begin < at <= end + edge) / (end - begin)
    return out


def _mean_in_flight(in_flight: list[tuple[float, int]], begin: float, end: float) -> float:
    area = 0.0
    for (at, count), (until, _) in itertools.pairwise(in_flight):
        area += count * max(0.0, min(until, end) - max(at, begin))
    return area / (end - begin)
