"""Taking the steps that reconcile proposes: approved by a viewer while one attends, else by policy; each recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ddtop.errors import AgentError, HostLostError
from ddtop.events import AlertResolved, Approve, Step, StepsPlanned, StepTaken, SweepPaused
from ddtop.hosts.base import Host
from ddtop.sweep.cell.attempts import measured_by
from ddtop.sweep.cell.external_benchmark import ExternalBenchmark
from ddtop.sweep.cell.measure import Measurer
from ddtop.sweep.configuration.waits import HostWaits, probed
from ddtop.sweep.recovery.reconcile import reconcile, running_server
from ddtop.sweep.shared.ask import ask
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.policy import parse_rule
from ddtop.sweep.shared.requests import HostWait, Requests
from ddtop.sweep.tell.alerts import alert_id, wait_alert
from ddtop.sweep.tell.raise_alert import is_open, raise_alert

GONE_POLL_S = 2.0


class StepTaker:
    """Takes steps one by one. A restart is left to the sweep's next turn and reported by `restart_done`."""

    def __init__(
        self,
        ctx: SweepContext,
        requests: Requests,
        waits: HostWaits,
        measurer: Measurer,
        external_benchmark: ExternalBenchmark,
    ) -> None:
        self.ctx = ctx
        self.requests = requests
        self.waits = waits
        self.measurer = measurer
        self.external_benchmark = external_benchmark
        self.live_job: str | None = None
        """A job that still measures: it is followed before anything else is done."""
        self.last_by = "policy"
        self._restart: tuple[str, Step, str] | None = None
        self._n = 0

    async def take(self, host: Host, steps: Sequence[Step]) -> None:
        """Proposes the steps, waits for consent where one is needed and a viewer attends, and does them."""
        self.live_job = None
        self._end_waits(steps)
        if not steps:
            return
        ctx = self.ctx
        self._n += 1
        plan_id = f"{ctx.run_id}-{ctx.state.run.segment}-{self._n}"
        self._raise_waits(steps)
        asks = any(s.needs_consent for s in steps) and self.requests.attended
        why = "; ".join(dict.fromkeys(s.reason for s in steps if s.needs_consent)) or steps[0].reason
        ctx.emit(
            StepsPlanned,
            plan_id=plan_id,
            steps=tuple(steps),
            why=why,
            answer_by_s=ctx.wall() + ctx.policy.answer_s if asks else None,
        )
        left_out, by = await self._consent(plan_id) if asks else ((), "policy")
        self.last_by = by
        for step in steps:
            who = by if step.needs_consent else "automatic"
            if step.id in left_out:
                self._resolve_wait(step, f"left out by {by}", by)
                self._record(plan_id, step, who, "left-out")
                if step.action == "wait-job":  # two loads at once would disturb each other
                    await self._end_job(host, step.detail or "")
                if step.action in ("restart", "go-on"):
                    self.requests.paused_by = by
                    ctx.emit(
                        SweepPaused,
                        by=by,
                        reason=f"left out: {step.title}; no cell can be measured without it",
                    )
            else:
                await self._do(host, plan_id, step, who)
        ctx.emit(StepsPlanned, plan_id=plan_id, steps=(), why="")

    def _wait_id(self, step: Step) -> str:
        return alert_id(self.ctx.run_id, "wait", step.id)

    def _raise_waits(self, steps: Sequence[Step]) -> None:
        """One alert for each step that waits for somebody: nothing blocks the sweep in silence."""
        ctx = self.ctx
        assert ctx.sweep is not None
        wait_s = parse_rule(ctx.policy.foreign).wait_s or 0.0
        for step in steps:
            ident = self._wait_id(step)
            if step.action == "ask" and not is_open(ctx, ident):
                text = wait_alert(ctx.host_name, step, ident, port=ctx.sweep.port or 0)
                until = f"wait up to {wait_s / 60:.0f} min until it is put right, then " if wait_s else ""
                words = f"{until}the sweep stops"
                answer_by = self.requests.answer_by_s(ctx.wall(), ctx.policy.answer_s)
                raise_alert(ctx, ident, text, policy=words, answer_by_s=answer_by)

    def _end_waits(self, steps: Sequence[Step]) -> None:
        """Resolves the alerts of waits that the host asks for no more: what they were about went while the link was lost."""
        asked = {s.id for s in steps if s.action == "ask"}
        before = {v.step_id for v in self.ctx.state.steps.values() if v.action == "ask"}
        for ident in (alert_id(self.ctx.run_id, "wait", step) for step in sorted(before - asked)):
            if is_open(self.ctx, ident):
                how = "it is gone: the host was looked at anew"
                self.ctx.emit(AlertResolved, alert_id=ident, how=how, by="sweep")

    def _resolve_wait(self, step: Step, how: str, by: str) -> None:
        if step.action == "ask" and is_open(self.ctx, self._wait_id(step)):
            self.ctx.emit(AlertResolved, alert_id=self._wait_id(step), how=how, by=by)

    async def _consent(self, plan_id: str) -> tuple[tuple[str, ...], str]:
        """(steps left out, who decided): a viewer's approval, else the policy's, which leaves out none."""
        ctx, requests = self.ctx, self.requests
        alerts = [a.id for a in ctx.state.open_alerts]
        with requests.questions.asked(plan_id, *alerts):
            approval = await ask(ctx, requests, lambda: self._approval(plan_id, alerts))
        return approval or ((), "policy")

    def _approval(self, plan_id: str, alerts: Sequence[str]) -> tuple[tuple[str, ...], str] | None:
        questions = self.requests.questions
        command = questions.take(plan_id)
        if command is not None:
            return (command.leave_out if isinstance(command, Approve) else ()), command.viewer
        for alert in alerts:
            # `r` on an alert shows the steps; only with `now` is it the consent itself.
            command = questions.take(alert)
            if command is not None and getattr(command, "now", False):
                return (), command.viewer
        return None

    def _record(self, plan_id: str, step: Step, by: str, state: str, detail: str | None = None) -> None:
        self.ctx.emit(
            StepTaken,
            plan_id=plan_id,
            step_id=step.id,
            action=step.action,
            title=step.title,
            reason=step.reason,
            by=by,
            state=state,
            detail=detail or step.detail,
        )

    async def _do(self, host: Host, plan_id: str, step: Step, by: str) -> None:
        if step.action == "warn":
            self.ctx.note("warn", f"{step.title}: {step.reason}")
            self._record(plan_id, step, by, "done")
            return
        self._record(plan_id, step, by, "started")
        if step.action == "restart":
            # The sweep's next turn does it, and reports it by `restart_done`.
            self._restart = (plan_id, step, by)
            return
        try:
            what = await self._act(host, step)
        except HostLostError:
            self._record(plan_id, step, by, "failed", "the connection was lost meanwhile")
            raise
        except AgentError as error:
            self._record(plan_id, step, by, "failed", error.what)
            if error.code == "disk" or (step.action == "stage" and error.may_pass):
                raise  # it is waited for, and the host looked at anew: the sweep does not go on without it
            self.ctx.note("warn", f"{step.title} failed: {error.what}")
            return
        except StopSweepError as stop:
            self._record(plan_id, step, by, "failed", stop.reason)
            self._resolve_wait(step, stop.reason, by)
            raise
        self._resolve_wait(step, "it is put right, or a viewer goes on without that", "sweep")
        self._record(plan_id, step, by, "done", what)

    def restart_done(self, ok: bool) -> None:
        """Reports the end of the restart that a step announced."""
        if self._restart is not None:
            plan_id, step, by = self._restart
            self._restart = None
            self._record(plan_id, step, by, "done" if ok else "failed")

    async def _act(self, host: Host, step: Step) -> str | None:
        """Does one step; returns its detail, in words."""
        match step.action:
            case "collect":
                return f"{await self._collect(host, step.detail or '')} results"
            case "wait-job":
                self.live_job = step.detail
                return None
            case "stage":
                await self.waits.stage(host)
                return None
            case "restore":
                unit = step.id.partition(":")[2]
                user = unit.startswith("user ")
                removed = await host.call("override-remove", unit=unit.removeprefix("user "), user=user)
                return ", ".join(removed["removed"]) or "already gone"
            case "ask":
                with self.requests.waiting_for_host() as wait:
                    await self._wait_gone(host, step, wait)
                return None
        return None

    async def _end_job(self, host: Host, job: str) -> None:
        """Stops a job that a viewer does not want to wait for, and collects its results."""
        try:
            await host.call("job-stop", job=job, timeout_s=60)
            await self._collect(host, job)
        except AgentError as error:
            self.ctx.note("warn", f"job {job} could not be stopped: {error.what}")

    async def _collect(self, host: Host, job: str) -> int:
        state, sweep = self.ctx.state, self.ctx.sweep
        server = running_server(state, state.probe, sweep) if sweep is not None else None
        # The server that the job measured: another one that runs now says nothing of how its requests ended.
        measured = measured_by(state, job)
        alive = server is not None and (measured is None or measured.id == server.generation.id)
        if (await host.call("job-show", job=job)).get("kind") == "exec":
            return await self.external_benchmark.collect(host, job, alive=alive)
        return await self.measurer.collect(host, job, alive=alive)

    async def _wait_gone(self, host: Host, step: Step, wait: HostWait) -> None:
        """Waits until what `step` is about is gone, as long as the policy for foreign processes says."""
        ctx = self.ctx
        assert ctx.sweep is not None
        wait_s = parse_rule(ctx.policy.foreign).wait_s or 0.0
        until = ctx.mono() + wait_s
        while True:
            found = await probed(ctx, host)
            if not any(s.id == step.id for s in reconcile(ctx.state, found, ctx.sweep, run_id=ctx.run_id)):
                return
            if ctx.mono() >= until:
                raise StopSweepError(
                    "some-failed", f"{step.title}: given up after {wait_s / 60:.0f} min ({step.reason})"
                )
            self.requests.check_stop()
            if wait.resumed:
                return
            await asyncio.sleep(GONE_POLL_S)
