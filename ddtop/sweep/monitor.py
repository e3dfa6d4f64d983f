"""Watching without a plan: a probe finds what serves on the host; its units stream until the run is stopped."""

from __future__ import annotations

import asyncio
from typing import Any

from ddtop.errors import AgentError, HostLostError
from ddtop.events import AlertRaised, HostRebooted, ProbeTaken
from ddtop.hosts.base import Connector
from ddtop.hosts.reconnect import Backoff
from ddtop.sweep.commands import CommandHandler
from ddtop.sweep.controller import Poll
from ddtop.sweep.host.link import Link
from ddtop.sweep.host.streams import HostStreams
from ddtop.sweep.recovery.probe import probe
from ddtop.sweep.recovery.reconcile import consequences
from ddtop.sweep.shared.context import Outcome, SweepContext
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.shared.tasks import alongside
from ddtop.sweep.tell.alerts import alert_id

PROBE_EVERY_S = 60.0
POLL_S = 0.1


class Monitor:
    """Watches a host without a plan, until it is stopped."""

    def __init__(
        self, ctx: SweepContext, connector: Connector, poll: Poll, *, backoff: Backoff | None = None
    ) -> None:
        self.ctx = ctx
        self.requests = Requests()
        self.link = Link(ctx, connector, (), backoff=backoff)
        self.command_handler = CommandHandler(ctx, self.requests, self.link.reconnect_now)
        self._poll = poll

    def stop(self, by: str) -> None:
        self.requests.stopped_by = by
        self.ctx.wake()

    async def run(self, *, attended: bool = False) -> Outcome:
        """Watches until it is stopped. Raises HostUnreachableError if the host was never reached."""
        return await alongside(self._work(), self.link.run(), self._commands())

    async def _commands(self) -> None:
        while True:
            self.command_handler.take(self._poll())
            await asyncio.sleep(POLL_S)

    async def _work(self) -> Outcome:
        ctx = self.ctx
        while self.requests.stopped_by is None:
            host = self.link.host
            if self.link.has_given_up(self.requests.attended, ctx.policy.answer_s):
                return Outcome(word="host-lost", reason=str(self.link.final))
            if host is None:
                await ctx.wait(0.5)
                continue
            try:
                found = await probe(host, None)
                if self.link.rebooted is not None:
                    self._rebooted(found)
                ctx.emit(ProbeTaken, probe=found)
                units = serving_units(found)
                streams = HostStreams(ctx, units, kernel=False, gpus=False)
                await alongside(self._until_due(), streams.run(host))
            except HostLostError:
                await asyncio.sleep(0.05)
            except AgentError as error:
                ctx.note("warn", f"the host could not be probed: {error.what}")
                await ctx.wait_until(lambda: self.requests.stopped_by is not None, PROBE_EVERY_S)
        return Outcome(word="stopped", reason=self.requests.stop_reason)

    async def _until_due(self) -> None:
        """Until it is time for the next probe, the link is gone, or the run is stopped."""
        await self.ctx.wait_until(
            lambda: self.requests.stopped_by is not None or self.link.host is None, PROBE_EVERY_S
        )

    def _rebooted(self, found: dict[str, Any]) -> None:
        ctx = self.ctx
        assert self.link.rebooted is not None
        before, now = self.link.rebooted
        self.link.rebooted = None
        words = consequences(found, None)
        ctx.emit(HostRebooted, boot_before=before, boot_now=now, consequences=words)
        ctx.emit(
            AlertRaised,
            alert_id=alert_id(ctx.run_id, "rebooted", now),
            title="REBOOTED",
            verdict="rebooted",
            cause="rebooted",
            cause_text=f"{ctx.host_name} was rebooted: {'; '.join(words)}",
            kind="host",
            advice="see in the probe what runs there now",
        )


def serving_units(found: dict[str, Any]) -> list[str]:
    """Units of the serving processes that the probe found."""
    servers = found.get("servers")
    if not isinstance(servers, list):
        return []
    return list(
        dict.fromkeys(str(s["unit"]) for s in servers if str(s.get("unit") or "").endswith(".service"))
    )
