"""The connection to the host: made, lost, made again; with what streams over it, and whether it is the same boot.

A loss is noticed within 15 s (keepalive and heartbeat), raises HostLostError in every call under way, and stays an
alert until the host is back. Detached jobs on the host go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from ddtop.errors import HostLostError, HostUnreachableError
from ddtop.events import AlertResolved, HostConnected, HostConnecting, HostLost
from ddtop.hosts.base import Connector, Host
from ddtop.hosts.reconnect import Backoff
from ddtop.sweep.host.streams import HostStreams
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.tell.alerts import alert_id, lost_alert
from ddtop.sweep.tell.raise_alert import raise_alert

CLOSE_S = 5.0
"""A connection that does not close within this time is left to the operating system."""
LOST_MEANS = "the host's state is unknown now; detached jobs on it go on"


class Link:
    """One task runs `run`; others read `host`, `rebooted`, `lost_since` and `final`."""

    def __init__(
        self, ctx: SweepContext, connector: Connector, units: Iterable[str], *, backoff: Backoff | None = None
    ) -> None:
        self.ctx = ctx
        self.connector = connector
        self.units = tuple(units)
        self.host: Host | None = None
        self.rebooted: tuple[str, str] | None = None
        """(boot before, boot now), until the sweep has handled it."""
        self.lost_since: float | None = None
        """Since when there is no connection; from the first failed try where there was none before."""
        self._reached = False
        self.final: HostUnreachableError | None = None
        """Why the host cannot be reached by trying again; None while it may be."""
        self._final_at = 0.0
        self._backoff = backoff or Backoff()
        self._reconnect_now = asyncio.Event()
        self._losses = 0

    def has_given_up(self, attended: bool, answer_s: float) -> bool:
        """Whether trying again cannot help. A viewer who attends has `answer_s` seconds to mend the cause first."""
        return self.final is not None and (not attended or self.ctx.mono() - self._final_at > answer_s)

    def waits_in_queue(self) -> None:
        """The host is an allocation that waits for its turn: that is no loss, however long it takes."""
        if self.lost_since is not None:
            self.lost_since = self.ctx.mono()

    def reconnect_now(self) -> None:
        """Tries again at once, for a viewer."""
        self._reconnect_now.set()

    async def run(self) -> None:
        """Connects again and again. Raises HostUnreachableError if the very first connection cannot succeed."""
        failures = 0
        while True:
            try:
                host = await self._connect(failures)
            except HostUnreachableError as error:
                if not self._reached:
                    raise
                self.final, self._final_at = error, self.ctx.mono()
                self.ctx.emit(HostLost, what=error.what, means=error.means, do=error.do, final=True)
                self._alert(error.what, error.means, error.do, "the run ends: trying again cannot help")
                await self._wait(3600.0)
                continue
            began = self.ctx.mono()
            try:
                why = await self._use(host)
            finally:
                await _close(host)  # also at the run's end: its agent ends before our event loop does
            self._lost(why)
            failures = 0 if self.ctx.mono() - began >= self._backoff.healthy_s else failures + 1
            if failures:
                await self._wait(self._backoff.wait_s(failures))

    async def _connect(self, failures: int) -> Host:
        attempt = 0
        while True:
            attempt += 1
            self.ctx.emit(HostConnecting, attempt=attempt, target=self.connector.target)
            try:
                return await self.connector.connect()
            except HostLostError as error:
                failures += 1
                wait_s = self._backoff.wait_s(failures)
                self.ctx.emit(
                    HostConnecting,
                    attempt=attempt,
                    target=self.connector.target,
                    retry_in_s=wait_s,
                    error=str(error),
                )
                if self.lost_since is None:
                    self.lost_since = self.ctx.mono()
                    self._alert(error.what, error.means, error.do, "try again, then go on")
                await self._wait(wait_s)

    async def _wait(self, seconds: float) -> None:
        self._reconnect_now.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reconnect_now.wait()

    async def _use(self, host: Host) -> str:
        """Streams over the connection until it is lost; returns why it was."""
        ctx, hello = self.ctx, host.hello
        before = ctx.state.host.boot
        if before and before != hello.boot:
            self.rebooted = (before, hello.boot)
            ctx.clock_offset_s = ctx.clock_rtt_s = None
        ctx.emit(
            HostConnected,
            agent=hello.agent[:12],
            python=hello.python,
            uid=hello.uid,
            user=hello.user,
            can=tuple(sorted(hello.can)),
            boot=hello.boot,
            clock_offset_s=round(ctx.wall() - hello.at_s, 3),
            rtt_ms=host.rtt_ms,
        )
        self.host, self.final, self.lost_since = host, None, None
        for alert in ctx.state.open_alerts:  # also one that an earlier runner raised
            if alert.raised.verdict == "lost-host":
                ctx.emit(AlertResolved, alert_id=alert.id, how="connected again", by="link")
        ctx.wake()
        streams = asyncio.create_task(HostStreams(ctx, self.units).run(host))
        lost = asyncio.create_task(host.wait_lost())
        try:
            await asyncio.wait([streams, lost], return_when=asyncio.FIRST_COMPLETED)
            if streams.done() and not lost.done():
                streams.result()  # raises what went wrong in a stream
            return await lost
        finally:
            self.host = None
            for task in (streams, lost):
                task.cancel()
            await asyncio.gather(streams, lost, return_exceptions=True)

    def _lost(self, why: str) -> None:
        ctx = self.ctx
        self._losses, self._reached = self._losses + 1, True
        self.lost_since = ctx.mono()
        do = "ddtop reconnects by itself"
        ctx.emit(HostLost, what=why, means=LOST_MEANS, do=do)
        self._alert(why, LOST_MEANS, do, "reconnect, then go on")
        ctx.wake()

    def _alert(self, what: str, means: str, do: str, policy: str) -> None:
        """One alert for each loss; the same one is updated where trying again turns out not to help."""
        ctx = self.ctx
        alert = alert_id(ctx.run_id, "lost-host", str(self._losses), str(ctx.state.run.segment))
        raise_alert(ctx, alert, lost_alert(ctx.host_name, what, means, do), policy=policy)


async def _close(host: Host) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await host.close()
