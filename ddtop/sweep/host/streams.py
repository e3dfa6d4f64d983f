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
    RttMeasured,
    ServiceSeen,
)
from ddtop.hosts.base import Host
from ddtop.sources.bound.live import GpmStream
from ddtop.sources.gpu.sample import GpuSample, GpuTrouble
from ddtop.sources.gpu.smi.query_stream import TickGrouper, parse_loop_line, to_reading
from ddtop.sweep.cell.fault_after_result import doubt_measured_cell
from ddtop.sweep.shared.context import SweepContext, UnitFeed
from ddtop.sweep.shared.host_state import FaultRecord
from ddtop.sweep.shared.log_lines import take_lines
from ddtop.sweep.tell.alerts import HOST_FAULT, alert_id, host_alert

GPU_MS = 1000
"""Between two samples of the GPUs."""
RETRY_S = 2.0
REFUSED_RETRY_S = 30.0
RTT_S = 3.0
SETTLE_S = 0.5


class HostStreams:
    """The streams of one connection; `run` ends when the connection does."""

    def __init__(
        self, ctx: SweepContext, units: Iterable[str], *, kernel: bool = True, gpus: bool = True
    ) -> None:
        self.ctx = ctx
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
            elif self._kernel and not self.ctx.host_state.blind:
                self.ctx.host_state.blind = True
                self.ctx.note(
                    "info", "this login cannot read the kernel's log: Xid errors and OOM kills go unseen"
                )
            for unit in self.units:
                feed = self.ctx.feed(unit)
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
                    self.ctx.note(
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
        ctx = self.ctx
        now = ctx.mono()
        joined, bound = ctx.host_state.take_tick(samples, now, starting=ctx.state.restarting is not None)
        readings: list[GpuReading] = [r for s in joined if (r := to_reading(s)) is not None]
        if readings:
            ctx.gpus = tuple(sorted(readings, key=lambda r: r.index))
            ctx.gpus_at = now
            ctx.emit(GpuSampled, gpus=ctx.gpus)
        if bound is not None:
            ctx.emit(
                BoundDiagnosed,
                verdict=bound.verdict,
                strength=bound.strength,
                why=bound.why,
                meaning=bound.meaning,
            )

    async def _gpm(self, host: Host) -> None:
        """DRAM and tensor activity, where the chip has them. Where it has not, that is no trouble, only said once."""
        stream = GpmStream()
        try:
            async with host.stream("gpm-follow", every_s=1) as batches:
                async for batch in batches:
                    for item in batch:
                        sample = stream.push(str(item.get("line", "")))
                        if sample is not None:
                            self.ctx.host_state.take_gpm(sample, float(item["mono_s"]), self.ctx.mono())
        except HostLostError:
            return
        except AgentError as error:
            self.ctx.note("info", f"what limits the GPUs is told without GPM: {error.what}")

    def _gpu_trouble(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.ctx.note("warn", f"nvidia-smi: {text.strip()[:300]}")

    async def _rtt(self, host: Host) -> None:
        ctx = self.ctx
        while True:
            try:
                before = ctx.mono()
                pong = await host.call("ping")
                after = ctx.mono()
            except (HostLostError, AgentError):
                return
            # The mapping of the quickest answer so far is the best one; drift is far below what it is used for.
            if ctx.clock_rtt_s is None or after - before <= ctx.clock_rtt_s:
                ctx.clock_rtt_s = after - before
                ctx.clock_offset_s = (before + after) / 2 - float(pong["mono_s"])
            ctx.emit(RttMeasured, rtt_ms=round((after - before) * 1000, 3))
            await asyncio.sleep(RTT_S)

    async def _unit(self, host: Host, feed: UnitFeed) -> None:
        async with feed.service.watch(host) as batches:
            async for readings in batches:
                for reading in readings:
                    self.ctx.take_reading(reading)
                    self.ctx.emit(ServiceSeen, status=reading.status(host.hello.boot))

    async def _log(self, host: Host, feed: UnitFeed) -> None:
        try:
            async with feed.service.follow(host, feed.cursor) as batches:
                async for lines in batches:
                    feed.unreadable = None
                    async with feed.lock:
                        take_lines(self.ctx, feed, lines)
        except AgentError as error:
            if error.code == "not-permitted":
                feed.unreadable = f"{error.what}: {error.do}" if error.do else error.what
            raise

    async def _kernel_log(self, host: Host) -> None:
        """Goes on where it stopped, so that what the kernel said during a cut is joined to its cell as well."""
        boot = host.hello.boot.split("/")[0].replace("-", "")
        async with host.stream(
            "kernel-follow", after_cursor=self.ctx.host_state.kernel_cursor, anchor=True
        ) as batches:
            async for batch in batches:
                for item in batch:
                    if str(item.get("boot") or boot).replace("-", "") != boot:
                        item = {**item, "mono_us": None}  # noqa: PLW2901  another boot's clock
                    self.take_kernel(item)

    def take_kernel(self, item: dict[str, Any]) -> None:
        """One line of the kernel's log: a fault is written down at once, with the cell that it hit."""
        ctx, look = self.ctx, self.ctx.host_state
        look.units = tuple(ctx.sweep.units) if ctx.sweep is not None else ()
        look.pids = frozenset(
            f.reading.main_pid for f in ctx.feeds.values() if f.reading is not None and f.reading.main_pid
        )
        mono = item.get("mono_us")
        cell = cell_at(ctx, mono / 1e6 if isinstance(mono, int) and mono else None)
        noted = look.take_kernel(item, ctx.mono(), cell)
        if noted is not None:
            fault = noted.fault
            ctx.emit(
                KernelFault,
                kind=fault.fact.what,
                text=fault.fact.text[:500],
                code=fault.fact.code,
                severity=fault.severity,
                advice=fault.advice,
                cell_id=cell,
            )
            ctx.wake()

    async def _settle(self) -> None:
        """Judges kernel faults once the GPU has been asked, doubts the cells they hit, and raises what concerns all."""
        while True:
            for noted in self.ctx.host_state.settle(self.ctx.mono()):
                settled(self.ctx, noted)
            lonely = self.ctx.host_state.grave()
            if lonely is not None and not busy(self.ctx):
                raise_host_alert(self.ctx, lonely)
            resolve_host_alerts(self.ctx)
            await asyncio.sleep(SETTLE_S)


def settled(ctx: SweepContext, noted: FaultRecord) -> None:
    """A kernel fault is judged: what the driver asks for is said, and a cell that is measured already is doubted."""
    fault = noted.fault
    if fault.asked is not None:
        ctx.note("info", f"kernel: {fault.text}: {fault.advice}")
    cell = ctx.state.cells.get(cell_at(ctx, fault.host_mono_s) or noted.cell_id or "")
    if cell is not None and fault.severity in ("error", "critical"):
        doubt_measured_cell(ctx, cell, fault)
    ctx.wake()


def busy(ctx: SweepContext) -> bool:
    """Whether the sweep measures or starts a server: then it answers for a fault itself."""
    return ctx.host_state.chunks is not None or ctx.state.restarting is not None


def raise_host_alert(ctx: SweepContext, noted: FaultRecord) -> None:
    """The alert for a fault of the host that no cell and no start answers for."""
    noted.told = True
    fault = noted.fault
    units = tuple(ctx.feeds)
    ident = alert_id(
        ctx.run_id, "host-fault", fault.fact.what, str(fault.fact.code), str(fault.fact.bus), str(fault.at_s)
    )
    text = host_alert(ctx.host_name, units, fault)
    ctx.emit(
        AlertRaised,
        alert_id=ident,
        title=text.title,
        verdict=text.verdict,
        cause=text.cause,
        cause_text=text.cause_text,
        kind=text.kind,
        advice=text.advice,
        evidence=text.evidence,
        actions=text.actions,
        unit=units[0] if len(units) == 1 else None,
        policy="the next cell is measured only once a probe is clean" if ctx.sweep is not None else None,
    )


def resolve_host_alerts(ctx: SweepContext) -> None:
    """A fault of the host that a later cell did not suffer from is over."""
    for alert in ctx.state.open_alerts:
        if alert.raised.title == HOST_FAULT and any(
            c.state == "done"
            and c.state_at_s is not None
            and c.state_at_s > alert.at_s
            and "host-fault" not in c.reasons
            for c in ctx.state.cells.values()
        ):
            ctx.emit(
                AlertResolved, alert_id=alert.id, how="a cell was measured without a fault since", by="sweep"
            )


def cell_at(ctx: SweepContext, host_mono_s: float | None) -> str | None:
    """The cell that was measured at a moment of the host's clock: by the windows of the results that are there, else
    the one that runs now."""
    for cell in ctx.state.cells.values():
        window = cell.attempts[-1].window_mono_s if cell.attempts else None
        if window is not None and host_mono_s is not None and window[0] <= host_mono_s <= window[1]:
            return cell.id
    return next((c.id for c in ctx.state.cells.values() if c.state == "running"), None)
