"""Whether the load of a cell was steady: the hand-over before its window, and what moved during it. Pure.

Two blocks of a few requests agree or differ by chance now and then, so the hand-over's word alone condemns nothing: the
window's quarters, which hold many more, must show that TTFT or tok/s still moves. A burst that the time limit cut off is
named in any case: the window then begins in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ddtop.bench.figures.requests import Request
from ddtop.bench.figures.stats import percentile

PARTS = 4
LEAST = 8
"""Requests in each part, below which nothing is said."""
RANGE_999 = 5.3
"""Of four equal means their range is below this many standard errors in 99.9% of the cases (studentized range)."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median, in those of a mean."""
TIMES = 3.0
"""Beyond noise, what moves by less than this many `settle_pct` is steady."""


def not_settled(result: Mapping[str, Any], requests: Sequence[Request]) -> str:
    """What was not steady, in words; "" where the load had settled, nothing can be told, or no hand-over was asked for."""
    about = result.get("handover") or {}
    if not about.get("by"):
        return ""
    spec, window = result.get("spec") or {}, result.get("window") or {}
    if about["by"] == "time":
        return f"a quarter of the time limit ({about['seconds']:.0f} s) was over before the load had settled"
    pct = float(spec.get("settle_pct") or 5.0)
    # later turns of a conversation find its beginning in the cache: like is compared with like
    turns = max(1, int(result.get("turns") or spec.get("turns") or 1))
    prompts = math.lcm(max(1, int(spec.get("prompts_n") or 1)), turns)
    close_s = float(window.get("wall_s") or 0.0)
    ok = [r for r in sorted(requests, key=lambda r: r.start_s) if r.ok]
    ttft = [(r.index % prompts, r.ttft_s * 1e3) for r in ok if r.ttft_s]
    rate = [
        (r.index % prompts, r.tokens / r.e2e_s)
        for r in ok
        if r.tokens and r.e2e_s and r.end_s is not None and r.end_s <= close_s  # not beside fewer streams
    ]
    for name, series, unit in (("TTFT", ttft, "ms"), ("tok/s of a request", rate, "")):
        found = moved(series, pct)
        if found is not None:
            low, high = (f"{value:,.1f} {unit}".rstrip() for value in found)
            return f"{name} moved from {low} to {high} during the window"
    return ""


def moved(series: Sequence[tuple[int, float]], pct: float) -> tuple[float, float] | None:
    """(prompt, value) in order of time → the medians of the two quarters that differ most, in order of time, where they
    differ by more than chance and TIMES × `pct` %; else None. Values are compared with those of the same prompt."""
    usual: dict[int, list[float]] = {}
    for prompt, value in series:
        usual.setdefault(prompt, []).append(value)
    middle = {prompt: median(values) for prompt, values in usual.items() if len(values) > 1}
    values = [value / middle[prompt] for prompt, value in series if middle.get(prompt)]
    size = len(values) // PARTS
    if size < LEAST:
        return None
    parts = [values[at * size : (at + 1) * size] for at in range(PARTS)]
    medians = [median(part) for part in parts]
    # robust, and inside the parts: what differs between them must not count as noise
    scatter = (
        percentile(sorted(abs(v - m) for p, m in zip(parts, medians, strict=True) for v in p), 50) * 1.4826
    )
    low, high = sorted((medians.index(min(medians)), medians.index(max(medians))))
    allowed = TIMES * pct / 100 + RANGE_999 * MEDIAN_ERROR * scatter / math.sqrt(size)
    if max(medians) - min(medians) <= allowed * min(medians):
        return None
    scale = median([value for _, value in series])
    return medians[low] * scale, medians[high] * scale
