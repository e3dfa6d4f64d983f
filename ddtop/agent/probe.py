"""The op `probe`: one round trip about everything. Sections run side by side, each with its own time limit; one
that fails or hangs holds {"error"} and costs only itself."""

from __future__ import annotations

import asyncio
import functools
import os
import pwd
import time
from typing import Any, Awaitable, Callable, Dict, Iterable, List, Optional

from .context import Context
from .errors import OpError
from .gpu.smi import APP_FIELDS, FIELDS, app_memory, smi_of
from .host.facts import (
    boot_identity,
    cgroup_of,
    memory,
    pressure,
    read_text,
    unit_of_cgroup,
    uptime_s,
)
from .host.lease import lease
from .host.logind import linger, remove_ipc
from .host.ports import listeners_of
from .host.processes import cmdline
from .host.servers import find_servers
from .host.state_folder import TMPFS, filesystem_of
from .service.override import find_overrides
from .service.units import show_units, unit_name


def disk(path: str) -> Dict[str, Any]:
    """The file system `path` lies on, or will lie on: its nearest existing folder is asked."""
    there = os.path.abspath(os.path.expanduser(path))
    while not os.path.exists(there) and there != "/":
        there = os.path.dirname(there)
    info = os.statvfs(there)
    kind = filesystem_of(there)
    found: Dict[str, Any] = {"fs": kind or "?", "size_b": info.f_blocks * info.f_frsize}
    found.update(free_b=info.f_bavail * info.f_frsize, tmpfs=kind in TMPFS)
    if there != path:
        found["of"] = there
    return found


def results(path: str) -> Dict[str, Any]:
    """Result files below a folder (or one file): how many, and how new the newest is."""
    real = os.path.expanduser(path)
    if os.path.isfile(real):
        return {"exists": True, "files": 1, "newest_at_s": os.stat(real).st_mtime}
    if not os.path.isdir(real):
        return {"exists": False, "files": 0, "newest_at_s": None}
    count, newest = 0, None
    for folder, _, names in os.walk(real):
        for name in names:
            count += 1
            try:
                changed = os.stat(os.path.join(folder, name)).st_mtime
            except OSError:
                continue
            newest = changed if newest is None else max(newest, changed)
        if count > 100_000:
            break
    return {"exists": True, "files": count, "newest_at_s": newest}


def owner_of(pid: int) -> Dict[str, Any]:
    """The user that a process runs as, and its group of processes; {} where it is not of this namespace."""
    try:
        uid, group = os.stat("/proc/%d" % pid).st_uid, os.getpgid(pid)
    except OSError:
        return {}
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return {"user": name, "pgrp": group}


def gpu_procs(csv: str) -> List[Dict[str, Any]]:
    """Processes on the GPUs; inside a container nvidia-smi's pids are the host's and name no process here."""
    found = []
    for pid, mib in sorted(app_memory(csv).items()):
        group = cgroup_of(pid)
        found.append(
            {
                "pid": pid,
                "comm": (read_text("/proc/%d/comm" % pid) or "").strip(),
                "cmdline": cmdline(pid),
                "cgroup": group,
                "unit": unit_of_cgroup(group),
                "mem_mib": mib,
                **owner_of(pid),
            }
        )
    return found


async def _gpus(context: Context, timeout_s: float) -> Dict[str, Any]:
    """Both nvidia-smi queries, one after the other, so that a hung nvidia-smi is asked once."""
    if "nvidia-smi" not in context.rights.can:
        error = {"error": "there is no nvidia-smi on this host"}
        return {"gpus": error, "gpu_apps": error, "gpu_procs": []}
    began = time.monotonic()
    gpus = await smi_of(context).query("gpu", FIELDS, timeout_s)
    left_s = max(0.5, timeout_s - (time.monotonic() - began))
    apps = await smi_of(context).query("compute-apps", APP_FIELDS, left_s)
    procs: Any = {"error": apps["error"]} if "error" in apps else await context.thread(gpu_procs, apps["csv"])
    return {"gpus": gpus, "gpu_apps": apps, "gpu_procs": procs}


async def _model(context: Context, path: str, sources: List[str]) -> Dict[str, Any]:
    from .model.check import check_model_dir

    return await context.thread(functools.partial(check_model_dir, path, sources=sources or None))


async def _each(
    context: Context, paths: List[str], function: Callable[[str], Dict[str, Any]]
) -> Dict[str, Any]:
    """path → answer, side by side; a path that fails holds its error."""

    async def one(path: str) -> Dict[str, Any]:
        try:
            return await context.thread(function, path)
        except OSError as error:
            return {"error": error.strerror or str(error)}

    answers = await asyncio.gather(*[one(path) for path in paths])
    return dict(zip(paths, answers))  # noqa: B905 (Python 3.8)


async def _sources(context: Context, paths: List[str]) -> Dict[str, Any]:
    if not paths:
        return {}
    from .model.check import check_model_dir

    return await _each(context, paths, check_model_dir)


async def _jobs(context: Context) -> List[Dict[str, Any]]:
    from .jobs.status import list_jobs

    return await list_jobs(context)


async def _units(context: Context, units: List[str]) -> Dict[str, Dict[str, str]]:
    if not units:
        return {}
    if "systemd" not in context.rights.can:
        raise OpError("not-found", "systemd is not running on this host")
    return await show_units(units)


def unknown_why(unknown: Iterable[str], rows: Any, *, root: bool) -> Dict[str, str]:
    """Why each word of `unknown` is not known, in words: not tried, not permitted, or not to be seen by anybody here.

    >>> unknown_why(["gpm", "ports"], [{"port": 2049}], root=True)["ports"]
    'no process here is seen to hold port 2049: it belongs to the kernel or to another namespace'
    >>> unknown_why(["journal"], [], root=False)
    {'journal': 'this login may not read it'}
    """
    unowned = sorted({int(r["port"]) for r in rows if "pid" not in r}) if isinstance(rows, list) else []
    named = "port%s %s" % ("" if len(unowned) == 1 else "s", ", ".join(str(port) for port in unowned[:6]))
    found = {}
    for word in unknown:
        if word == "gpm":
            found[word] = "not tried yet since the boot; a run tries it"
        elif word == "ports" and root:
            found[word] = (
                "no process here is seen to hold %s: it belongs to the kernel or to another namespace" % named
            )
        elif word == "ports" and unowned:
            found[word] = "this login may not see who holds " + named
        else:
            found[word] = "this login may not read it"
    return found


async def probe(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `probe`."""
    timeout_s = max(1.0, float(args.get("timeout_s", 10)))
    limit_s = timeout_s * 0.9
    units = [unit_name(unit) for unit in args.get("units") or []]
    port: Optional[int] = int(args["port"]) if args.get("port") else None
    paths = {key: [str(p) for p in args.get(key) or []] for key in ("sources", "results", "disks")}
    model = args.get("model")
    took: Dict[str, int] = {}

    async def timed(name: str, work: Awaitable[Any]) -> Any:
        began = time.monotonic()
        try:
            return await asyncio.wait_for(work, limit_s)
        except asyncio.TimeoutError:
            return {"error": "no answer within %.1f s" % limit_s}
        except OpError as error:
            return {"error": error.what, "code": error.code}
        except OSError as error:
            return {"error": str(error)}
        except Exception as error:  # one broken section must not cost the others
            return {"error": "%s: %s" % (type(error).__name__, error)}
        finally:
            took[name] = round((time.monotonic() - began) * 1000)

    sections: Dict[str, Awaitable[Any]] = {
        "gpu": _gpus(context, limit_s * 0.9),
        "units": _units(context, units),
        "listeners": listeners_of(context, port),
        "sources": _sources(context, paths["sources"]),
        "disks": _each(context, paths["disks"], disk),
        "memory": context.thread(memory),
        "results": _each(context, paths["results"], results),
        "jobs": _jobs(context),
        "overrides": context.thread(find_overrides),
        "lease": lease(context, {"action": "show"}),
        "psi": context.thread(pressure),
        "servers": context.thread(find_servers),
    }
    if model:
        sections["model"] = _model(context, str(model), paths["sources"])
    names = list(sections)
    found = dict(zip(names, await asyncio.gather(*[timed(name, sections[name]) for name in names])))  # noqa: B905
    gpu = found.pop("gpu")
    gpu = {"gpus": gpu, "gpu_apps": gpu, "gpu_procs": gpu} if "error" in gpu else gpu
    unknown = set(context.rights.unknown)
    if isinstance(found["listeners"], list) and any("pid" not in row for row in found["listeners"]):
        unknown.add("ports")
    elif port is not None and isinstance(found["listeners"], list):
        unknown.discard("ports")  # every listener asked about was seen with its owner
    uname = os.uname()
    answer = {
        "boot": boot_identity(),
        "uptime_s": uptime_s(),
        "at_s": time.time(),
        "mono_s": time.monotonic(),
        "hostname": uname.nodename,
        "kernel": uname.release,
        "can": sorted(context.rights.can),
        "unknown": sorted(unknown),
        "unknown_why": unknown_why(sorted(unknown), found["listeners"], root=context.rights.uid == 0),
        "model": None,
        "state_dir": context.state_dir,
        "took_ms": took,
        **gpu,
        **found,
    }
    answer.update(remove_ipc(context.rights), **linger(context.rights))
    return answer
