"""Watching without a plan: what serves on the host is found by the probe, and streams until the run is stopped."""

from __future__ import annotations

import asyncio
from typing import Any

from ddtop.errors import AgentError, HostLostError
from ddtop.events import AlertRaised, HostRebooted, ProbeTaken
from ddtop.hosts.base import Connector
from ddtop.hosts.reconnect import Backoff
from ddtop.sweep.alerts import alert_id
from ddtop.sweep.collector import Collector
from ddtop.sweep.commander import Commander
from ddtop.sweep.control import Control
from ddtop.sweep.controller import Outcome, Poll
from ddtop.sweep.deck import Deck
from ddtop.sweep.link import Link
from ddtop.sweep.prober import probe
from ddtop.sweep.reconcile import consequences
from ddtop.sweep.tasks import alongside

PROBE_EVERY_S = 60.0
POLL_S = 0.1
ANSWER_S = 60.0


class Monitor:
    """See the module."""

    def __init__(
        self, deck: Deck, connector: Connector, poll: Poll, *, backoff: Backoff | None = None
    ) -> None:
        self.deck = deck
        self.control = Control()
        self.link = Link(deck, connector, (), backoff=backoff)
        self.commander = Commander(deck, self.control, self.link.hurry)
        self._poll = poll

    def stop(self, by: str, *, leave_running: bool = False) -> None:
        self.control.stop = by
        self.deck.wake()

    async def run(self, *, attended: bool = False) -> Outcome:
        """Watches until it is stopped. Raises HostUnreachableError if the host was never reached."""
        return await alongside(self._work(), self.link.run(), self._commands())

    async def _commands(self) -> None:
        while True:
            self.commander.take(self._poll())
            await asyncio.sleep(POLL_S)

    async def _work(self) -> Outcome:
        deck = self.deck
        while self.control.stop is None:
            host = self.link.host
            if self.link.is_over(self.control.attended, ANSWER_S):
                return Outcome(word="host-lost", reason=str(self.link.final))
            if host is None:
                await deck.wait(0.5)
                continue
            try:
                found = await probe(host, None)
                if self.link.rebooted is not None:
                    self._rebooted(found)
                deck.emit(ProbeTaken, probe=found)
                units = serving_units(found)
                streams = Collector(deck, units, kernel=False, gpus=False)
                await alongside(self._until_due(), streams.run(host))
            except HostLostError:
                await asyncio.sleep(0.05)
            except AgentError as error:
                deck.note("warn", f"the host could not be probed: {error.what}")
                await deck.wait_until(lambda: self.control.stop is not None, PROBE_EVERY_S)
        return Outcome(word="stopped", reason=f"stopped by {self.control.stop}")

    async def _until_due(self) -> None:
        """Until it is time for the next probe, the link is gone, or the run is stopped."""
        await self.deck.wait_until(
            lambda: self.control.stop is not None or self.link.host is None, PROBE_EVERY_S
        )

    def _rebooted(self, found: dict[str, Any]) -> None:
        deck = self.deck
        assert self.link.rebooted is not None
        before, now = self.link.rebooted
        self.link.rebooted = None
        words = consequences(found, None)
        deck.emit(HostRebooted, boot_before=before, boot_now=now, consequences=words)
        deck.emit(
            AlertRaised, alert_id=alert_id(deck.run_id, "rebooted", now), title="REBOOTED", verdict="rebooted", cause="rebooted",
            cause_text=f"{deck.host_name} was rebooted: {'; '.join(words)}", kind="host", advice="look at what runs there now",
        )  # fmt: skip


def serving_units(found: dict[str, Any]) -> list[str]:
    """Units of the serving processes that the probe found."""
    servers = found.get("servers")
    if not isinstance(servers, list):
        return []
    return list(
        dict.fromkeys(str(s["unit"]) for s in servers if str(s.get("unit") or "").endswith(".service"))
    )
