"""What is read of the host beside the work: what limits the GPUs, and what the kernel says. One for each run.

The collector feeds it; the measurer and the configuration ask it. A kernel fault is judged as soon as the GPU has been
asked after it (`gpu_recovery_action`, within 2.5 s), joined to the cell that was measured at its moment, and said once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ddtop.sources.bound.diagnosis import Bound
from ddtop.sources.bound.live import KEEP_GPM, BoundWatch, bound_metrics, cell_bound
from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.kernel.fault import Fault, at, bus_key, cell_doubts, decide_fault, driver_asks, quiet
from ddtop.sources.kernel.log_lines import parse_kernel_line

ASK_S = 2.5
"""So long a fault waits for a reading of the GPU that is younger than itself."""
FRESH_S = 1.0
KEEP_FAULTS = 200
FAULT_LOOKBACK_S = 30.0
STALLED_AFTER_S = 20.0
MOVING_WITHIN_S = 5.0


class Moving(Protocol):
    """What tells whether tokens come (runlog.ChunkWatch)."""

    def quiet_s(self, now: float) -> float | None:
        """Seconds without a chunk while requests run; None while none do."""


@dataclass(kw_only=True, slots=True)
class FaultRecord:
    """A fault as it was last judged. `taken_at` is our clock."""

    fault: Fault
    taken_at: float
    cell_id: str | None = None
    settled: bool = False
    told: bool = False
    """Somebody (the measurer, the configuration, an alert of its own) has answered for it."""


class HostState:
    """See the module. All moments `now` are the runner's monotonic clock, `host_mono_s` the host's."""

    def __init__(self) -> None:
        self.bounds = BoundWatch()
        self.gpm: deque[tuple[float, GpuSample]] = deque(maxlen=KEEP_GPM)
        self.chunks: Moving | None = None
        """Of the job that is measured now."""
        self.kernel_cursor: str | None = None
        self.faults: deque[FaultRecord] = deque(maxlen=KEEP_FAULTS)
        self.blind = False
        """It was said that the kernel's log cannot be read."""
        self.units: tuple[str, ...] = ()
        self.pids: frozenset[int] = frozenset()
        """Units and main processes of the servers that are watched: whose OOM kill is ours."""
        self._asks: dict[str, tuple[str, float]] = {}
        """By bus address: what the driver asks for, and when it was read."""
        self._asked_for: set[str] = set()
        self._oom_units: dict[int, str] = {}

    # ---- what limits the GPUs

    def moving(self, now: float) -> bool | None:
        """Whether tokens come of what is measured; None where that is not known."""
        quiet_s = self.chunks.quiet_s(now) if self.chunks is not None else None
        if quiet_s is None:
            return None
        return True if quiet_s < MOVING_WITHIN_S else False if quiet_s > STALLED_AFTER_S else None

    def take_gpm(self, sample: GpuSample, host_mono_s: float, now: float) -> None:
        self.bounds.gpm(sample, now)
        self.gpm.append((host_mono_s, sample))

    def take_tick(
        self, samples: Iterable[GpuSample], now: float, *, starting: bool = False
    ) -> tuple[tuple[GpuSample, ...], Bound | None]:
        """One tick of nvidia-smi: with GPM's readings beside it, and the bound where it is to be told."""
        joined = self.bounds.join(samples, now)
        for sample in joined:
            if sample.recovery_action is not None and (key := bus_key(sample.bus_id)):
                self._asks[key] = (sample.recovery_action, now)
                self._notice(sample, sample.recovery_action, key, now)
        return joined, self.bounds.tick(joined, now, self.moving(now), starting=starting)

    def _notice(self, sample: GpuSample, action: str, key: str, now: float) -> None:
        """A GPU that asks for something, said once until it asks for nothing again."""
        if quiet(action):
            self._asked_for.discard(key)
        elif key not in self._asked_for:
            self._asked_for.add(key)
            known = [
                n
                for n in self.faults
                if bus_key(n.fault.fact.bus) == key and now - n.taken_at < FAULT_LOOKBACK_S
            ]
            if not known:
                fault = driver_asks(sample.index if sample.index is not None else -1, action, sample.bus_id)
                self.faults.append(FaultRecord(fault=fault, taken_at=now, settled=True))

    def cell_metrics(
        self, raw: Mapping[str, Any], *, moving: bool | None, begin: float | None, end: float
    ) -> dict[str, Any]:
        """The bound of a cell: over its own readings and GPM's, else over what was watched in [begin, end]."""
        bound = cell_bound(raw, self.gpm, moving=moving)
        if begin is not None and (bound is None or bound.dram_pct is None):
            # A short cell may hold no reading of dmon's: what was watched around it knows more than the rest does.
            watched = self.bounds.between(begin, end)
            if watched is not None and (bound is None or watched.dram_pct is not None):
                bound = watched
        return bound_metrics(bound)

    # ---- what the kernel says

    def take_kernel(self, item: Mapping[str, Any], now: float, cell_id: str | None) -> FaultRecord | None:
        """One item of `kernel-follow`; the fault in it, if there is one that was not said already."""
        if item.get("cursor"):
            self.kernel_cursor = str(item["cursor"])
        fact = parse_kernel_line(str(item.get("text", "")))
        if fact is None or fact.severity == "info":
            return None
        if fact.what == "oom-kill" and fact.pid is not None:
            if fact.unit is not None:
                self._oom_units[fact.pid] = fact.unit
            fact = replace(fact, unit=self._oom_units.get(fact.pid))
        fault = at(decide_fault(fact, units=self.units, pids=self.pids), item)
        known = next((n for n in reversed(self.faults) if _same(n.fault, fault)), None)
        if known is not None:
            known.fault = replace(known.fault, ours=known.fault.ours or fault.ours)
            return None
        noted = FaultRecord(fault=fault, taken_at=now, cell_id=cell_id)
        self.faults.append(noted)
        return noted

    def settle(self, now: float) -> list[FaultRecord]:
        """Faults that are judged for good now: the GPU was asked after them, or has had its time."""
        out: list[FaultRecord] = []
        for noted in self.faults:
            if noted.settled:
                continue
            action, read_at = self._asks.get(bus_key(noted.fault.fact.bus), (None, 0.0))
            fresh = action is not None and read_at - noted.taken_at >= FRESH_S
            if not fresh and now - noted.taken_at < ASK_S:
                continue
            old = noted.fault
            again = decide_fault(old.fact, action if fresh else None, units=self.units, pids=self.pids)
            noted.fault = replace(
                again,
                host_mono_s=old.host_mono_s,
                at_s=old.at_s,
                cursor=old.cursor,
                ours=again.ours if again.ours is not None else old.ours,
            )
            noted.settled = True
            out.append(noted)
        return out

    def doubts(self, begin_mono_s: float, end_mono_s: float) -> dict[str, str]:
        """Reasons that the kernel gives against a cell measured in that window of the host's clock."""
        return cell_doubts((n.fault for n in self.faults), begin_mono_s, end_mono_s)

    def grave(self) -> FaultRecord | None:
        """The first fault that nobody has answered for, and after which nothing counts here."""
        return next((n for n in self.faults if n.settled and n.fault.grave and not n.told), None)

    def behind(self, since: float) -> FaultRecord | None:
        """The kernel's cause behind a death or a failed start since `since`: it goes before what the log says."""
        found = [
            n
            for n in self.faults
            if n.taken_at >= since
            and n.fault.severity in ("error", "critical")
            and n.fault.fact.cause is not None
            and n.fault.ours is not False
            and n.fault.fact.what != "disk"
        ]
        return next((n for n in found if n.fault.grave), found[0] if found else None)


def _same(one: Fault, other: Fault) -> bool:
    """The kernel says most things twice: an OOM kill in two lines, an Xid once for each channel."""
    a, b = one.fact, other.fact
    if {(a.what, a.code), (b.what, b.code)} <= {("xid", 79), ("gpu-lost", None)}:
        return bus_key(a.bus) == bus_key(b.bus) or not (a.bus and b.bus)
    if a.what != b.what or (a.pid is not None and b.pid is not None and a.pid != b.pid):
        return False
    near = (
        one.host_mono_s is None or other.host_mono_s is None or abs(one.host_mono_s - other.host_mono_s) < 5.0
    )
    return near and (a.code, bus_key(a.bus)) == (b.code, bus_key(b.bus))
