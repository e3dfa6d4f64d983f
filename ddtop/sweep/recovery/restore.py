"""The units' states before the run, and putting them back: a run leaves the host as it found it.

The state of each unit is noted when the run begins (a step `seen:UNIT`), before anything is touched: what a reboot left
of it later is not what it was. A unit that is touched gets a step `former:UNIT`, so that any later runner can put it back.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import StepTaken
from ddtop.hosts.base import Host
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import StepView
from ddtop.services.base import OriginalState, Service
from ddtop.services.command import KEEPS
from ddtop.services.kinds import service_for
from ddtop.services.unit.systemctl_show import exec_argv
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.limits import RESTORE_MOST_S, RESTORE_S

PREFIX = "former:"
SEEN = "seen:"
BACK = "restore:"
STAYS_S = 3.0
"""How long a unit that was started again is watched."""
AGAIN_S = 5.0
"""Before what could not be undone at once is tried once more."""


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
                run=raw.get("run", plan_id),
                ours=ours,
            )
    return found


def former_details(state: State) -> dict[str, Any]:
    """The state before the run of each unit that is touched, as it is recorded: for a run that would take the host over."""
    touched = original_states(state)
    steps = {step_id.removeprefix(PREFIX): step for (_, step_id), step in state.steps.items()}
    return {unit: json.loads(steps[unit].detail or "{}") for unit in touched if unit in steps}


def service_of(ctx: SweepContext, original: OriginalState) -> Service:
    """The service by which the unit ran when it was taken over; an edited plan may run it otherwise, or not at all."""
    launch = ctx.launch_of(original.unit)
    if launch is not None and (launch.kind, launch.user) == (original.kind, original.user):
        return ctx.feed(original.unit).service
    return service_for(original.unit, original.kind, user=original.user)


async def note_originals(ctx: SweepContext, host: Host) -> None:
    """Notes the state of every unit of the plan when a runner begins, before anything is touched.

    A note is kept while its unit is touched, and over a reboot. On the same boot an untouched unit is still its owner's:
    what it is now counts, as it does after a run that ended in order. A crash since is not the owner's wish.
    """
    assert ctx.sweep is not None
    touched, before = original_states(ctx.state), ctx.state.run.before
    ended = before is not None and before.outcome != "host-lost"
    for unit in ctx.sweep.units:
        if unit in touched:
            continue
        noted = _noted(ctx.state, unit)
        if noted is not None and not ended and noted.get("boot") != host.hello.boot:
            continue
        detail = ctx.inherited.get(unit) or await _read(ctx, host, unit)
        if noted is not None and not ended and noted["active"] and detail["was"] == "failed":
            continue
        if detail != noted:
            _record(ctx, SEEN, detail, f"note how {unit} is")


async def remember_original(ctx: SweepContext, host: Host, unit: str, *, run_id: str) -> None:
    """Records the state of `unit` before the run, if the run has not touched it yet."""
    if unit in original_states(ctx.state):
        return
    _record(ctx, PREFIX, _noted(ctx.state, unit) or await _read(ctx, host, unit), f"take over {unit}")


def _noted(state: State, unit: str) -> dict[str, Any] | None:
    """What was noted of a unit and counts still; None where it was put back since."""
    seen, back = _step(state, SEEN + unit), _step(state, BACK + unit)
    if seen is None or not seen.detail or (back is not None and back.state == "done" and back.seq > seen.seq):
        return None
    noted: dict[str, Any] = json.loads(seen.detail)
    return noted


def _step(state: State, step_id: str) -> StepView | None:
    """The newest step with this id, of whatever plan."""
    found = [step for (_, name), step in state.steps.items() if name == step_id]
    return max(found, key=lambda step: step.seq, default=None)


async def _read(ctx: SweepContext, host: Host, unit: str) -> dict[str, Any]:
    """What `unit` is now, as it is recorded. Where it runs, the host keeps how it was asked for."""
    service = ctx.feed(unit).service
    now = await service.read(host)
    launch = ctx.launch_of(unit)
    if now.running:
        await service.save_for_restore(host, ctx.run_id)
    argv = shlex.split(now.argv) if now.argv and service.kind == "process" else []
    if service.kind == "command":  # to see at the end whether the owner's script has rewritten the unit
        argv = exec_argv(now.argv)
    return {
        "unit": unit,
        "kind": service.kind,
        "active": now.running,
        "was": now.active or "unknown",
        "user": bool(launch and launch.user),
        "argv": argv,
        "generation": now.generation if now.running else None,
        "boot": host.hello.boot,
        "run": ctx.run_id,
    }


def _record(ctx: SweepContext, prefix: str, detail: dict[str, Any], title: str) -> None:
    ctx.emit(
        StepTaken,
        plan_id=ctx.run_id,
        step_id=prefix + detail["unit"],
        action="override",
        title=title,
        reason=f"it was {detail['was']} before the run; that is put back at the end",
        by="automatic",
        state="done",
        detail=json.dumps(detail),
    )


def not_undone(left: Iterable[str]) -> list[str]:
    """Of what was left behind: what should have been undone and was not. What the owner's own script wrote stays by design."""
    return [words for words in left if KEEPS not in words]


async def restore_all(ctx: SweepContext, host: Host, *, by: str = "automatic") -> list[str]:
    """Puts every touched unit back. Returns, in words, what could not be undone."""
    left = await stop_jobs(ctx, host)
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
        began = ctx.mono()
        words = await _put_back(ctx, host, original)
        if not_undone(words) and ctx.mono() - began < RESTORE_S / 2:
            # A command that took too long under load is no reason to leave a host behind.
            await ctx.wait_until(lambda: False, AGAIN_S)
            words = await _put_back(ctx, host, original)
        left += words
        ctx.emit(
            StepTaken,
            state="failed" if not_undone(words) else "done",
            detail="; ".join(words) or None,
            **step,
        )
    return left


async def _put_back(ctx: SweepContext, host: Host, original: OriginalState) -> list[str]:
    """One try; what could not be undone, in words."""
    try:
        service = service_of(ctx, original)
        words = await service.restore(host, original)
        if not words or original.kind == "command":  # what the owner's script wrote is reported in any case
            words += await _settled(ctx, host, original, service)
    except AgentError as error:
        words = [f"{original.unit}: {error.what}"]
    return words


async def stop_jobs(ctx: SweepContext, host: Host) -> list[str]:
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


async def _stays(ctx: SweepContext, host: Host, original: OriginalState, service: Service) -> list[str]:
    """A unit that was started again may end at once: after a reboot its model may be gone from a tmpfs."""
    until = ctx.mono() + STAYS_S
    while ctx.mono() < until:
        await ctx.wait(0.5)
        now = await service.read(host)
        if now.gone:
            sweep = ctx.sweep
            model = (
                f": is its model still in {sweep.model.path}?" if sweep is not None and sweep.model else ""
            )
            how = f"{now.active}, Result={now.result}, {now.exit_code or 'no exit code'}"
            return [f"{original.unit} was started again and ended ({how}){model}"]
    return []


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
            if original.active:
                return await _stays(ctx, host, original, service)
            # A stop that ended in a kill leaves the unit failed, which it was not.
            again = await service.restore(host, original) if now.active == "failed" else []
            return not_undone(again)
        if ctx.mono() - began > min(max(now.stop_limit_s or 0.0, RESTORE_S), RESTORE_MOST_S):
            return [
                f"{original.unit} is still {now.active}/{now.sub} {ctx.mono() - began:.0f} s after it was put back"
            ]
        await ctx.wait(0.5)
