"""One configuration: brought up, or given up; what failed is said once, a person or the policy decides, and it is done.

The controller asks `ensure` for a running server of a launch; the answer is a subject to measure, or None when the
configuration was given up (its cells are then failed, broken or skipped) or a person wants something else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from ddtop import events as ev
from ddtop.errors import HostLostError
from ddtop.hosts.base import Host
from ddtop.journal.fold.views import RestartView
from ddtop.services.base import Launch
from ddtop.sweep.cell.ending import Subject
from ddtop.sweep.configuration.failed_cell import CellTrouble
from ddtop.sweep.recovery.reconcile import key_of, start_under_way
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES
from ddtop.sweep.shared.policy import AGAIN, Decision, PastFailure, decide
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.start.restart import Cancelled, NotStarted, Restarter, Started
from ddtop.sweep.tell.alerts import alert_id, fault_judgement, start_alert

STOP_AFTER = ("stalled", "hung-gpu", "crash-loop", "no-tokens", "wrong-arguments", "old-server")
"""Verdicts that leave something running which must not go on holding the GPUs."""
RETRY_PAUSE_S = 2.0


class ConfigurationRunner(CellTrouble):
    """See the module."""

    def __init__(self, ctx: SweepContext, requests: Requests) -> None:
        super().__init__(ctx, requests)
        self.restarter = Restarter(ctx, self._interrupted, lambda attempt: requests.waits.get(attempt, 0.0))
        self._past: dict[str, list[PastFailure]] = {}

    # ---- bringing a server up

    async def ensure(self, host: Host, launch: Launch, cells: Sequence[ev.CellSpec]) -> Subject | None:
        """A server of `launch` that passed the gate; None when there is none now. Raises StopSweepError."""
        attach = self._under_way(launch)
        while True:
            result = await self.restarter.run(host, launch, cells, attach=attach)
            if isinstance(result, Started):
                self._new_version(launch, result)
                self._past.pop(launch.key, None)
                self._resolve(launch, f"{launch.config} is ready")
                return Subject(
                    launch=launch,
                    generation=result.generation,
                    engine_version=result.engine_version,
                    model=result.model,
                    main_pid=result.main_pid,
                    overridden=result.overridden,
                )
            if isinstance(result, Cancelled):
                return None
            result = self._with_kernel(launch, result)
            decision, by = await self._failed(host, launch, result)
            if decision.act == "wait":
                attach = self.ctx.state.restart
                continue
            attach = None
            self._past.setdefault(launch.key, self._earlier(launch)).append(
                PastFailure(kind=result.judgement.kind, cause=result.judgement.cause, act=decision.act)
            )
            if not await self._do(host, launch, result, decision, by):
                return None

    def _new_version(self, launch: Launch, started: Started) -> None:
        """Another engine build than the one that earlier results are from: said, and what was broken gets another chance."""
        now, program = started.engine_version, launch.argv[:1]
        if now is None or self.ctx.sweep is None:
            return
        same = {
            x.key for x in self.ctx.sweep.launches.values() if x.unit == launch.unit and x.argv[:1] == program
        }
        cells = [
            c
            for c in self.ctx.state.plan_cells
            if c.spec.restart_key in same and c.engine_version not in (None, now)
        ]
        old = sorted({str(c.engine_version) for c in cells if c.state == "done"})
        if old:
            self.ctx.note(
                "warn",
                f"{launch.unit} is {launch.engine} {now} now; earlier results of this run are from {', '.join(old)}",
            )
        for cell in cells:
            if cell.state == "broken":
                self.ctx.emit(
                    ev.CellStateSet,
                    cell_id=cell.id,
                    state="planned",
                    by="sweep",
                    reason=f"it was broken with {launch.engine} {cell.engine_version}; this is {now}",
                )

    def _under_way(self, launch: Launch) -> RestartView | None:
        ctx = self.ctx
        if ctx.sweep is None:
            return None
        reading = ctx.feed(launch.unit).reading
        probe_now = dict(ctx.state.probe)
        if reading is None:
            return None
        last = start_under_way(ctx.state, probe_now, ctx.sweep)
        return last if last is not None and key_of(ctx.state, last.cell_ids) == launch.key else None

    def _earlier(self, launch: Launch) -> list[PastFailure]:
        """Failures of this configuration that an earlier runner saw since it was last ready."""
        found: list[PastFailure] = []
        for restart in self.ctx.state.restarts[:-1]:
            if key_of(self.ctx.state, restart.cell_ids) != launch.key:
                continue
            if restart.outcome == "ready":
                found.clear()
            elif (
                restart.outcome == "failed"
                and restart.cause
                and restart.kind
                and restart.verdict != "interrupted"
            ):
                found.append(PastFailure(kind=restart.kind, cause=restart.cause, act="retry"))
        return found

    def _interrupted(self, launch: Launch) -> str | None:
        """Why a person wants a start broken off, or None."""
        requests, state = self.requests, self.ctx.state
        if requests.stop is not None:
            return f"stopped by {requests.stop}"
        if requests.restart is not None:
            return f"the restart is begun anew for {requests.restart}"
        mine = [c for c in state.plan_cells if c.spec.restart_key == launch.key]
        if mine and not any(c.state in OPEN_STATES for c in mine):
            return "no cell of it is left to measure"
        return None

    # ---- a start that failed

    async def _failed(self, host: Host, launch: Launch, result: NotStarted) -> tuple[Decision, str]:
        """Raises the alert; the decision comes from a person while one is there, else from the policy."""
        ctx, requests, j = self.ctx, self.requests, result.judgement
        assert ctx.sweep is not None and j.verdict is not None
        past = self._past.get(launch.key) or self._earlier(launch)
        decision = decide(ctx.sweep.policy, j.verdict, j.kind, j.cause, past, launch.config)
        ident = self._alert_id(launch, j.cause)
        text = start_alert(j, launch.config, ident, host=ctx.host_name, unit=launch.unit)
        answer_by = requests.answer_by_s(ctx.wall(), ctx.sweep.policy.answer_s)
        ctx.emit(
            ev.AlertRaised,
            alert_id=ident,
            title=text.title,
            verdict=text.verdict,
            cause=text.cause,
            cause_text=text.cause_text,
            kind=text.kind,
            advice=text.advice,
            evidence=text.evidence,
            actions=text.actions,
            attempt_id=result.attempt_id,
            cell_ids=tuple(c.id for c in self._open(launch)),
            unit=launch.unit,
            fault_seen_s=result.fault_seen_s,
            signature_id=text.signature_id,
            answer_by_s=answer_by,
            policy=decision.words,
        )
        by = "policy"
        if answer_by is not None:
            policy = decision
            decision, by = await self._answer(
                ident,
                policy,
                lambda command: self._meaning(command, policy, launch, result),
                lambda: self._interrupted(launch) is not None,
            )
        ctx.emit(ev.AlertDecided, alert_id=ident, what=decision.words, by=by)
        if decision.act != "wait":
            ctx.emit(
                ev.RestartFailed,
                attempt_id=result.attempt_id,
                verdict=j.verdict,
                cause=j.cause,
                kind=j.kind,
                alert_id=ident,
            )
        return decision, by

    def _with_kernel(self, launch: Launch, result: NotStarted) -> NotStarted:
        """A failed start whose cause the kernel has told: that goes before what the log says."""
        last, j = self.ctx.state.restart, result.judgement
        if j.verdict not in ("failed", "crash-loop", "stalled", "hung-gpu") or last is None:
            return result
        noted = self.ctx.host_state.behind(max(last.started_mono_s, self.ctx.mono() - 3600.0))
        if noted is None:
            return result
        noted.told = True
        return replace(
            result, judgement=fault_judgement(noted.fault, launch.unit, "did not start", j.evidence)
        )

    def _alert_id(self, launch: Launch, cause: str) -> str:
        """The same trouble is the same alert while it is open; after it was settled it rings anew."""
        alerts, n = self.ctx.state.alerts, 0
        while True:
            ident = alert_id(self.ctx.run_id, "start", launch.key, cause, str(n))
            known = alerts.get(ident)
            if known is None or known.open:
                return ident
            n += 1

    def _meaning(
        self, command: ev.AnyCommand, policy: Decision, launch: Launch, result: NotStarted
    ) -> Decision:
        name = launch.config
        match command:
            case ev.Retry():
                return Decision(act="retry", words=f"start {name} again")
            case ev.Restage():
                return Decision(act="restage", words=f"re-stage the model, then start {name} again")
            case ev.MarkBroken():
                return Decision(act="broken", words=f"{name} is marked broken by {command.viewer}")
            case ev.Skip():
                return Decision(act="skip", words=f"{name} is skipped by {command.viewer}")
            case ev.Wait():
                self.requests.waits[result.attempt_id] = self.ctx.mono()
                return Decision(act="wait", words="wait longer")
        return policy

    async def _do(self, host: Host, launch: Launch, result: NotStarted, decision: Decision, by: str) -> bool:
        """Does what was decided; True: start it again."""
        ctx, j = self.ctx, result.judgement
        if decision.act not in AGAIN:
            # First: the link may be lost, and a decision must not be.
            self._close(launch, result, decision, by)
            if j.verdict in STOP_AFTER:
                with contextlib.suppress(*((HostLostError,) if decision.act == "stop" else ())):
                    await self._stop_unit(host, launch)
            if decision.act == "stop":
                raise StopSweepError("some-failed", f"{launch.config}: {j.text}; policy: {decision.words}")
            return False
        if decision.act == "restage":
            return await self.stage(host)
        if decision.act == "wait-clean":
            await self.wait_clean(host)
        elif decision.act == "wait-foreign":
            await self.wait_port(host, launch, decision.wait_s or 600.0)
        elif by == "policy":
            # What is wrong may just be going away (a port, GPU memory, a colleague's systemctl).
            await ctx.wait_until(lambda: self._interrupted(launch) is not None, RETRY_PAUSE_S)
        return self._interrupted(launch) is None

    async def _stop_unit(self, host: Host, launch: Launch) -> None:
        called = await self.ctx.feed(launch.unit).service.stop(host)
        if called.rc:
            self.ctx.note("warn", f"{called.what} failed: {called.error.strip()[-200:]}")

    def _close(self, launch: Launch, result: NotStarted, decision: Decision, by: str) -> None:
        """All open cells of the configuration end with one shared cause."""
        j = result.judgement
        states: dict[str, ev.CellState] = {"broken": "broken", "skip": "skipped"}
        state = states.get(decision.act, "failed")
        for spec in self._open(launch):
            self.ctx.emit(
                ev.CellStateSet,
                cell_id=spec.id,
                state=state,
                reason=j.text,
                cause=j.cause,
                signature_id=j.signature_id,
                by=by,
            )
        self._resolve(launch, decision.words, by)

    def _resolve(self, launch: Launch, how: str, by: str = "sweep") -> None:
        attempts = {
            r.attempt_id for r in self.ctx.state.restarts if key_of(self.ctx.state, r.cell_ids) == launch.key
        }
        for alert in self.ctx.state.open_alerts:
            if alert.raised.attempt_id in attempts:
                self.ctx.emit(ev.AlertResolved, alert_id=alert.id, how=how, by=by)
