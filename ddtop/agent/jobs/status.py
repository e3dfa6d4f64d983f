"""What became of a job: its folder, its state now, and the list of all jobs (ops `job-list`, `job-show`)."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Dict, List

from ..context import Context
from ..errors import OpError
from ..host.facts import boot_identity
from ..host.state_folder import SCHEMA
from ..process.launch import USER
from ..programs import run
from .folder import Facts, job_id, judge


def jobs_folder(context: Context) -> str:
    """Where jobs are; OpError where there is no state folder."""
    return os.path.join(context.need_state_dir(), "jobs")


def folder_of(context: Context, args: Dict[str, Any]) -> str:
    """An existing job's folder."""
    name = job_id(args["job"])
    folder = os.path.join(jobs_folder(context), name)
    if not is_job(folder):
        raise OpError("not-found", f"there is no job {name} on this host")
    return folder


def is_job(folder: str) -> bool:
    """Whether the folder is a job. Without state.json its start was cut short; `job-start` makes it again."""
    return os.path.isfile(os.path.join(folder, "state.json"))


def has_begun(folder: str) -> bool:
    """Whether the job's own process has written its pid, or its end."""
    return any(os.path.exists(os.path.join(folder, name)) for name in ("pid.json", "end.json"))


async def look(context: Context, folder: str) -> Dict[str, Any]:
    """The JOB of a folder. systemd is asked only about a job whose process cannot be found."""
    facts = await context.thread(Facts, folder)
    boot = boot_identity()
    if facts.state and int(facts.state.get("schema", 0)) > SCHEMA:
        raise OpError("failed", f"{folder} was written by a newer ddtop", "use that version of ddtop")
    job = judge(facts, boot=boot, now_s=time.time())
    if job["state"] != "lost" or (facts.state or {}).get("boot") != boot:
        return job
    unit = (facts.state or {}).get("unit")
    alive = await unit_alive((facts.state or {}).get("mode", ""), unit) if unit else False
    # The end may have been written meanwhile: look again, then judge.
    return judge(await context.thread(Facts, folder), boot=boot, now_s=time.time(), unit_alive=alive)


async def unit_alive(mode: str, unit: str) -> bool:
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


async def job_list(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `job-list`."""
    return {"jobs": await list_jobs(context)}


async def job_show(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `job-show`."""
    return await look(context, folder_of(context, args))
