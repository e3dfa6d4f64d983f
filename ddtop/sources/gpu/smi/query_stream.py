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

QUERY_FIELDS: tuple[str, ...] = (
    "timestamp",
    "count",
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "driver_version",
    "power.draw",
    "power.draw.instant",
    "enforced.power.limit",
    "memory.used",
    "memory.total",
    "utilization.gpu",
    "utilization.memory",
    "temperature.gpu",
    "temperature.memory",
    "clocks.current.sm",
    "clocks.current.memory",
    "pstate",
    "clocks_event_reasons.active",
    "mig.mode.current",
    "gpu_recovery_action",
    "ecc.errors.uncorrected.volatile.total",
)
"""The fields that ddtop queries: all are known to driver 580; for older drivers `without_field` drops some."""

# Newer spelling -> the one that older drivers know. One direction only, or the two could be swapped without end.
_OLDER: dict[str, str] = {
    "clocks_event_reasons": "clocks_throttle_reasons",
    "clocks_event_reasons_counters": "clocks_throttle_reasons_counters",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "power.draw.instant": "power.draw",
    "power.draw.average": "power.draw",
    "clocks.current.sm": "clocks.sm",
    "clocks.current.memory": "clocks.mem",
    "pci.bus_id": "gpu_bus_id",
    "enforced.power.limit": "power.limit",
}
_INVALID = re.compile(r"[Ff]ield [\"'`“](?P<field>[^\"'`”\n]{1,120})[\"'`”] is not a valid field")


def without_field(fields: Sequence[str], error_text: str) -> tuple[str, ...] | None:
    """The query without the field that `error_text` refuses, or with its older spelling in its place.

    None: the text names no field of this query, so another query would not help.

    >>> without_field(["index", "clocks_event_reasons.active"],
    ...               'Field "clocks_event_reasons.active" is not a valid field to query.')
    ('index', 'clocks_throttle_reasons.active')
    >>> without_field(["index", "fabric.state"], 'Field "fabric.state" is not a valid field to query.')
    ('index',)
    """
    found = _INVALID.search(error_text)
    if not found or found["field"] not in fields:
        return None
    bad = found["field"]
    head, dot, tail = bad.partition(".")
    older = _OLDER.get(bad) or (_OLDER[head] + dot + tail if head in _OLDER else None)
    if older in fields:
        older = None
    return tuple(older or field if field == bad else field for field in fields if field != bad or older)


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
