"""What a kernel line means for the sweep, now that the GPU itself has been asked, and which cell it hit. Pure.

`gpu_recovery_action` (newer drivers) decides where it exists: it turns the same Xid into "restart the program" on one
chip and "reboot the node" on another. Without it the table of Xids speaks.
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
    "reset": "reset this GPU (nvidia-smi --gpu-reset -i N, with nothing running on it), then resume",
    "reboot": "reboot the host, then resume",
    "node reboot": "reboot the host, then resume",
    "drain p2p": "stop cells that use more than one GPU; reset the GPU when it is idle",
    "drain and reset": "let what runs on this GPU end, then reset it",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One kernel line that matters, as it is judged now.

    kind      host: the sweep cannot trust this host; bug: the program's own fault, restart it
    severity  warn | error | critical
    asked     the driver's word for what the GPU needs ("None", "Reset" …); None where it has no such word
    ours      whether it hit the server that is measured; None where that is not told by the line
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
        """Whether nothing measured on this host counts until somebody has looked."""
        return self.kind == "host" and self.severity == "critical" and self.ours is not False

    @property
    def reason(self) -> str:
        """The reason a cell gets (a slug of bench.validity)."""
        return "host-fault" if self.grave else "kernel-fault"

    @property
    def text(self) -> str:
        """In a few words, with what the driver asks for."""
        where = f" on {self.fact.bus}" if self.fact.bus else ""
        asks = f"; the driver asks for: {self.asked}" if self.asked and not quiet(self.asked) else ""
        calm = "; the driver asks for nothing" if self.asked is not None and quiet(self.asked) else ""
        return f"{self.fact.meaning}{where}{asks}{calm}"


def quiet(action: str) -> bool:
    """Whether a recovery action asks for nothing."""
    return action.strip().strip("[]").lower() in NOTHING


def bus_key(bus: str | None) -> str:
    """What tells a GPU's bus address in the kernel's and in nvidia-smi's spelling; empty where it is none.

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
    """The fault behind a kernel line. `action`: what the driver asks for on that GPU, None where it does not say.
    `units`, `pids`: the servers that are measured, to tell whether an OOM kill was one of theirs."""
    kind, severity, advice = fact.kind, fact.severity, fact.advice
    if fact.what in ("xid", "gpu-lost") and action is not None and fact.kind != "info":
        word = action.strip().strip("[]").lower()
        if not quiet(action):
            kind, severity = "host", "critical"
            advice = ADVICE.get(word, f"do what the driver asks for: {action}")
        elif fact.kind == "host" and fact.code not in (79, 154) and fact.what == "xid":
            kind, severity = "bug", "error"
            advice = "the driver asks for nothing: restart the server; if it comes again, reset the GPU"
    ours: bool | None = None
    if fact.what == "oom-kill":
        ours = _is_ours(fact, units, pids)
    return Fault(fact=fact, kind=kind, severity=severity, advice=advice, asked=action, ours=ours)


def _is_ours(fact: KernelFact, units: Iterable[str], pids: Iterable[int]) -> bool | None:
    """Whether the OOM killer hit a server that is measured; None where the lines do not tell (a container's or a
    session's scope may be the server's)."""
    if fact.pid is not None and fact.pid in set(pids):
        return True
    known = set(units)
    if fact.unit in known:
        return True
    return False if known and fact.unit is not None and fact.unit.endswith(".service") else None


def driver_asks(index: int, action: str, bus: str | None) -> Fault:
    """A GPU that needs something although the kernel log said nothing (or may not be read)."""
    advice = ADVICE.get(action.strip().strip("[]").lower(), f"do what the driver asks for: {action}")
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
    """The fault with the place and moment of its journal entry."""
    mono = item.get("mono_us")
    return replace(
        fault,
        host_mono_s=mono / 1e6 if isinstance(mono, int) and mono else None,
        at_s=item.get("at_s"),
        cursor=item.get("cursor") or None,
    )


def hits(fault: Fault, begin_mono_s: float, end_mono_s: float) -> bool:
    """Whether the fault fell into a window of the host's monotonic clock. Unknown moments fall into none."""
    return fault.host_mono_s is not None and begin_mono_s <= fault.host_mono_s <= end_mono_s


def cell_doubts(faults: Iterable[Fault], begin_mono_s: float, end_mono_s: float) -> dict[str, str]:
    """Reasons for a cell measured in that window: slug → what happened. Warnings doubt nothing."""
    out: dict[str, str] = {}
    for fault in faults:
        if fault.severity in ("error", "critical") and hits(fault, begin_mono_s, end_mono_s):
            out.setdefault(fault.reason, fault.text)
    return out
