"""Faults that the kernel or the GPU's driver reports during a run: kept, judged, and each named by one alert.

A kernel line is judged for good as soon as the driver was asked after it (`gpu_recovery_action`, within 2.5 s); it is
joined to the cell that was measured at its moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddtop.sources.kernel.fault import Fault, at, bus_key, cell_doubts, decide_fault, driver_asks, quiet
from ddtop.sources.kernel.log_lines import parse_kernel_line
from ddtop.sweep.shared.gpus.watch import RecoveryAction
from ddtop.sweep.shared.limits import DRIVER_REPLY_S, FAULT_LOOKBACK_S

FRESH_S = 1.0
"""A recovery action counts for a fault when it was read so long after it."""
KEEP_FAULTS = 200
TWICE_S = 5.0
"""Two lines of the same fault within this time are one."""


@dataclass(kw_only=True, slots=True)
class FaultRecord:
    """A fault as it was last judged. `taken_at` is the runner's monotonic clock."""

    fault: Fault
    taken_at: float
    cell_id: str | None = None
    settled: bool = False
    """It is judged for good."""
    reported: bool = False
    """An alert names it: of a cell, of a start, or one of its own."""


class KernelFaults:
    """All faults of one run. `now` is the runner's monotonic clock, `host_mono_s` the host's."""

    def __init__(self) -> None:
        self.cursor: str | None = None
        """Where the kernel's log was read to."""
        self.unreadable = False
        """It was noted that this login cannot read the kernel's log."""
        self.units: tuple[str, ...] = ()
        self.pids: frozenset[int] = frozenset()
        """Units and main processes of the servers that are watched: an OOM kill of theirs is ours."""
        self._records: deque[FaultRecord] = deque(maxlen=KEEP_FAULTS)
        self._actions: dict[str, tuple[str, float]] = {}
        """By bus address: what the driver asks for, and when it was read."""
        self._asking: set[str] = set()
        """Bus addresses of GPUs whose driver asks for something."""
        self._oom_units: dict[int, str] = {}

    def take_actions(self, actions: Iterable[RecoveryAction], now: float) -> None:
        """What the driver asks for; a new request without a kernel line before it is a fault of its own."""
        for found in actions:
            key = bus_key(found.bus_id)
            if not key:
                continue
            self._actions[key] = (found.action, now)
            if quiet(found.action):
                self._asking.discard(key)
            elif key not in self._asking:
                self._asking.add(key)
                if not any(
                    bus_key(r.fault.fact.bus) == key and now - r.taken_at < FAULT_LOOKBACK_S
                    for r in self._records
                ):
                    index = found.index if found.index is not None else -1
                    fault = driver_asks(index, found.action, found.bus_id)
                    self._records.append(FaultRecord(fault=fault, taken_at=now, settled=True))

    def take_line(self, item: Mapping[str, Any], now: float, cell_id: str | None) -> FaultRecord | None:
        """One item of `kernel-follow`; the fault in it, if there is a new one."""
        if item.get("cursor"):
            self.cursor = str(item["cursor"])
        fact = parse_kernel_line(str(item.get("text", "")))
        if fact is None or fact.severity == "info":
            return None
        if fact.what == "oom-kill" and fact.pid is not None:
            if fact.unit is not None:
                self._oom_units[fact.pid] = fact.unit
            fact = replace(fact, unit=self._oom_units.get(fact.pid))
        fault = at(decide_fault(fact, units=self.units, pids=self.pids), item)
        known = next((r for r in reversed(self._records) if _same(r.fault, fault)), None)
        if known is not None:
            known.fault = replace(known.fault, ours=known.fault.ours or fault.ours)
            return None
        record = FaultRecord(fault=fault, taken_at=now, cell_id=cell_id)
        self._records.append(record)
        return record

    def settle(self, now: float) -> list[FaultRecord]:
        """Faults that are judged for good now: the driver was asked after them, or DRIVER_REPLY_S has passed."""
        settled: list[FaultRecord] = []
        for record in self._records:
            if record.settled:
                continue
            action, read_at = self._actions.get(bus_key(record.fault.fact.bus), (None, 0.0))
            fresh = action is not None and read_at - record.taken_at >= FRESH_S
            if not fresh and now - record.taken_at < DRIVER_REPLY_S:
                continue
            old = record.fault
            again = decide_fault(old.fact, action if fresh else None, units=self.units, pids=self.pids)
            record.fault = replace(
                again,
                host_mono_s=old.host_mono_s,
                at_s=old.at_s,
                cursor=old.cursor,
                ours=again.ours if again.ours is not None else old.ours,
            )
            record.settled = True
            settled.append(record)
        return settled

    def doubts(self, begin_mono_s: float, end_mono_s: float) -> dict[str, str]:
        """The kernel's reasons against a cell measured in that window of the host's clock (slug → words)."""
        return cell_doubts((r.fault for r in self._records), begin_mono_s, end_mono_s)

    def unreported_grave(self) -> FaultRecord | None:
        """The first fault that no alert names, and after which nothing measured here counts."""
        return next((r for r in self._records if r.settled and r.fault.grave and not r.reported), None)

    def cause_since(self, since: float) -> FaultRecord | None:
        """The kernel's cause of a failure since `since`: it goes before what the server's log says."""
        found = [
            r
            for r in self._records
            if r.taken_at >= since
            and r.fault.severity in ("error", "critical")
            and r.fault.fact.cause is not None
            and r.fault.ours is not False
            and r.fault.fact.what != "disk"
        ]
        return next((r for r in found if r.fault.grave), found[0] if found else None)


def _same(one: Fault, other: Fault) -> bool:
    """The kernel reports most faults twice: an OOM kill in two lines, an Xid once for each channel."""
    a, b = one.fact, other.fact
    if {(a.what, a.code), (b.what, b.code)} <= {("xid", 79), ("gpu-lost", None)}:
        return bus_key(a.bus) == bus_key(b.bus) or not (a.bus and b.bus)
    if a.what != b.what or (a.pid is not None and b.pid is not None and a.pid != b.pid):
        return False
    near = (
        one.host_mono_s is None
        or other.host_mono_s is None
        or abs(one.host_mono_s - other.host_mono_s) < TWICE_S
    )
    return near and (a.code, bus_key(a.bus)) == (b.code, bus_key(b.bus))
