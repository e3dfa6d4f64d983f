"""Ending a job (`job-stop`) and deleting the files of an ended one (`job-forget`)."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import Any, Dict

from ..context import Context
from ..errors import OpError
from ..host.facts import boot_identity
from ..process.launch import systemctl_words
from ..programs import kill_group, run
from .status import folder_of, look, unit_alive


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
        raise OpError("failed", f"job {job['job']} is still running", "stop it first")
    if job.get("unit") and job.get("boot") == boot_identity():
        for _ in range(50):  # its ExecStopPost may be at work; and the name must be free for another start
            if not await unit_alive(job.get("mode", ""), job["unit"]):
                break
            await asyncio.sleep(0.1)
    await context.thread(_remove, folder)
    return {}


def _remove(folder: str) -> None:
    """Rename first, then delete: a late writer finds no folder, and no folder is half deleted."""
    gone = os.path.join(os.path.dirname(folder), ".gone-" + os.path.basename(folder))
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
