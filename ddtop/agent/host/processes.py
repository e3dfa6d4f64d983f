"""Processes from /proc: what they are, what they use, which cgroup and unit they belong to."""

from __future__ import annotations

import functools
import os
import signal as signals
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from ..context import Context
from ..errors import OpError, from_os_error
from .facts import cgroup_of, read_text, start_ticks_of, unit_of_cgroup

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MAX_CMDLINE_B = 64 << 10
EXIT_FIELD = 49
"""Of /proc/PID/stat behind the name: exit_code, as wait() would give it. Zero for those who may not trace the process."""


def cmdline(pid: int) -> List[str]:
    """A process's argument list; empty for kernel threads and ended processes."""
    text = read_text("/proc/%d/cmdline" % pid, MAX_CMDLINE_B)
    return text.rstrip("\0").split("\0") if text else []


def start_ticks(pid: int) -> Optional[int]:
    """The start time of a process in ticks since boot. Pid and start time identify it, even when a pid is reused."""
    stat = read_text("/proc/%d/stat" % pid)
    return start_ticks_of(stat) if stat else None


def signal_name(number: int) -> str:
    """A signal's name; a real-time signal has none but its number.

    >>> signal_name(9), signal_name(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signals.Signals(number).name
    except ValueError:
        return "signal %d" % number


def all_pids() -> List[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def describe(pid: int) -> Optional[Dict[str, Any]]:
    """One process as the op `processes` gives it; None if it is gone. Unreadable parts are absent."""
    stat = read_text("/proc/%d/stat" % pid)
    if not stat:
        return None
    close = stat.rindex(")")
    fields = stat[close + 2 :].split()
    found: Dict[str, Any] = {
        "pid": pid,
        "ppid": int(fields[1]),
        "comm": stat[stat.index("(") + 1 : close],
        "cmdline": cmdline(pid),
        "start_ticks": int(fields[19]),
        "cpu_s": (int(fields[11]) + int(fields[12])) / TICKS,
        "rss_mib": round(int(fields[21]) * PAGE / 2**20, 1),
        "state": fields[0],
    }
    if fields[0] == "Z" and len(fields) > EXIT_FIELD and fields[EXIT_FIELD] != "0":
        found["wait_status"] = int(fields[EXIT_FIELD])  # 0 may also mean that we may not see it
    try:
        found["uid"] = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None
    io = read_io(pid)
    if io is not None:
        found["read_b"], found["write_b"] = io
    return found


def describe_all(pids: List[int]) -> List[Dict[str, Any]]:
    """`describe` of those that are still there."""
    return [row for row in map(describe, pids) if row]


def read_io(pid: int) -> Optional[Tuple[int, int]]:
    """(rchar, wchar): bytes through read and write calls, page cache included: a load from tmpfs moves them too.

    Memory-mapped reads do not count there; those show in rss instead. None without the right to look.
    """
    text = read_text("/proc/%d/io" % pid)
    if text is None:
        return None
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return int(values["rchar"]), int(values["wchar"])
    except (KeyError, ValueError):
        return None


@functools.lru_cache(maxsize=None)
def cgroup_roots() -> Tuple[str, ...]:
    """Where cgroup trees with systemd's names are mounted."""
    candidates = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
    return tuple(root for root in candidates if os.path.exists(root + "/cgroup.procs"))


def pids_of_cgroup(cgroup: str) -> List[int]:
    """All processes of a cgroup and those below it."""
    for root in cgroup_roots():
        top = root + "/" + cgroup.strip("/")
        if os.path.isdir(top):
            found: List[int] = []
            for folder, _, _ in os.walk(top):
                text = read_text(folder + "/cgroup.procs")
                found += [int(line) for line in (text or "").split()]
            return found
    return []


def descendants(pid: int) -> List[int]:
    """`pid` and all processes below it, where there is no cgroup to ask."""
    children: Dict[int, List[int]] = {}
    for other in all_pids():
        stat = read_text("/proc/%d/stat" % other)
        if stat:
            parent = int(stat[stat.rindex(")") + 2 :].split()[1])
            children.setdefault(parent, []).append(other)
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def pids_of_unit(unit: str) -> List[int]:
    """Processes whose cgroup names this unit: without asking systemd."""
    return [pid for pid in all_pids() if unit_of_cgroup(cgroup_of(pid)) == unit]


async def processes(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `processes`: of a unit, a cgroup, given pids, or one pid and all below it."""
    if "pids" in args:
        pids = [int(pid) for pid in args["pids"]]
    elif "pid" in args:
        pids = await context.thread(descendants, int(args["pid"]))
    elif "cgroup" in args:
        pids = await context.thread(pids_of_cgroup, args["cgroup"])
    else:
        pids = await context.thread(pids_of_unit, args["unit"])
    found = await context.thread(describe_all, pids)
    unknown = [word for word in ("processes",) if word in context.rights.unknown]
    return {"processes": found, "mono_s": time.monotonic(), "unknown": unknown}


def invocation_of(pid: int) -> Optional[str]:
    """INVOCATION_ID of a process's environment (its own user and root may look)."""
    text = read_text("/proc/%d/environ" % pid, 4 << 20)
    for word in (text or "").split("\0"):
        if word.startswith("INVOCATION_ID="):
            return word[len("INVOCATION_ID=") :]
    return None


def environment_of(pid: int, names: List[str]) -> Optional[Dict[str, str]]:
    """Those of `names` that are in a process's environment; None where it may not be read. Nothing else of it leaves."""
    text = read_text("/proc/%d/environ" % pid, 4 << 20)
    if text is None:
        return None
    pairs = (word.partition("=") for word in text.split("\0"))
    return {name: value for name, _, value in pairs if name in names}


def stdout_of(pid: int) -> Optional[str]:
    """Where a process's standard output goes: a path, `socket` (the journal), `pipe`; None where that is not seen."""
    try:
        link = os.readlink("/proc/%d/fd/1" % pid)
    except OSError:
        return None
    return link if link.startswith("/") else link.partition(":")[0]


async def ticket(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `ticket`: what a running process is, enough to know it again."""
    pid = int(args["pid"])
    ticks = start_ticks(pid)
    if ticks is None:
        raise OpError("not-found", f"there is no process {pid}")
    found: Dict[str, Any] = {"start_ticks": ticks, "cmdline": cmdline(pid), "cgroup": cgroup_of(pid)}
    try:
        found["cwd"] = os.readlink("/proc/%d/cwd" % pid)
    except OSError:
        found["cwd"] = None
    invocation = invocation_of(pid)
    if invocation:
        found["invocation"] = invocation
    stdout = stdout_of(pid)
    if stdout:
        found["stdout"] = stdout
    if args.get("env"):
        found["env"] = environment_of(pid, [str(name) for name in args["env"]])
    return found


async def send_signal(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `signal`: only if `start_ticks` still match, so never to a reused pid."""
    pid, name = int(args["pid"]), str(args.get("signal", "TERM"))
    signum = getattr(signals, "SIG" + name, None)
    if signum is None:
        raise OpError("bad-request", f"there is no signal {name}")
    if start_ticks(pid) != int(args["start_ticks"]):
        raise OpError("not-found", f"process {pid} has ended (its number may belong to another process now)")
    try:
        os.kill(pid, signum)
    except OSError as error:
        raise from_os_error(error, f"process {pid}") from error
    return {}


def owners_of_inodes(inodes: Set[int]) -> Dict[int, int]:
    """socket inode → pid, by looking through /proc/*/fd of the processes we may look at."""
    found: Dict[int, int] = {}
    wanted = {"socket:[%d]" % inode: inode for inode in inodes}
    for pid in all_pids():
        folder = "/proc/%d/fd" % pid
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                inode = wanted.get(os.readlink(folder + "/" + name))
            except OSError:
                continue
            if inode is not None:
                found.setdefault(inode, pid)
        if len(found) == len(wanted):
            break
    return found
