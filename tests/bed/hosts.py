"""A host's power: systemd-nspawn containers that boot, reboot, lose power and come back like machines."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

from .config import BASE, CGROUPS, CLUSTER, DEBS, DISKS, ENGINES, REAL_LAYER, RUN, SHARED_HOME, SLURM_LAYER
from .disk import provision
from .shell import sh

GUEST_REBOOTS = 133  # nspawn's exit status under --keep-unit when the guest asked for a reboot
CLONE_NEWTIME = 0x80


class Host:
    """One host; `tick` must be called often, it notices the end of a boot and starts the next."""

    def __init__(self, name: str, real: bool) -> None:
        self.name, self.real = name, real
        self.proc: subprocess.Popen[bytes] | None = None
        self.boots, self.start_at, self.state = 0, None, "off"
        self.dark_s = 1.5  # how long the machine is dark between going down and its kernel starting
        self.cgroup, self.root = CGROUPS / name, DISKS / name / "root"
        self.log = open(RUN / f"{name}.console", "ab", buffering=0)

    def mount(self) -> None:
        """Lay the host's own disk over its layer, the real server's layer and the base."""
        disk = DISKS / self.name
        more = f"{SLURM_LAYER}:" if self.name in CLUSTER else f"{REAL_LAYER}:" if self.real else ""
        lower = f"{disk}/layer:{more}{BASE}"
        options = f"lowerdir={lower},upperdir={disk}/upper,workdir={disk}/work"
        sh("mount", "-t", "overlay", "overlay", "-o", options, self.root)

    def start(self) -> None:
        """Boot, in a cgroup of its own (two nspawns would share /payload) and a new time namespace."""
        drop_cgroup(self.cgroup)
        self.cgroup.mkdir(parents=True, exist_ok=True)
        new_time_namespace()
        for place in (ENGINES, DEBS):
            place.mkdir(parents=True, exist_ok=True)
        self.proc = subprocess.Popen(
            [
                "systemd-nspawn",
                "--quiet",
                "--boot",
                "--register=no",
                "--keep-unit",
                f"--directory={self.root}",
                f"--machine={self.name}",
                f"--hostname={self.name}",
                f"--network-namespace-path=/run/netns/{self.name}",
                "--resolv-conf=off",
                "--timezone=off",
                "--link-journal=no",
                "--console=pipe",
                # Both may be filled while the host is up.
                f"--bind-ro={ENGINES}:/opt/engines",
                f"--bind-ro={DEBS}:/opt/debs",
                # What a container's runtime calls, for a docker daemon of the host's own.
                "--system-call-filter=add_key keyctl bpf",
                "--capability=CAP_NET_ADMIN",
                *([f"--bind={SHARED_HOME}:/home/bench"] if self.name in CLUSTER else []),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            preexec_fn=lambda: (self.cgroup / "cgroup.procs").write_text("0"),
        )
        self.start_at, self.state, self.boots = None, "on", self.boots + 1

    def tick(self, now: float) -> None:
        """Notice that a boot has ended, and start the next when its dark time is over."""
        if self.proc and self.proc.poll() is not None:
            if self.state == "resetting":
                sh("umount", self.root)
                provision(self.name, new_keys=True)
                self.mount()
            again = self.proc.returncode == GUEST_REBOOTS or self.state in ("rebooting", "resetting")
            self.proc, self.state = None, "rebooting" if again else "off"
            self.start_at = now + self.dark_s if again else None
        if self.start_at and now >= self.start_at:
            self.start()

    def power(self, action: str, dark_s: float | None = None) -> None:
        """on, off, reboot (all orderly); crash, kill, reset: dark at once, not even a FIN gets out."""
        if dark_s is not None:
            self.dark_s = dark_s
        if action == "on" and not self.proc:
            self.start_at = time.monotonic()
        elif action == "reboot" and self.proc:
            if pid := leader(self.name):
                os.kill(pid, signal.SIGRTMIN + 5)
        elif action in ("crash", "reset", "kill") and self.proc:
            self.state = {"crash": "rebooting", "reset": "resetting", "kill": "off"}[action]
            (self.cgroup / "cgroup.kill").write_text("1")
        elif action == "off":
            self.start_at = None
            if self.proc:
                self.proc.terminate()


def new_time_namespace() -> None:
    """Processes started from now on count uptime from zero, as after a real boot."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWTIME):
        return  # no time namespaces: uptime stays the machine's own
    Path("/proc/self/timens_offsets").write_text(
        f"monotonic -{int(time.clock_gettime(time.CLOCK_MONOTONIC))} 0\n"
        f"boottime -{int(time.clock_gettime(time.CLOCK_BOOTTIME))} 0\n"
    )


def leader(name: str, root: str = "/") -> int | None:
    """The host's PID 1, as a process id of the reader's own namespace; None while it is off."""
    procs = Path(root, str(CGROUPS).lstrip("/"), name, "payload/init.scope/cgroup.procs")
    with contextlib.suppress(OSError, IndexError):
        return int(procs.read_text().split()[0])
    return None


def drop_cgroup(path: Path) -> None:
    """Remove an empty tree of cgroups."""
    for root, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(root)
