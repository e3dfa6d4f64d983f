"""Taking the steps that reconcile proposes: asked about while a person is there, else by policy; each told as it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ddtop.errors import AgentError, HostLostError
from ddtop.events import Step, StepsPlanned, StepTaken, SweepPaused
from ddtop.hosts.base import Host
from ddtop.sweep.cell.external_benchmark import ExternalBenchmark
from ddtop.sweep.cell.measure import Measurer
from ddtop.sweep.cell.outcome import measured_by
from ddtop.sweep.configuration.bring_up import ConfigurationRunner
from ddtop.sweep.recovery.probe import probe
from ddtop.sweep.recovery.reconcile import reconcile, running_server
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.policy import parse_rule
from ddtop.sweep.shared.requests import Requests

GONE_POLL_S = 2.0


class StepTaker:
    """See the module."""

    def __init__(
        self,
        ctx: SweepContext,
        requests: Requests,
        configuration: ConfigurationRunner,
        measurer: Measurer,
        external_benchmark: ExternalBenchmark,
    ) -> None:
        self.ctx = ctx
        self.requests = requests
        self.configuration = configuration
        self.measurer = measurer
        self.external_benchmark = external_benchmark
        self.live_job: str | None = None
        """A job that still measures, to be followed before anything else."""
        self.last_by = "policy"
        self._restart: tuple[str, Step, str] | None = None
        self._n = 0

    async def take(self, host: Host, steps: Sequence[Step]) -> None:
        """Proposes the steps, waits for consent where it is needed and a person is there, and does them."""
        self.live_job = None
        if not steps:
            return
        ctx = self.ctx
        self._n += 1
        plan_id = f"{ctx.run_id}-{ctx.state.run.segment}-{self._n}"
        asks = any(s.needs_consent for s in steps) and self.requests.attended
        answer_s = ctx.sweep.policy.answer_s if ctx.sweep else 60.0
        why = "; ".join(dict.fromkeys(s.reason for s in steps if s.needs_consent)) or steps[0].reason
        ctx.emit(
            StepsPlanned,
            plan_id=plan_id,
            steps=tuple(steps),
            why=why,
            answer_by_s=ctx.wall() + answer_s if asks else None,
        )
        left_out, by = await self._consent(plan_id, answer_s) if asks else ((), "policy")
        self.last_by = by
        for step in steps:
            who = by if step.needs_consent else "automatic"
            if step.id in left_out:
                self._say(plan_id, step, who, "left-out")
                if step.action == "wait-job":  # two loads at once would measure each other
                    await self._end_job(host, step.detail or "")
                if step.action in ("restart", "go-on"):
                    self.requests.paused_by = by
                    ctx.emit(
                        SweepPaused,
                        by=by,
                        reason=f"left out: {step.title}; nothing can be measured without it",
                    )
            else:
                await self._do(host, plan_id, step, who)
        ctx.emit(StepsPlanned, plan_id=plan_id, steps=(), why="")

    async def _consent(self, plan_id: str, answer_s: float) -> tuple[tuple[str, ...], str]:
        """(steps left out, who said so): a person's answer, or the policy's when the time is over or nobody is there."""
        ctx, requests = self.ctx, self.requests
        until = ctx.mono() + answer_s
        requests.asking.add(plan_id)
        alerts = {a.id for a in ctx.state.open_alerts}
        requests.asking |= alerts
        try:
            while True:  # an answer first: whoever gave it may have left in the same moment
                if plan_id in requests.approvals:
                    return requests.approvals.pop(plan_id)
                for alert in alerts & requests.answers.keys():
                    # `r` on the alert shows the steps; only with `now` is it the consent itself.
                    answer = requests.answers.pop(alert)
                    if getattr(answer, "now", False):
                        return (), answer.viewer
                if requests.stop is not None:
                    raise StopSweepError("stopped", f"stopped by {requests.stop}")
                if ctx.mono() >= until or not requests.attended:
                    break
                ctx.check_link()
                await ctx.wait(1.0)
        finally:
            requests.asking -= alerts | {plan_id}
        return (), "policy"

    def _say(self, plan_id: str, step: Step, by: str, state: str, detail: str | None = None) -> None:
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
            self._say(plan_id, step, by, "done")
            return
        self._say(plan_id, step, by, "started")
        if step.action == "restart":
            # Done by the sweep's next turn; told when the gate has opened, or not.
            self._restart = (plan_id, step, by)
            return
        try:
            what = await self._act(host, step)
        except HostLostError:
            self._say(plan_id, step, by, "failed", "the host was lost meanwhile")
            raise
        except AgentError as error:
            self._say(plan_id, step, by, "failed", error.what)
            self.ctx.note("warn", f"{step.title} failed: {error.what}")
            return
        except StopSweepError as stop:
            self._say(plan_id, step, by, "failed", stop.reason)
            raise
        self._say(plan_id, step, by, "done", what)

    def restart_done(self, ok: bool) -> None:
        """The restart that a step stood for has come to its end."""
        if self._restart is not None:
            plan_id, step, by = self._restart
            self._restart = None
            self._say(plan_id, step, by, "done" if ok else "failed")

    async def _act(self, host: Host, step: Step) -> str | None:
        """Does one step; returns what is to be said of it."""
        match step.action:
            case "collect":
                return f"{await self._collect(host, step.detail or '')} results"
            case "wait-job":
                self.live_job = step.detail
                return None
            case "stage":
                await self.configuration.stage(host)
                return None
            case "restore":
                unit = step.id.partition(":")[2]
                user = unit.startswith("user ")
                answer = await host.call("override-remove", unit=unit.removeprefix("user "), user=user)
                return ", ".join(answer["removed"]) or "it was gone already"
            case "ask":
                self.requests.resume, self.requests.waiting = False, True
                try:
                    await self._wait_gone(host, step)
                finally:
                    self.requests.resume = self.requests.waiting = False
                return None
        return None

    async def _end_job(self, host: Host, job: str) -> None:
        """Ends a job that a person does not want to wait for, and takes what it has measured."""
        try:
            await host.call("job-stop", job=job, timeout_s=60)
            await self._collect(host, job)
        except AgentError as error:
            self.ctx.note("warn", f"job {job} could not be ended: {error.what}")

    async def _collect(self, host: Host, job: str) -> int:
        state, sweep = self.ctx.state, self.ctx.sweep
        server = running_server(state, state.probe, sweep) if sweep is not None else None
        # The one that the job measured: another that runs now says nothing of how its requests ended.
        measured = measured_by(state, job)
        alive = server is not None and (measured is None or measured.id == server.generation.id)
        if (await host.call("job-show", job=job)).get("kind") == "exec":
            return await self.external_benchmark.collect(host, job, alive=alive)
        return await self.measurer.collect(host, job, alive=alive)

    async def _wait_gone(self, host: Host, step: Step) -> None:
        """Waits until what stands in the way is gone, as long as the policy for foreign processes says."""
        ctx, requests = self.ctx, self.requests
        assert ctx.sweep is not None
        wait_s = parse_rule(ctx.sweep.policy.foreign).wait_s or 0.0
        until = ctx.mono() + wait_s
        while True:
            found = await probe(host, ctx.sweep)
            if not any(s.id == step.id for s in reconcile(ctx.state, found, ctx.sweep, run_id=ctx.run_id)):
                return
            if ctx.mono() >= until:
                raise StopSweepError(
                    "some-failed", f"{step.title}: still so after {wait_s / 60:.0f} min ({step.reason})"
                )
            if requests.stop is not None:
                raise StopSweepError("stopped", f"stopped by {requests.stop}")
            if requests.resume:
                return
            await asyncio.sleep(GONE_POLL_S)
