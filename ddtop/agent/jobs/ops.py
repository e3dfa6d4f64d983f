"""Detached jobs: start (once by id), list, watch, collect, stop, forget. The work itself is in jobrun.py."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..context import Context
from ..errors import OpError
from ..host.facts import boot_identity
from ..host.state_folder import SCHEMA, write_json
from ..process.launch import SUDO, USER, launch, mode_of, python_words, stored_zip, systemctl_words
from ..run import kill_group, run, tool_env
from ..wire import MAX_LINE
from .folder import Facts, job_id, judge, new_state, unit_of, unknown_results

KINDS = ("loadgen", "stage", "exec", "supervise")
ANSWER_B = 800_000
POLL_S = 0.25
DROPPED_ENV = ("SSH_", "XDG_SESSION", "DBUS_", "TERM", "SHLVL", "_")


def jobs_folder(context: Context) -> str:
    """Where jobs are; OpError where there is no state folder."""
    if context.state_dir is None:
        raise OpError("not-permitted", f"no state folder: {context.state_why}", "name one: --host-dir DIR")
    return os.path.join(context.state_dir, "jobs")


def folder_of(context: Context, args: Dict[str, Any]) -> str:
    """An existing job's folder."""
    name = job_id(args["job"])
    folder = os.path.join(jobs_folder(context), name)
    if not is_job(folder):
        raise OpError("not-found", f"there is no job {name} on this host")
    return folder


def is_job(folder: str) -> bool:
    """A folder without state.json is none: its start was cut short, and it is made anew."""
    return os.path.isfile(os.path.join(folder, "state.json"))


def has_begun(folder: str) -> bool:
    """Whether the job's own process has given a sign of life, or its end."""
    return any(os.path.exists(os.path.join(folder, name)) for name in ("pid.json", "end.json"))


async def look(context: Context, folder: str) -> Dict[str, Any]:
    """The JOB of a folder. systemd is asked only about a job whose process cannot be found."""
    facts = await context.thread(Facts, folder)
    boot = boot_identity()
    if facts.state and int(facts.state.get("schema", 0)) > SCHEMA:
        raise OpError("failed", f"{folder} was written by a newer ddtop", "use that ddtop")
    job = judge(facts, boot=boot, now_s=time.time())
    if job["state"] != "lost" or (facts.state or {}).get("boot") != boot:
        return job
    unit = (facts.state or {}).get("unit")
    alive = await _unit_alive((facts.state or {}).get("mode", ""), unit) if unit else False
    # The end may have been written meanwhile: look again, then judge.
    return judge(await context.thread(Facts, folder), boot=boot, now_s=time.time(), unit_alive=alive)


async def _unit_alive(mode: str, unit: str) -> bool:
    words = [
        "systemctl",
        *(["--user"] if mode == USER else []),
        "show",
        "-p",
        "ActiveState",
        "--value",
        "--",
        unit,
    ]
    try:
        done = await run(words, timeout_s=5)
    except OpError:
        return False
    return done.out.strip() in ("active", "activating", "deactivating", "reloading")


async def list_jobs(context: Context) -> List[Dict[str, Any]]:
    """Every job of the state folder, the oldest first; [] where there is none."""
    if context.state_dir is None:
        return []
    top = jobs_folder(context)
    try:
        names = os.listdir(top)
    except FileNotFoundError:
        return []
    folders = [folder for folder in (os.path.join(top, name) for name in names) if is_job(folder)]
    jobs = await asyncio.gather(*[look(context, folder) for folder in folders])
    return sorted(jobs, key=lambda job: float(job.get("started_at_s", 0)))


def job_env(extra: Optional[Dict[str, str]]) -> Dict[str, str]:
    """The login's environment for the job, less what belongs to the session alone."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED_ENV)}
    env["PATH"] = tool_env()["PATH"]
    env.update({str(k): str(v) for k, v in (extra or {}).items()})
    return env


async def job_start(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `job-start`."""
    name, kind, spec = job_id(args["job"]), args["kind"], args["spec"]
    if kind not in KINDS or not isinstance(spec, dict):
        raise OpError("bad-request", f"{kind!r} is none of {', '.join(KINDS)}")
    mode = mode_of(context)
    as_root = mode == SUDO and kind == "stage" and must_be_roots(context, spec)
    if as_root:
        spec = {**spec, "as_root": True}
    folder = os.path.join(jobs_folder(context), name)
    lock: asyncio.Lock = context.shared.setdefault("job-start", asyncio.Lock())
    async with lock:
        handle = await context.thread(_lock_file, os.path.dirname(folder))
        try:
            if is_job(folder):
                job = await look(context, folder)
                return {**_where(job), "dir": folder, "existed": True, "state": job["state"]}
            await context.thread(_prepare, context, folder, name, kind, spec, args, mode)
            zip_path = await context.thread(stored_zip, context)
            try:
                await launch(
                    context,
                    mode,
                    unit_of(name),
                    python_words(zip_path, "job", folder),
                    stop_argv=python_words(zip_path, "job-end", folder),
                    cwd=folder,
                    log=os.path.join(folder, "log"),
                    limit_s=args.get("limit_s"),
                    stop_s=float(spec.get("stop_s", 8)) + 12,
                    as_root=as_root,
                )
            except OpError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        finally:
            os.close(handle)
    job = await _started(context, folder)
    return {**_where(job), "dir": folder, "existed": False, "state": job["state"]}


def must_be_roots(context: Context, spec: Dict[str, Any]) -> bool:
    """A model in /dev/shm that belonged to this user would be deleted with his last session (RemoveIPC)."""
    from ..host.serving import remove_ipc
    from ..model.stage import is_in_shm

    return bool(remove_ipc(context.rights).get("remove_ipc")) and is_in_shm(str(spec.get("path", "")))


def _where(job: Dict[str, Any]) -> Dict[str, Any]:
    found = {"job": job["job"]}
    found.update({key: job[key] for key in ("unit", "pid") if job.get(key)})
    return found


async def _started(context: Context, folder: str) -> Dict[str, Any]:
    """Waits a moment for the job's own sign of life."""
    for _ in range(100):
        if has_begun(folder):
            break
        await asyncio.sleep(0.05)
    return await look(context, folder)


def _lock_file(top: str) -> int:
    """Two agents of one login must not start the same job: held until the descriptor is closed."""
    os.makedirs(top, mode=0o700, exist_ok=True)
    handle = os.open(os.path.join(top, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _prepare(
    context: Context, folder: str, name: str, kind: str, spec: Dict[str, Any], args: Dict[str, Any], mode: str
) -> None:
    """The folder, with state.json as its last file: a folder without it is no job and is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder, 0o700)
    os.mkdir(os.path.join(folder, "results"), 0o700)
    limit_s = args.get("limit_s")
    write_json(os.path.join(folder, "spec.json"), {"kind": kind, "spec": spec, "limit_s": limit_s})
    write_json(os.path.join(folder, "env.json"), job_env(args.get("env")))
    run_id = str(args.get("run") or spec.get("run") or "")
    state = new_state(name, kind, spec, run_id, mode, time.time())
    write_json(os.path.join(folder, "state.json"), state)


async def job_list(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `job-list`."""
    return {"jobs": await list_jobs(context)}


async def job_show(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `job-show`."""
    return await look(context, folder_of(context, args))


def load_result(cell: str, path: str) -> Tuple[Dict[str, Any], int]:
    """A result for the wire, and its size: {"id", "result"}; one too large for a line is named by its file."""
    size = os.stat(path).st_size
    if size > ANSWER_B:
        return {"id": cell, "file": path, "size_b": size}, 500
    with open(path, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except ValueError:
        return {"id": cell, "file": path, "size_b": size, "error": "not JSON"}, 500
    return {"id": cell, "result": value}, len(json.dumps(value)) + 100


def gather_results(folder: str, known: List[str]) -> Tuple[List[Dict[str, Any]], bool]:
    """As many unknown results as a line holds, and whether there are more."""
    found: List[Dict[str, Any]] = []
    size = 0
    for cell, path in unknown_results(folder, known):
        item, length = load_result(cell, path)
        if length > MAX_LINE - 100_000:  # JSON escapes made it grow over a line
            item, length = {"id": cell, "file": path, "size_b": os.stat(path).st_size}, 500
        if found and size + length > ANSWER_B:
            return found, True
        found.append(item)
        size += length
    return found, False


async def job_collect(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `job-collect`."""
    folder = folder_of(context, args)
    job = await look(context, folder)  # first: a job that ends while we read is then asked for once more
    results, more = await context.thread(gather_results, folder, list(args.get("known") or []))
    return {"results": results, "more": more, "job": {**job, "progress": {}}}


async def job_watch(
    context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]
) -> Dict[str, Any]:
    """The op `job-watch`."""
    folder = folder_of(context, args)
    known: Set[str] = set(args.get("known") or [])
    last: Tuple[Any, Any] = (None, None)
    told: Optional[str] = None
    looked_s = 0.0
    while True:
        signs = await context.thread(_signs, folder)
        due = time.monotonic() - looked_s > 2.0  # without a sign: does its process still live?
        if signs != last or due:
            looked_s = time.monotonic()
            job = await look(context, folder)
            results, more = await context.thread(gather_results, folder, sorted(known))
            if signs[0] != last[0] and job["progress"]:
                await emit({"progress": job["progress"]})
            for item in results:
                known.add(item["id"])
                await emit(item)
            last = signs
            if more:
                continue
            if job["state"] != told:
                told = job["state"]
                await emit({"state": job})
            if told != "running":
                return {"why": told}
        await asyncio.sleep(POLL_S)


def _signs(folder: str) -> Tuple[Any, Any]:
    """What changes when a job moves: the progress file, and the others."""

    def stamp(name: str) -> Optional[int]:
        try:
            return os.stat(os.path.join(folder, name)).st_mtime_ns
        except OSError:
            return None

    return stamp("results/progress.json"), (stamp("results"), stamp("end.json"), stamp("pid.json"))


async def job_stop(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `job-stop`: ends it and what it has started; its results stay."""
    folder = folder_of(context, args)
    job = await look(context, folder)
    if job["state"] != "running":
        return job
    if job.get("unit"):
        words = [*systemctl_words(job.get("mode", "")), "stop", "--", job["unit"]]
        await run(words, timeout_s=40)
    elif job.get("pid"):
        kill_group(int(job["pid"]), 15)
        for _ in range(50):
            await asyncio.sleep(0.1)
            if (await look(context, folder))["state"] != "running":
                break
        else:
            kill_group(int(job["pid"]))
            await asyncio.sleep(0.2)
    return await look(context, folder)


async def job_forget(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `job-forget`."""
    folder = folder_of(context, args)
    job = await look(context, folder)
    if job["state"] == "running":
        raise OpError("failed", f"job {job['job']} still runs", "stop it first")
    if job.get("unit") and job.get("boot") == boot_identity():
        for _ in range(50):  # its ExecStopPost may be at work; and the name must be free for another start
            if not await _unit_alive(job.get("mode", ""), job["unit"]):
                break
            await asyncio.sleep(0.1)
    await context.thread(_remove, folder)
    return {}


def _remove(folder: str) -> None:
    """Renamed first: whoever still has a word to write finds no folder, and none is half deleted."""
    gone = os.path.join(os.path.dirname(folder), ".gone-" + os.path.basename(folder))
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
