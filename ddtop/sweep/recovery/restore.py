"""The units' states before the run, and putting them back: a run leaves the host as it found it.

The state of a unit is recorded (a step `former:UNIT`) before the unit is touched, so that any later runner can put it
back.
"""

from __future__ import annotations

import json
import shlex

from ddtop.errors import AgentError
from ddtop.events import StepTaken
from ddtop.hosts.base import Host
from ddtop.journal.fold.state import State
from ddtop.services.base import OriginalState, Service
from ddtop.services.kinds import service_for
from ddtop.services.unit.systemctl_show import exec_argv
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.limits import RESTORE_MOST_S, RESTORE_S

PREFIX = "former:"
BACK = "restore:"


def original_states(state: State) -> dict[str, OriginalState]:
    """The state before the run of each unit that the run touched and has not put back since, by unit.

    A unit that was put back is its owner's again: when the run is resumed, its state at that time counts.
    """
    found: dict[str, OriginalState] = {}
    back = {
        step_id.removeprefix(BACK): step.seq
        for (_, step_id), step in state.steps.items()
        if step_id.startswith(BACK) and step.state == "done"
    }
    ours = frozenset(r.generation.id for r in state.restarts if r.generation is not None)
    for (plan_id, step_id), step in state.steps.items():
        if step_id.startswith(PREFIX) and step.detail:
            raw = json.loads(step.detail)
            if back.get(raw["unit"], -1) > step.seq:
                continue
            found[raw["unit"]] = OriginalState(
                unit=raw["unit"],
                kind=raw["kind"],
                active=raw["active"],
                user=raw.get("user", False),
                argv=tuple(raw.get("argv", ())),
                generation=raw.get("generation"),
                run=plan_id,
                ours=ours,
            )
    return found


def service_of(ctx: SweepContext, original: OriginalState) -> Service:
    """The service by which the unit ran when it was taken over; an edited plan may run it otherwise, or not at all."""
    launch = ctx.launch_of(original.unit)
    if launch is not None and (launch.kind, launch.user) == (original.kind, original.user):
        return ctx.feed(original.unit).service
    return service_for(original.unit, original.kind, user=original.user)


async def remember_original(ctx: SweepContext, host: Host, unit: str, *, run_id: str) -> None:
    """Records the state of `unit`, if the run has not touched it yet."""
    if unit in original_states(ctx.state):
        return
    service = ctx.feed(unit).service
    now = await service.read(host)
    launch = ctx.launch_of(unit)
    if now.running:
        await service.save_for_restore(host, run_id)
    argv = shlex.split(now.argv) if now.argv and service.kind == "process" else []
    if service.kind == "command":  # to see at the end whether the owner's script has rewritten the unit
        argv = exec_argv(now.argv)
    detail = {
        "unit": unit,
        "kind": service.kind,
        "active": now.running,
        "user": bool(launch and launch.user),
        "argv": argv,
        "generation": now.generation if now.running else None,
    }
    ctx.emit(
        StepTaken,
        plan_id=run_id,
        step_id=PREFIX + unit,
        action="override",
        title=f"take over {unit}",
        reason=f"it was {now.active or 'unknown'}; that is put back at the end",
        by="automatic",
        state="done",
        detail=json.dumps(detail),
    )


async def restore_all(ctx: SweepContext, host: Host, *, by: str = "automatic") -> list[str]:
    """Puts every touched unit back. Returns, in words, what could not be undone."""
    left = await _stop_jobs(ctx, host)
    was = original_states(ctx.state)
    # Units that were not active first: they share a port with those that were.
    for original in sorted(was.values(), key=lambda f: f.active):
        step = {
            "plan_id": ctx.run_id,
            "step_id": BACK + original.unit,
            "action": "restore",
            "title": f"put {original.unit} back",
            "reason": f"it was {'active' if original.active else 'not active'} before the run",
            "by": by,
        }
        ctx.emit(StepTaken, state="started", **step)
        try:
            service = service_of(ctx, original)
            words = await service.restore(host, original)
            if (
                not words or original.kind == "command"
            ):  # what the owner's script wrote is reported in any case
                words += await _settled(ctx, host, original, service)
        except AgentError as error:
            words = [f"{original.unit}: {error.what}"]
        left += words
        ctx.emit(StepTaken, state="failed" if words else "done", detail="; ".join(words) or None, **step)
    return left


async def _stop_jobs(ctx: SweepContext, host: Host) -> list[str]:
    """Stops this run's jobs: a load must not go on when its sweep is over."""
    left: list[str] = []
    try:
        jobs = (await host.call("job-list"))["jobs"]
        for job in jobs:
            if job.get("run") == ctx.run_id and job.get("state") == "running":
                await host.call("job-stop", job=job["job"], timeout_s=60)
    except AgentError as error:
        left.append(f"jobs of this run could not be stopped: {error.what}")
    return left


async def _settled(ctx: SweepContext, host: Host, original: OriginalState, service: Service) -> list[str]:
    """Waits until the unit is in its original state. A stop may take as long as the unit allows, RESTORE_MOST_S at most."""
    began = ctx.mono()
    while True:
        now = await service.read(host)
        ctx.take_reading(now)
        if (
            now.active in ("active", "reloading")
            if original.active
            else (now.gone or now.load == "not-found")
        ):
            return []
        if ctx.mono() - began > min(max(now.stop_limit_s or 0.0, RESTORE_S), RESTORE_MOST_S):
            return [
                f"{original.unit} is still {now.active}/{now.sub} {ctx.mono() - began:.0f} s after it was put back"
            ]
        await ctx.wait(0.5)
