"""Waiting for the host: until the model is staged, a probe is clean, a port is free. A viewer can end a wait."""

from __future__ import annotations

import asyncio
from typing import Any

from ddtop import events as ev
from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.sweep.model.stage import end_staging, stage
from ddtop.sweep.model.stage_causes import stage_cause
from ddtop.sweep.recovery.foreign import gpu_holders, holder
from ddtop.sweep.recovery.probe import foreign_on_port, host_problems, is_outside_systemd, probe
from ddtop.sweep.recovery.reconcile import units_of
from ddtop.sweep.shared.ask import ask
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.plan import ModelWanted
from ddtop.sweep.shared.requests import HostWait, Requests
from ddtop.sweep.tell.alerts import alert_id, stage_alert
from ddtop.sweep.tell.raise_alert import is_open, raise_alert

CLEAN_POLL_S = 10.0
STAGE_AGAIN_S = 45.0
PORT_POLL_S = 1.0
GPU_POLL_S = 2.0


async def probed(ctx: SweepContext, host: Host) -> dict[str, Any]:
    """A probe of the host, the servers that systemctl does not know among its units. Raises AgentError."""
    assert ctx.sweep is not None
    plain = [ctx.feed(u).service for u in ctx.sweep.units if is_outside_systemd(ctx.sweep, u)]
    return await probe(host, ctx.sweep, plain)


class HostWaits:
    """The waits that bring a host into the state a start needs. All raise StopSweepError and HostLostError."""

    def __init__(self, ctx: SweepContext, requests: Requests) -> None:
        self.ctx = ctx
        self.requests = requests

    async def stage(self, host: Host) -> bool:
        """Stages the model; True when it is complete. Where it cannot be, a viewer decides, else the policy for the host:
        no room and no network are waited for as long as a lost host, anything else stops the sweep."""
        ctx, requests = self.ctx, self.requests
        assert ctx.sweep is not None
        model = ctx.sweep.model
        if model is None:
            ctx.note("warn", "the plan names no model to stage")
            return True
        ident = alert_id(ctx.run_id, "stage", model.path)
        most_min = ctx.policy.host_lost_wait_min
        until = ctx.mono() + 60.0 * most_min
        why = await self._stage_with_retry(host, model)
        with requests.questions.asked(*([ident] if why is not None else [])):
            while why is not None:
                answer_by = requests.answer_by_s(ctx.wall(), ctx.policy.answer_s)
                text = stage_alert(ctx.host_name, model.path, why, ident)
                waits = stage_cause(why).may_pass and ctx.policy.host == "wait-clean" and ctx.mono() < until
                again = (
                    f"stage again every {STAGE_AGAIN_S:.0f} s for {most_min:g} min at most, then "
                    if waits
                    else ""
                )
                raise_alert(ctx, ident, text, answer_by_s=answer_by, policy=f"{again}the sweep stops")
                if not await ask(ctx, requests, lambda: self._stage_again(ident)):
                    if not waits:
                        raise StopSweepError("some-failed", f"the model could not be staged: {why}")
                    await ctx.wait_until(lambda: self._ends_wait(ident), STAGE_AGAIN_S)
                    requests.check_stop()
                why = await self._stage_with_retry(host, model)
        if is_open(ctx, ident):
            ctx.emit(ev.AlertResolved, alert_id=ident, how="the model is complete", by="sweep")
        return True

    def _stage_again(self, ident: str) -> bool | None:
        command = self.requests.questions.take(ident)
        return True if isinstance(command, ev.Restage | ev.Retry | ev.Resume) else None

    def _ends_wait(self, ident: str) -> bool:
        return self.requests.stopped_by is not None or self._stage_again(ident) is not None

    async def _stage_with_retry(self, host: Host, model: ModelWanted) -> str | None:
        """Why the model is not complete, after one retry where the failure was transient; None when it is."""
        why = await self._stage_until_stopped(host, model)
        if why is not None and stage_cause(why).kind == "transient":
            self.ctx.note("warn", f"staging failed ({why}); retrying once")
            why = await self._stage_until_stopped(host, model)
        return why

    async def _stage_until_stopped(self, host: Host, model: ModelWanted) -> str | None:
        """As `stage` of the model room. A copy may take an hour: a stop ends it at once. Copied files stay."""
        ctx, requests = self.ctx, self.requests
        work = asyncio.create_task(stage(ctx, host, model))
        work.add_done_callback(lambda _: ctx.wake())
        try:
            while not work.done() and requests.stopped_by is None:
                await ctx.wait(1.0)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        if not work.cancelled():
            return work.result()
        await end_staging(ctx, host, model, requests.stop_reason)
        raise StopSweepError("stopped", requests.stop_reason)

    async def wait_clean(self, host: Host) -> None:
        """Returns when a probe finds nothing wrong with the host, or a viewer resumes."""
        with self.requests.waiting_for_host() as wait:
            await self._until_clean(host, wait)
        self.requests.check_stop()

    async def _until_clean(self, host: Host, wait: HostWait) -> None:
        ctx, requests = self.ctx, self.requests
        assert ctx.sweep is not None
        noted = ""
        while requests.stopped_by is None and not wait.resumed:
            found = await probe(host, ctx.sweep)
            ctx.emit(ev.ProbeTaken, probe=found)
            wrong = "; ".join(host_problems(found, ctx.sweep))
            if not wrong:
                return
            if wrong != noted:
                noted = wrong
                ctx.note("warn", f"waiting until the host is clean: {wrong}")
            await ctx.wait_until(lambda: requests.stopped_by is not None or wait.resumed, CLEAN_POLL_S)

    async def may_be_staged(self, host: Host, cause: str) -> bool:
        """Whether staging the plan's model can repair what a start misses: it is not whole now, or a file of it that
        looks whole is damaged."""
        sweep = self.ctx.sweep
        if sweep is None or sweep.model is None:
            return False
        if cause == "model-weights-damaged":
            return bool(sweep.model.sources)
        try:
            found = await host.call("model-check", path=sweep.model.path)
        except AgentError:
            return True
        return found.get("verdict") != "complete"

    async def wait_foreign(self, host: Host, launch: Launch, wait_s: float, *, cause: str) -> None:
        """Returns when no foreign process is on the port, or on the GPUs where `cause` is their memory; stops the sweep
        after `wait_s`."""
        ctx, feed = self.ctx, self.ctx.feed(launch.unit)
        assert ctx.sweep is not None
        on_gpu = cause != "port-in-use"
        until = ctx.mono() + wait_s
        while True:
            self.requests.check_stop()
            try:
                if on_gpu:
                    found = await probed(ctx, host)
                    rows = gpu_holders(found, ctx.sweep, units_of(found))
                    who = holder(rows[0]) if rows else None
                else:
                    who = foreign_on_port(
                        await host.call("listeners", port=launch.port), feed.service, feed.reading
                    )
            except AgentError as error:
                who = error.what
            if who is None:
                return
            if ctx.mono() >= until:
                where = "GPU memory is still held" if on_gpu else f"port {launch.port} is still taken"
                raise StopSweepError("some-failed", f"{where} by {who} after {wait_s / 60:.0f} min")
            await asyncio.sleep(GPU_POLL_S if on_gpu else PORT_POLL_S)
