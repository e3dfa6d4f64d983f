"""One start under way: its readings, gathered; its phases and gate, told to the journal as they change.

Holds what the restarter's tasks write (`unit`, `listeners`, `args`, …) and turns it into the values the pure rules
judge. No I/O but the journal's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddtop.events import GateSeen, LogLine, Phase, PhaseSeen
from ddtop.services.base import Launch
from ddtop.services.readings import ListenerReading, UnitReading
from ddtop.sweep.shared.context import SweepContext, UnitFeed
from ddtop.sweep.shared.limits import Limits
from ddtop.sweep.start.gate import ArgsReading, Gate, GateReadings, TokenReading, gate, new_generation
from ddtop.sweep.start.gate_reads import GateReader
from ddtop.sweep.start.log import StartLog
from ddtop.sweep.start.phases import Phases, enter, eta_s, leave, rank
from ddtop.sweep.start.progress import ActivityReading, advance, begin, evidence, reset_gap
from ddtop.sweep.start.readings import Answer, CallReading, GpuLook, StartReadings
from ddtop.sweep.start.watchdog import HUNG_GPU_POWER_SHARE, quiet_limit_s

EMIT_S = 1.0


class Attempt:
    """See the module."""

    def __init__(
        self,
        ctx: SweepContext,
        launch: Launch,
        feed: UnitFeed,
        gate_reader: GateReader,
        *,
        attempt_id: str,
        before: UnitReading | None,
        before_id: str | None,
        limits: Limits,
        expected_s: float | None,
    ) -> None:
        now = ctx.mono()
        self.ctx, self.launch, self.feed, self.gate_reader = ctx, launch, feed, gate_reader
        self.id = attempt_id
        self.before = before
        self.before_id = before_id
        self.limits = limits
        self.expected_s = expected_s
        self.began = now
        self.call = CallReading(asked_at=now, what=f"the restart of {launch.unit}")
        self.progress = begin(now)
        self.phases = Phases()
        self.log = StartLog(gate_reader.engine, before_id)
        self.unit: UnitReading | None = before
        self.listeners: tuple[ListenerReading, ...] | None = None
        self.answer: Answer | None = None
        self.args: ArgsReading | None = None
        self.token: TokenReading | None = None
        self.old_gone_at: float | None = None
        self.gone_since: float | None = None
        self.seen_new = False
        self.waited_until = 0.0
        self.health: int | None = None
        self._gpu_flat_since: float | None = None
        self._gpu_mib: float | None = None
        self._busy_since: float | None = None
        self._emitted_gate: dict[str, tuple[str, str]] = {}
        self._emitted_phases: dict[str, tuple[bool, bool, int, int]] = {}
        self._emitted_at = 0.0
        self._had: set[str] = set()

    # ---- what comes in

    def on_line(self, line: LogLine) -> None:
        """A line of the unit's log; one that was fed from the history comes once."""
        if line.cursor is not None:
            if line.cursor in self._had:
                return
            self._had.add(line.cursor)
        self.progress, self.phases = self.log.feed(line, self.ctx.mono(), self.progress, self.phases)

    def on_activity(self, reading: ActivityReading) -> None:
        self.progress = advance(self.progress, reading)

    def take_unit(self) -> None:
        """Looks at the feed's latest reading."""
        u, now = self.feed.reading, self.ctx.mono()
        if u is None:
            return
        if self.unit is not None and u.generation != self.unit.generation:
            # Whose the listener is was told by the start before; its socket proves nothing for this one.
            self.listeners = None
        self.unit = u
        new = bool(u.generation) and u.generation != self.before_id
        if new and u.running and not self.seen_new:
            self.seen_new = True
            self.enter_phase("launching")
            self.progress = evidence(self.progress, now, "a new process")
        if new:
            self.log.generation = u.generation
            self.seen_new = self.seen_new or bool(u.main_pid)
        if self.old_gone_at is None and (u.gone or new):
            self.old_gone_at = now
            if self.phases.current == "stopping":
                self.enter_phase("stopped")
        self.gone_since = (self.gone_since or now) if u.gone else None

    def enter_phase(self, phase: Phase) -> None:
        before = self.phases.current
        self.phases = enter(self.phases, phase, self.ctx.mono(), gap_s=self.progress.gap_s)
        if self.phases.current != before:
            self.progress = reset_gap(self.progress)

    def begin_stopping(self) -> None:
        self.enter_phase("stopping")

    def take_listeners(self, found: tuple[ListenerReading, ...]) -> None:
        new = self.seen_new and any(item.owned for item in found)
        if new and rank(self.phases.current) < rank("listening"):
            self.enter_phase("listening")
            self.progress = evidence(self.progress, self.ctx.mono(), "the port is open")
        self.listeners = found

    def take_gpus(self) -> GpuLook | None:
        """The GPUs as last sampled, and since when they are busy at low power with flat memory."""
        ctx = self.ctx
        if not ctx.gpus or ctx.gpus_at is None:
            return None
        now = ctx.gpus_at
        mib = sum(g.mem_used_mib or 0.0 for g in ctx.gpus)
        if self._gpu_mib is None or abs(mib - self._gpu_mib) > 64.0:
            self._gpu_mib, self._gpu_flat_since = mib, now
        busiest = max(ctx.gpus, key=lambda g: g.util_gpu_pct or 0.0)
        share = busiest.power_w / busiest.power_limit_w if busiest.power_w and busiest.power_limit_w else None
        hot = (busiest.util_gpu_pct or 0.0) >= 99.0 and share is not None and share < HUNG_GPU_POWER_SHARE
        if not hot:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now
        since = max(self._busy_since, self._gpu_flat_since or now) if self._busy_since is not None else None
        return GpuLook(at=now, util_pct=busiest.util_gpu_pct, power_share=share, busy_low_since=since)

    def stopping_words(self) -> str | None:
        """How far a stop is, while the old process is being stopped; it may answer meanwhile."""
        u = self.feed.reading
        if self.phases.current != "stopping" or u is None or u.active != "deactivating":
            return None
        took = self.ctx.mono() - self.phases.of["stopping"].entered_at
        of = f" of {u.stop_limit_s:.0f}" if u.stop_limit_s else ""
        answers = "; the old server still answers" if any(item.owned for item in self.listeners or ()) else ""
        return f"stopping {took:.0f}{of} s{answers}"

    def exited_unexplained(self, now: float) -> bool:
        """Nothing has run for a moment although the call has returned."""
        returned = self.call.returned_at
        return (
            self.gone_since is not None
            and returned is not None
            and now - max(self.gone_since, returned) > 0.3
        )

    # ---- what the rules see

    def readings(self) -> StartReadings:
        now = self.phases.now
        limits = replace(self.limits, jit=self.log.jit, compile=self.log.compile)
        return StartReadings(
            unit_name=self.launch.unit,
            port=self.launch.port,
            call=self.call,
            before=self.before,
            unit=self.unit,
            progress=self.progress,
            phase=self.phases.current or "launching",
            phase_since=now.entered_at if now else self.began,
            limits=limits,
            base_restarts=0,
            old_gone_at=self.old_gone_at,
            answer=self.answer,
            listeners=self.listeners or (),
            args=self.args,
            token=self.token,
            cause=self.log.cause(),
            last_lines=tuple(self.log.tail),
            last_is_nccl=self.log.last_is_nccl,
            start_limit_hit=self.log.start_limit_hit,
            skipped=self.log.skipped,
            gpu=self.take_gpus(),
            expected_s=self.expected_s,
            waited_until=self.waited_until,
            seen_new=self.seen_new,
            gone_since=self.gone_since,
        )

    def gate_readings(self) -> GateReadings:
        generation = self.unit.generation if self.unit else None
        return GateReadings(
            before=self.before_id,
            unit=self.unit,
            listeners=self.listeners,
            mark=self.log.mark_of(generation),
            log_unreadable=self.feed.unreadable if self.log.engine.logs_ready_mark else None,
            args=self.args,
            token=self.token,
        )

    def gate(self) -> Gate:
        return gate(self.gate_readings())

    def new_generation(self) -> str | None:
        return new_generation(self.gate_readings())

    # ---- what is told

    def tell(self, result: Gate, *, end: bool = False, note: str | None = None) -> None:
        """Changes of the gate at once; phases when they change, and the running one every second."""
        ctx, now = self.ctx, self.ctx.mono()
        for part in result.parts:
            told = self._emitted_gate.get(part.part)
            if part.state == "pending" and (told is None or told[0] != "ok"):
                continue
            key = (part.state, part.evidence.text)
            if told != key:
                # What was proven and is so no more (the listener died with its process) is taken back.
                self._emitted_gate[part.part] = key
                ok = {"ok": True, "no": False, "pending": False, "unknown": None}[part.state]
                ctx.emit(
                    GateSeen,
                    attempt_id=self.id,
                    part=part.part,
                    ok=ok,
                    evidence=part.evidence,
                    elapsed_s=round(now - self.began, 3),
                )
        due = now - self._emitted_at >= EMIT_S or end
        for phase in self._in_order():
            one = self.phases.of[phase]
            key2 = (one.running, one.failed, one.count, int(one.pct or 0))
            if self._emitted_phases.get(phase) == key2 and not (due and one.running):
                continue
            self._emitted_phases[phase] = key2
            self._emitted_at = now if one.running else self._emitted_at
            self._tell_phase(phase, now, note)

    def _in_order(self) -> Iterable[Phase]:
        return sorted(self.phases.of, key=lambda p: (self.phases.of[p].running, rank(p)))

    def _tell_phase(self, phase: Phase, now: float, note: str | None) -> None:
        one = self.phases.of[phase]
        r = self.readings()
        self.ctx.emit(
            PhaseSeen,
            attempt_id=self.id,
            phase=one.phase,
            state="running" if one.running else "failed" if one.failed else "done",
            elapsed_s=round(one.elapsed_s(now), 3),
            pct=one.pct,
            detail=(note if one.running else None) or one.detail,
            eta_s=_rounded(eta_s(self.phases, now, self.limits.slow_note)) if one.running else None,
            quiet_s=round(r.progress.quiet_s(now) if one.running else one.gap_s, 3),
            limit_s=quiet_limit_s(r, now) if one.running else None,
        )

    def finish(self, ready: bool) -> None:
        """Closes the running phase."""
        now = self.ctx.mono()
        gap = max(self.progress.gap_s, self.progress.quiet_s(now))
        self.phases = (
            enter(self.phases, "ready", now, gap_s=gap)
            if ready
            else leave(self.phases, now, gap_s=gap, failed=True)
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
