"""One restart: configure, stop, start, then watch until the gate opens or the watchdog speaks.

Several tasks read side by side (unit and log come with the connection's streams, here: port, processes, HTTP); one loop
judges by the pure rules. A verdict is settled before it is given: the log is drained and the unit read again, so that
the cause is the exact one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import CellSpec, Generation, RestartFailed, RestartReady, RestartStarted
from ddtop.hosts.base import Host
from ddtop.journal.fold.views import RestartView
from ddtop.services.base import CallResult, Launch
from ddtop.services.command import SCRIPT, end_scripts, scripts_run
from ddtop.sweep.recovery.restore import remember_original
from ddtop.sweep.shared.context import SweepContext, UnitFeed
from ddtop.sweep.shared.limits import expected_start_s, learn, merged
from ddtop.sweep.shared.log_lines import drain_log
from ddtop.sweep.shared.tasks import alongside
from ddtop.sweep.shared.verdict import Judgement
from ddtop.sweep.start.agent_readings import CACHES, activity_reading, health_mark
from ddtop.sweep.start.attempt import Attempt
from ddtop.sweep.start.duplicates import duplicate_of
from ddtop.sweep.start.gate import Gate
from ddtop.sweep.start.gate_reads import GateReader
from ddtop.sweep.start.readings import CallReading
from ddtop.sweep.start.watchdog import judge

SCRIPT_GRACE_S = 10.0
SCRIPT_POLL_S = 0.25
TICK_S = 0.2
PORT_S = 0.5
UNPROVEN_S = 10.0
"""A gate part that cannot be known refuses once everything else has been ready for so long."""
EXPIRY_S = 7 * 86400.0
STOP_WAIT_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A server that passed the gate."""

    attempt_id: str
    generation: Generation
    engine_version: str | None = None
    model: str = ""
    main_pid: int | None = None
    overridden: tuple[str, ...] = ()
    resolved: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class NotStarted:
    """A start that failed, with the verdict."""

    attempt_id: str
    judgement: Judgement
    fault_seen_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancelled:
    """A person wants something else."""

    why: str


class Restarter:
    """See the module. `interrupted(launch)` says why a person wants this start broken off, or None."""

    def __init__(
        self,
        ctx: SweepContext,
        interrupted: Callable[[Launch], str | None],
        extra_wait: Callable[[str], float],
    ) -> None:
        self.ctx = ctx
        self.interrupted = interrupted
        self.extra_wait = extra_wait
        self._over = False
        """Whether the last start failed before its script may have returned."""

    async def run(
        self, host: Host, launch: Launch, cells: Sequence[CellSpec], *, attach: RestartView | None = None
    ) -> Started | NotStarted | Cancelled:
        """Restarts the server of `launch`; with `attach`, takes up watching a start already under way."""
        ctx, feed = self.ctx, self.ctx.feed(launch.unit)
        if self._over:
            await self._end_scripts(host, grace_s=SCRIPT_GRACE_S)
            self._over = False
        gate_reader = GateReader(launch, feed.service, ctx.sweep.endpoint if ctx.sweep else "chat")
        before = await feed.service.read(host)
        ctx.take_reading(before)
        if attach is None:
            before_id = before.generation
            number = sum(r.config == launch.config and r.tp == launch.tp for r in ctx.state.restarts) + 1
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", launch.config)[:40]  # the script's job is named after it
            attempt_id = f"{ctx.run_id}-{name}-tp{launch.tp}-{number}"
        else:
            before_id = attach.generation_before.id if attach.generation_before else None
            attempt_id = attach.attempt_id
        limits = merged(learn(ctx.state.restarts), ctx.learned_limits.get(launch.key))
        expected = expected_start_s(ctx.state.restarts, launch.tp) or limits.start_s
        attempt = Attempt(
            ctx,
            launch,
            feed,
            gate_reader,
            attempt_id=attempt_id,
            before=before if attach is None else None,
            before_id=before_id,
            limits=limits,
            expected_s=expected,
        )
        if attach is not None and before_id is not None:
            attempt.before = replace(before, generation=before_id)
        if attach is None:
            await drain_log(ctx, host, feed)  # lines of the time before do not belong to this start
            boot = host.hello.boot
            ctx.emit(
                RestartStarted,
                attempt_id=attempt_id,
                config=launch.config,
                tp=launch.tp,
                unit=launch.unit,
                argv=launch.argv or launch.configure,
                cell_ids=tuple(c.id for c in cells),
                expected_s=expected,
                generation_before=Generation(boot=boot, id=before_id, main_pid=before.main_pid)
                if before_id
                else None,
            )
        feed.listeners.append(attempt.on_line)
        try:
            act = self._act(host, attempt) if attach is None else self._reattach(host, attempt, before)
            result = await alongside(
                self._watch(host, attempt),
                act,
                self._port(host, attempt),
                self._activity(host, attempt),
                self._ask(host, attempt),
            )
            if isinstance(result, Cancelled) and launch.configure:
                await self._end_scripts(host)
            self._over = isinstance(result, NotStarted) and bool(launch.configure)
            return result
        finally:
            feed.listeners.remove(attempt.on_line)

    # ---- acting

    async def _act(self, host: Host, a: Attempt) -> None:
        """Configure, stop what must be down, start. What each call says goes to `a.call`."""
        ctx, launch, service = self.ctx, a.launch, a.feed.service
        assert ctx.sweep is not None
        await remember_original(ctx, host, launch.unit, run_id=ctx.run_id)
        try:
            what = await service.configure(host, launch, ctx.run_id, ctx.wall() + EXPIRY_S)
        except AgentError as error:
            self._called(
                a,
                CallResult(
                    rc=1,
                    error=f"{error.what}\n{error.code.replace('-', ' ')}",
                    what="writing the override",
                    do=error.do,
                ),
            )
            return
        ctx.note("info", f"{launch.config}: {what}")
        a.begin_stopping()
        for rival in ctx.sweep.rivals(launch):
            await remember_original(ctx, host, rival, run_id=ctx.run_id)
            stopped = await self._stop(host, ctx.feed(rival))
            if stopped.rc:  # its port and GPU memory would be missing, and the start fail for another reason
                self._called(a, stopped)
                return
        if not service.stops_itself:
            called = await self._stop(host, a.feed)
            if called.rc:
                self._called(a, called)
                return
            if not await self._cool_down(host, a):
                # A stranger has the port: the start could only fail. The watchdog names him at once.
                self._called(a, CallResult(rc=0, what="the restart"))
                return
        called = await service.start(host, launch, a.id + SCRIPT)
        self._called(a, called)
        ctx.take_reading(await service.read(host))

    async def _end_scripts(self, host: Host, *, grace_s: float = 0.0) -> None:
        """Ends the owner's script of a start that is over, should it still run: it must not meddle with the next one. For
        `grace_s` it may end by itself, as it mostly does: one that is cut off leaves who knows what half done."""
        until = self.ctx.mono() + grace_s
        try:
            while self.ctx.mono() < until and await scripts_run(host, self.ctx.run_id):
                await self.ctx.wait(SCRIPT_POLL_S)
            await end_scripts(host, self.ctx.run_id)
        except AgentError as error:
            self.ctx.note("warn", f"the reconfigure script could not be ended: {error.what}")

    def _called(self, a: Attempt, called: CallResult) -> None:
        a.call = CallReading(
            asked_at=a.began,
            returned_at=self.ctx.mono(),
            rc=called.rc,
            error=called.error,
            what=called.what or "the call",
            by_script=called.by_script,
            timed_out=called.timed_out,
            do=called.do,
        )
        self.ctx.wake()

    async def _stop(self, host: Host, feed: UnitFeed) -> CallResult:
        """Stops a unit and waits until it is gone; the watchdog judges how long that may take."""
        ctx = self.ctx
        reading = await feed.service.read(host)
        ctx.take_reading(reading)
        if (reading.gone and not reading.job) or reading.load == "not-found":
            return CallResult(rc=0)
        called = await feed.service.stop(host)
        if called.rc:
            return called
        began = ctx.mono()
        while ctx.mono() - began < STOP_WAIT_S:
            now = feed.reading
            if now is not None and now.gone and not now.job and now.sub != "auto-restart":
                return called
            await ctx.wait(1.0)
            if feed.reading is now:
                ctx.take_reading(await feed.service.read(host))
        return CallResult(rc=1, error=f"{feed.unit} did not stop", what=called.what)

    async def _cool_down(self, host: Host, a: Attempt) -> bool:
        """Waits until the port is free and GPU memory is back, a few seconds at most; says what is not.

        False: a process that is not ours has taken the port, seen twice.
        """
        ctx, began = self.ctx, self.ctx.mono()
        strangers: set[int] = set()
        while True:
            a.take_listeners(await a.gate_reader.listeners(host, a.unit))
            # A container may outlive the unit's client for a moment: it is no stranger.
            now = {
                x.pid
                for x in a.listeners or ()
                if x.owned is False and x.pid is not None and x.container is None
            }
            if now & strangers:
                return False
            strangers = now
            used = [g.mem_used_mib / g.mem_total_mib for g in ctx.gpus if g.mem_used_mib and g.mem_total_mib]
            held = a.listeners or (
                max(used, default=0.0) > 0.05 and ctx.gpus_at is not None and ctx.gpus_at >= a.began
            )
            if not held:
                return True
            if ctx.mono() - began > 3.0:
                what = f"port {a.launch.port} is still taken" if a.listeners else "GPU memory is still held"
                ctx.note("warn", f"{a.launch.unit} is stopped, but {what}")
                return True
            await asyncio.sleep(0.3)

    async def _reattach(self, host: Host, a: Attempt, now_is: Any) -> None:
        """The start was asked for before the connection (or the runner) was lost: read what it wrote since."""
        a.call = CallReading(asked_at=a.began, returned_at=a.began, rc=0, what="the restart")
        a.take_unit()
        if a.unit is not None and a.unit.generation:
            for line in await a.feed.service.history(host, a.unit.generation):
                a.on_line(line)
        self.ctx.wake()

    # ---- reading

    async def _port(self, host: Host, a: Attempt) -> None:
        while True:
            if a.unit is not None and (a.unit.running or a.call.returned_at is not None):
                found = await a.gate_reader.listeners(host, a.unit)
                a.take_listeners(found)
                # What answered before is no word on the one that answers now.
                a.answer = (
                    await a.gate_reader.owner(host, found[0], a.unit, self.ctx.mono()) if found else None
                )
                self.ctx.wake()
            await asyncio.sleep(PORT_S)

    async def _activity(self, host: Host, a: Attempt) -> None:
        while True:
            args = a.feed.service.activity_args(a.unit) if a.unit is not None and a.seen_new else None
            if args is None:
                await asyncio.sleep(TICK_S)
                continue
            try:
                async with host.stream("activity", every_s=1, gpu=True, caches=CACHES, **args) as batches:
                    async for batch in batches:
                        for item in batch:
                            a.on_activity(activity_reading(item, self.ctx.mono()))
            except AgentError as error:
                if error.code not in ("not-found", "not-permitted"):
                    raise
            await asyncio.sleep(1.0)

    async def _ask(self, host: Host, a: Attempt) -> None:
        """HTTP: the health path where it is the mark, then the arguments, then one generation."""
        while True:
            await asyncio.sleep(TICK_S)
            generation = a.new_generation()
            if generation is None or not a.listeners or a.unit is None or a.gate()["listener"].state != "ok":
                continue
            try:
                await self._ask_once(host, a, generation)
            except AgentError as error:
                self.ctx.note("warn", f"the server on port {a.launch.port} could not be asked: {error.what}")
                await asyncio.sleep(2.0)

    async def _ask_once(self, host: Host, a: Attempt, generation: str) -> None:
        ctx, gate_reader, now = self.ctx, a.gate_reader, self.ctx.mono
        if a.log.mark is None and not gate_reader.engine.logs_ready_mark:
            status = await gate_reader.health(host)
            if gate_reader.engine.health_ready(a.health, status):
                a.log.mark = health_mark(generation, a.health, status, now())
            a.health = status
        if a.log.mark is None or a.log.mark_of(generation) is None:
            return
        if a.phases.current not in ("answering", "ready"):
            a.enter_phase("answering")
        if a.unit is not None and (a.args is None or a.args.generation != generation):
            logged = a.log.snapshot()
            a.args = await gate_reader.args(host, a.unit, dict(logged.server_args) if logged else {}, now())
            ctx.wake()
        if (
            a.args is not None
            and not a.args.wrong
            and (a.token is None or a.token.generation != generation or a.token.error)
        ):
            a.token = await gate_reader.token(host, generation, now())
            ctx.wake()
            if a.token.error:
                await asyncio.sleep(1.0)

    # ---- judging

    async def _watch(self, host: Host, a: Attempt) -> Started | NotStarted | Cancelled:
        ctx = self.ctx
        unproven_since: float | None = None
        drained = False
        while True:
            a.take_unit()
            a.waited_until = self.extra_wait(a.id)
            result = a.gate()
            verdict = judge(a.readings(), ctx.mono())
            a.tell(result, note=verdict.text if verdict.verdict == "slow" else a.stopping_words())
            if result.ready:
                return self._ready(host, a)
            if not drained and a.exited_unexplained(ctx.mono()):
                # journald tells a follower up to half a second late; what is there now says why nothing runs.
                drained = True
                await drain_log(ctx, host, a.feed)
                continue
            if verdict.alarm:
                verdict = await self._settle(host, a)
            unproven_since = (unproven_since or ctx.mono()) if _unproven(result) else None
            if unproven_since is not None and ctx.mono() - unproven_since > UNPROVEN_S and not verdict.alarm:
                verdict = unproven(result, a.launch)
            if verdict.alarm:
                return self._failed(a, verdict)
            why = self.interrupted(a.launch)
            if why is not None:
                a.finish(ready=False)
                ctx.emit(
                    RestartFailed, attempt_id=a.id, verdict="interrupted", cause="interrupted", kind="unknown"
                )
                return Cancelled(why=why)
            await ctx.wait(TICK_S)

    async def _settle(self, host: Host, a: Attempt) -> Judgement:
        """Looks once more before a verdict is given: the log to its end, the unit as it is now."""
        await drain_log(self.ctx, host, a.feed)
        self.ctx.take_reading(await a.feed.service.read(host))
        a.take_unit()
        found = judge(a.readings(), self.ctx.mono())
        if found.cause == "port-in-use" and found.verdict == "failed":  # by whom, nobody has looked yet
            with contextlib.suppress(AgentError):
                a.take_listeners(await a.gate_reader.listeners(host, a.unit))
                found = judge(a.readings(), self.ctx.mono())
        return found

    def _ready(self, host: Host, a: Attempt) -> Started:
        ctx, gate_reader = self.ctx, a.gate_reader
        assert a.unit is not None and a.unit.generation is not None and a.args is not None
        a.finish(ready=True)
        a.tell(a.gate(), end=True)
        generation = Generation(boot=host.hello.boot, id=a.unit.generation, main_pid=a.unit.main_pid)
        resolved = {
            k: v for k, v in gate_reader.facts.items() if isinstance(v, str | int | float | bool) or v is None
        }
        overridden = a.args.overridden
        twin = duplicate_of(
            gate_reader.engine, a.launch.config, a.launch.tp, a.launch.argv, resolved, ctx.state.restarts
        )
        if twin is not None:
            overridden += (f"the same arguments are in effect as for {twin}: its cells are repeats of these",)
        ctx.emit(
            RestartReady,
            attempt_id=a.id,
            generation=generation,
            ready_s=round(ctx.mono() - a.began, 3),
            engine=a.launch.engine,
            engine_version=gate_reader.version,
            resolved_args=resolved,
            overridden=overridden,
        )
        return Started(
            attempt_id=a.id,
            generation=generation,
            engine_version=gate_reader.version,
            model=gate_reader.model or "",
            main_pid=a.unit.main_pid,
            overridden=overridden,
            resolved=resolved,
        )

    def _failed(self, a: Attempt, j: Judgement) -> NotStarted:
        ctx = self.ctx
        a.finish(ready=False)
        a.tell(a.gate(), end=True)
        seen = None
        if j.verdict in ("failed", "crash-loop", "refused") and a.unit is not None:
            seen = ctx.since_fault_s(a.unit.changed_mono_s)
        elif j.verdict == "never-began" and a.call.returned_at is not None:
            seen = ctx.mono() - a.call.returned_at
        elif j.verdict in ("stalled", "hung-gpu"):
            seen = a.progress.quiet_s(ctx.mono())
        return NotStarted(attempt_id=a.id, judgement=j, fault_seen_s=None if seen is None else round(seen, 3))


def _unproven(result: Gate) -> bool:
    states = [p.state for p in result.parts]
    return (
        "unknown" in states
        and all(s in ("ok", "unknown", "pending") for s in states)
        and states.count("ok") >= 1
    )


def unproven(result: Gate, launch: Launch) -> Judgement:
    """The gate refuses because something cannot be known with these rights."""
    part = next(p for p in result.parts if p.state == "unknown")
    return Judgement(
        verdict="refused",
        cause="not-permitted",
        kind="config",
        text=f"{launch.unit} cannot be proven ready ({part.part}): {part.evidence.text}",
        advice="give this login the rights named, or use another one",
        evidence=(part.evidence,),
    )
