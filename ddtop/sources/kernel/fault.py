"""What a kernel line means for the sweep, given the GPU's own recovery action, and which cell it hit. Pure.

`gpu_recovery_action` (newer drivers) decides if there is one: for the same Xid it says "restart the program" on one chip
and "reboot the node" on another. Without it the table of Xids in log_lines.py decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddtop.sources.kernel.log_lines import KernelFact

_BUS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.[0-7])?$", re.I
)
NOTHING = ("", "none", "n/a", "not supported", "unknown error", "insufficient permissions")
ADVICE = {
    "reset": "Stop every process on this GPU, reset it with `nvidia-smi -r -i N`, then resume.",
    "reboot": "Reboot the host, then resume.",
    "node reboot": "Reboot the host, then resume.",
    "drain p2p": "Run no cells on more than one GPU. Reset this GPU with `nvidia-smi -r -i N` when it is idle.",
    "drain and reset": "Let the processes on this GPU end, then reset it with `nvidia-smi -r -i N`.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """The verdict on one kernel line.

    kind         host: results on this host cannot be trusted; bug: the program is at fault, restart it
    severity     warn | error | critical
    asked        the driver's recovery action for the GPU ("None", "Reset" …); None if it gives none
    ours         whether it hit the measured server; None if the line does not say
    host_mono_s  when, on the host's monotonic clock, in seconds; at_s: by its wall clock, since 1970
    """

    fact: KernelFact
    kind: str
    severity: str
    advice: str
    asked: str | None = None
    ours: bool | None = None
    host_mono_s: float | None = None
    at_s: float | None = None
    cursor: str | None = None

    @property
    def grave(self) -> bool:
        """Whether no measurement on this host counts until a person has looked at it."""
        return self.kind == "host" and self.severity == "critical" and self.ours is not False

    @property
    def reason(self) -> str:
        """The reason that a cell gets (a slug of bench/judge/validity.py)."""
        return "host-fault" if self.grave else "kernel-fault"

    @property
    def text(self) -> str:
        """What happened, and what the driver asks for."""
        where = f" on {self.fact.bus}" if self.fact.bus else ""
        asks = f"; the driver asks for: {self.asked}" if self.asked and not quiet(self.asked) else ""
        calm = "; the driver asks for nothing" if self.asked is not None and quiet(self.asked) else ""
        return f"{self.fact.meaning}{where}{asks}{calm}"


def quiet(action: str) -> bool:
    """Whether a recovery action asks for nothing (`None`, `N/A` …)."""
    return action.strip().strip("[]").lower() in NOTHING


def bus_key(bus: str | None) -> str:
    """A key equal for the kernel's and nvidia-smi's spelling of a bus address; empty for anything else.

    >>> bus_key("0000:61:00") == bus_key("00000000:61:00.0") == "0:61:00"
    True
    """
    found = _BUS.search((bus or "").strip())
    if found is None:
        return ""
    return f"{int(found['domain'] or '0', 16):x}:{found['bus']}:{found['device']}".lower()


def decide_fault(
    fact: KernelFact, action: str | None = None, *, units: Iterable[str] = (), pids: Iterable[int] = ()
) -> Fault:
    """The verdict on a kernel line.

    action       the driver's recovery action for that GPU; None if it gives none
    units, pids  the measured servers, to tell whether an OOM kill hit one of them
    """
    kind, severity, advice = fact.kind, fact.severity, fact.advice
    if fact.what in ("xid", "gpu-lost") and action is not None and fact.kind != "info":
        word = action.strip().strip("[]").lower()
        if not quiet(action):
            kind, severity = "host", "critical"
            advice = ADVICE.get(word, f"Do what the driver asks for: {action}.")
        elif fact.kind == "host" and fact.code not in (79, 154) and fact.what == "xid":
            kind, severity = "bug", "error"
            advice = (
                "Restart the server: the driver asks for nothing. "
                "If it happens again, reset the GPU with `nvidia-smi -r -i N`."
            )
    ours: bool | None = None
    if fact.what == "oom-kill":
        ours = _is_ours(fact, units, pids)
    return Fault(fact=fact, kind=kind, severity=severity, advice=advice, asked=action, ours=ours)


def _is_ours(fact: KernelFact, units: Iterable[str], pids: Iterable[int]) -> bool | None:
    """Whether the OOM killer hit a measured server; None if the line does not say (a container's or a session's scope may
    belong to the server)."""
    if fact.pid is not None and fact.pid in set(pids):
        return True
    known = set(units)
    if fact.unit in known:
        return True
    return False if known and fact.unit is not None and fact.unit.endswith(".service") else None


def driver_asks(index: int, action: str, bus: str | None) -> Fault:
    """The fault of a GPU with a recovery action, without any kernel line (or if the kernel log cannot be read)."""
    advice = ADVICE.get(action.strip().strip("[]").lower(), f"Do what the driver asks for: {action}.")
    drain = "p2p" in action.lower()
    fact = KernelFact(
        "recovery-action",
        "recovery-action-required",
        "host",
        "error" if drain else "critical",
        f"GPU {index}: the driver asks for {action}",
        advice,
        bus=bus,
        text=f"gpu_recovery_action of GPU {index}: {action}",
    )
    return Fault(fact=fact, kind="host", severity=fact.severity, advice=advice)


def at(fault: Fault, item: Mapping[str, Any]) -> Fault:
    """The fault with the cursor and the times of its journal entry."""
    mono = item.get("mono_us")
    return replace(
        fault,
        host_mono_s=mono / 1e6 if isinstance(mono, int) and mono else None,
        at_s=item.get("at_s"),
        cursor=item.get("cursor") or None,
    )


def hits(fault: Fault, begin_mono_s: float, end_mono_s: float) -> bool:
    """Whether the fault falls into a window of the host's monotonic clock (seconds); False if its time is unknown."""
    return fault.host_mono_s is not None and begin_mono_s <= fault.host_mono_s <= end_mono_s


def cell_doubts(faults: Iterable[Fault], begin_mono_s: float, end_mono_s: float) -> dict[str, str]:
    """Reasons against a cell measured in that window: slug → what happened. Warnings give none."""
    out: dict[str, str] = {}
    for fault in faults:
        if fault.severity in ("error", "critical") and hits(fault, begin_mono_s, end_mono_s):
            out.setdefault(fault.reason, fault.text)
    return out
