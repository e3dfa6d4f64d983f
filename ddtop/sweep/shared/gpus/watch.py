"""The GPUs while a run watches them: one tick of samples becomes readings, a bound, and what the driver asks for.

A tick goes one way: samples are joined with GPM's activity → `GpuTick`: the readings that the event carries, the bound
where it is to be reported now, and the recovery actions for the kernel faults' judge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ddtop.events import GpuReading
from ddtop.sources.bound.diagnosis import Bound
from ddtop.sources.bound.live import KEEP_GPM, BoundWatch, bound_metrics, cell_bound
from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.query_stream import to_reading
from ddtop.sweep.shared.limits import MOVING_WITHIN_S, STANDING_STILL_S


class Moving(Protocol):
    """What shows whether tokens come (cell.life.server_watch.ChunkWatch)."""

    def quiet_s(self, now: float) -> float | None:
        """Seconds without a chunk while requests run; None while none do."""


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """What the driver asks for on one GPU (`gpu_recovery_action`)."""

    action: str
    bus_id: str | None
    index: int | None


@dataclass(frozen=True, slots=True)
class GpuTick:
    """One tick of all GPUs, judged."""

    readings: tuple[GpuReading, ...]
    bound: Bound | None
    """What limits the GPUs, where that is to be reported now."""
    actions: tuple[RecoveryAction, ...]


class GpuWatch:
    """The last readings of the GPUs, and what limits them. All `now` are the runner's monotonic clock."""

    def __init__(self) -> None:
        self.readings: tuple[GpuReading, ...] = ()
        self.read_at: float | None = None
        self.chunks: Moving | None = None
        """Of the job that is measured now."""
        self._low_mib: float | None = None
        """The least memory in use on all GPUs together since the present start began."""
        self._starting = False
        self._bounds = BoundWatch()
        self._gpm: deque[tuple[float, GpuSample]] = deque(maxlen=KEEP_GPM)
        """(host's monotonic clock, DRAM and tensor activity of one GPU)."""

    def take_gpm(self, sample: GpuSample, host_mono_s: float, now: float) -> None:
        self._bounds.gpm(sample, now)
        self._gpm.append((host_mono_s, sample))

    def take(self, samples: Iterable[GpuSample], now: float, *, starting: bool = False) -> GpuTick:
        """One tick of nvidia-smi. `starting`: a server loads now, which says nothing of a configuration's bound."""
        joined = self._bounds.join(samples, now)
        readings = sorted((r for s in joined if (r := to_reading(s)) is not None), key=lambda r: r.index)
        if readings:
            self.readings, self.read_at = tuple(readings), now
            self._take_memory(starting)
        return GpuTick(
            readings=tuple(readings),
            bound=self._bounds.tick(joined, now, self._moving(now), starting=starting),
            actions=tuple(
                RecoveryAction(s.recovery_action, s.bus_id, s.index)
                for s in joined
                if s.recovery_action is not None
            ),
        )

    def _take_memory(self, starting: bool) -> None:
        used = self.used_mib()
        if used is None:
            return
        fresh = starting and not self._starting
        self._low_mib = used if fresh or self._low_mib is None else min(used, self._low_mib)
        self._starting = starting

    def used_mib(self) -> float | None:
        """Memory in use on all GPUs together; None where one of them does not say it."""
        amounts = [r.mem_used_mib for r in self.readings]
        known = [a for a in amounts if a is not None]
        return sum(known) if known and len(known) == len(amounts) else None

    def rise_mib(self) -> float | None:
        """By how much the memory in use rose since the present start had the least; None where that is not known."""
        used = self.used_mib()
        return used - self._low_mib if used is not None and self._low_mib is not None else None

    def _moving(self, now: float) -> bool | None:
        """Whether tokens come of what is measured; None where that is not known."""
        quiet_s = self.chunks.quiet_s(now) if self.chunks is not None else None
        if quiet_s is None:
            return None
        return True if quiet_s < MOVING_WITHIN_S else False if quiet_s > STANDING_STILL_S else None

    def cell_metrics(
        self, raw: Mapping[str, Any], *, moving: bool | None, begin: float | None, end: float
    ) -> dict[str, Any]:
        """The bound of a cell: over its own readings and GPM's, else over what was watched in [begin, end]."""
        bound = cell_bound(raw, self._gpm, moving=moving)
        if begin is not None and (bound is None or bound.dram_pct is None):
            # A short cell may hold no reading of GPM: what was watched around it then says more.
            watched = self._bounds.between(begin, end)
            if watched is not None and (bound is None or watched.dram_pct is not None):
                bound = watched
        return bound_metrics(bound)
