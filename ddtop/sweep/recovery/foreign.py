"""Processes on the GPUs or the port that belong to none of the plan's servers, of whatever kind these are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtop.services.kinds import OUTSIDE_SYSTEMD
from ddtop.services.readings import UnitReading
from ddtop.sweep.recovery.probe import is_ours
from ddtop.sweep.shared.plan import Sweep

FOREIGN_MIB = 512.0
"""GPU memory from which a foreign process hinders a sweep; display servers and monitors hold less."""


def gpu_holders(
    probe: Mapping[str, Any], sweep: Sweep, units: Mapping[str, UnitReading], least_mib: float = FOREIGN_MIB
) -> list[Mapping[str, Any]]:
    """Rows of the probe's GPU processes that are foreign and hold `least_mib` or more."""
    rows = probe.get("gpu_procs")
    plain = {x.unit for x in sweep.launches.values() if x.kind in OUTSIDE_SYSTEMD}
    running = any(u.running for unit, u in units.items() if unit in sweep.units)
    found = []
    for row in rows if isinstance(rows, list) else []:
        if (row.get("mem_mib") or 0) < least_mib or str(row.get("unit", "")).startswith("ddtop-"):
            continue
        if is_ours(row, set(sweep.units), probe.get("containers")):
            continue
        if any(_of_plain(row, units[unit]) for unit in plain if unit in units):
            continue
        if not row.get("comm") and running:
            continue  # a pid of another namespace: it may be our server's
        found.append(row)
    return found


def _of_plain(row: Mapping[str, Any], unit: UnitReading) -> bool:
    """Whether a GPU process is of a supervised process (which leads a group of its own) or of a container."""
    head = (unit.generation or "").partition("@")[0]
    if unit.kind == "docker" or not head.isdigit():
        return bool(head) and head[:12] in f"{row.get('docker') or ''} {row.get('cgroup') or ''}"
    pids = {unit.main_pid, int(head)}
    return row.get("pid") in pids or row.get("pgrp") in pids


def holder(row: Mapping[str, Any]) -> str:
    """A foreign process in words.

    >>> holder({"pid": 7, "comm": "python3", "user": "ann", "cmdline": ["python3", "train.py"], "unit": None})
    'python3 train.py (pid 7, user ann)'
    >>> holder({"pid": 7, "cmdline": ["python3", "-c", "import torch\\nspin()"]})
    'python3 -c import torch spin() (pid 7)'
    """
    command = " ".join(
        " ".join(str(w) for w in row.get("cmdline") or ()).split()
    )  # `python -c` holds line ends
    command = command[:80].strip() or str(row.get("comm") or "")
    who = command or "a process of another namespace"
    more = [f"pid {row.get('pid')}"]
    if row.get("user"):
        more.append(f"user {row['user']}")
    if row.get("unit"):
        more.append(str(row["unit"]))
    return f"{who} ({', '.join(more)})"
