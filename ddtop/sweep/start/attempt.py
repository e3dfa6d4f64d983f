"""One start under way: what its reading tasks bring is taken here, and `tick` makes of it one frozen value to judge."""

from __future__ import annotations

from dataclasses import replace

from ddtop.events import LogLine, Phase
from ddtop.services.base import CallResult, Launch
from ddtop.services.kinds import OUTSIDE_SYSTEMD
from ddtop.services.readings import ListenerReading, UnitReading
from ddtop.sweep.shared.context import SweepContext, UnitFeed
from ddtop.sweep.shared.learned_limits import Limits
from ddtop.sweep.shared.limits import HTTP_FRESH_S, STORAGE_FRESH_S
from ddtop.sweep.start.answers import Refusals, next_refusal
from ddtop.sweep.start.evidence.busy_gpus import BusyGpus
from ddtop.sweep.start.evidence.log import StartLog
from ddtop.sweep.start.evidence.phases import Phases, enter, leave, rank
from ddtop.sweep.start.evidence.progress import ActivityReading, advance, begin, evidence, reset_gap
from ddtop.sweep.start.evidence.weights import Baseline, before_loading, came
from ddtop.sweep.start.exits import own_words_expected
from ddtop.sweep.start.gate import (
    ArgsReading,
    Gate,
    GateReadings,
    MarkReading,
    TokenReading,
    gate,
    new_generation,
)
from ddtop.sweep.start.gate_reads import GateReader
from ddtop.sweep.start.readings import CallReading, PortOwner, StartReadings
from ddtop.sweep.start.report import StartReport

NOT_READY = 503
"""The status of a server that runs and is not ready."""
MARK_LATE_S = 5.0
"""A server whose health path has been 200 for so long has logged its mark by then, wherever that went."""
SPEECHLESS_S = 2.0
"""After so long without a line of its own it is looked where its processes write."""
SILENT_LOG_S = 5.0
"""A start that runs for so long has a line in the journal: systemd's own, if nothing else."""
UNEXPLAINED_S = 0.3
"""A unit that is gone for longer, after the call returned, has ended."""


class Attempt:
    """The state of one start. Tasks write through `take_…`, `port_owner`, `args` and `token`; no I/O here."""

    def __init__(
        self,
        ctx: SweepContext,
        feed: UnitFeed,
        gate_reader: GateReader,
        *,
        attempt_id: str,
        before: UnitReading | None,
        before_id: str | None,
        unit: UnitReading | None,
        limits: Limits,
        expected_s: float | None,
    ) -> None:
        now = ctx.mono()
        self.ctx, self.feed, self.gate_reader = ctx, feed, gate_reader
        self.id = attempt_id
        self.before = before
        self.before_id = before_id
        self.limits = limits
        self.expected_s = expected_s
        self.began = now
        self.call = CallReading(asked_at=now, what=f"the restart of {feed.unit}")
        self.progress = begin(now)
        self.phases = Phases()
        self.log = StartLog(gate_reader.engine, before_id)
        self.report = StartReport(ctx, attempt_id, now)
        self.unit = unit
        self.listeners: tuple[ListenerReading, ...] | None = None
        self.port_owner: PortOwner | None = None
        self.args: ArgsReading | None = None
        self.token: TokenReading | None = None
        self.refusals: Refusals | None = None
        self.elsewhere: tuple[ListenerReading, ...] = ()
        self.looked_at = 0.0
        """When all ports were last looked at."""
        self.old_gone_at: float | None = None
        self.gone_since: float | None = None
        self.seen_new = False
        self._listened = False
        self._health: int | None = None
        self.output: str | None = None
        """Where its processes send their output, if that is not their manager."""
        self._cause_at: float | None = None
        self._healthy_since: float | None = None
        """Since when the health path has been 200 without a break."""
        self._new_since: float | None = None
        self._not_ready_at: float | None = None
        """When the server last responded that it is not ready (HTTP 503)."""
        self._before_loading = Baseline()
        self._gpus = BusyGpus()
        self._cursors: set[str] = set()

    @property
    def launch(self) -> Launch:
        return self.gate_reader.launch

    # ---- what is taken

    def take_line(self, line: LogLine) -> None:
        """A line of the unit's log, once, whether it was followed or read from the history."""
        if line.cursor is not None:
            if line.cursor in self._cursors:
                return
            self._cursors.add(line.cursor)
        self.progress, self.phases = self.log.feed(line, self.ctx.mono(), self.progress, self.phases)

    def take_activity(self, reading: ActivityReading) -> None:
        self.progress = advance(self.progress, reading)
        self._before_loading = before_loading(
            self._before_loading, self.progress, self.phases.current, reading.at
        )

    @property
    def speechless(self) -> bool:
        """Whether a new process runs for a moment and not one line of its own has come."""
        since = self._new_since
        return since is not None and self.ctx.mono() - since >= SPEECHLESS_S and not self.log.own_lines

    def take_call(self, called: CallResult) -> None:
        """What a call of the restart returned."""
        self.call = CallReading(
            asked_at=self.began,
            returned_at=self.ctx.mono(),
            rc=called.rc,
            error=called.error,
            what=called.what or "the call",
            by_script=called.by_script,
            timed_out=called.timed_out,
            do=called.do,
            refused=called.refused,
        )
        self.ctx.wake()

    def take_earlier_call(self) -> None:
        """The call was made before the connection (or the runner) was lost."""
        self.call = CallReading(asked_at=self.began, returned_at=self.began, rc=0, what="the restart")

    def take_unit(self) -> None:
        """Takes the feed's latest reading of the unit."""
        u, now = self.feed.reading, self.ctx.mono()
        if u is None:
            return
        if self.unit is not None and u.generation != self.unit.generation:
            # The listener was assigned to the start before; its socket proves nothing for this one.
            self.listeners = None
        self.unit = u
        new = bool(u.generation) and u.generation != self.before_id
        if new and u.running and not self.seen_new:
            self.seen_new = True
            self._new_since = now
            self.enter_phase("launching")
            self.progress = evidence(self.progress, now, "a new process")
        if new:
            self.log.generation = u.generation
            self.log.begin_new()
            self.seen_new = self.seen_new or bool(u.main_pid)
        if self.old_gone_at is None and (u.gone or new):
            self.old_gone_at = now
            if self.phases.current == "stopping":
                self.enter_phase("stopped")
        self.gone_since = (self.gone_since or now) if u.gone else None

    def take_listeners(self, found: tuple[ListenerReading, ...]) -> None:
        new = self.seen_new and any(item.owned for item in found)
        if new and not self._listened:
            self._listened = True
            self.progress = evidence(self.progress, self.ctx.mono(), "the port is open")
            if rank(self.phases.current) < rank("listening") and not self.gate_reader.engine.port_opens_first:
                self.enter_phase("listening")
        self.listeners = found

    def take_health(self, generation: str, status: int | None, at: float) -> None:
        """HTTP status of the health path, which is the ready mark of some engines."""
        engine = self.gate_reader.engine
        if status == NOT_READY:
            self._not_ready_at = at
            phase: Phase = "loading" if engine.port_opens_first else "warming"
            if rank(self.phases.current) < rank(phase):
                self.enter_phase(phase)
        if not engine.logs_ready_mark and engine.health_ready(self._health, status):
            was = self._health if self._health is not None else "refused"
            self.log.mark = MarkReading(
                generation=generation, text=f"/health turned from {was} to {status}", at=at, source="http"
            )
        self._health = status
        self._healthy_since = (self._healthy_since or at) if status == 200 else None

    def log_is_blind(self) -> str | None:
        """Why the log says nothing of this start; None where it can be read, and until that is certain."""
        if self.feed.unreadable:
            return self.feed.unreadable
        files = getattr(self.feed.service, "log_files", ())
        refused = next((f"{f.path}: {f.refused}" for f in files if f.refused), None)
        if refused is not None:
            return f"its log cannot be read: {refused}"
        if self.feed.service.log_place and not files:
            return f"its output goes nowhere that can be followed ({self.feed.service.log_place})"
        if self.output is not None and not self.log.own_lines:
            return f"its output goes to {self.output}"
        silent = self._new_since is not None and self.ctx.mono() - self._new_since >= SILENT_LOG_S
        if silent and not self.log.lines and self.feed.service.kind not in OUTSIDE_SYSTEMD:
            return "not one line of this start has come, not even its manager's"
        return None

    def expects_lines(self) -> bool:
        """Whether lines of this start are still to come: not one is here, or none of the program that failed. systemd's own
        lines reach the journal another way than a program's output, and may be there first."""
        u = self.unit
        if u is None or not u.generation or u.generation == self.before_id:
            return False
        missing = not self.log.lines or (own_words_expected(u) and not self.log.own_lines)
        return missing and self.feed.service.kind not in OUTSIDE_SYSTEMD and not self.log_is_blind()

    def mark_unknown(self) -> str | None:
        """Why no ready mark of this start can be expected in the log, though the server may be ready; else None."""
        if not self.log.engine.logs_ready_mark or self.log.mark is not None:
            return None
        if blind := self.log_is_blind():
            return blind
        since = self._healthy_since
        if since is not None and self.ctx.mono() - since >= MARK_LATE_S:
            return f"/health is 200, but the log shows no ready mark ({self.log.lines} lines came)"
        return None

    @property
    def seems_ready(self) -> bool:
        """Whether the server is to be asked for its arguments and a token although its mark is unknown."""
        return self.mark_unknown() is not None and self._healthy_since is not None

    def take_token(self, reading: TokenReading) -> None:
        """The response to a trial request."""
        self.token = reading
        self.refusals = (
            next_refusal(
                self.refusals,
                at=reading.at,
                status=reading.status,
                error=reading.error,
                kind=reading.kind,
                server=reading.server,
            )
            if reading.error
            else None
        )

    def enter_phase(self, phase: Phase) -> None:
        before = self.phases.current
        self.phases = enter(self.phases, phase, self.ctx.mono(), gap_s=self.progress.gap_s)
        if self.phases.current != before:
            self.progress = reset_gap(self.progress)

    # ---- what is judged

    def tick(self, waited_from: float) -> StartReadings:
        """All that is known now, as the watchdog judges it. `waited_from`: a viewer's `wait` (monotonic; 0.0: none)."""
        self.take_unit()
        now = self.phases.now
        cause = self.log.cause()
        if cause is not None and self._cause_at is None:
            self._cause_at = self.ctx.mono()
        return StartReadings(
            unit_name=self.launch.unit,
            port=self.launch.port,
            call=self.call,
            before=self.before,
            unit=self.unit,
            progress=self.progress,
            phase=self.phases.current or "launching",
            phase_since=now.entered_at if now else self.began,
            limits=self._limits(),
            old_gone_at=self.old_gone_at,
            port_owner=self.port_owner,
            listeners=self.listeners or (),
            args=self.args,
            token=self.token,
            refusals=self.refusals,
            elsewhere=self.elsewhere,
            cause=cause,
            cause_at=self._cause_at if cause is not None else None,
            last_lines=tuple(self.log.tail),
            last_is_nccl=self.log.last_is_nccl,
            start_limit_hit=self.log.start_limit_hit,
            skipped=self.log.skipped,
            gpu=self._gpus.look(self.ctx.gpu_watch),
            expected_s=self.expected_s,
            waited_until=waited_from,
            seen_new=self.seen_new,
            gone_since=self.gone_since,
        )

    def _limits(self) -> Limits:
        """The learned limits, with what is seen of this start."""
        now, p = self.ctx.mono(), self.progress
        fresh = self._not_ready_at is not None and now - self._not_ready_at <= HTTP_FRESH_S
        waits = p.storage_at is not None and now - p.storage_at <= STORAGE_FRESH_S
        weights = (
            self.phases.current == "loading"
            and p.storage_known
            and came(self._before_loading, p, tp=self.launch.tp)
        )
        return replace(
            self.limits,
            jit=self.log.jit,
            compile=self.log.compile,
            moved=weights,
            storage_wait=waits,
            http_live=fresh,
            blind=self.log_is_blind() is not None,
        )

    def _gate_readings(self) -> GateReadings:
        generation = self.unit.generation if self.unit else None
        return GateReadings(
            before=self.before_id,
            unit=self.unit,
            listeners=self.listeners,
            mark=self.log.mark_of(generation),
            log_unreadable=self.mark_unknown(),
            args=self.args,
            token=self.token,
        )

    def gate(self) -> Gate:
        return gate(self._gate_readings())

    def new_generation(self) -> str | None:
        return new_generation(self._gate_readings())

    def exited_unexplained(self, now: float) -> bool:
        """Whether nothing has run for a moment although the call has returned."""
        returned = self.call.returned_at
        return (
            self.gone_since is not None
            and returned is not None
            and now - max(self.gone_since, returned) > UNEXPLAINED_S
        )

    # ---- what is reported

    def emit(
        self, readings: StartReadings, result: Gate, *, note: str | None = None, end: bool = False
    ) -> None:
        now = self.ctx.mono()
        self.report.gate(result, now)
        self.report.phases(self.phases, readings, now, note=note or self._stopping_words(), end=end)

    def _stopping_words(self) -> str | None:
        """How far the stop of the old process is; None while none is stopped."""
        u = self.feed.reading
        if self.phases.current != "stopping" or u is None or u.active != "deactivating":
            return None
        took = self.ctx.mono() - self.phases.of["stopping"].entered_at
        of = f" of {u.stop_limit_s:.0f}" if u.stop_limit_s else ""
        listens = "; the old server still listens" if any(item.owned for item in self.listeners or ()) else ""
        return f"stopping {took:.0f}{of} s{listens}"

    def finish(self, *, ready: bool) -> None:
        """Closes the running phase."""
        now = self.ctx.mono()
        gap = max(self.progress.gap_s, self.progress.quiet_s(now))
        self.phases = (
            enter(self.phases, "ready", now, gap_s=gap)
            if ready
            else leave(self.phases, now, gap_s=gap, failed=True)
        )
