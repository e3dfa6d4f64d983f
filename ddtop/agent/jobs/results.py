"""Handing a job's progress and results to the client: all at once (`job-collect`) or as they come (`job-watch`)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..context import Context
from ..wire import MAX_LINE
from .folder import unknown_results
from .status import folder_of, look

ANSWER_B = 800_000
POLL_S = 0.25


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
