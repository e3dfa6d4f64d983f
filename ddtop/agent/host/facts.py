"""Small facts about the host read from /proc and /sys: boot identity, memory, pressure, uptime."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from ..slurm import slurm_step


def read_text(path: str, limit: int = 1 << 20) -> Optional[str]:
    """A small file's text, or None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "surrogateescape")
    except OSError:
        return None


def start_ticks_of(stat_text: str) -> int:
    """Field 22 of /proc/PID/stat. The command name before it may hold blanks and brackets.

    >>> start_ticks_of("7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2")
    98765
    """
    return int(stat_text[stat_text.rindex(")") + 2 :].split()[19])


def boot_identity() -> str:
    """BOOT_ID/START_OF_PID1: inside a container the first is the machine's, and only the second is new.

    In a step of a Slurm job JOB:NODE: stands before it: nothing that runs here outlives the job.
    """
    boot = (read_text("/proc/sys/kernel/random/boot_id") or "?").strip()
    stat = read_text("/proc/1/stat")
    step = slurm_step()
    own = "%s:%s:" % step if step else ""
    return "%s%s/%s" % (own, boot, start_ticks_of(stat) if stat else "?")


def uptime_s() -> Optional[float]:
    text = read_text("/proc/uptime")
    return float(text.split()[0]) if text else None


def pressure() -> Dict[str, float]:
    """avg10 of the kernel's pressure stall readings, as {"cpu_some_avg10": 0.0, "memory_full_avg10": …}."""
    found: Dict[str, float] = {}
    for what in ("cpu", "memory", "io"):
        for line in (read_text("/proc/pressure/" + what) or "").splitlines():
            kind, _, rest = line.partition(" ")
            for word in rest.split():
                if word.startswith("avg10="):
                    found["%s_%s_avg10" % (what, kind)] = float(word[6:])
    return found


def cgroup_of(pid: object = "self") -> Optional[str]:
    """The cgroup path of a process: the unified one, or systemd's own on a v1 host."""
    text = read_text("/proc/%s/cgroup" % pid)
    return parse_cgroup(text) if text else None


def parse_cgroup(text: str) -> Optional[str]:
    """
    >>> parse_cgroup("1:name=systemd:/system.slice/a.service\\n0::/\\n")
    '/system.slice/a.service'
    >>> parse_cgroup("0::/system.slice/a.service\\n")
    '/system.slice/a.service'
    """
    unified = named = None
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            if parts[0] == "0":
                unified = parts[2]
            elif parts[1] == "name=systemd":
                named = parts[2]
    return unified if unified and unified != "/" else named or unified


def unit_of_cgroup(cgroup: Optional[str]) -> Optional[str]:
    """The systemd unit a cgroup path belongs to; for a user's unit, that one and not user@UID.service.

    >>> unit_of_cgroup("/system.slice/system-x.slice/x@1.service/sub")
    'x@1.service'
    >>> unit_of_cgroup("/user.slice/user-1000.slice/user@1000.service/app.slice/job.service")
    'job.service'
    >>> unit_of_cgroup("/user.slice/user-0.slice/session-3.scope")
    'session-3.scope'
    """
    units = [part for part in (cgroup or "").split("/") if part.endswith((".service", ".scope"))]
    if not units:
        return None
    if units[0].startswith("user@") and len(units) > 1:
        return units[1]
    return units[0]


def memory() -> Dict[str, Any]:
    """{"total_b", "available_b"} of the machine, and "cgroup_limit_b" where one above us is set."""
    found: Dict[str, Any] = {}
    for line in (read_text("/proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        if key in ("MemTotal", "MemAvailable"):
            found["total_b" if key == "MemTotal" else "available_b"] = int(rest.split()[0]) * 1024
    limits = cgroup_limits(cgroup_of())
    if limits:
        found["cgroup_limit_b"] = min(limits)
    return found


def cgroup_limits(cgroup: Optional[str]) -> List[int]:
    """memory.max of a cgroup and of all above it (v2), or limit_in_bytes (v1); unlimited ones left out."""
    limits: List[int] = []
    for root, name in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        path = cgroup or "/"
        while True:
            text = (read_text(root + path.rstrip("/") + "/" + name) or "max").strip()
            if text.isdigit() and int(text) < 1 << 60:  # v1 writes "no limit" as a huge number
                limits.append(int(text))
            if path in ("", "/"):
                break
            path = os.path.dirname(path)
    return limits
