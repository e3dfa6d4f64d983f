"""Starting a detached job, once by its id (the op `job-start`). The job's own process is jobs/worker.py."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import time
from typing import Any, Dict, Optional

from ..context import Context
from ..errors import OpError
from ..host.state_folder import write_json
from ..process.launch import SUDO, launch, mode_of, python_words, stored_zip
from ..programs import tool_env
from .folder import job_id, new_state, unit_of
from .status import has_begun, is_job, jobs_folder, look

KINDS = ("loadgen", "stage", "exec", "supervise", "selftest")
DROPPED_ENV = ("SSH_", "XDG_SESSION", "DBUS_", "TERM", "SHLVL", "_")


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
        raise OpError("bad-request", f"unknown kind of job {kind!r}: use one of {', '.join(KINDS)}")
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
    """Whether logind would delete the staged model with this user's last session (/dev/shm, RemoveIPC)."""
    from ..host.logind import remove_ipc
    from ..model.stage import is_in_shm

    return bool(remove_ipc(context.rights).get("remove_ipc")) and is_in_shm(str(spec.get("path", "")))


def _where(job: Dict[str, Any]) -> Dict[str, Any]:
    found = {"job": job["job"]}
    found.update({key: job[key] for key in ("unit", "pid") if job.get(key)})
    return found


async def _started(context: Context, folder: str) -> Dict[str, Any]:
    """Waits up to 5 s for pid.json or end.json; returns the JOB."""
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
    """Make the folder, state.json last: `is_job` knows a whole start by that file."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder, 0o700)
    os.mkdir(os.path.join(folder, "results"), 0o700)
    limit_s = args.get("limit_s")
    write_json(os.path.join(folder, "spec.json"), {"kind": kind, "spec": spec, "limit_s": limit_s})
    write_json(os.path.join(folder, "env.json"), job_env(args.get("env")))
    run_id = str(args.get("run") or spec.get("run") or "")
    state = new_state(name, kind, spec, run_id, mode, time.time())
    write_json(os.path.join(folder, "state.json"), state)
