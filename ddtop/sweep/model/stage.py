"""Staging the model: a detached job on the host copies what is missing; here it is started, watched and reported."""

from __future__ import annotations

import secrets
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import StageProgress
from ddtop.hosts.base import Host
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.limits import STAGE_S
from ddtop.sweep.shared.plan import ModelWanted

STATES = ("checking", "copying", "downloading", "done", "failed")


async def stage(ctx: SweepContext, host: Host, model: ModelWanted) -> str | None:
    """Completes the model at its path. Returns None when it is complete, else why it is not, in words.

    A job of an earlier connection or runner that still runs is watched, not started twice. Raises HostLostError, and
    AgentError where the agent fails at something that may pass, such as a full disk.
    """
    job = await _running(host, ctx.run_id)
    if job is None:
        found = await host.call("model-check", path=model.path, timeout_s=600)
        if found.get("verdict") == "complete":
            ctx.note("info", f"the model is complete at {model.path}: nothing to stage")
            return None
        job = f"{ctx.run_id}-stage-{secrets.token_hex(3)}"
        ctx.emit(StageProgress, target=model.path, state="checking")
        try:
            await host.call(
                "job-start",
                job=job,
                kind="stage",
                limit_s=STAGE_S,
                env={},
                run=ctx.run_id,
                timeout_s=30,
                spec={"path": model.path, "sources": list(model.sources), "run": ctx.run_id},
            )
        except AgentError as error:
            ctx.emit(StageProgress, target=model.path, state="failed", error=error.what)
            if error.may_pass:
                raise
            return error.what
    end: dict[str, Any] = {}
    last: dict[str, Any] = {}
    async with host.stream("job-watch", job=job, known=[]) as batches:
        async for batch in batches:
            for item in batch:
                if "progress" in item:
                    last = item["progress"]
                    _report(ctx, model, last)
                elif "state" in item:
                    end = item["state"]
    if not end or end.get("state") == "running":
        end = await host.call("job-show", job=job)
    check = await host.call("model-check", path=model.path, timeout_s=600)
    why = None
    if end.get("state") != "done":
        why = str(end.get("why") or f"the job ended {end.get('state')}")
    elif check.get("verdict") != "complete":
        why = f"{model.path} is {check.get('verdict')} ({check.get('cause')}) after staging"
    # A quick copy reports no progress on its way: its end names the source and the bytes.
    ctx.emit(
        StageProgress,
        target=model.path,
        state="failed" if why else "done",
        error=why,
        source=last.get("source"),
        bytes_done=last.get("bytes_done"),
        bytes_total=last.get("bytes_total"),
    )
    return why


async def end_staging(ctx: SweepContext, host: Host, model: ModelWanted, why: str) -> None:
    """Stops the copy under way. What it has written stays: a later staging goes on from there."""
    job = await _running(host, ctx.run_id)
    if job is not None:
        await host.call("job-stop", job=job, timeout_s=60)
    ctx.emit(StageProgress, target=model.path, state="failed", error=why)


async def _running(host: Host, run_id: str) -> str | None:
    jobs = (await host.call("job-list"))["jobs"]
    mine = [
        j for j in jobs if j.get("kind") == "stage" and j.get("state") == "running" and j.get("run") == run_id
    ]
    return str(mine[-1]["job"]) if mine else None


def _report(ctx: SweepContext, model: ModelWanted, item: dict[str, Any]) -> None:
    state = item.get("state")
    if state not in STATES or state in ("done", "failed"):
        return
    ctx.emit(
        StageProgress,
        target=model.path,
        source=item.get("source"),
        state=state,
        bytes_done=item.get("bytes_done"),
        bytes_total=item.get("bytes_total"),
        rate_mib_s=item.get("rate_mib_s"),
        eta_s=item.get("eta_s"),
        file=item.get("file"),
    )
