"""The long-lived `nvidia-smi --query-gpu=… --format=csv,noheader,nounits --loop-ms=…` stream, as samples.

One long-lived process costs less than repeated calls and keeps its period (50 ms requested: at most 54 ms on an H200,
driver 580). Each line is one GPU at one tick.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddtop.events import GpuReading
from ddtop.sources.gpu.sample import GpuSample, GpuTrouble
from ddtop.sources.gpu.smi.error_texts import find_trouble
from ddtop.sources.gpu.smi.query_csv import build_sample, field_name, is_header, split_row


def parse_loop_line(header: Sequence[str], line: str) -> GpuSample | GpuTrouble | None:
    """One line of the stream. `header` are the queried fields, in order.

    Returns a `GpuSample`; a `GpuTrouble` for an error text; None for blank lines, repeated headers and lines with too few
    cells (a truncated end).
    """
    line = line.replace("\x00", "").strip()
    if not line:
        return None
    names = [field_name(field) for field in header]
    if (row := split_row(line, len(names), names)) is not None and (len(names) > 1 or "rror" not in line):
        return None if is_header(row) else build_sample(zip(names, row, strict=True))
    return find_trouble(line)


class TickGrouper:
    """Groups the samples of one tick: `push` a sample, get the ticks that it completes.

    A tick is complete when it has as many GPUs as the driver's `count`, or when a GPU appears again. The index is not
    taken as an order: GPUs can vanish, and the order can change. With `period_ms` a tick that lacks a GPU is closed as
    soon as the driver's time stamps are more than half a period apart.
    """

    def __init__(self, *, period_ms: float | None = None) -> None:
        self._period_ms = period_ms
        self._open: list[GpuSample] = []

    def push(self, sample: GpuSample) -> list[tuple[GpuSample, ...]]:
        """Take one sample. Returns the ticks that it completes (none, one or two), oldest first."""
        done: list[tuple[GpuSample, ...]] = []
        if self._open and (any(s.key == sample.key for s in self._open) or self._apart(sample)):
            done.append(tuple(self._open))
            self._open = []
        self._open.append(sample)
        count = sample.count
        if count is not None and len(self._open) >= count:
            done.append(tuple(self._open))
            self._open = []
        return done

    def flush(self) -> tuple[GpuSample, ...]:
        """The samples of an unfinished tick, after the end of the stream."""
        rest, self._open = tuple(self._open), []
        return rest

    def _apart(self, sample: GpuSample) -> bool:
        if self._period_ms is None or sample.stamp is None or self._open[0].stamp is None:
            return False
        first, now = stamp_ms(self._open[0].stamp), stamp_ms(sample.stamp)
        return first is not None and now is not None and (now - first) % 86_400_000 > self._period_ms / 2


_STAMP = re.compile(r"(?P<h>\d{1,2}):(?P<m>\d{2}):(?P<s>\d{2})(?:[.,](?P<f>\d{1,6}))?")


def stamp_ms(stamp: str) -> float | None:
    """Milliseconds since midnight (host's clock) of nvidia-smi's time stamp; None if it cannot be read."""
    found = _STAMP.search(stamp)
    if not found:
        return None
    whole = (int(found["h"]) * 60 + int(found["m"])) * 60 + int(found["s"])
    return whole * 1000.0 + (float("0." + found["f"]) * 1000 if found["f"] else 0.0)


def to_reading(sample: GpuSample) -> GpuReading | None:
    """The sample as events carry it; None if its index is unknown."""
    if sample.index is None:
        return None
    error = sample.fault or (", ".join(f"{name}: read failed" for name in sample.error_fields) or None)
    return GpuReading(
        index=sample.index,
        uuid=sample.uuid,
        name=sample.name,
        power_w=sample.power_w,
        power_limit_w=sample.power_limit_w,
        mem_used_mib=sample.mem_used_mib,
        mem_total_mib=sample.mem_total_mib,
        util_gpu_pct=sample.util_gpu_pct,
        util_mem_pct=sample.util_mem_pct,
        temp_c=sample.temp_c,
        sm_clock_mhz=sample.sm_clock_mhz,
        mem_clock_mhz=sample.mem_clock_mhz,
        throttle=tuple(r for r in sample.throttle_reasons or () if r != "gpu_idle"),
        dram_active_pct=sample.dram_active_pct,
        tensor_active_pct=sample.tensor_active_pct,
        sm_active_pct=sample.sm_active_pct,
        energy_j=sample.energy_j,
        error=error,
    )
