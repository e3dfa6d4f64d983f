"""The stream `activity`: what all processes of a unit have done. Counters never fall when a process ends."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..context import Context
from ..errors import OpError
from ..gpu.smi import APP_FIELDS, app_memory, smi_of
from ..host.facts import read_text
from ..host.processes import descendants, describe_all, pids_of_cgroup, pids_of_unit
from .units import show_unit, unit_name

COMPILERS = frozenset(
    "nvcc ptxas cicc ninja cc1plus cc1 cudafe++ fatbinary nvlink gcc g++ c++ clang clang++ ld triton lld as".split()
)
CACHE_EVERY_S = 5.0
MAX_CACHE_FILES = 50_000
CGROUP_EVERY_S = 5.0


STORAGE_WAITS = (
    "request_wait_answer",
    "fuse_",
    "nfs",
    "rpc_wait",
    "folio_wait",
    "wait_on_page",
    "io_schedule",
    "cl_sync_io",
    "ll_",
)
"""Kernel functions in which a thread waits for a disk or a mount, where /proc names them. FUSE waits in state S."""
DRIVER_WAITS = ("nvidia", "_nv0", "nv_", "os_acquire", "rm_", "uvm_")
"""Those of the NVIDIA driver: a thread in state D there waits for a GPU, not for a disk."""
MOST_THREADS = 4000


def waits_for_storage(pids: List[int]) -> bool:
    """Whether a thread of these processes waits for a disk or a mount: state D, or a wait of a file system in user space."""
    left = MOST_THREADS
    for pid in pids:
        folder = "/proc/%d/task" % pid
        try:
            threads = os.listdir(folder)
        except OSError:
            continue
        for thread in threads[:left]:
            if _waits("%s/%s" % (folder, thread)):
                return True
        left -= min(left, len(threads))
    return False


def _waits(path: str) -> bool:
    place = read_text(path + "/wchan") or "0"  # 0: it runs, or we may not see it
    if place.startswith(STORAGE_WAITS):
        return True
    state = (read_text(path + "/stat") or "").rpartition(") ")[2][:1]
    return state == "D" and not place.startswith(DRIVER_WAITS)


class Totals:
    """Sums over processes that come and go: what an ended process has done stays counted."""

    def __init__(self) -> None:
        self._last: Dict[Tuple[int, int], Tuple[float, int, int]] = {}
        self.cpu_s = 0.0
        self.read_b = 0
        self.write_b = 0
        self.io_known = False

    def add(self, rows: List[Dict[str, Any]]) -> None:
        """Takes one look at all processes."""
        seen: Dict[Tuple[int, int], Tuple[float, int, int]] = {}
        for row in rows:
            key = (row["pid"], row["start_ticks"])
            old = self._last.get(key, (0.0, 0, 0))
            new = (row["cpu_s"], row.get("read_b", old[1]), row.get("write_b", old[2]))
            self.io_known = self.io_known or "read_b" in row
            self.cpu_s += max(0.0, new[0] - old[0])
            self.read_b += max(0, new[1] - old[1])
            self.write_b += max(0, new[2] - old[2])
            seen[key] = new
        self._last = seen


def item_of(rows: List[Dict[str, Any]], totals: Totals) -> Dict[str, Any]:
    """The protocol's item for one look, less GPU and caches."""
    states: Dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + 1
    item: Dict[str, Any] = {
        "mono_s": time.monotonic(),
        "pids": len(rows),
        "cpu_s": round(totals.cpu_s, 2),
        "rss_mib": round(sum(row["rss_mib"] for row in rows), 1),
        "compilers": sorted({row["comm"] for row in rows if row["comm"] in COMPILERS}),
        "states": states,
    }
    if totals.io_known:
        item["read_b"], item["write_b"] = totals.read_b, totals.write_b
    return item


def count_files(paths: List[str]) -> int:
    """Files below compile caches, counted up to a bound."""
    count = 0
    for path in paths:
        for _, _, names in os.walk(os.path.expanduser(path)):
            count += len(names)
            if count > MAX_CACHE_FILES:
                return count
    return count


class Members:
    """Finds the processes of a unit, a cgroup or a process tree, look after look."""

    def __init__(self, context: Context, args: Dict[str, Any]) -> None:
        self._context = context
        self._unit = unit_name(args["unit"]) if args.get("unit") else None
        self._user = bool(args.get("user"))
        self._cgroup: Optional[str] = args.get("cgroup")
        self._pid = int(args["pid"]) if args.get("pid") else None
        self._asked = 0.0
        if not (self._unit or self._cgroup or self._pid):
            raise OpError("bad-request", "activity needs a unit, a cgroup or a pid")

    async def pids(self) -> List[int]:
        if self._pid is not None:
            return await self._context.thread(descendants, self._pid)
        if self._unit is not None and time.monotonic() - self._asked > CGROUP_EVERY_S:
            self._asked = time.monotonic()
            props = await show_unit(self._unit, self._user) if "systemd" in self._context.rights.can else {}
            self._cgroup = props.get("ControlGroup") or None
        found: List[int] = []
        if self._cgroup:
            found = await self._context.thread(pids_of_cgroup, self._cgroup)
        if not found and self._unit is not None:
            found = await self._context.thread(pids_of_unit, self._unit)
        return found


async def activity(context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]) -> None:
    """The op `activity`."""
    members = Members(context, args)
    every_s = max(0.2, float(args.get("every_s", 1)))
    caches = [str(path) for path in args.get("caches") or []]
    want_gpu = bool(args.get("gpu")) and "nvidia-smi" in context.rights.can
    totals = Totals()
    cache_files: Optional[int] = None
    cache_s = 0.0
    memory = Memory(context)
    tasks: Set["asyncio.Task[None]"] = set()
    try:
        while True:
            began = time.monotonic()
            pids = await members.pids()
            rows = await context.thread(describe_all, pids)
            totals.add(rows)
            item = item_of(rows, totals)
            if rows:
                item["storage_wait"] = await context.thread(waits_for_storage, pids)
            if want_gpu:
                if not tasks:  # a slow nvidia-smi delays its own reading only
                    task = context.loop.create_task(memory.refresh())
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    await asyncio.wait([task], timeout=0.4)
                amount = memory.of(pids)
                if amount is not None:
                    item["gpu_mem_mib"] = amount
            if caches:
                if began - cache_s > CACHE_EVERY_S or cache_files is None:
                    cache_s = began
                    cache_files = await context.thread(count_files, caches)
                item["cache_files"] = cache_files
            await emit(item)
            await asyncio.sleep(max(0.05, every_s - (time.monotonic() - began)))
    finally:
        for task in tasks:
            task.cancel()


class Memory:
    """GPU memory by process. Each reading is given once; given again, a change would be dated seconds too late."""

    STALE_S = 6.0

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_pid: Optional[Dict[int, float]] = None
        self._at = 0.0
        self._answer: Optional[Dict[str, Any]] = None

    async def refresh(self) -> None:
        answer = await smi_of(self._context).query("compute-apps", APP_FIELDS)
        if "csv" in answer and answer is not self._answer:  # a reading that serves again is the same object
            self._answer = answer
            self._by_pid, self._at = app_memory(answer["csv"]), time.monotonic()

    def of(self, pids: List[int]) -> Optional[float]:
        """MiB of these processes together; None while there is no new reading."""
        by_pid, self._by_pid = self._by_pid, None
        if by_pid is None or time.monotonic() - self._at > self.STALE_S:
            return None
        return sum(by_pid.get(pid, 0.0) for pid in pids)
