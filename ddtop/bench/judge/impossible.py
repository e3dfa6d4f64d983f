"""Figures that cannot be true together: times longer than the run, percentiles out of order, rates that are not tokens
over seconds. Pure; both are rules of `sanity.RULES`.

Printed figures are rounded, so every comparison has slack for two decimals and some per cent more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ddtop.bench.judge.stated import Figures

LONGER = 1.05  # a time may exceed the run by this factor: tools start their clocks at different moments
LONGER_MS = 20.0
DIFFER = 0.05  # between a rate and what it is made of
ROUNDED = 0.006  # two printed decimals
SPREAD = 1.5  # a mean time × a mean length is no exact product
ORDER = ("min", "p50", "p90", "p95", "p99", "max")
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E latency", "icl": "gap between chunks"}
SHARED = ("mean", *ORDER)


def impossible_times(f: Figures) -> str:
    """The first time that cannot be, in words; "" where all can."""
    return next(_times(f), "")


def figures_disagree(f: Figures) -> str:
    """The first two figures that contradict each other, in words; "" where none do."""
    return next(_rates(f), "")


def _times(f: Figures) -> Iterator[str]:
    run_ms = f.duration_s * 1e3 if f.duration_s is not None else None
    if run_ms is not None and run_ms <= 0 and f.ok:
        yield f"{f.ok} requests in a run of {f.duration_s:g} s"
    for key, stats in f.times_ms.items():
        name = NAMES.get(key, key)
        for stat, value in stats.items():
            if value < 0:
                yield f"{name} {stat} is negative: {value:g} ms"
            if f.whole_run and run_ms and stat in SHARED and value > run_ms * LONGER + LONGER_MS:
                yield f"{name} {stat} of {value / 1e3:.2f} s in a run of {run_ms / 1e3:.2f} s"
        yield from _out_of_order(name, stats)
    first, whole = f.times_ms.get("ttft", {}), f.times_ms.get("e2e", {})
    for stat in SHARED:
        if stat in first and stat in whole and first[stat] > whole[stat] * 1.02 + 0.1:
            yield f"TTFT {stat} of {first[stat]:g} ms is above E2E latency {stat} of {whole[stat]:g} ms"
    yield from _longer_than_the_run(f)


def _out_of_order(name: str, stats: dict[str, float] | object) -> Iterator[str]:
    if not isinstance(stats, dict):
        return
    known = [(stat, stats[stat]) for stat in ORDER if stat in stats]
    for (low, a), (high, b) in pairwise(known):
        if a > b * 1.001 + ROUNDED:
            yield f"{name} {low} of {a:g} ms is above its {high} of {b:g} ms"
    mean = stats.get("mean")
    if mean is None:
        return
    if "max" in stats and mean > stats["max"] * 1.001 + ROUNDED:
        yield f"{name} mean of {mean:g} ms is above its max of {stats['max']:g} ms"
    if "min" in stats and mean < stats["min"] * 0.999 - ROUNDED:
        yield f"{name} mean of {mean:g} ms is below its min of {stats['min']:g} ms"


def _longer_than_the_run(f: Figures) -> Iterator[str]:
    if not (f.whole_run and f.duration_s and f.ok):
        return
    run_ms = f.duration_s * 1e3
    gap = f.times_ms.get("tpot", {}).get("mean")
    if gap and f.output_tokens:
        request = gap * (f.output_tokens / f.ok - 1)
        if request > run_ms * SPREAD:
            yield (f"TPOT × tokens makes {request / 1e3:.1f} s a request, in a run of {f.duration_s:.1f} s")
    held = f.times_ms.get("e2e", {}).get("mean") or f.times_ms.get("ttft", {}).get("mean")
    if held and f.most_streams and f.ok * held > f.most_streams * run_ms * 1.25 + LONGER_MS:
        yield (
            f"{f.ok} requests of {held / 1e3:.2f} s each do not fit into {f.duration_s:.2f} s"
            f" with {f.most_streams:g} at a time"
        )


def _rates(f: Figures) -> Iterator[str]:
    if f.not_numbers:
        yield f"no finite positive number: {', '.join(f.not_numbers[:5])}"
    for name, rate in (
        ("output tok/s", f.output_tok_s),
        ("total tok/s", f.total_tok_s),
        ("input tok/s", f.input_tok_s),
        ("requests/s", f.requests_s),
        ("output tokens", f.output_tokens),
        ("requests", f.ok),
    ):
        if rate is not None and rate < 0:
            yield f"{name} is negative: {rate:g}"
    if (
        f.output_s
        and f.output_tokens
        and f.output_tok_s
        and _differ(f.output_tokens, f.output_s, f.output_tok_s)
    ):
        yield f"output tok/s is given as {f.output_tok_s:g}, but {f.output_tokens:g} in {f.output_s:g} s are {f.output_tokens / f.output_s:.2f}"
    if f.whole_run and f.duration_s and f.duration_s > 0:
        for name, count, rate in (
            ("output tok/s", f.output_tokens, f.output_tok_s),
            ("input tok/s", f.input_tokens, f.input_tok_s),
            ("requests/s", f.ok if not f.failed else None, f.requests_s),
        ):
            if count and rate is not None and _differ(count, f.duration_s, rate):
                yield (
                    f"{name} is given as {rate:g}, but {count:g} in {f.duration_s:g} s are {count / f.duration_s:.2f}"
                )
    if f.total_tok_s is not None and f.output_tok_s and f.total_tok_s < f.output_tok_s * (1 - DIFFER):
        yield f"total tok/s of {f.total_tok_s:g} is below output tok/s of {f.output_tok_s:g}"


def _differ(count: float, seconds: float, rate: float) -> bool:
    true = count / seconds
    return abs(rate - true) > true * (DIFFER + ROUNDED / seconds) + ROUNDED
