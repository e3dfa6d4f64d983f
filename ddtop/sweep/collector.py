"""What streams from a host all the time: GPUs, unit states, logs, kernel faults, round trip. One task a stream.

A stream ends with its connection; the next connection starts it anew, each log at the cursor where it stopped, so that
no line is lost and none comes twice. What a login may not read is said once, and tried again now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from ddtop.errors import AgentError, HostLostError
from ddtop.events import (
    AlertRaised,
    AlertResolved,
    BoundDiagnosed,
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
from ddtop.sources.boundlive import GpmStream
from ddtop.sources.gpu import TickGrouper, parse_loop_line, to_reading
from ddtop.sources.gpu_sample import GpuSample, GpuTrouble
from ddtop.sweep.alerts import HOST_FAULT, alert_id, host_alert
from ddtop.sweep.amend import amend
from ddtop.sweep.deck import Deck, UnitFeed
from ddtop.sweep.hostlook import Noted

GPU_MS = 1000
"""Between two samples of the GPUs."""
RETRY_S = 2.0
REFUSED_RETRY_S = 30.0
RTT_S = 3.0
SETTLE_S = 0.5


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
                group.create_task(self._settle())
                if "gpm" in host.hello.can | host.hello.unknown:
                    group.create_task(self._gpm(host))
            if self._kernel and "journal" in host.hello.can:
                group.create_task(self._keep(host, "kernel log", self._kernel_log))
            elif self._kernel and not self.deck.look.blind:
                self.deck.look.blind = True
                self.deck.note(
                    "info", "this login cannot read the kernel's log: Xid errors and OOM kills go unseen"
                )
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
        grouper = TickGrouper(period_ms=GPU_MS)
        async with host.stream("gpu-follow", every_ms=GPU_MS) as batches:
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
                                self._tick(tick)

    def _tick(self, samples: tuple[GpuSample, ...]) -> None:
        """One tick of all GPUs: their readings, and what limits them where that is to be told."""
        deck = self.deck
        now = deck.mono()
        joined, bound = deck.look.take_tick(samples, now, starting=deck.state.restarting is not None)
        readings: list[GpuReading] = [r for s in joined if (r := to_reading(s)) is not None]
        if readings:
            deck.gpus = tuple(sorted(readings, key=lambda r: r.index))
            deck.gpus_at = now
            deck.emit(GpuSampled, gpus=deck.gpus)
        if bound is not None:
            deck.emit(
                BoundDiagnosed, verdict=bound.verdict, strength=bound.strength, why=bound.why, meaning=bound.meaning
            )  # fmt: skip

    async def _gpm(self, host: Host) -> None:
        """DRAM and tensor activity, where the chip has them. Where it has not, that is no trouble, only said once."""
        stream = GpmStream()
        try:
            async with host.stream("gpm-follow", every_s=1) as batches:
                async for batch in batches:
                    for item in batch:
                        sample = stream.push(str(item.get("line", "")))
                        if sample is not None:
                            self.deck.look.take_gpm(sample, float(item["mono_s"]), self.deck.mono())
        except HostLostError:
            return
        except AgentError as error:
            self.deck.note("info", f"what limits the GPUs is told without GPM: {error.what}")

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
        try:
            async with feed.service.follow(host, feed.cursor) as batches:
                async for lines in batches:
                    feed.unreadable = None
                    async with feed.lock:
                        self.take_lines(feed, lines)
        except AgentError as error:
            if error.code == "not-permitted":
                feed.unreadable = f"{error.what}: {error.do}" if error.do else error.what
            raise

    def take_lines(self, feed: UnitFeed, lines: Iterable[LogLine]) -> None:
        take_lines(self.deck, feed, lines)

    async def _kernel_log(self, host: Host) -> None:
        """Goes on where it stopped, so that what the kernel said during a cut is joined to its cell as well."""
        boot = host.hello.boot.split("/")[0].replace("-", "")
        async with host.stream(
            "kernel-follow", after_cursor=self.deck.look.kernel_cursor, anchor=True
        ) as batches:
            async for batch in batches:
                for item in batch:
                    if str(item.get("boot") or boot).replace("-", "") != boot:
                        item = {**item, "mono_us": None}  # noqa: PLW2901  another boot's clock
                    self.take_kernel(item)

    def take_kernel(self, item: dict[str, Any]) -> None:
        """One line of the kernel's log: a fault is written down at once, with the cell that it hit."""
        deck, look = self.deck, self.deck.look
        look.units = tuple(deck.sweep.units) if deck.sweep is not None else ()
        look.pids = frozenset(
            f.reading.main_pid for f in deck.feeds.values() if f.reading is not None and f.reading.main_pid
        )
        mono = item.get("mono_us")
        cell = cell_at(deck, mono / 1e6 if isinstance(mono, int) and mono else None)
        noted = look.take_kernel(item, deck.mono(), cell)
        if noted is not None:
            fault = noted.fault
            deck.emit(
                KernelFault, kind=fault.fact.what, text=fault.fact.text[:500], code=fault.fact.code,
                severity=fault.severity, advice=fault.advice, cell_id=cell,
            )  # fmt: skip
            deck.wake()

    async def _settle(self) -> None:
        """Judges kernel faults once the GPU has been asked, doubts the cells they hit, and raises what concerns all."""
        while True:
            for noted in self.deck.look.settle(self.deck.mono()):
                settled(self.deck, noted)
            lonely = self.deck.look.grave()
            if lonely is not None and not busy(self.deck):
                raise_host_alert(self.deck, lonely)
            calm_down(self.deck)
            await asyncio.sleep(SETTLE_S)


def settled(deck: Deck, noted: Noted) -> None:
    """A kernel fault is judged: what the driver asks for is said, and a cell that is measured already is doubted."""
    fault = noted.fault
    if fault.asked is not None:
        deck.note("info", f"kernel: {fault.text}: {fault.advice}")
    cell = deck.state.cells.get(cell_at(deck, fault.host_mono_s) or noted.cell_id or "")
    if cell is not None and fault.severity in ("error", "critical"):
        amend(deck, cell, fault)
    deck.wake()


def busy(deck: Deck) -> bool:
    """Whether the sweep measures or starts a server: then it answers for a fault itself."""
    return deck.look.chunks is not None or deck.state.restarting is not None


def raise_host_alert(deck: Deck, noted: Noted) -> None:
    """The alert for a fault of the host that no cell and no start answers for."""
    noted.told = True
    fault = noted.fault
    units = tuple(deck.feeds)
    ident = alert_id(
        deck.run_id, "host-fault", fault.fact.what, str(fault.fact.code), str(fault.fact.bus), str(fault.at_s)
    )
    text = host_alert(deck.host_name, units, fault)
    deck.emit(
        AlertRaised, alert_id=ident, title=text.title, verdict=text.verdict, cause=text.cause,
        cause_text=text.cause_text, kind=text.kind, advice=text.advice, evidence=text.evidence, actions=text.actions,
        unit=units[0] if len(units) == 1 else None, policy="the next cell is measured only once a probe is clean"
        if deck.sweep is not None else None,
    )  # fmt: skip


def calm_down(deck: Deck) -> None:
    """A fault of the host that a later cell did not suffer from is over."""
    for alert in deck.state.open_alerts:
        if alert.raised.title == HOST_FAULT and any(
            c.state == "done"
            and c.state_at_s is not None
            and c.state_at_s > alert.at_s
            and "host-fault" not in c.reasons
            for c in deck.state.cells.values()
        ):
            deck.emit(
                AlertResolved, alert_id=alert.id, how="a cell was measured without a fault since", by="sweep"
            )


def cell_at(deck: Deck, host_mono_s: float | None) -> str | None:
    """The cell that was measured at a moment of the host's clock: by the windows of the results that are there, else
    the one that runs now."""
    for cell in deck.state.cells.values():
        window = cell.attempts[-1].window_mono_s if cell.attempts else None
        if window is not None and host_mono_s is not None and window[0] <= host_mono_s <= window[1]:
            return cell.id
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
