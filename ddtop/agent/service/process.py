"""The `process` service: a plain command under a small supervisor, for hosts without systemd (rented containers)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from typing import Any, Callable, Dict, List, Optional

from ..context import Context
from ..errors import OpError
from ..host.facts import boot_identity
from ..host.pidfd import open_pidfd
from ..host.state_folder import read_json, write_json
from ..jobs.folder import job_id, same_process
from ..jobs.start import job_env
from ..process.launch import launch, mode_of, python_words, stored_zip

POLL_S = 0.25
START_S = 10.0
NO_CLOCK = {"mono_s": 0, "wall_s": 0}
"""Clocks are no change of a process."""


def folder_of(context: Context, name: Any) -> str:
    return os.path.join(context.need_state_dir(), "processes", job_id(name))


def show(folder: str) -> Dict[str, Any]:
    """The op `proc-show` from the supervisor's file and what runs."""
    state = read_json(os.path.join(folder, "state.json"))
    if state is None:
        raise OpError("not-found", f"no process named {os.path.basename(folder)} was started on this host")
    alive = same_process(state.get("pid"), state.get("start_ticks"))
    watched = same_process(state.get("supervisor"), state.get("supervisor_ticks"))
    found: Dict[str, Any] = {
        "active": bool(state.get("active")) and alive,
        "log": state["log"],
        "argv": state["argv"],
        "mono_s": time.monotonic(),
        "supervised": watched,
    }
    if "generation" in state:
        found["generation"] = "%s/%s" % (state.get("boot", "?"), state["generation"])
    for key in ("started_at_s", "ended_at_s"):
        if key in state:
            found[key] = state[key]
    found["wall_s"] = time.time()
    if alive and state.get("active"):
        found["pid"] = state["pid"]
        found["start_ticks"] = state["start_ticks"]
    elif "exit" in state:
        found["exit"] = state["exit"]
    elif state.get("boot") != boot_identity():
        found["exit"] = {"error": "the host was rebooted"}
    elif not watched:
        found["exit"] = {"error": "it and its supervisor were killed"}
    found["ending"] = not found["active"] and watched and "exit" not in state
    return found


async def proc_start(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `proc-start`. One that runs must be stopped first."""
    folder = folder_of(context, args["name"])
    argv = [str(word) for word in args["argv"]]
    if not argv:
        raise OpError("bad-request", "argv must be a list of strings")
    mode = mode_of(context)
    until = time.monotonic() + START_S
    while True:
        old = read_json(os.path.join(folder, "state.json"))
        if old is None or not same_process(old.get("supervisor"), old.get("supervisor_ticks")):
            break
        ended = "exit" in old or not same_process(old.get("pid"), old.get("start_ticks"))
        if ended and time.monotonic() < until:
            await asyncio.sleep(0.02)  # the process has ended; its supervisor is about to
            continue
        raise OpError("failed", f"{args['name']} is still running (pid {old.get('pid')})", "stop it first")
    zip_path = await context.thread(stored_zip, context)
    await context.thread(_prepare, folder, argv, args)
    await launch(
        context,
        mode,
        "ddtop-proc-%s.service" % args["name"],
        python_words(zip_path, "supervise", folder),
        cwd=folder,
        log=os.path.join(folder, "supervisor.log"),
        stop_s=float(args.get("stop_s", 30)) + 10,
        wait_for_name=True,
    )
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        state = read_json(os.path.join(folder, "state.json"))
        if state is not None and "active" in state:
            if "error" in (state.get("exit") or {}):
                key = state["exit"].get("key", "command")
                raise OpError("bad-request", state["exit"]["error"], "correct `%s` in the plan" % key)
            found = show(folder)
            return {"pid": state["pid"], "generation": found["generation"], "log": state["log"]}
        await asyncio.sleep(0.02)
    raise OpError(
        "timeout", f"the supervisor did not start within {START_S:g} s", f"see {folder}/supervisor.log"
    )


def _prepare(folder: str, argv: Any, args: Dict[str, Any]) -> None:
    """Prepare the folder; the last run's log becomes LOG.0, so that the new log holds the new run only."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name in ("state.json", "env.json"):
        if os.path.exists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))
    log = os.path.join(folder, "log")
    if os.path.exists(log):
        shutil.move(log, log + ".0")
    _new_file(folder, log)
    spec = {key: args[key] for key in ("env", "cwd", "stop_s", "log_mib") if args.get(key) is not None}
    write_json(os.path.join(folder, "env.json"), job_env(None))
    write_json(os.path.join(folder, "spec.json"), {**spec, "argv": argv})


def _kept_path(folder: str, run: Any) -> str:
    """Where `proc-keep` of this run keeps how the process was started before the run."""
    return os.path.join(folder, "former-%s.json" % job_id(run))


async def proc_keep(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `proc-keep`. On the host and not in the recording: the environment may hold keys."""
    folder = folder_of(context, args["name"])
    spec = await context.thread(read_json, os.path.join(folder, "spec.json"))
    if spec is None or "argv" not in spec:
        return {"kept": False}
    await context.thread(write_json, _kept_path(folder, args["run"]), spec)
    return {"kept": True}


async def proc_restore(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `proc-restore`."""
    path = _kept_path(folder_of(context, args["name"]), args["run"])
    spec = await context.thread(read_json, path)
    if spec is None:
        raise OpError("not-found", f"this host keeps no earlier start of {args['name']}")
    started = await proc_start(context, {**spec, "name": args["name"]})
    os.unlink(path)  # only now: until it runs, another try must find it
    return started


def _new_file(folder: str, log: str) -> None:
    """An empty log whose inode no earlier log of this process had: (inode, offset) names a line for good.

    File systems give a freed inode to the next file, and a reader would take the new start's lines for old ones.
    """
    known = os.path.join(folder, "inodes.json")
    used = (read_json(known) or {}).get("used", [])[-500:]
    passed: List[str] = []
    while True:
        os.close(os.open(log, os.O_WRONLY | os.O_CREAT, 0o644))
        inode = os.stat(log).st_ino
        if inode not in used or len(passed) > len(used):
            break
        passed.append("%s.passed%d" % (log, len(passed)))
        os.rename(log, passed[-1])
    for path in passed:
        os.unlink(path)
    write_json(known, {"used": used + [inode]})


async def proc_show(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `proc-show`."""
    return await context.thread(show, folder_of(context, args["name"]))


async def proc_stop(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `proc-stop`: begins the stop; proc-watch tells its end."""
    folder = folder_of(context, args["name"])
    state = read_json(os.path.join(folder, "state.json"))
    if state is None:
        raise OpError("not-found", f"no process named {args['name']} was started on this host")
    if same_process(state.get("supervisor"), state.get("supervisor_ticks")):
        os.kill(int(state["supervisor"]), signal.SIGTERM)
    elif same_process(state.get("pid"), state.get("start_ticks")):
        os.killpg(int(state["pid"]), signal.SIGTERM)  # its supervisor was killed: it leads a group of its own
    return {"exit": state.get("exit")}


async def proc_watch(context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]) -> None:
    """The op `proc-watch`."""
    folder = folder_of(context, args["name"])
    last: Optional[Dict[str, Any]] = None
    while True:
        now: Optional[Dict[str, Any]]
        try:
            now = await context.thread(show, folder)
        except OpError as error:
            if error.code != "not-found" or last is None:
                raise
            now = None  # being started anew
        if now is not None and {**now, **NO_CLOCK} != {**(last or {}), **NO_CLOCK}:
            await emit(now)
            last = now
        await _change(context, folder, now)


async def _change(context: Context, folder: str, now: Optional[Dict[str, Any]]) -> None:
    """Returns when the process ends, its file changes, or after POLL_S (reading the file is cheap)."""
    loop = context.loop
    gone = asyncio.Event()
    handle = open_pidfd(int(now["pid"])) if now and now.get("pid") else None
    if handle is not None:
        loop.add_reader(handle, gone.set)
    path = os.path.join(folder, "state.json")
    before = _stamp(path)
    try:
        while not gone.is_set() and _stamp(path) == before:
            pause = 0.02 if now is None or now.get("ending") else POLL_S
            try:
                await asyncio.wait_for(gone.wait(), pause)
            except asyncio.TimeoutError:
                if now is not None and now.get("ending"):
                    return
                if handle is None and now is not None and now.get("pid"):
                    return  # no pidfd here: look whether it lives
    finally:
        if handle is not None:
            loop.remove_reader(handle)
            os.close(handle)
    if gone.is_set():
        await asyncio.sleep(0.005)


def _stamp(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None
