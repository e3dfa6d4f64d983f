"""Who runs ddtop, as the lease on a host says it, and whether that runner is known here to be dead.

A host sees only that a runner's connection is gone. The machine on which the runner ran knows more: its process is there,
or it is not, or the machine has been rebooted since.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

from ddtop.agent.host.facts import boot_identity, read_text
from ddtop.agent.host.lease import same_boot
from ddtop.agent.host.processes import start_ticks


class Client(NamedTuple):
    """One runner: its machine, that machine's boot, the name space of its process id, the process and its start."""

    machine: str
    boot: str
    pid_space: str
    pid: str
    ticks: str


def identity() -> str:
    """This runner's own, as it is written into the lease; empty where this system does not tell it (no /proc)."""
    machine = (read_text("/etc/machine-id") or "").strip()
    ticks = start_ticks(os.getpid())
    if not machine or ticks is None:
        return ""
    mine = Client(
        f"{machine}@{socket.gethostname()}", boot_identity(), _pid_space(), str(os.getpid()), str(ticks)
    )
    return " ".join(mine)


def is_dead(written: object, own: str) -> bool:
    """Whether the runner that wrote this identity is dead, by what the machine of `own` knows. False: not known."""
    words, mine = str(written or "").split(" "), own.split(" ")
    if len(words) != len(Client._fields) or len(mine) != len(Client._fields):
        return False
    theirs, us = Client(*words), Client(*mine)
    if theirs.machine != us.machine or not theirs.pid.isdigit():
        return False
    if not same_boot(theirs.boot, us.boot):
        return True
    return theirs.pid_space == us.pid_space and str(start_ticks(int(theirs.pid))) != theirs.ticks


def _pid_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "?"
