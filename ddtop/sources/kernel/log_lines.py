"""Kernel log lines that decide whether a cell counts: Xid, the OOM killer, lost GPUs, failed links and disks.

If nvidia-smi gives `gpu_recovery_action`, that decides over this table (0 none, 1 GPU reset, 2 node reboot, 3 drain
P2P, 4 drain and reset). Sources: NVIDIA's Xid catalogue and A100 memory management documents;
open-gpu-kernel-modules#446 for 119. A contained error (94) kills one process, an uncontained one (95) all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_EARLIER = re.compile(r"caused by previous Xid (\d{1,4})")
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d{1,4})(?:, pid='?(?P<pid>[^,']*)'?)?(?:, name=(?P<name>[^,]*))?(?:, )?(?P<text>.*)"
)
_OOM = re.compile(
    r"(?P<scope>Out of memory|Memory cgroup out of memory): Killed process (?P<pid>\d+) \((?P<comm>[^)]{1,64})\)"
    r"(?:.{0,80}?anon-rss:(?P<anon>\d+)kB)?(?:.{0,80}?shmem-rss:(?P<shm>\d+)kB)?"
)
_OOM_KILL = re.compile(r"oom-kill:constraint=(?P<c>\w+)(?:.{0,400}?task=(?P<comm>[^,]+),pid=(?P<pid>\d+))?")
_CALM = re.compile(r"to 0x0 \(None\)")
_ACTION = re.compile(r"recovery action changed from .{1,60} to 0x[0-9a-fA-F]+ \((?P<action>[^)]{1,60})\)")
_MEMCG = re.compile(r"task_memcg=(?P<path>/[^,]{1,300})")
_UNIT = re.compile(r"([^/\s]{1,120}\.(?:service|scope))(?:/|$)")
_LOST = re.compile(
    r"NVRM: .{0,200}?(?:fallen off the bus|GPU lost from the bus)|NVRM: .{0,100}?Failing the device"
)
_AER = re.compile(
    r"AER: .{0,60}?(?:Uncorrect|Fatal|Surprise)|aer_uncor_status: 0x00000020|Slot\(\S+\): Link Down"
)
_DISK = re.compile(
    r"I/O error, dev (?P<d>\w+)|nvme\d+: I/O \d+ .{0,80}?timeout|(?:EXT4|XFS)[^:]{0,20}(?:error|: Corruption)"
)
_BUS_ANY = re.compile(r"\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?\b")


@dataclass(frozen=True, slots=True)
class Xid:
    """One row of the Xid table. kind: bug (the program's fault), host or info; severity as in causes.toml."""

    code: int
    meaning: str
    kind: str
    severity: str
    advice: str


_RESTART = "Restart once: in most cases the program, not the GPU, is at fault. If the same cell fails again, mark it broken."
_DRAIN = "Stop the sweep on this host and run `nvidia-smi -r -i N`. If it happens again, replace the GPU."
_REBOOT = "Stop the sweep on this host and reboot it."
XIDS: dict[int, Xid] = {
    x.code: x
    for x in (
        Xid(13, "graphics engine exception", "bug", "error", _RESTART),
        Xid(31, "GPU memory page fault", "bug", "error", _RESTART),
        Xid(32, "invalid or corrupted push buffer", "bug", "error", _RESTART),
        Xid(38, "driver firmware error", "host", "critical", _REBOOT),
        Xid(43, "GPU stopped processing a channel", "bug", "error", _RESTART),
        Xid(
            45,
            "channel torn down when its process ended",
            "info",
            "info",
            "None, if the process was stopped on purpose.",
        ),
        Xid(48, "double-bit ECC error", "host", "critical", _DRAIN),
        Xid(61, "internal micro-controller breakpoint", "host", "critical", _REBOOT),
        Xid(62, "internal micro-controller halt", "host", "critical", _REBOOT),
        Xid(
            63,
            "row remapping recorded, pending a reset",
            "host",
            "warn",
            "Finish the cell. Then, while the GPU is idle, reset it with `nvidia-smi -r -i N`.",
        ),
        Xid(64, "row remapping failed", "host", "critical", _DRAIN),
        Xid(68, "video processor exception", "bug", "error", _RESTART),
        Xid(69, "graphics engine class error", "bug", "error", _RESTART),
        Xid(
            74,
            "NVLink error",
            "host",
            "critical",
            "Run no cells on more than one GPU. Reset or reboot the host.",
        ),
        Xid(79, "GPU has fallen off the bus", "host", "critical", _REBOOT),
        Xid(
            92,
            "high rate of corrected memory errors",
            "host",
            "warn",
            "Watch this GPU, and reset it with `nvidia-smi -r -i N` when it is idle.",
        ),
        Xid(
            94,
            "contained uncorrectable memory error",
            "bug",
            "error",
            "Only this process was killed: restart it once, and reset the GPU soon (`nvidia-smi -r -i N`).",
        ),
        Xid(
            95,
            "uncontained memory error",
            "host",
            "critical",
            "Every process on this GPU is affected: reset it with `nvidia-smi -r -i N`, or reboot.",
        ),
        Xid(109, "context switch timeout", "bug", "error", _RESTART),
        Xid(
            119,
            "the GPU's firmware (GSP) did not respond",
            "host",
            "critical",
            "Reset the GPU with `nvidia-smi -r -i N`, or reboot. Until then each nvidia-smi call blocks for about 45 s.",
        ),
        Xid(
            120,
            "the GPU's firmware (GSP) reported an error",
            "host",
            "critical",
            "Reset the GPU with `nvidia-smi -r -i N`, or reboot.",
        ),
        Xid(136, "link training failed", "host", "critical", _REBOOT),
        Xid(140, "unrecovered ECC error", "host", "critical", _DRAIN),
        Xid(143, "GPU initialisation failed", "host", "critical", _REBOOT),
        *(
            Xid(
                c,
                "NVLink 5 error",
                "host",
                "critical",
                "Run no cells on more than one GPU, and do what `nvidia-smi --query-gpu=gpu_recovery_action --format=csv` says.",
            )
            for c in range(144, 151)
        ),
        Xid(
            154,
            "the recovery action of the GPU has changed",
            "host",
            "critical",
            "Do what the line says: reset, reboot or drain.",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class KernelFact:
    """One kernel line that matters.

    what      ``xid``, ``oom-kill``, ``gpu-lost``, ``pcie``, ``disk``
    cause     a slug of causes.toml, None for a line that is not a failure (Xid 45)
    pid       the process it hit, None when the line does not say
    unit      the systemd unit of that process, where the line names its control group
    """

    what: str
    cause: str | None
    kind: str
    severity: str
    meaning: str
    advice: str
    code: int | None = None
    bus: str | None = None
    pid: int | None = None
    comm: str | None = None
    text: str = ""
    unit: str | None = None


def _pid(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 12 else None


def _unit(line: str) -> str | None:
    """The innermost service or scope of the killed task's control group."""
    group = _MEMCG.search(line)
    units = _UNIT.findall(group["path"]) if group is not None else []
    return str(units[-1]) if units else None


def _xid_cause(row: Xid) -> str | None:
    if row.kind == "info":
        return None
    if row.code == 79:
        return "gpu-lost-from-bus"
    if row.severity == "warn":
        return "gpu-memory-remap-pending"
    return "gpu-engine-exception" if row.kind == "bug" else "gpu-hardware-error"


def asked_action(line: str) -> str | None:
    """What an Xid 154 line asks for: `reset`, `reboot`, `drain-p2p` or `drain-and-reset`; `none`; None if it does not say."""
    found = _ACTION.search(line)
    if found is None:
        return None
    word = found["action"].lower()
    if "none" in word:
        return "none"
    if "p2p" in word:
        return "drain-p2p"
    if "drain" in word:
        return "drain-and-reset"
    return "reboot" if "reboot" in word else "reset" if "reset" in word else None


def parse_kernel_line(line: str) -> KernelFact | None:
    """Read one kernel log line, with or without journal prefix; None for any other line."""
    line = line[:4_000]
    if (match := _XID.search(line)) is not None:
        code = int(match["code"])
        earlier = _EARLIER.search(match["text"])
        if earlier and (row := XIDS.get(int(earlier[1]))) and row.kind == "host":
            code = row.code  # a channel torn down because of it: the fault is that one
        if code == 154 and _CALM.search(line):
            return None
        row = XIDS.get(code) or Xid(
            code,
            "an Xid that ddtop does not know",
            "host",
            "critical",
            "Look up the code in NVIDIA's Xid catalogue, and do what `nvidia-smi --query-gpu=gpu_recovery_action --format=csv` says.",
        )
        if code == 154 and asked_action(line) == "drain-p2p":  # cells on one GPU may go on
            row = replace(
                row,
                severity="error",
                advice="Run no cells on more than one GPU. Reset this GPU when it is idle.",
            )
        comm = (match["name"] or "").strip() or None
        return KernelFact(
            "xid",
            _xid_cause(row),
            row.kind,
            row.severity,
            f"Xid {code}: {row.meaning}",
            row.advice,
            code,
            match["bus"],
            _pid(match["pid"]),
            comm,
            line,
        )
    if (match := _OOM.search(line)) is not None:
        where = (
            "the unit's or container's memory limit"
            if match["scope"].startswith("Memory cgroup")
            else "host memory"
        )
        return KernelFact(
            "oom-kill",
            "killed-by-oom-killer",
            "host",
            "critical",
            f"the OOM killer killed {match['comm']} (pid {match['pid']}): {where} ran out",
            "Free host memory before you retry. A model staged in a tmpfs (/dev/shm) counts as used memory.",
            pid=_pid(match["pid"]),
            comm=match["comm"],
            text=line,
        )
    if (match := _OOM_KILL.search(line)) is not None:
        return KernelFact(
            "oom-kill",
            "killed-by-oom-killer",
            "host",
            "critical",
            "the OOM killer ran",
            "Free host memory before you retry.",
            pid=_pid(match["pid"]),
            comm=match["comm"],
            text=line,
            unit=_unit(line),
        )
    if _LOST.search(line):
        bus = _BUS_ANY.search(line[line.find("NVRM") :])
        return KernelFact(
            "gpu-lost",
            "gpu-lost-from-bus",
            "host",
            "critical",
            "a GPU has fallen off the bus",
            _REBOOT,
            bus=bus[0] if bus else None,
            text=line,
        )
    if _AER.search(line):
        bus = _BUS_ANY.search(line)
        return KernelFact(
            "pcie",
            "gpu-hardware-error",
            "host",
            "critical",
            "a PCIe link failed",
            "Reboot. If it happens again, the slot, the riser or the power management of the PCIe port is faulty.",
            bus=bus[0] if bus else None,
            text=line,
        )
    if _DISK.search(line):
        return KernelFact(
            "disk",
            "disk-io-error",
            "host",
            "critical",
            "the kernel reported disk errors",
            "Name another directory in [model] sources; the disk may be failing (`smartctl -a DEVICE`).",
            text=line,
        )
    return None
