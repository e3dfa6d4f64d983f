"""What limits a GPU now: memory, arithmetic, latency, heat, power, or a hung collective.

In order of trust: GPM's DRAM and tensor activity; `utilization.memory`; power (a weak hint, marked as such). On an H200,
decode at batch size 1 is memory-bound at 91% of the power limit and 99% utilisation, so neither of these two decides.
Where the readings do not decide, the verdict is "unknown".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from ddtop.sources.bound.window import Window, power_words, reading_words, window_of
from ddtop.sources.gpu.sample import POWER_CAP_REASON, THROTTLE_REASONS, GpuSample

Strength = Literal["strong", "weak", "none"]
BoundVerdict = Literal[
    "memory-bound",
    "compute-bound",
    "balanced",
    "latency-bound",
    "throttled",
    "power-capped",
    "wedged-collective",
    "idle",
    "unknown",
]


class Thresholds(NamedTuple):
    """Percent, except `*_fraction`, `clock_cut` and `share` (0 to 1).

    The first two lie midway between the memory-bound and the compute-bound phases of the H200 readings: tensor 16 / 94,
    DRAM 23 / 85 (tests/sources/test_bound.py chooses them on half of the phases and tries them on the others).
    """

    dram_pct: float = 55.0
    tensor_pct: float = 55.0
    low_pct: float = 40.0  # below it neither DRAM nor tensor cores are the limit
    idle_pct: float = 5.0
    util_mem_high_pct: float = 90.0
    util_mem_low_pct: float = 45.0
    busy_util_pct: float = 90.0
    wedged_power_fraction: float = 0.35  # NCCL hang on a 600 W card: 120-140 W (nccl#1999); idle is 10-18%
    far_below_fraction: float = 0.6
    near_limit_fraction: float = 0.8
    clock_cut: float = 0.9  # of the highest clock
    flat_mib: float = 64.0
    share: float = 0.5  # of the window a reason bit must be set


DEFAULT = Thresholds()


class Bound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict on one GPU over one window.

    why      the readings it rests on
    meaning  what follows for the sweep
    reason   the throttle reason
    capped   the power cap lowered the clocks as well; the bound is the same without it
    The other fields are medians over the window; None if unknown.
    """

    verdict: BoundVerdict
    strength: Strength
    why: str
    meaning: str
    reason: str | None = None
    capped: bool = False
    dram_pct: float | None = None
    tensor_pct: float | None = None
    util_mem_pct: float | None = None
    power_fraction: float | None = None
    samples: int = 0


def diagnose_bound(
    samples: Sequence[GpuSample], *, moving: bool | None = None, limits: Thresholds = DEFAULT
) -> Bound:
    """The bound of one GPU over a window (2 s is enough) of its samples, oldest first.

    moving  whether work gets done (tokens come, a load makes progress); None if unknown. A busy GPU at low power is a
            hung collective only if this is False.
    """
    if not samples:
        return _bound("unknown", "none", "no readings", window_of(()))
    w = window_of(samples)
    for rule in (_idle, _throttled, _wedged, _by_activity, _by_memory_utilisation, _by_power):
        found = rule(w, moving, limits)
        if found is not None:
            return found
    return _bound("unknown", "none", f"the readings do not decide ({reading_words(w)})", w)


Rule = Callable[[Window, "bool | None", Thresholds], "Bound | None"]


def _idle(w: Window, moving: bool | None, t: Thresholds) -> Bound | None:
    activity = [v for v in (w.dram, w.tensor, w.sm) if v is not None]
    if activity:
        # Kernels too small to count in GPM still show in utilisation: that is latency, not idleness.
        quiet = max(activity) < t.idle_pct and (w.util is None or w.util < t.idle_pct)
        return _bound("idle", "strong", reading_words(w), w) if quiet else None
    if w.util is not None:
        return _bound("idle", "strong", reading_words(w), w) if w.util < t.idle_pct else None
    if w.known_reasons and w.reasons["gpu_idle"] >= t.share * w.known_reasons:
        return _bound("idle", "weak", "the driver reports the idle reason, but no utilisation", w)
    return None


def _throttled(w: Window, moving: bool | None, t: Thresholds) -> Bound | None:
    slow = [r for r, n in w.reasons.most_common() if r in THROTTLE_REASONS and n >= t.share * w.known_reasons]
    if not slow:
        return None
    # The specific reason says more than hw_slowdown, which comes with it.
    reason = next((r for r in slow if r != "hw_slowdown"), slow[0])
    return _bound(
        "throttled", "strong", f"{reason} in {w.reasons[reason]} of {w.known_reasons} readings", w, reason
    )


def _wedged(w: Window, moving: bool | None, t: Thresholds) -> Bound | None:
    """100% utilisation, low power, constant memory, no progress: a kernel that spins and waits."""
    if moving or w.util is None or w.util < 95 or w.fraction is None or w.fraction > t.wedged_power_fraction:
        return None
    if w.memory_span_mib is not None and w.memory_span_mib > t.flat_mib:
        return None
    why = f"utilisation {w.util:.0f}% at {power_words(w)}, memory flat"
    quiet = None if w.dram is None else w.dram < 10 and (w.tensor or 0) < t.idle_pct
    if quiet is False:
        return None
    if quiet and moving is False:
        return _bound("wedged-collective", "strong", f"{why}, DRAM {w.dram:.0f}%, and nothing moves", w)
    if moving is False:
        return _bound("wedged-collective", "strong", f"{why}, and nothing moves", w)
    if quiet or (w.util_mem is not None and w.util_mem < t.idle_pct):
        return _bound("wedged-collective", "weak", f"{why}, memory not read; progress unknown", w)
    return _bound("unknown", "none", f"{why}: a hung collective, or latency-bound work", w)


def _by_activity(w: Window, moving: bool | None, t: Thresholds) -> Bound | None:
    if w.dram is None or w.tensor is None:
        return None
    why = reading_words(w)
    capped = _is_capped(w, t)
    if w.dram >= t.dram_pct and w.tensor >= t.tensor_pct:
        return _bound("balanced", "strong", why, w, capped=capped)
    if w.dram >= t.dram_pct:
        return _bound("memory-bound", "strong", why, w, capped=capped)
    if w.tensor >= t.tensor_pct:
        return _bound("compute-bound", "strong", why, w, capped=capped)
    if max(w.dram, w.tensor) < t.low_pct:
        if capped and w.clock is not None and w.clock < t.clock_cut:
            return _bound("power-capped", "strong", why, w, POWER_CAP_REASON)
        # Arithmetic outside the tensor cores (FP32, integer) leaves both low while all SMs work.
        strength: Strength = "weak" if w.sm is not None and w.sm >= t.busy_util_pct else "strong"
        return _bound("latency-bound", strength, why, w)
    return _bound("memory-bound" if w.dram >= w.tensor else "compute-bound", "weak", why, w, capped=capped)


def _by_memory_utilisation(w: Window, moving: bool | None, t: Thresholds) -> Bound | None:
    """Without GPM. `utilization.memory` is the share of time with any access: a high value may also be a balanced load."""
    if w.util_mem is None:
        return None
    capped = _is_capped(w, t)
    if w.util_mem >= t.util_mem_high_pct:
        return _bound(
            "memory-bound",
            "weak",
            f"{reading_words(w)}; a balanced load would look the same",
            w,
            capped=capped,
        )
    busy = w.util is not None and w.util >= t.busy_util_pct
    if w.tensor is not None and w.tensor >= t.tensor_pct and w.util_mem <= t.util_mem_low_pct:
        return _bound("compute-bound", "weak", f"{reading_words(w)}; DRAM activity unknown", w, capped=capped)
    if busy and w.util_mem <= t.util_mem_low_pct:
        if capped or (w.fraction is not None and w.fraction >= t.near_limit_fraction):
            return _bound("compute-bound", "weak", reading_words(w), w, capped=capped)
        if w.fraction is not None and w.fraction < t.far_below_fraction:
            return _bound("latency-bound", "weak", reading_words(w), w)
    if capped and busy:
        return _bound(
            "power-capped", "strong", f"{reading_words(w)}; other limits unknown", w, POWER_CAP_REASON
        )
    if w.util is not None and w.util < 60 and w.util_mem < t.util_mem_low_pct:
        return _bound(
            "latency-bound", "weak", f"{reading_words(w)}: the GPU waits for work about half of the time", w
        )
    return _bound("unknown", "none", f"{reading_words(w)}: neither clearly memory nor arithmetic", w)


def _by_power(w: Window, moving: bool | None, t: Thresholds) -> Bound | None:
    """The weakest hint: full utilisation far below the power limit, as on a B300 at 450 of 1,100 W."""
    if w.util is None or w.fraction is None:
        return None
    if w.util >= t.busy_util_pct and _is_capped(w, t):
        return _bound("power-capped", "strong", reading_words(w), w, POWER_CAP_REASON)
    if w.util >= t.busy_util_pct and w.fraction < t.far_below_fraction:
        why = f"{reading_words(w)}; from power alone: latency or communication would look the same"
        return _bound("memory-bound", "weak", why, w)
    return None


def _is_capped(w: Window, t: Thresholds) -> bool:
    by_bits = bool(w.known_reasons) and w.reasons[POWER_CAP_REASON] >= t.share * w.known_reasons
    return by_bits or (w.violation is not None and w.violation >= 100 * t.share)


def _meaning(verdict: BoundVerdict, strength: Strength, w: Window, reason: str | None) -> str:
    spare = f" with tensor cores at {w.tensor:.0f}%" if w.tensor is not None else ""
    hedge = "probably " if strength == "weak" else ""
    words: dict[str, str] = {
        "memory-bound": f"{hedge}memory-bound{spare}: "
        + (
            "a larger tree budget or batch is nearly free"
            if (w.tensor or 0) < 30
            else "some arithmetic capacity is left"
        )
        + ("; confirm with DRAM activity (GPM)" if strength == "weak" else ""),
        "compute-bound": f"{hedge}compute-bound{spare}: a larger tree budget or batch costs its full time; "
        "for more speed use fewer draft nodes or more GPUs",
        "balanced": f"memory and arithmetic are both near their limit{spare}: this batch or budget is about the best",
        "latency-bound": f"{hedge}latency-bound: neither memory nor tensor cores are busy; kernel launches, the host or "
        "communication limit the speed: check CUDA graphs, TP size and concurrency",
        "throttled": f"throttled ({reason}): results from this time are too low and not comparable; check cooling and power",
        "power-capped": "at the power limit with lowered clocks: results depend on the limit: compare only at the same one",
        "wedged-collective": f"{hedge}a collective hangs (busy, low power, no progress): "
        "restart the server; check NCCL_P2P_DISABLE=1 and `journalctl -k`",
        "idle": "no work on the GPU",
        "unknown": "these readings do not show what limits; DRAM and tensor activity (GPM) would, on GPUs that have it",
    }
    return words[verdict]


def _bound(
    verdict: BoundVerdict,
    strength: Strength,
    why: str,
    w: Window,
    reason: str | None = None,
    *,
    capped: bool = False,
) -> Bound:
    return Bound(
        verdict=verdict,
        strength=strength,
        why=why,
        meaning=_meaning(verdict, strength, w, reason),
        reason=reason,
        capped=capped,
        dram_pct=w.dram,
        tensor_pct=w.tensor,
        util_mem_pct=w.util_mem,
        power_fraction=w.fraction,
        samples=w.n,
    )


_GRAVITY: tuple[BoundVerdict, ...] = (
    "wedged-collective",
    "throttled",
    "power-capped",
    "latency-bound",
    "compute-bound",
    "balanced",
    "memory-bound",
    "unknown",
    "idle",
)


def combine_bounds(bounds: Sequence[Bound]) -> Bound:
    """One verdict for the GPUs of one server; `why` says how many GPUs share it.

    A hung or throttled GPU holds up all others, so it wins; otherwise the verdict of most busy GPUs.
    """
    if not bounds:
        return diagnose_bound(())
    for verdict in ("wedged-collective", "throttled"):
        hit = [b for b in bounds if b.verdict == verdict]
        if hit:
            return msgspec.structs.replace(hit[0], why=f"{len(hit)} of {len(bounds)} GPUs: {hit[0].why}")
    working = [b for b in bounds if b.verdict != "idle"] or list(bounds)
    counts = Counter(b.verdict for b in working)
    best = min(counts, key=lambda v: (-counts[v], _GRAVITY.index(v)))
    chosen = sorted((b for b in working if b.verdict == best), key=lambda b: b.strength != "strong")[0]
    if len(bounds) == 1:
        return chosen
    return msgspec.structs.replace(chosen, why=f"{counts[best]} of {len(bounds)} GPUs: {chosen.why}")
