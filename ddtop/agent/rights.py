"""What this login may do on this host: found out at the start, never guessed. See `can` in wire.HELLO."""

from __future__ import annotations

import asyncio
import getpass
import grp
import os
import shutil
from typing import FrozenSet, List, NamedTuple, Set, Tuple

from .slurm import slurm_step

SYSTEMCTL = "systemctl"


class Rights(NamedTuple):
    """`can`: proven rights; `unknown`: rights that could not be found out; `sudo_for`: programs run by sudo -n."""

    uid: int
    user: str
    can: FrozenSet[str]
    unknown: FrozenSet[str]
    sudo_for: FrozenSet[str]

    def prefix(self, program: str) -> List[str]:
        """The words before `program` that give it root's rights: none as root, else sudo where it is allowed."""
        return ["sudo", "-n"] if program in self.sudo_for else []


def has_systemd() -> bool:
    """PID 1 is systemd (sd_booted(3)), and this login's PATH has the way to speak to it (the demo's host has not).

    Never in a step of a Slurm job: what systemd starts is outside of the job, and would outlive it."""
    return (
        slurm_step() is None and os.path.isdir("/run/systemd/system") and shutil.which(SYSTEMCTL) is not None
    )


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry in passwd
        return str(os.getuid())


def lingers(user: str) -> bool:
    """Whether logind keeps this user's manager and processes after the last session (linger)."""
    return os.path.exists("/var/lib/systemd/linger/" + user)


def sees_all_processes() -> bool:
    """Whether foreign processes are visible: not with hidepid on /proc."""
    try:
        os.stat("/proc/1/stat")
        with open("/proc/1/stat", "rb"):
            return True
    except OSError:
        return False


def groups() -> Set[str]:
    found = set()
    for gid in os.getgroups():
        try:
            found.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            pass
    return found


async def _quiet_rc(argv: Tuple[str, ...], timeout_s: float = 3.0) -> int:
    """The return code of a small program; -1 if it cannot be run or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return -1
    try:
        return await asyncio.wait_for(process.wait(), timeout_s)
    except asyncio.TimeoutError:
        process.kill()
        return -1


SUDO_PROBES = (
    # program that gets root's rights by sudo, a call of it that sudo -l is asked about
    (SYSTEMCTL, ("systemctl", "--no-block", "restart", "ddtop.service")),
    ("systemd-run", ("systemd-run", "--unit=ddtop.service", "true")),
    ("journalctl", ("journalctl", "-u", "ddtop.service")),
    ("tee", ("tee", "/run/systemd/system/ddtop.service.d/50-ddtop.conf")),
    ("mkdir", ("mkdir", "-p", "/run/systemd/system/ddtop.service.d")),
    ("mv", ("mv", "-T", "/run/systemd/system/ddtop.service.d/50-ddtop.conf.new", "/run/systemd/system/x")),
    ("rm", ("rm", "-f", "/run/systemd/system/ddtop.service.d/50-ddtop.conf")),
    ("ss", ("ss", "-ltnpeH")),
)


async def find_rights() -> Rights:
    """Asks the host. As root it costs nothing; else a few `sudo -n -l` at once, which change nothing."""
    uid = os.getuid()
    user = user_name()
    can: Set[str] = set()
    unknown: Set[str] = set()
    sudo_for: Set[str] = set()
    systemd = has_systemd()
    if systemd:
        can.add("systemd")
    if uid != 0 and shutil.which("sudo"):
        codes = await asyncio.gather(*[_quiet_rc(("sudo", "-n", "-l", *call)) for _, call in SUDO_PROBES])
        sudo_for = {program for (program, _), code in zip(SUDO_PROBES, codes) if code == 0}  # noqa: B905
        if sudo_for:
            can.add("sudo")
    root_for = {program for program, _ in SUDO_PROBES} if uid == 0 else sudo_for
    if systemd and SYSTEMCTL in root_for:
        can.add("restart")
        if {"tee", "mkdir", "mv", "rm"} <= root_for:
            can.add("override")
    if shutil.which("journalctl"):
        if "journalctl" in root_for or groups() & {"adm", "systemd-journal", "wheel"}:
            can.add("journal")
        else:
            unknown.add("journal")
    if uid == 0 or "ss" in root_for:
        can.add("ports")
    else:
        unknown.add("ports")
    can.add("processes") if sees_all_processes() else unknown.add("processes")
    if systemd and lingers(user):
        if await _quiet_rc(("systemctl", "--user", "--quiet", "show-environment")) == 0:
            can.add("user-units")
    if not systemd or "systemd-run" in root_for or "user-units" in can:
        can.add("jobs")
    if shutil.which("nvidia-smi"):
        can.add("nvidia-smi")
    if shutil.which("docker") and (uid == 0 or "docker" in groups()):
        can.add("docker")
    return Rights(uid, user, frozenset(can), frozenset(unknown), frozenset(sudo_for))
