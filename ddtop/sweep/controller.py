"""The sweep: connect → probe → reconcile → steps → each configuration restarted, gated and measured → host put back.

Three tasks: the link (which streams), the commands, and the work. The work goes on from where the recording and the
host say it is: after a lost connection, a reboot or an earlier runner's end, all through `_settle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ddtop import events as ev
from ddtop.errors import AgentError, HostError, HostLostError, HostUnreachableError
from ddtop.hosts.base import Connector, Host
from ddtop.hosts.reconnect import Backoff
from ddtop.sweep.cell.alerts import resolve_stale_alerts
from ddtop.sweep.cell.ending import MeasureEnd, Subject
from ddtop.sweep.cell.external_benchmark import ExternalBenchmark
from ddtop.sweep.cell.measure import Measurer
from ddtop.sweep.commands import CommandHandler, Undoable
from ddtop.sweep.configuration.bring_up import ConfigurationRunner
from ddtop.sweep.configuration.failed_cell import FailedCells
from ddtop.sweep.configuration.refine import settle_refinement
from ddtop.sweep.configuration.rounds import settle_rounds
from ddtop.sweep.configuration.steps import StepTaker
from ddtop.sweep.configuration.waits import HostWaits
from ddtop.sweep.host.allocation import AllocationKeeper
from ddtop.sweep.host.lease import HostLease
from ddtop.sweep.host.leaving import Leaving
from ddtop.sweep.host.link import Link
from ddtop.sweep.host.troubles import Troubles
from ddtop.sweep.recovery.probe import is_outside_systemd, probe
from ddtop.sweep.recovery.reconcile import Server, consequences, last_ready, reconcile
from ddtop.sweep.recovery.restore import note_originals
from ddtop.sweep.setup.permissions import missing_rights, missing_rights_alert
from ddtop.sweep.shared.context import Outcome, StopSweepError, SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES, next_key, open_cells
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.shared.tasks import alongside
from ddtop.sweep.tell.alerts import AlertText, alert_id, interrupted_alert, rebooted_alert
from ddtop.sweep.tell.raise_alert import is_open, raise_alert

POLL_S = 0.1
EXPECT_VIEWER_S = 10.0
"""A run started by a dashboard counts as attended so long before that dashboard's first sign of life."""
MAX_JOBS_WITHOUT_RESULT = 3
"""So many jobs in a row that end without a result fail their cell."""

Poll = Callable[[], Sequence[ev.AnyCommand]]


class Controller:
    """Runs one sweep. `poll` gives the commands that came since the last call."""

    def __init__(
        self,
        ctx: SweepContext,
        connector: Connector,
        poll: Poll,
        *,
        backoff: Backoff | None = None,
        allocation: AllocationKeeper | None = None,
    ) -> None:
        assert ctx.sweep is not None
        self.ctx = ctx
        self.sweep = ctx.sweep
        self.requests = Requests()
        self.link = Link(ctx, connector, ctx.sweep.units, backoff=backoff)
        self.lease = HostLease(ctx, self.requests, lambda: self.link.host)
        self.leaving = Leaving(ctx, self.link, self.requests, self.lease)
        self.command_handler = CommandHandler(ctx, self.requests, self.link.reconnect_now)
        self.troubles = Troubles(ctx, self.requests)
        self.waits = HostWaits(ctx, self.requests)
        self.configuration = ConfigurationRunner(ctx, self.requests, self.waits)
        self.failed_cells = FailedCells(ctx, self.requests, self.waits)
        self.measurer = Measurer(ctx, self.requests)
        self.external_benchmark = ExternalBenchmark(ctx, self.requests)
        self.steps = StepTaker(ctx, self.requests, self.waits, self.measurer, self.external_benchmark)
        self.allocation = allocation
        self.leaving.host_goes = allocation is not None
        self._poll = poll
        self._force: set[str] = set()
        """Restart keys whose server must be started anew before anything is measured on it."""
        self._subject: Subject | None = None
        self._jobs_without_result: dict[str, int] = {}
        self._last_offered: Undoable | None = None
        """The change of which it was said last that it can still be undone."""
        self._first = True

    async def run(self, *, attended: bool = False) -> Outcome:
        """Runs the sweep to its end. Raises HostUnreachableError if the host was never reached."""
        if attended:
            self.requests.viewers.expect(self.ctx.mono(), EXPECT_VIEWER_S)
        helpers = [self.link.run(), self._commands(), self.lease.keep()]
        if self.allocation is not None:
            helpers.append(self.allocation.keep())
        return await alongside(self._work(), *helpers)

    def stop(self, by: str) -> None:
        """Ends the run cleanly (a signal, a recording that cannot be written). `--leave-running` stays as it was asked."""
        self.requests.stopped_by = by
        self.ctx.wake()

    async def _commands(self) -> None:
        while True:
            self.command_handler.take(self._poll())
            resolve_stale_alerts(self.ctx)
            self.troubles.settle()
            await asyncio.sleep(POLL_S)

    # ---- the work

    async def _work(self) -> Outcome:
        try:
            while True:
                host = await self._host()
                try:
                    await self._session(host)
                    break
                except HostLostError:
                    self._subject = None
                    await asyncio.sleep(0.05)  # the link notices in the same moment
                except AgentError as error:
                    self._subject = None
                    await self.troubles.pause_after(error)
            outcome = Outcome(word=self._word())
        except StopSweepError as stop:
            outcome = Outcome(word=stop.outcome, reason=stop.reason)
        except HostError as error:
            if isinstance(error, HostUnreachableError):
                raise
            outcome = Outcome(word="some-failed", reason=str(error))
        resolve_stale_alerts(self.ctx)
        if (
            self.ctx.state.paused is not None
        ):  # what ends a run ends its pause: it is not paused while it leaves
            self.requests.paused_by = None
            self.ctx.emit(ev.SweepResumed, by="sweep")
        if self.allocation is not None:
            self.allocation.no_more()
        return await self.leaving.leave(outcome)

    def _word(self) -> str:
        bad = any(c.state in ("failed", "broken") for c in self.ctx.state.plan_cells)
        return "some-failed" if bad else "done"

    async def _host(self) -> Host:
        """The host, waited for as long as the policy says. Raises StopSweepError."""
        limit_s = 60.0 * self.sweep.policy.host_lost_wait_min
        while True:
            self.requests.check_stop()
            if self.link.host is not None:
                return self.link.host
            if self.allocation is not None and self.allocation.waits:
                self.link.waits_in_queue()
            now, since = self.ctx.mono(), self.link.lost_since
            if self.link.has_given_up(self.requests.attended, self.sweep.policy.answer_s):
                raise StopSweepError("host-lost", str(self.link.final))
            if since is not None and now - since > limit_s:
                raise StopSweepError("host-lost", f"no connection for {limit_s / 60:.0f} min")
            await self.ctx.wait(0.5)

    async def _session(self, host: Host) -> None:
        """Everything that is done over one connection. Returns when no cell is left."""
        await self._settle(host)
        while True:
            self.requests.check_stop()
            await self._pause_point()
            if self.requests.take_restage():
                await self.waits.stage(host)
            if self.steps.live_job is not None:
                await self._follow_live_job(host)
                continue
            settle_rounds(self.ctx)
            settle_refinement(self.ctx)
            todo = open_cells([(c.spec, c.state) for c in self.ctx.state.plan_cells])
            if not todo:
                if await self._undone():
                    continue
                return
            server = self._running()
            if self.requests.take_restart() and server is not None:
                self._force.add(server.key)
                server = None
            key = next_key(todo, server.key if server else None)
            assert key is not None
            cells = [c for c in todo if c.restart_key == key]
            if self.allocation is not None:
                ready = server is not None and server.key == key
                cells = await self.allocation.fitting(cells, ready=ready)
                if not cells:
                    continue
            await self._configuration(host, key, cells, server)

    async def _pause_point(self) -> None:
        while self.requests.paused_by is not None or self.requests.no_room:
            self.requests.check_stop()
            if self.link.host is None:
                raise HostLostError("lost while the sweep is paused", host=self.ctx.host_name)
            await self.ctx.wait(1.0)

    async def _undone(self) -> bool:
        """Where a viewer's own skip or mark left nothing to run: a pause in which it can be undone. True if cells are open
        again; asked once for each such change."""
        last, cells = self.command_handler.last_change, self.ctx.state.plan_cells
        if last is None or last is self._last_offered or not self.requests.attended:
            return False
        self._last_offered = last
        closed = {ident for ident, state, *_ in last.before if state in OPEN_STATES}
        if max(cells, key=lambda c: c.state_at_s or 0.0).id not in closed:
            return False  # something else came to its end since
        ctx, answer_s = self.ctx, self.sweep.policy.answer_s
        end, self.requests.paused_by = ctx.mono() + answer_s, "sweep"
        why = f"nothing is left to run after this {last.what}: u undoes it, space ends the run (by itself in {answer_s:.0f} s)"
        ctx.emit(ev.SweepPaused, by="sweep", reason=why)

        def open_again() -> bool:
            return bool(open_cells([(c.spec, c.state) for c in ctx.state.plan_cells]))

        while self.requests.paused and self.requests.attended and ctx.mono() < end and not open_again():
            self.requests.check_stop()
            if self.link.host is None:
                break
            await ctx.wait(1.0)
        if self.requests.paused:
            self.requests.paused_by = None
            ctx.emit(ev.SweepResumed, by="sweep")
        return open_again()

    def _running(self) -> Server | None:
        """The server that runs and was proven ready, if no restart of it was requested."""
        server = last_ready(self.ctx.state)
        if server is None or server.key in self._force or server.key not in self.sweep.launches:
            return None
        if self.link.host is None or self.link.host.hello.boot != server.generation.boot:
            return None
        reading = self.ctx.feed(self.sweep.launches[server.key].unit).reading
        if reading is None or reading.active != "active" or reading.generation != server.generation.id:
            return None
        return server if not reading.need_reload else None

    async def _configuration(
        self, host: Host, key: str, cells: list[ev.CellSpec], server: Server | None
    ) -> None:
        launch = self.sweep.launches[key]
        subject = self._known_subject(key, server)
        if subject is None:
            self._subject = None
            subject = await self.configuration.ensure(host, launch, cells)
            self.steps.restart_done(subject is not None)
            if subject is None:
                return
            self._force.discard(key)
            self._subject = subject
        states = {c.id: c.state for c in self.ctx.state.plan_cells}
        cells = [c for c in cells if states.get(c.id) in OPEN_STATES]
        if not cells:
            return
        if self.sweep.bench.kind == "command":
            end = await self.external_benchmark.run(host, subject, cells[0])
        else:
            end = await self.measurer.run(host, subject, cells)
        await self._after(host, end, key, cells)

    def _known_subject(self, key: str, server: Server | None) -> Subject | None:
        """The subject of a server that runs already and need not be restarted."""
        if server is None or server.key != key:
            return None
        if self._subject is not None and self._subject.generation.id == server.generation.id:
            return self._subject
        return Subject(
            launch=self.sweep.launches[key],
            generation=server.generation,
            engine_version=server.engine_version,
            main_pid=server.generation.main_pid,
        )

    async def _after(self, host: Host, end: MeasureEnd, key: str, cells: list[ev.CellSpec]) -> None:
        """What the end of a job means for what comes next."""
        if end.kind == "restart":
            self._force.add(key)
            await self.failed_cells.before_remeasuring(host, end)
        elif end.kind == "server-failed":
            self._force.add(key)
            await self.failed_cells.after_server_failure(host, end, self.sweep.launches[key])
        self._jobs_without_result[key] = (
            0 if end.results or end.kind != "ended" else self._jobs_without_result.get(key, 0) + 1
        )
        if self._jobs_without_result[key] >= MAX_JOBS_WITHOUT_RESULT and cells:
            self._jobs_without_result[key] = 0
            self.ctx.emit(
                ev.CellStateSet,
                cell_id=cells[0].id,
                state="failed",
                cause="measuring-failed",
                by="policy",
                reason=f"{MAX_JOBS_WITHOUT_RESULT} jobs ended without a result",
            )

    async def _follow_live_job(self, host: Host) -> None:
        job, self.steps.live_job = self.steps.live_job, None
        assert job is not None
        server = self._running()
        subject = self._known_subject(server.key, server) if server else None
        ids = [c.id for c in self.ctx.state.plan_cells]
        if self.sweep.bench.kind == "command":
            end = await self.external_benchmark.follow(host, subject, job)
        else:
            end = await self.measurer.watch(host, job, ids, subject)
        if server is not None:
            await self._after(host, end, server.key, [])

    # ---- after every connection

    def _check_rights(self, host: Host) -> None:
        """Reports what the plan needs and this login may not do, before anything is touched. Raises StopSweepError."""
        ctx = self.ctx
        if not open_cells([(c.spec, c.state) for c in ctx.state.plan_cells]):
            return
        ident, found = alert_id(ctx.run_id, "rights"), missing_rights(host.hello, self.sweep)
        if found:
            text = missing_rights_alert(ctx.host_name, host.hello.user, found)
            self._raise(ident, text, asks=False, policy="the run ends; its cells stay as they are")
            raise StopSweepError("refused", f"{text.cause_text}. {text.advice}")
        if is_open(ctx, ident):
            ctx.emit(ev.AlertResolved, alert_id=ident, how="this login may do all of it now", by="sweep")

    async def _settle(self, host: Host) -> None:
        """Probes the host, reports what changed, reconciles, and takes the steps."""
        ctx, state = self.ctx, self.ctx.state
        if self._first:
            self._check_rights(host)
        await self.lease.take(host)
        settle_rounds(ctx)
        settle_refinement(ctx)
        plain = [ctx.feed(u).service for u in self.sweep.units if is_outside_systemd(self.sweep, u)]
        found = await probe(host, self.sweep, plain)
        for unit in self.sweep.units:
            ctx.take_reading(await ctx.feed(unit).service.read(host))
        if self._first:
            await note_originals(ctx, host)
        resumed = bool(state.restarts) or any(c.attempts for c in state.plan_cells)
        steps = reconcile(state, found, self.sweep, run_id=ctx.run_id, resumed=resumed)
        if self.link.rebooted is not None:
            self._say_rebooted(found)
        elif self._first and resumed and state.run.segment > 0 and any(s.needs_consent for s in steps):
            self._say_interrupted()
        self._first = False
        ctx.emit(ev.ProbeTaken, probe=found)
        await self.steps.take(host, steps)
        for cell in list(state.plan_cells):
            if cell.state == "running" and self.steps.live_job not in {a.job for a in cell.attempts}:
                ctx.emit(
                    ev.CellStateSet,
                    cell_id=cell.id,
                    state="interrupted",
                    reason="it was in flight when the host or the runner was lost",
                )
        model = found.get("model")
        complete = isinstance(model, dict) and model.get("verdict") == "complete"
        for alert in state.open_alerts:
            if alert.raised.verdict in ("rebooted", "interrupted"):
                ctx.emit(
                    ev.AlertResolved, alert_id=alert.id, how="the steps were taken", by=self.steps.last_by
                )
            elif alert.raised.verdict == "staging-failed" and complete:
                ctx.emit(ev.AlertResolved, alert_id=alert.id, how="the model is complete", by="sweep")

    def _next_name(self) -> str:
        cell = next((c for c in self.ctx.state.plan_cells if c.state in OPEN_STATES), None)
        return cell.spec.config if cell else "the next cell"

    def _say_rebooted(self, found: Mapping[str, object]) -> None:
        ctx = self.ctx
        assert self.link.rebooted is not None
        before, now = self.link.rebooted
        self.link.rebooted = None
        words = consequences(found, self.sweep)
        ctx.emit(ev.HostRebooted, boot_before=before, boot_now=now, consequences=words)
        last = ctx.state.restart
        if last is not None and last.outcome == "running":
            ctx.emit(
                ev.RestartFailed,
                attempt_id=last.attempt_id,
                verdict="rebooted",
                cause="rebooted",
                kind="host",
            )
        ident = alert_id(ctx.run_id, "rebooted", now)
        text = rebooted_alert(ctx.host_name, words, self._next_name(), ident)
        self._raise(ident, text)
        if self.sweep.policy.reboot == "stop":
            raise StopSweepError("some-failed", f"{ctx.host_name} was rebooted, and [policy] reboot is stop")

    def _say_interrupted(self) -> None:
        ctx = self.ctx
        ident = alert_id(ctx.run_id, "interrupted", str(ctx.state.run.segment))
        before = ctx.state.run.before
        why = "the run was interrupted"
        if before is not None:  # it ended in order; cells were added or planned again since
            why = f"the run had ended ({before.outcome}), and cells are left to run"
        self._raise(ident, interrupted_alert(ctx.host_name, why, self._next_name(), ident))

    def _raise(self, ident: str, text: AlertText, *, asks: bool = True, policy: str | None = None) -> None:
        ctx = self.ctx
        answer_by = self.requests.answer_by_s(ctx.wall(), self.sweep.policy.answer_s) if asks else None
        raise_alert(ctx, ident, text, answer_by_s=answer_by, policy=policy or self.sweep.policy.reboot)
