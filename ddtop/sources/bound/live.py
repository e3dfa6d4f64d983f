"""What limits the GPUs while they are watched, and during one measured cell. No clock: time is an argument.

nvidia-smi's stream gives one sample of each GPU a second; on GPUs with GPM, dmon's stream adds DRAM and tensor activity.
Both are joined by GPU and time, and judged over a window of about two seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ddtop.sources.bound.diagnosis import Bound, combine_bounds, diagnose_bound
from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.dmon import dmon_head, parse_dmon_line
from ddtop.sources.gpu.smi.value import reason_names

WINDOW_S = 2.5
EVERY_S = 2.0
AGAIN_S = 30.0
GPM_AGE_S = 3.0
"""Age in seconds above which an activity reading is not used; dmon gives one a second."""
ALWAYS = ("throttled", "wedged-collective", "idle")
STARTING = "a server is starting: what limits the GPUs now says nothing about a configuration"
KEEP_GPM = 40_000
KEEP_BOUNDS = 5_000
HEAD = ("gpu", "sm", "mem", "enc", "dec", "jpg", "ofa", "smutil", "smocc", "mmaact", "dram")


class GpmStream:
    """Lines of `dmon --gpm-metrics` as samples. The header names the columns and may be repeated."""

    def __init__(self) -> None:
        self._columns: Sequence[str] = HEAD

    def push(self, line: str) -> GpuSample | None:
        """The sample of a row with DRAM or tensor activity; None for any other line."""
        head = dmon_head(line)
        if head is not None:
            if {"dram", "mmaact"} & set(head):
                self._columns = head
            return None
        sample = parse_dmon_line(self._columns, line)
        if sample is None or (sample.dram_active_pct is None and sample.tensor_active_pct is None):
            return None
        return sample


class BoundWatch:
    """Judges the stream. `gpm` takes dmon's samples, `tick` nvidia-smi's.

    `tick` returns the verdict when it has changed, at most every 2 s, and otherwise every 30 s.
    """

    def __init__(self) -> None:
        self._gpm: dict[int, tuple[float, GpuSample]] = {}
        self._window: deque[tuple[float, tuple[GpuSample, ...]]] = deque()
        self._judged_at: float | None = None
        self._reported: tuple[object, ...] | None = None
        self._reported_at = 0.0
        self.bounds: deque[tuple[float, Bound]] = deque(maxlen=KEEP_BOUNDS)
        """(time in s, verdict), one every 2 s."""

    def gpm(self, sample: GpuSample, at: float) -> None:
        """Take one GPU's activity."""
        if sample.index is not None:
            self._gpm[sample.index] = (at, sample)

    def join(self, samples: Iterable[GpuSample], at: float) -> tuple[GpuSample, ...]:
        """The samples, with the latest activity of each GPU if it is recent enough."""
        return tuple(self._joined(sample, at) for sample in samples)

    def _joined(self, sample: GpuSample, at: float) -> GpuSample:
        read_at, activity = self._gpm.get(-1 if sample.index is None else sample.index, (0.0, None))
        if activity is None or at - read_at > GPM_AGE_S:
            return sample
        return msgspec.structs.replace(
            sample,
            dram_active_pct=activity.dram_active_pct,
            tensor_active_pct=activity.tensor_active_pct,
            sm_active_pct=activity.sm_active_pct,
            sm_occupancy_pct=activity.sm_occupancy_pct,
        )

    def tick(
        self, samples: tuple[GpuSample, ...], at: float, moving: bool | None, *, starting: bool = False
    ) -> Bound | None:
        """Take one tick of joined samples. Returns the bound if it is to be reported now.

        moving    see `diagnose_bound`
        starting  a server is loading, so the bound says nothing about a configuration
        """
        self._window.append((at, samples))
        while self._window and at - self._window[0][0] > WINDOW_S:
            self._window.popleft()
        if self._judged_at is None:
            self._judged_at = at  # a single first tick is no window
            return None
        if at - self._judged_at < EVERY_S - 0.05:
            return None
        self._judged_at = at
        bound = of_gpus([s for _, tick in self._window for s in tick], moving=moving)
        if starting and bound.verdict not in ALWAYS:
            bound = msgspec.structs.replace(bound, meaning=STARTING)
        else:
            self.bounds.append((at, bound))
        now = (bound.verdict, bound.strength, bound.reason, bound.meaning == STARTING)
        if now == self._reported and at - self._reported_at < AGAIN_S:
            return None
        self._reported, self._reported_at = now, at
        return bound

    def between(self, begin: float, end: float) -> Bound | None:
        """What limited the GPUs most of the time in [begin, end]: the most frequent verdict that is not idle."""
        seen = [bound for at, bound in self.bounds if begin <= at <= end]
        working = [b for b in seen if b.verdict != "idle"] or seen
        if not working:
            return None
        best, times = Counter(b.verdict for b in working).most_common(1)[0]
        chosen = [b for b in working if b.verdict == best]
        strong = [b for b in chosen if b.strength == "strong"]
        last = (strong or chosen)[-1]
        return msgspec.structs.replace(
            last, why=f"{times} of {len(seen)} spans of {EVERY_S:.0f} s, in the last of them {last.why}"
        )


def of_gpus(samples: Iterable[GpuSample], *, moving: bool | None) -> Bound:
    """One verdict over the samples of several GPUs."""
    by_gpu: dict[int, list[GpuSample]] = {}
    for sample in samples:
        by_gpu.setdefault(-1 if sample.index is None else sample.index, []).append(sample)
    return combine_bounds([diagnose_bound(by_gpu[index], moving=moving) for index in sorted(by_gpu)])


def cell_samples(raw: Mapping[str, Any]) -> list[GpuSample]:
    """The load generator's own GPU readings inside the window of an unpacked result."""
    wall_ns = float((raw.get("window") or {}).get("wall_s") or 0.0) * 1e9
    out: list[GpuSample] = []
    for row in raw.get("gpu_samples") or ():
        if not 0 <= row["t"] <= wall_ns:
            continue
        mask = row.get("event_reasons")
        power = row.get("power_instant_w", row.get("power_w"))
        out.append(
            GpuSample(
                index=row["gpu"],
                power_w=power,
                power_limit_w=row.get("power_limit_w"),
                util_gpu_pct=row.get("util_gpu_pct"),
                util_mem_pct=row.get("util_mem_pct"),
                mem_used_mib=row.get("mem_used_mib"),
                sm_clock_mhz=row.get("sm_mhz"),
                throttle_reasons=reason_names(mask) if isinstance(mask, int) and mask >= 0 else None,
            )
        )
    return out


def cell_bound(
    raw: Mapping[str, Any], gpm: Iterable[tuple[float, GpuSample]], *, moving: bool | None = None
) -> Bound | None:
    """What limited one cell over its measured window; None if no GPU was read.

    raw  its unpacked result
    gpm  (host's monotonic clock in s, activity of one GPU) from the live stream; those inside the window count
    """
    samples = cell_samples(raw)
    if not samples:
        return None
    window = raw.get("window") or {}
    begin = float(window.get("zero_mono_ns") or 0) / 1e9
    end = begin + float(window.get("wall_s") or 0.0)
    used = {s.index for s in samples}
    # A GPM value is the mean over the second before it, so the first of the window belongs to the time before.
    inside = [s for at, s in gpm if begin + min(1.0, (end - begin) / 2) <= at <= end and s.index in used]
    activity = [
        GpuSample(
            index=s.index,
            dram_active_pct=s.dram_active_pct,
            tensor_active_pct=s.tensor_active_pct,
            sm_active_pct=s.sm_active_pct,
        )
        for s in inside
    ]
    return of_gpus([*samples, *activity], moving=moving)


def bound_metrics(bound: Bound | None) -> dict[str, Any]:
    """A cell's bound as metrics: `bound`, `bound_strength`, `bound_why`, `bound_meaning` …; unknown ones are absent."""
    if bound is None:
        return {}
    found: dict[str, Any] = {
        "bound": bound.verdict,
        "bound_strength": bound.strength,
        "bound_why": bound.why,
        "bound_meaning": bound.meaning,
        "bound_reason": bound.reason,
        "dram_active_pct": bound.dram_pct,
        "tensor_active_pct": bound.tensor_pct,
    }
    return {name: value for name, value in found.items() if value is not None}
