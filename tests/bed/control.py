"""The bed from outside: start and stop it, ask its daemon, run commands in a host out of band."""

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .base import build_base, build_real
from .config import ALL, CACHE, CLUSTER, HOSTS, INSTANCE, PLACE, REAL_LAYER, REPO, RUN, SHARED_HOME, SOCK
from .disk import fingerprint, provision
from .hosts import leader
from .router import IDLE_LINK
from .shell import remove
from .slurm import build_slurm

GUEST_ENV = (
    "HOME=/root",
    "LANG=C.UTF-8",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
)


class BedError(Exception):
    """The bed could not do it; the message says what and where to look."""


def ask(op: str, host: str | None = None, **args: Any) -> dict[str, Any]:
    """One request to the daemon; its state comes back, with its process id. OSError if no bed is up."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(SOCK))
        s.sendall(json.dumps({"op": op, "host": host or "", **args}).encode() + b"\n")
        reply: dict[str, Any] = json.loads(s.makefile().read())
        reply["pid"] = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    if "error" in reply:
        raise BedError(str(reply["error"]))
    return reply


def state() -> dict[str, Any] | None:
    """The bed's state, or None when it is down."""
    try:
        return ask("status")
    except OSError:
        return None


def wait_ssh(names: Iterable[str], timeout_s: float = 60) -> None:
    """Until each host's sshd greets."""
    deadline = time.monotonic() + timeout_s
    for name in names:
        while True:
            with contextlib.suppress(OSError), socket.create_connection((ALL[name].ip, 22), 1) as s:
                if s.recv(4) == b"SSH-":
                    break
            if time.monotonic() > deadline:
                raise BedError(f"{name}: no ssh after {timeout_s:.0f} s; see {RUN}/{name}.console")
            time.sleep(0.05)


def up(real: bool = False) -> None:
    """Build what is missing, start both hosts with empty disks, wait for their sshd. A bed that is up stays."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if now := state():
            if real and not now["real"]:
                raise BedError("the bed is up without the real server: take it down, then up --real")
            wait_ssh(HOSTS)
            return
        build_base()
        if real:
            build_real()
        RUN.mkdir(parents=True, exist_ok=True)
        for name in HOSTS:
            provision(name)
        with open(RUN / "daemon.log", "ab") as log:
            daemon = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "--propagation",
                    "private",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    sys.executable,
                    "-m",
                    "tests.bed",
                    "daemon",
                    *(["--real"] if real and REAL_LAYER.exists() else []),
                    "--made-of",
                    fingerprint(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=REPO,
                pass_fds=(),
            )
        while not state():
            if daemon.poll() is not None:
                raise BedError(f"the bed did not start; see {RUN}/daemon.log")
            time.sleep(0.02)
        wait_ssh(HOSTS)


def cluster_up() -> None:
    """Builds the layer of Slurm if need be, and boots its nodes beside the hosts of a bed that is up."""
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ask("status")["hosts"].keys() >= CLUSTER.keys():
            build_slurm()
            remove(SHARED_HOME)
            for name in CLUSTER:
                provision(name)
            ask("cluster")
        wait_ssh(CLUSTER)


def down() -> None:
    """Shut both hosts down and end the daemon."""
    if not state():
        return
    pid = ask("stop")["pid"]
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.05)


def purgeable() -> list[Path]:
    """What `purge` deletes: an instance's own place, and with the first one all that is cached for all of them."""
    if INSTANCE > 1:
        return [PLACE]
    for other in CACHE.glob("bed-*/run/control"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
            s.connect(str(other))
            raise BedError(f"{other.parent.parent.name} is up and uses the same cache: take it down first")
    return [CACHE]


def power(host: str, action: str, dark_s: float | None = None, wait: bool = False) -> None:
    """reboot, crash, reset, off, kill, on; with `wait` until ssh answers again (not for off and kill)."""
    before = ask("status")["hosts"][host]["boots"]
    ask("power", host, action=action, dark_s=dark_s)
    if wait:
        while ask("status")["hosts"][host]["boots"] == before:
            time.sleep(0.05)
        wait_ssh([host])


def link(host: str, **changes: float | bool) -> None:
    """Change a host's link: cut, hidden, delay_ms, loss, kbit; nothing given: heal it."""
    ask("link", host, **(changes or IDLE_LINK))


def guest_argv(host: str, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` in the host without its network: works while its link is cut."""
    pid = leader(host, f"/proc/{ask('status')['pid']}/root")
    if pid is None:
        raise BedError(f"{host} is off")
    return ["nsenter", "-t", str(pid), "-a", "env", "-i", *GUEST_ENV, *argv]
