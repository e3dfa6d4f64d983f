"""The readings of one GPU over a window, each as its median, and in words. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ddtop.sources.gpu.sample import GpuSample


class Window(NamedTuple):
    """Medians over the window in the units of `GpuSample`, None where not known; `n`: how many samples there were."""

    dram: float | None
    tensor: float | None
    sm: float | None
    util: float | None
    util_mem: float | None
    fraction: float | None
    power_w: float | None
    limit_w: float | None
    clock: float | None
    reasons: Counter[str]
    known_reasons: int
    memory_span_mib: float | None
    violation: float | None
    """Per cent of the time in which the power limit held the clocks down (dmon's pviol)."""
    n: int


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None and v == v]  # noqa: PLR0124  NaN is the first tick of a GPM stream
    return float(statistics.median(known)) if known else None


def window_of(samples: Sequence[GpuSample]) -> Window:
    """The window that these samples of one GPU fill."""
    reasons: Counter[str] = Counter()
    known = 0
    for sample in samples:
        if sample.throttle_reasons is not None:
            known += 1
            reasons.update(set(sample.throttle_reasons))
    used = [float(s.mem_used_mib) for s in samples if s.mem_used_mib is not None]
    clocks = [s.sm_clock_mhz / s.sm_clock_max_mhz for s in samples if s.sm_clock_mhz and s.sm_clock_max_mhz]
    return Window(
        dram=_median(s.dram_active_pct for s in samples),
        tensor=_median(s.tensor_active_pct for s in samples),
        sm=_median(s.sm_active_pct for s in samples),
        util=_median(s.util_gpu_pct for s in samples),
        util_mem=_median(s.util_mem_pct for s in samples),
        fraction=_median(s.power_fraction for s in samples),
        power_w=_median(s.power_w for s in samples),
        limit_w=_median(s.power_limit_w for s in samples),
        clock=_median(clocks),
        reasons=reasons,
        known_reasons=known,
        memory_span_mib=max(used) - min(used) if used else None,
        violation=_median(s.power_violation_pct for s in samples),
        n=len(samples),
    )


def power_words(w: Window) -> str:
    """Power and limit in W."""
    if w.power_w is None or w.limit_w is None or w.fraction is None:
        return "power unknown"
    return f"{w.power_w:.0f} of {w.limit_w:.0f} W ({100 * w.fraction:.0f}%)"


def reading_words(w: Window) -> str:
    """Every reading that a verdict may rest on."""
    parts = [
        f"{name} {value:.0f}%"
        for name, value in (
            ("DRAM", w.dram),
            ("tensor", w.tensor),
            ("util.gpu", w.util),
            ("util.mem", w.util_mem),
        )
        if value is not None and not (name == "util.mem" and w.dram is not None)
    ]
    if w.fraction is not None:
        parts.append(power_words(w))
    return ", ".join(parts) or "no readings"
