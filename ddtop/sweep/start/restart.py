"""One restart: the calls are made, several tasks read side by side, and one loop judges until the gate or the watchdog
decides.

A verdict is confirmed before it is given: the log is drained and the unit read again, so that the cause is exact.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ddtop.errors import AgentError
from ddtop.events import CellSpec, Generation, RestartFailed, RestartReady, RestartStarted
from ddtop.hosts.base import Host
from ddtop.journal.fold.views import RestartView
from ddtop.services.base import Launch
from ddtop.services.readings import UnitReading
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.duplicates import duplicate_of
from ddtop.sweep.shared.gpus.use import (
    CONTEXT_MIB,
    GpuUse,
    gpus_of,
    meant_for_cpu,
    runs_on_cpu,
    runs_there_on_purpose,
)
from ddtop.sweep.shared.learned_limits import expected_start_s, for_start
from ddtop.sweep.shared.limits import LATE_LINES_S, SCRIPT_GRACE_S, UNPROVEN_S
from ddtop.sweep.shared.log_lines import drain_log
from ddtop.sweep.shared.tasks import alongside
from ddtop.sweep.shared.verdict import Judgement
from ddtop.sweep.start.attempt import Attempt
from ddtop.sweep.start.calls import end_running_scripts, make_calls
from ddtop.sweep.start.gate import GatePart
from ddtop.sweep.start.gate_reads import GateReader
from ddtop.sweep.start.reading_tasks import ask_server, read_activity, read_output, read_port
from ddtop.sweep.start.result import Cancelled, NotStarted, Started
from ddtop.sweep.start.watchdog import judge

TICK_S = 0.2
GPU_READ_S = 2.5
"""For one more reading of the GPUs."""


class Restarter:
    """Restarts servers, one at a time.

    `cancelled(launch)`: whether a viewer wants something else. `waited_from`: attempt id → moment of a viewer's `wait`.
    """

    def __init__(
        self, ctx: SweepContext, cancelled: Callable[[Launch], bool], waited_from: Mapping[str, float]
    ) -> None:
        self.ctx = ctx
        self.cancelled = cancelled
        self.waited_from = waited_from
        self._script_may_run = False
        """The last start failed, perhaps before its reconfigure script returned."""

    async def run(
        self, host: Host, launch: Launch, cells: Sequence[CellSpec], *, attach: RestartView | None = None
    ) -> Started | NotStarted | Cancelled:
        """Restarts the server of `launch`; with `attach`, watches a start on that is already under way."""
        ctx, feed = self.ctx, self.ctx.feed(launch.unit)
        if self._script_may_run:
            await end_running_scripts(ctx, host, grace_s=SCRIPT_GRACE_S)
            self._script_may_run = False
        before = await feed.service.read(host)
        ctx.take_reading(before)
        attempt = self._attempt(launch, before, attach)
        if attach is None:
            await drain_log(ctx, host, feed)  # lines of the time before do not belong to this start
            self._emit_started(host, attempt, before, cells)
        feed.listeners.append(attempt.take_line)
        try:
            result = await alongside(
                self._watch(host, attempt),
                make_calls(ctx, host, attempt) if attach is None else self._reattach(host, attempt),
                read_port(ctx, host, attempt),
                read_activity(ctx, host, attempt),
                ask_server(ctx, host, attempt),
                read_output(ctx, host, attempt),
            )
            if isinstance(result, Cancelled) and launch.configure:
                await end_running_scripts(ctx, host)
            self._script_may_run = isinstance(result, NotStarted) and bool(launch.configure)
            return result
        finally:
            feed.listeners.remove(attempt.take_line)

    def _attempt(self, launch: Launch, now: UnitReading, attach: RestartView | None) -> Attempt:
        ctx, feed = self.ctx, self.ctx.feed(launch.unit)
        limits = for_start(
            ctx.state.restarts, ctx.learned_limits.get(launch.key), config=launch.config, tp=launch.tp
        )
        before: UnitReading | None = now
        if attach is None:
            before_id = now.generation
            number = sum(r.config == launch.config and r.tp == launch.tp for r in ctx.state.restarts) + 1
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", launch.config)[:40]  # the script's job is named after it
            attempt_id = f"{ctx.run_id}-{name}-tp{launch.tp}-{number}"
        else:
            before_id = attach.generation_before.id if attach.generation_before else None
            before = replace(now, generation=before_id) if before_id is not None else None
            attempt_id = attach.attempt_id
        return Attempt(
            ctx,
            feed,
            GateReader(launch, feed.service, ctx.sweep.endpoint if ctx.sweep else "chat"),
            attempt_id=attempt_id,
            before=before,
            before_id=before_id,
            unit=now if attach is None else None,
            limits=limits,
            expected_s=expected_start_s(ctx.state.restarts, launch.tp) or limits.start_s,
        )

    def _emit_started(self, host: Host, a: Attempt, before: UnitReading, cells: Sequence[CellSpec]) -> None:
        launch, old = a.launch, None
        if a.before_id:
            old = Generation(boot=host.hello.boot, id=a.before_id, main_pid=before.main_pid)
        self.ctx.emit(
            RestartStarted,
            attempt_id=a.id,
            config=launch.config,
            tp=launch.tp,
            unit=launch.unit,
            argv=launch.argv or launch.configure,
            cell_ids=tuple(c.id for c in cells),
            expected_s=a.expected_s,
            usual={phase: round(seconds, 1) for phase, seconds in a.limits.slow_note.items()},
            generation_before=old,
        )

    async def _reattach(self, host: Host, a: Attempt) -> None:
        """The calls were made before the connection (or the runner) was lost: reads what the start logged since."""
        a.take_earlier_call()
        a.log.begin_new()
        a.take_unit()
        if a.unit is not None and a.unit.generation:
            for line in await a.feed.service.history(host, a.unit.generation):
                a.take_line(line)
        self.ctx.wake()

    # ---- judging

    async def _watch(self, host: Host, a: Attempt) -> Started | NotStarted | Cancelled:
        """One frozen value of readings a tick: judged by the watchdog and reported; the gate is looked at beside it."""
        ctx = self.ctx
        unproven_since: float | None = None
        drained = False
        while True:
            readings, result = a.tick(self._waited_from(a)), a.gate()
            verdict = judge(readings, ctx.mono())
            a.emit(readings, result, note=verdict.text if verdict.verdict == "slow" else None)
            if result.ready:
                use = await self._gpu_use(a)
                refused = runs_on_cpu(a.launch, use)
                if refused is not None:
                    return self._failed(a, refused)
                simulated = await a.gate_reader.simulated(host, a.unit)
                a.tick(self._waited_from(a))
                if not a.gate().ready:
                    continue  # restarted meanwhile: nothing is proven of the start that runs now
                return self._ready(host, a, use, simulated)
            if not drained and a.exited_unexplained(ctx.mono()):
                # journald tells a follower up to half a second late: what is in the log now says why nothing runs.
                drained = True
                await drain_log(ctx, host, a.feed)
                continue
            if verdict.alarm:
                verdict = await self._confirm(host, a)
            part = result.unproven
            unproven_since = (unproven_since or ctx.mono()) if part is not None else None
            late = unproven_since is not None and ctx.mono() - unproven_since > UNPROVEN_S
            if part is not None and late and not verdict.alarm:
                ctx.take_reading(
                    await a.feed.service.read(host)
                )  # a host that is just lost says nothing either
                verdict = _unproven(part, a.launch)
            if verdict.alarm:
                return self._failed(a, verdict)
            if self.cancelled(a.launch):
                a.finish(ready=False)
                ctx.emit(
                    RestartFailed, attempt_id=a.id, verdict="interrupted", cause="interrupted", kind="unknown"
                )
                return Cancelled()
            await ctx.wait(TICK_S)

    def _waited_from(self, a: Attempt) -> float:
        return self.waited_from.get(a.id, 0.0)

    async def _confirm(self, host: Host, a: Attempt) -> Judgement:
        """Judges once more, with the log read to its end and the unit read anew."""
        ctx = self.ctx
        await drain_log(ctx, host, a.feed)
        if a.expects_lines():
            # A busy journald is late: what a failed command said of itself is worth a moment.
            await ctx.wait_until(lambda: not a.expects_lines(), LATE_LINES_S)
            await drain_log(ctx, host, a.feed)
        ctx.take_reading(await a.feed.service.read(host))
        found = judge(a.tick(self._waited_from(a)), ctx.mono())
        if found.cause == "port-in-use" and found.verdict == "failed":  # the log does not say by whom
            with contextlib.suppress(AgentError):
                a.take_listeners(await a.gate_reader.listeners(host, a.unit))
                found = judge(a.tick(self._waited_from(a)), ctx.mono())
        return found

    def _finish(self, a: Attempt, *, ready: bool) -> None:
        a.finish(ready=ready)
        a.emit(a.tick(self._waited_from(a)), a.gate(), end=True)

    async def _gpu_use(self, a: Attempt) -> GpuUse:
        """What is known of the GPUs of a server that passed the gate: one on the CPU is not measured unless it is meant to."""
        ctx, watch, reader = self.ctx, self.ctx.gpu_watch, a.gate_reader
        since, scan = ctx.mono(), a.log.snapshot()
        rise = watch.rise_mib()
        if (
            rise is not None and rise < CONTEXT_MIB and a.seen_new
        ):  # a reading from after the last byte was loaded
            await ctx.wait_until(lambda: (watch.read_at or 0.0) > since, GPU_READ_S)
        return GpuUse(
            gpus=gpus_of(ctx.state.probe, len(watch.readings)),
            meant_for_cpu=meant_for_cpu(a.launch.argv, a.launch.env, reader.facts, reader.version),
            said=scan.devices if scan is not None else {},
            own_mib=a.progress.gpu.value if a.progress.gpu is not None else None,
            rise_mib=watch.rise_mib() if a.seen_new else None,
            held_mib=watch.used_mib(),
        )

    def _ready(self, host: Host, a: Attempt, use: GpuUse, simulated: str | None) -> Started:
        ctx, launch, reader = self.ctx, a.launch, a.gate_reader
        assert a.unit is not None and a.unit.generation is not None and a.args is not None
        self._finish(a, ready=True)
        generation = Generation(boot=host.hello.boot, id=a.unit.generation, main_pid=a.unit.main_pid)
        resolved = {
            k: v for k, v in reader.facts.items() if isinstance(v, str | int | float | bool) or v is None
        }
        overridden = a.args.overridden
        same = duplicate_of(
            reader.engine, launch.config, launch.tp, launch.argv, resolved, ctx.state.restarts
        )
        if same is not None:
            overridden += (f"the same arguments are in effect as for {same}: its cells repeat those",)
        ctx.emit(
            RestartReady,
            attempt_id=a.id,
            generation=generation,
            ready_s=round(ctx.mono() - a.began, 3),
            engine=launch.engine,
            engine_version=reader.version,
            resolved_args=resolved,
            overridden=overridden,
            meant_for_cpu=runs_there_on_purpose(use),
            acceptance_simulated=simulated,
            read_mib=None if a.progress.read_b is None else round(a.progress.read_b / 2**20, 1),
            new_cache_files=a.progress.new_files,
            compile_cache=scan.compile_cache if (scan := a.log.snapshot()) is not None else None,
        )
        return Started(
            attempt_id=a.id,
            generation=generation,
            engine_version=reader.version,
            model=reader.model or "",
            main_pid=a.unit.main_pid,
            overridden=overridden,
        )

    def _failed(self, a: Attempt, j: Judgement) -> NotStarted:
        ctx = self.ctx
        self._finish(a, ready=False)
        seen = None
        if j.verdict in ("failed", "crash-loop", "refused") and not j.title and a.unit is not None:
            seen = ctx.since_fault_s(a.unit.changed_mono_s)
        elif j.verdict == "never-began" and a.call.returned_at is not None:
            seen = ctx.mono() - a.call.returned_at
        elif j.verdict in ("stalled", "hung-gpu"):
            seen = a.progress.quiet_s(ctx.mono())
        return NotStarted(attempt_id=a.id, judgement=j, fault_seen_s=None if seen is None else round(seen, 3))


def _unproven(part: GatePart, launch: Launch) -> Judgement:
    """The gate refuses because something cannot be known with this login's rights."""
    return Judgement(
        verdict="refused",
        cause="not-permitted",
        kind="config",
        text=f"{launch.unit} cannot be proven ready ({part.part}): {part.evidence.text}",
        advice="give this login the rights named, or use another one",
        evidence=(part.evidence,),
    )
