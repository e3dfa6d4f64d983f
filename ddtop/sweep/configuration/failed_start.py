"""A start that failed: one alert, a decision by a viewer or the policy, and what was decided done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from ddtop import events as ev
from ddtop.errors import AgentError, HostLostError
from ddtop.hosts.base import Host
from ddtop.journal.read.select import key_of
from ddtop.services.base import Launch
from ddtop.sweep.configuration.ask import ask_about_alert
from ddtop.sweep.configuration.waits import HostWaits, probed
from ddtop.sweep.recovery.foreign import gpu_holders, holder
from ddtop.sweep.recovery.reconcile import units_of
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.limits import HOLDER_SETTLE_S
from ddtop.sweep.shared.plan import OPEN_STATES
from ddtop.sweep.shared.policy import AGAIN, RESTAGE_CAUSES, Decision, PastFailure, decide
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.start.result import NotStarted
from ddtop.sweep.tell.alerts import alert_id, fault_judgement, held_by_other, start_alert
from ddtop.sweep.tell.raise_alert import raise_alert

STOP_AFTER = ("stalled", "hung-gpu", "crash-loop", "no-tokens", "wrong-arguments", "old-server")
"""Verdicts that leave a process running which must not keep the GPUs."""
HowNext = Literal["wait", "again", "give-up"]
"""Watch the same start on; start again; leave the configuration (or a viewer wants something else first)."""
MEMORY_CAUSES = ("oom-", "gpu-memory", "kv-cache", "no-memory")
"""How causes begin that a foreign process's GPU memory may be behind."""
HELD_MIB = 2048.0
"""So much held by a foreign process explains a start without memory."""
RETRY_PAUSE_S = 2.0
"""Before the policy's retry: a transient trouble (a port, GPU memory, a colleague's systemctl) may just be ending."""


class FailedStarts:
    """Decides what follows a failed start. `cancelled(launch)`: whether a viewer wants something else than this start."""

    def __init__(
        self,
        ctx: SweepContext,
        requests: Requests,
        waits: HostWaits,
        cancelled: Callable[[Launch], bool],
    ) -> None:
        self.ctx = ctx
        self.requests = requests
        self.waits = waits
        self.cancelled = cancelled
        self.waited_from: dict[str, float] = {}
        """Attempt id → moment (monotonic) from which a viewer's `wait` makes its quiet limit count anew."""
        self._past: dict[str, list[PastFailure]] = {}

    def forget(self, launch: Launch) -> None:
        """A start of `launch` became ready: its earlier failures no longer count, its alerts are resolved."""
        self._past.pop(launch.key, None)
        self._resolve(launch, f"{launch.config} is ready")

    async def decide(self, host: Host, launch: Launch, failed: NotStarted) -> HowNext:
        """Raises the alert, waits for a decision, and does what it asks of the host. Raises StopSweepError."""
        failed = self._with_kernel_cause(launch, failed)
        failed = await self._with_holder(host, launch, failed)
        if failed.judgement.cause in RESTAGE_CAUSES and not await self.waits.may_be_staged(
            host, failed.judgement.cause
        ):  # what it misses is not what the plan's model stages: another try would fail the same
            failed = replace(failed, judgement=replace(failed.judgement, kind="config"))
        j = failed.judgement
        decision, by = await self._decide(launch, failed)
        if decision.act == "wait":
            return "wait"
        self._past.setdefault(launch.key, self._recorded(launch)).append(
            PastFailure(kind=j.kind, cause=j.cause, act=decision.act)
        )
        return "again" if await self._do(host, launch, failed, decision, by) else "give-up"

    async def _decide(self, launch: Launch, failed: NotStarted) -> tuple[Decision, str]:
        """(decision, who decided): a viewer's while one attends, else the policy's."""
        ctx, requests, j = self.ctx, self.requests, failed.judgement
        assert j.verdict is not None
        past = self._past.get(launch.key) or self._recorded(launch)
        decision = decide(ctx.policy, j.verdict, j.kind, j.cause, past, launch.config)
        ident = self._alert_id(launch, j.cause)
        answer_by = requests.answer_by_s(ctx.wall(), ctx.policy.answer_s)
        raise_alert(
            ctx,
            ident,
            start_alert(j, launch.config, ident, host=ctx.host_name, unit=launch.unit),
            attempt_id=failed.attempt_id,
            cell_ids=tuple(c.id for c in self._open(launch)),
            unit=launch.unit,
            fault_seen_s=failed.fault_seen_s,
            answer_by_s=answer_by,
            policy=decision.words,
        )
        by = "policy"
        if answer_by is not None:
            policy = decision
            decision, by = await ask_about_alert(
                ctx,
                requests,
                ident,
                policy,
                lambda command: self._meaning(command, policy, launch.config, failed.attempt_id),
                lambda: self.cancelled(launch),
            )
        ctx.emit(ev.AlertDecided, alert_id=ident, what=decision.words, by=by)
        if decision.act != "wait":
            ctx.emit(
                ev.RestartFailed,
                attempt_id=failed.attempt_id,
                verdict=j.verdict,
                cause=j.cause,
                kind=j.kind,
                alert_id=ident,
            )
        return decision, by

    def _meaning(self, command: ev.AnyCommand, policy: Decision, name: str, attempt_id: str) -> Decision:
        """What a viewer's command decides about a start; `policy` where it decides nothing."""
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
                self.waited_from[attempt_id] = self.ctx.mono()
                return Decision(act="wait", words="wait longer")
        return policy

    def _recorded(self, launch: Launch) -> list[PastFailure]:
        """Failures of this configuration that earlier runners recorded since it was last ready."""
        found: list[PastFailure] = []
        for restart in self.ctx.state.restarts[:-1]:
            if key_of(self.ctx.state, restart.cell_ids) != launch.key:
                continue
            if restart.outcome == "ready":
                found.clear()
            elif (
                restart.outcome == "failed"
                and restart.verdict != "interrupted"
                and restart.cause
                and restart.kind
            ):
                found.append(PastFailure(kind=restart.kind, cause=restart.cause, act="retry"))
        return found

    def _with_kernel_cause(self, launch: Launch, failed: NotStarted) -> NotStarted:
        """The kernel's cause of a failed start goes before the log's, which stays as evidence."""
        last, j = self.ctx.state.restart, failed.judgement
        if j.verdict not in ("failed", "crash-loop", "stalled", "hung-gpu") or last is None:
            return failed
        record = self.ctx.faults.cause_since(max(last.started_mono_s, self.ctx.mono() - 3600.0))
        if record is None:
            return failed
        record.reported = True
        return replace(
            failed, judgement=fault_judgement(record.fault, launch.unit, "did not start", j.evidence)
        )

    async def _with_holder(self, host: Host, launch: Launch, failed: NotStarted) -> NotStarted:
        """A start that ran out of GPU memory while a foreign process holds some failed for that, whoever it is.

        Looked at twice: what the failed start itself held is listed for a moment after its death.
        """
        j, sweep = failed.judgement, self.ctx.sweep
        if (
            sweep is None
            or not j.cause.startswith(MEMORY_CAUSES)
            or j.verdict not in ("failed", "crash-loop")
        ):
            return failed
        rows: list[Mapping[str, Any]] = []
        for pause_s in (0.0, HOLDER_SETTLE_S):
            await asyncio.sleep(pause_s)
            try:
                found = await probed(self.ctx, host)
            except AgentError:
                return failed
            pids = {row.get("pid") for row in rows}
            rows = [
                row
                for row in gpu_holders(found, sweep, units_of(found), HELD_MIB)
                if not pause_s or row.get("pid") in pids
            ]
            if not rows:
                return failed
        most = max(rows, key=lambda row: float(row.get("mem_mib") or 0))
        return replace(
            failed, judgement=held_by_other(launch.unit, holder(most), float(most.get("mem_mib") or 0), j)
        )

    def _alert_id(self, launch: Launch, cause: str) -> str:
        """The id of the open alert for this cause; a new one where the earlier ones are resolved."""
        alerts, n = self.ctx.state.alerts, 0
        while True:
            ident = alert_id(self.ctx.run_id, "start", launch.key, cause, str(n))
            known = alerts.get(ident)
            if known is None or known.open:
                return ident
            n += 1

    # ---- doing what was decided

    async def _do(self, host: Host, launch: Launch, failed: NotStarted, decision: Decision, by: str) -> bool:
        """True: start it again."""
        ctx, j = self.ctx, failed.judgement
        if decision.act not in AGAIN:
            # Recorded before anything is asked of the host: the link may be lost, a decision must not be.
            self._close(launch, failed, decision, by)
            if j.verdict in STOP_AFTER:
                with contextlib.suppress(*((HostLostError,) if decision.act == "stop" else ())):
                    await self._stop_unit(host, launch)
            if decision.act == "stop":
                raise StopSweepError("some-failed", f"{launch.config}: {j.text}; policy: {decision.words}")
            return False
        if decision.act == "restage":
            return await self.waits.stage(host)
        if decision.act == "wait-clean":
            await self.waits.wait_clean(host)
        elif decision.act == "wait-foreign":
            await self.waits.wait_foreign(host, launch, decision.wait_s or 600.0, cause=j.cause)
        elif by == "policy":
            await ctx.wait_until(lambda: self.cancelled(launch), RETRY_PAUSE_S)
        return not self.cancelled(launch)

    async def _stop_unit(self, host: Host, launch: Launch) -> None:
        called = await self.ctx.feed(launch.unit).service.stop(host)
        if called.rc:
            self.ctx.note("warn", f"{called.what} failed: {called.error.strip()[-200:]}")

    def _open(self, launch: Launch, *, every_round: bool = False) -> list[ev.CellSpec]:
        cells = [c for c in self.ctx.state.plan_cells if c.state in OPEN_STATES]
        if every_round:
            return [c.spec for c in cells if c.spec.server == ev.server_of(launch.key)]
        return [c.spec for c in cells if c.spec.restart_key == launch.key]

    def _close(self, launch: Launch, failed: NotStarted, decision: Decision, by: str) -> None:
        """Ends all open cells of the configuration with one shared cause; those of later rounds too, unless another
        start may go better."""
        j = failed.judgement
        every_round = decision.act in ("broken", "skip") or j.kind == "config"
        states: dict[str, ev.CellState] = {"broken": "broken", "skip": "skipped"}
        for spec in self._open(launch, every_round=every_round):
            self.ctx.emit(
                ev.CellStateSet,
                cell_id=spec.id,
                state=states.get(decision.act, "failed"),
                reason=j.text,
                cause=j.cause,
                signature_id=j.signature_id,
                by=by,
            )
        self._resolve(launch, decision.words, by)

    def _resolve(self, launch: Launch, how: str, by: str = "sweep") -> None:
        state = self.ctx.state
        attempts = {r.attempt_id for r in state.restarts if key_of(state, r.cell_ids) == launch.key}
        for alert in state.open_alerts:
            if alert.raised.attempt_id in attempts:
                self.ctx.emit(ev.AlertResolved, alert_id=alert.id, how=how, by=by)
