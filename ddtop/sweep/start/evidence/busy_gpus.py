"""Since when the GPUs of a start are busy at low power with flat memory: the sign of a hung collective."""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.sweep.shared.gpus.watch import GpuWatch

LOW_POWER_SHARE = 0.45
"""A P2P hang on RTX PRO 6000 draws ~140 W of 600 W at 100% utilisation; real work draws far more."""
BUSY_PCT = 99.0
FLAT_MIB = 64.0
"""Memory of all GPUs that changes by less is flat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuLook:
    """The GPUs during a start: utilisation and power share of the busiest, and since when they look hung."""

    at: float
    util_pct: float | None = None
    power_share: float | None = None
    """Power over the limit, of the busiest GPU."""
    busy_low_since: float | None = None
    """Since when: util ≥ 99%, low power, flat memory, all at once."""


class BusyGpus:
    """Keeps since when what was seen holds; `look` gives it with the last readings."""

    def __init__(self) -> None:
        self._flat_since: float | None = None
        self._mib: float | None = None
        self._busy_since: float | None = None

    def look(self, gpus: GpuWatch) -> GpuLook | None:
        """The GPUs as last sampled; None where they were not."""
        if not gpus.readings or gpus.read_at is None:
            return None
        now = gpus.read_at
        mib = sum(g.mem_used_mib or 0.0 for g in gpus.readings)
        if self._mib is None or abs(mib - self._mib) > FLAT_MIB:
            self._mib, self._flat_since = mib, now
        busiest = max(gpus.readings, key=lambda g: g.util_gpu_pct or 0.0)
        share = busiest.power_w / busiest.power_limit_w if busiest.power_w and busiest.power_limit_w else None
        busy_low = (busiest.util_gpu_pct or 0.0) >= BUSY_PCT and share is not None and share < LOW_POWER_SHARE
        self._busy_since = (now if self._busy_since is None else self._busy_since) if busy_low else None
        since = max(self._busy_since, self._flat_since or now) if self._busy_since is not None else None
        return GpuLook(at=now, util_pct=busiest.util_gpu_pct, power_share=share, busy_low_since=since)
