"""Staging the model, and waiting: for a clean host, for a free port. A person can always say: go on."""

from __future__ import annotations

import asyncio

from ddtop import events as ev
from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.sweep.model.stage import end_staging, stage
from ddtop.sweep.model.stage_causes import stage_cause
from ddtop.sweep.recovery.probe import foreign_on_port, is_clean, probe
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.plan import ModelWanted
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.tell.alerts import alert_id, stage_alert

CLEAN_S = 10.0


class Waits:
    """See the module."""

    def __init__(self, ctx: SweepContext, requests: Requests) -> None:
        self.ctx = ctx
        self.requests = requests

    async def stage(self, host: Host) -> bool:
        """Stages the model; asks or obeys the policy where it cannot be. True when it is whole."""
        ctx, requests = self.ctx, self.requests
        assert ctx.sweep is not None
        model = ctx.sweep.model
        if model is None:
            ctx.note("warn", "the plan names no model to stage")
            return True
        why = await self._staged(host, model)
        if why is not None and stage_cause(why).kind == "transient":
            ctx.note("warn", f"staging was cut off ({why}); it is tried once more")
            why = await self._staged(host, model)
        ident = alert_id(ctx.run_id, "stage", model.path)
        if why is None:
            if ident in ctx.state.alerts and ctx.state.alerts[ident].open:
                ctx.emit(ev.AlertResolved, alert_id=ident, how="the model is whole", by="sweep")
            return True
        text = stage_alert(ctx.host_name, model.path, why, ident)
        answer_s = ctx.sweep.policy.answer_s
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
            answer_by_s=requests.answer_by_s(ctx.wall(), answer_s),
            policy="the sweep stops",
        )
        until = ctx.mono() + answer_s
        requests.asking.add(ident)
        try:
            while True:
                if isinstance(requests.answers.pop(ident, None), ev.Restage | ev.Retry | ev.Resume):
                    return await self.stage(host)
                self._check_stop()
                if not requests.attended or ctx.mono() >= until:
                    break
                ctx.check_link()
                await ctx.wait(1.0)
        finally:
            requests.asking.discard(ident)
        raise StopSweepError("some-failed", f"the model could not be staged: {why}")

    def _check_stop(self) -> None:
        if self.requests.stop is not None:
            raise StopSweepError("stopped", f"stopped by {self.requests.stop}")

    async def _staged(self, host: Host, model: ModelWanted) -> str | None:
        """As `stage`; a copy may take an hour, and whoever says stop does not wait for it. What is copied stays."""
        ctx, requests = self.ctx, self.requests
        work = asyncio.create_task(stage(ctx, host, model))
        work.add_done_callback(lambda _: ctx.wake())
        try:
            while not work.done() and requests.stop is None:
                await ctx.wait(1.0)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        if not work.cancelled():
            return work.result()
        await end_staging(ctx, host, model, f"stopped by {requests.stop}")
        raise StopSweepError("stopped", f"stopped by {requests.stop}")

    async def wait_clean(self, host: Host) -> None:
        """Until a probe shows nothing wrong with the host. A person can go on at once by `resume`."""
        ctx, requests = self.ctx, self.requests
        assert ctx.sweep is not None
        told = ""
        requests.resume, requests.waiting = False, True
        try:
            await self._until_clean(host, told)
        finally:
            requests.resume = requests.waiting = False
        self._check_stop()

    async def _until_clean(self, host: Host, told: str) -> None:
        ctx, requests = self.ctx, self.requests
        assert ctx.sweep is not None
        while requests.stop is None and not requests.resume:
            found = await probe(host, ctx.sweep)
            ctx.emit(ev.ProbeTaken, probe=found)
            wrong = is_clean(found, ctx.sweep)
            if not wrong:
                return
            words = "; ".join(wrong)
            if words != told:
                told = words
                ctx.note("warn", f"waiting until the host is clean: {words}")
            await ctx.wait_until(lambda: requests.stop is not None or requests.resume, CLEAN_S)

    async def wait_port(self, host: Host, launch: Launch, wait_s: float) -> None:
        """Until nobody else listens on the port; the sweep stops when that takes too long."""
        ctx = self.ctx
        service = ctx.feed(launch.unit).service
        until = ctx.mono() + wait_s
        while True:
            self._check_stop()
            try:
                who = foreign_on_port(
                    await host.call("listeners", port=launch.port), service, ctx.feed(launch.unit).reading
                )
            except AgentError as error:
                who = error.what
            if who is None:
                return
            if ctx.mono() >= until:
                raise StopSweepError(
                    "some-failed", f"port {launch.port} is still taken by {who} after {wait_s / 60:.0f} min"
                )
            await asyncio.sleep(1.0)
