"""What streams from a host all the time: GPUs, unit states, logs, kernel faults, round trip. One task a stream.

A stream ends with its connection; the next connection starts it anew, each log at the cursor where it stopped, so that
no line is lost and none comes twice. What a login may not read is said once, and tried again now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ddtop.errors import AgentError, HostLostError
from ddtop.events import (
    GpuReading,
    GpuSampled,
    KernelFault,
    LogGap,
    LogLine,
    LogRead,
    RttMeasured,
    ServiceSeen,
)
from ddtop.hosts.base import Host
from ddtop.sources.gpu import TickGrouper, parse_loop_line, to_reading
from ddtop.sources.gpu_sample import GpuTrouble
from ddtop.sources.kernellog import parse_kernel_line
from ddtop.sweep.deck import Deck, UnitFeed

RETRY_S = 2.0
REFUSED_RETRY_S = 30.0
RTT_S = 3.0


class Collector:
    """The streams of one connection; `run` ends when the connection does."""

    def __init__(self, deck: Deck, units: Iterable[str], *, kernel: bool = True, gpus: bool = True) -> None:
        self.deck = deck
        self.units = tuple(units)
        self._kernel = kernel
        self._host_streams = gpus
        self._said: set[str] = set()

    async def run(self, host: Host) -> None:
        async with asyncio.TaskGroup() as group:
            if self._host_streams:
                group.create_task(self._keep(host, "GPUs", self._gpus))
                group.create_task(self._rtt(host))
            if self._kernel and "journal" in host.hello.can:
                group.create_task(self._keep(host, "kernel log", self._kernel_log))
            for unit in self.units:
                feed = self.deck.feed(unit)
                group.create_task(self._keep(host, f"state of {unit}", lambda h, f=feed: self._unit(h, f)))  # type: ignore[misc]
                group.create_task(self._keep(host, f"log of {unit}", lambda h, f=feed: self._log(h, f)))  # type: ignore[misc]

    async def _keep(self, host: Host, what: str, stream: Callable[[Host], Awaitable[None]]) -> None:
        """Runs a stream again and again until the connection is gone."""
        while True:
            wait_s = RETRY_S
            try:
                await stream(host)
            except HostLostError:
                return
            except AgentError as error:
                refused = error.code in ("not-permitted", "not-found")
                wait_s = REFUSED_RETRY_S if refused else RETRY_S
                if what not in self._said:
                    self._said.add(what)
                    self.deck.note(
                        "warn",
                        f"{what} cannot be read: {error.what}" + (f" ({error.do})" if error.do else ""),
                    )
            await asyncio.sleep(wait_s)

    # ---- the streams

    async def _gpus(self, host: Host) -> None:
        fields: Sequence[str] = ()
        grouper = TickGrouper(period_ms=1000)
        async with host.stream("gpu-follow", every_ms=1000) as batches:
            async for batch in batches:
                for item in batch:
                    if "fields" in item:
                        fields = [str(f) for f in item["fields"]]
                    elif "error" in item:
                        self._gpu_trouble(str(item["error"]))
                    elif "line" in item and fields:
                        sample = parse_loop_line(fields, str(item["line"]))
                        if isinstance(sample, GpuTrouble):
                            self._gpu_trouble(sample.text)
                        elif sample is not None:
                            for tick in grouper.push(sample):
                                self._tick([r for s in tick if (r := to_reading(s)) is not None])

    def _tick(self, readings: list[GpuReading]) -> None:
        if readings:
            self.deck.gpus = tuple(sorted(readings, key=lambda r: r.index))
            self.deck.gpus_at = self.deck.mono()
            self.deck.emit(GpuSampled, gpus=self.deck.gpus)

    def _gpu_trouble(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.deck.note("warn", f"nvidia-smi: {text.strip()[:300]}")

    async def _rtt(self, host: Host) -> None:
        deck = self.deck
        while True:
            try:
                before = deck.mono()
                pong = await host.call("ping")
                after = deck.mono()
            except (HostLostError, AgentError):
                return
            # The mapping of the quickest answer so far is the best one; drift is far below what it is used for.
            if deck.clock_rtt_s is None or after - before <= deck.clock_rtt_s:
                deck.clock_rtt_s = after - before
                deck.clock_offset_s = (before + after) / 2 - float(pong["mono_s"])
            deck.emit(RttMeasured, rtt_ms=round((after - before) * 1000, 3))
            await asyncio.sleep(RTT_S)

    async def _unit(self, host: Host, feed: UnitFeed) -> None:
        async with feed.service.watch(host) as batches:
            async for readings in batches:
                for reading in readings:
                    self.deck.take_reading(reading)
                    self.deck.emit(ServiceSeen, status=reading.status(host.hello.boot))

    async def _log(self, host: Host, feed: UnitFeed) -> None:
        async with feed.service.follow(host, feed.cursor) as batches:
            async for lines in batches:
                async with feed.lock:
                    self.take_lines(feed, lines)

    def take_lines(self, feed: UnitFeed, lines: Iterable[LogLine]) -> None:
        take_lines(self.deck, feed, lines)

    async def _kernel_log(self, host: Host) -> None:
        async with host.stream("kernel-follow", after_cursor=None) as batches:
            async for batch in batches:
                for item in batch:
                    fact = parse_kernel_line(str(item.get("text", "")))
                    if fact is not None and fact.severity in ("error", "critical"):
                        self.deck.emit(
                            KernelFault, kind=fact.what, text=fact.text[:500], code=fact.code,
                            severity=fact.severity, advice=fact.advice, cell_id=running_cell_id(self.deck),
                        )  # fmt: skip


def running_cell_id(deck: Deck) -> str | None:
    return next((c.id for c in deck.state.cells.values() if c.state == "running"), None)


def take_lines(deck: Deck, feed: UnitFeed, lines: Iterable[LogLine]) -> None:
    """Hands on the lines that were not had before: to the journal first, then to whoever reads along."""
    fresh: list[LogLine] = []
    for line in lines:
        if line.cursor is not None:
            if not feed.is_new(line):
                continue
            feed.cursor = line.cursor
        if line.text:
            fresh.append(line)
    if not fresh:
        return
    deck.emit(LogRead, unit=feed.unit, lines=tuple(fresh))
    for listener in tuple(feed.listeners):
        for line in fresh:
            listener(line)
    deck.wake()


async def drain_log(deck: Deck, host: Host, feed: UnitFeed) -> None:
    """Reads what the log holds now and the follower has not brought yet (journald tells it up to 500 ms late)."""
    async with feed.lock:
        try:
            take_lines(deck, feed, await feed.service.drain(host, feed.cursor))
        except AgentError as error:
            deck.emit(LogGap, unit=feed.unit, reason=f"the log could not be read to its end: {error.what}")
