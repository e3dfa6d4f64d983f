"""The long-lived `nvidia-smi --query-gpu=… --format=csv,noheader,nounits --loop-ms=…` stream, as samples.

One process on the host is cheaper than repeated calls and its gaps stay near the asked period (50 ms asked:
max 54 ms on an H200, driver 580). A line is one GPU at one tick; several GPUs make several lines.
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
"""What ddtop asks each GPU for; all are in driver 580's list, and an older driver's refusal is met by
`without_field`."""

# Newer spelling -> the one older drivers take. Never the other way round, or the two could swap for ever.
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

    None means that the text names no field of this query, so asking again would not help.

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

    Gives a `GpuSample`; a `GpuTrouble` when the line is an error text; None for blank lines, repeated headers
    and lines with too few cells (the end of a stream that was cut).
    """
    line = line.replace("\x00", "").strip()
    if not line:
        return None
    names = [field_name(field) for field in header]
    if (row := split_row(line, len(names), names)) is not None and (len(names) > 1 or "rror" not in line):
        return None if is_header(row) else build_sample(zip(names, row, strict=True))
    return find_trouble(line)


class TickGrouper:
    """Puts the lines of one tick together: `push` a sample, get the ticks that it completes.

    A tick is complete when it has as many GPUs as the driver's `count`, or when a GPU comes again. The index
    is
    never taken for an order: GPUs can vanish, and the order can change. Give `period_ms` to close a short
    tick
    (a GPU fell out of it) as soon as the driver's time stamps are more than half a period apart.
    """

    def __init__(self, *, period_ms: float | None = None) -> None:
        self._period_ms = period_ms
        self._open: list[GpuSample] = []

    def push(self, sample: GpuSample) -> list[tuple[GpuSample, ...]]:
        """Take one sample; the complete ticks it ends (none, one, or two) in order of time."""
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
        """What is left of an unfinished tick, when the stream ended."""
        rest, self._open = tuple(self._open), []
        return rest

    def _apart(self, sample: GpuSample) -> bool:
        if self._period_ms is None or sample.stamp is None or self._open[0].stamp is None:
            return False
        first, now = stamp_ms(self._open[0].stamp), stamp_ms(sample.stamp)
        return first is not None and now is not None and (now - first) % 86_400_000 > self._period_ms / 2


_STAMP = re.compile(r"(?P<h>\d{1,2}):(?P<m>\d{2}):(?P<s>\d{2})(?:[.,](?P<f>\d{1,6}))?")


def stamp_ms(stamp: str) -> float | None:
    """Milliseconds since midnight (host's clock) of a time stamp as nvidia-smi prints it, or None."""
    found = _STAMP.search(stamp)
    if not found:
        return None
    whole = (int(found["h"]) * 60 + int(found["m"])) * 60 + int(found["s"])
    return whole * 1000.0 + (float("0." + found["f"]) * 1000 if found["f"] else 0.0)


def to_reading(sample: GpuSample) -> GpuReading | None:
    """The sample as the value that events carry; None when its index is not known."""
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
