"""Results of a load generator's job: read from the host, committed, and the cells it left behind settled."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ddtop.agent.loadgen.records import unpack
from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.journal.results.per_gpu import held_by
from ddtop.services.base import Launch
from ddtop.sweep.cell.attempts import attempt_for, generation_of, version_of
from ddtop.sweep.cell.ending import Subject
from ddtop.sweep.cell.outcome import Committed, Origin, commit
from ddtop.sweep.cell.search import take_load
from ddtop.sweep.recovery.reconcile import spent_jobs
from ddtop.sweep.shared.context import SweepContext

CUT_REQUEST_CLASSES = ("refused", "truncated", "aborted")
DYING_REQUEST_CLASSES = (*CUT_REQUEST_CLASSES, "in-band error", "timeout")
"""And every HTTP 5xx: what clients get from a server that still answers though its engine is dead."""


async def read_file(host: Host, path: str, most_b: int | None = None) -> bytes:
    """A file of the host that is too large for one reply, or its beginning. Raises AgentError."""
    data = b""
    while True:
        part = await host.call("file-read", path=path, offset=len(data), max_b=500_000, b64=True)
        data += base64.b64decode(part["b64"])
        if part["eof"] or not part["b64"] or (most_b is not None and len(data) > most_b):
            return data


async def read_result(host: Host, item: Mapping[str, Any]) -> dict[str, Any]:
    """The result that an item of `job-watch` or `job-collect` carries or names; empty where it has none that can be read."""
    raw = item.get("result")
    if raw is None and item.get("file"):
        with contextlib.suppress(
            msgspec.DecodeError
        ):  # cut by a full or damaged disk: no result, and no crash
            raw = msgspec.json.decode(await read_file(host, str(item["file"])))
    return raw if isinstance(raw, dict) else {}


def has_cut_requests(raw: Mapping[str, Any]) -> bool:
    """Whether a result has requests whose connection was refused, or ended before the response did."""
    return any(name in CUT_REQUEST_CLASSES for name in _classes(raw))


def has_dying_requests(raw: Mapping[str, Any]) -> bool:
    """Whether a result has requests that failed as those of a server do that has just lost its engine."""
    return any(name in DYING_REQUEST_CLASSES or name.startswith("http 5") for name in _classes(raw))


def _classes(raw: Mapping[str, Any]) -> list[str]:
    try:
        requests = unpack(dict(raw)).get("requests")
    except ValueError:
        return []
    return [str(r.get("class")) for r in requests or () if isinstance(r, Mapping)]


def take_result(
    ctx: SweepContext,
    job: str,
    cell_id: str,
    raw: dict[str, Any],
    subject: Subject | None,
    *,
    answer_by_s: float | None = None,
) -> Committed | None:
    """Commits one result of a job. `subject` None: the server it measured is looked up in the recording.

    None where it is recorded already, also by another job: what is done stays as it was measured.
    """
    cell = ctx.state.cells.get(cell_id)
    if cell is not None and cell.state == "done":
        return None
    launch = subject.launch if subject else None
    generation = subject.generation if subject else None
    if cell is not None:
        attempt = attempt_for(cell, job)
        generation = generation or (attempt.generation if attempt else None)
        generation = generation or generation_of(ctx.state, job, cell.spec.restart_key)
        if launch is None and ctx.sweep is not None:
            launch = ctx.sweep.launches.get(cell.spec.restart_key)
    origin = Origin(
        job=job,
        generation=generation,
        engine=launch.engine if launch else "",
        engine_version=subject.engine_version if subject else version_of(ctx.state, generation),
    )
    overridden = list(subject.overridden) if subject is not None else []
    known: dict[str, Any] = {"arguments_overridden": overridden} if overridden else {}
    known["gpu_wanted"] = launch is not None and _gpu_wanted(ctx, launch)
    if (held := held_by(ctx.state, generation)) is not None:
        known["gpus"] = held  # what the host's other GPUs drew is not this server's
    if cell is not None and cell.spec.search is not None:
        return take_load(ctx, cell, raw, origin, known=known, answer_by_s=answer_by_s)
    return commit(ctx, cell_id, raw, origin, known=known, answer_by_s=answer_by_s)


def _gpu_wanted(ctx: SweepContext, launch: Launch) -> bool:
    """Whether this server is meant for the host's GPUs, as the gate found of its last start; unknown is not wanted."""
    starts = (r for r in reversed(ctx.state.restarts) if (r.config, r.tp) == (launch.config, launch.tp))
    last = next((r for r in starts if r.generation is not None), None)
    return bool(ctx.gpu_watch.readings) and last is not None and not last.meant_for_cpu


async def stop_job(ctx: SweepContext, host: Host, job: str) -> None:
    try:
        await host.call("job-stop", job=job, timeout_s=60)
    except AgentError as error:
        ctx.note("warn", f"job {job} could not be stopped: {error.what}")


async def forget_jobs(ctx: SweepContext, host: Host) -> None:
    """Deletes the folders of jobs that nothing is to be had from any more: each measurement leaves one on the host."""
    try:
        jobs = (await host.call("job-list"))["jobs"]
        for job in spent_jobs(ctx.state, jobs, ctx.run_id):
            await host.call("job-forget", job=job)
    except AgentError:
        return  # they are small: the next measurement tries again
