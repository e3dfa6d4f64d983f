"""What streams from a host: GPUs, unit states, logs, the kernel's log, the round trip. One task for each stream.

A stream ends with its connection. The next connection starts it anew, each log at the cursor where it stopped: no line
is lost, none comes twice. What a login may not read is noted once, and tried again every 30 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ddtop.errors import AgentError, HostLostError
from ddtop.events import (
    BoundDiagnosed,
    GpuSampled,
    RttMeasured,
    ServiceSeen,
)
from ddtop.hosts.base import Host
from ddtop.sources.bound.live import EVERY_S, GpmStream
from ddtop.sources.gpu.sample import GpuSample, GpuTrouble
from ddtop.sources.gpu.smi.query_stream import TickGrouper, parse_loop_line
from ddtop.sweep.host.faults import judge_faults, take_kernel_line
from ddtop.sweep.shared.context import SweepContext, UnitFeed
from ddtop.sweep.shared.log_lines import take_lines

GPU_MS = 1000
"""Between two samples of the GPUs."""
RETRY_S = 2.0
REFUSED_RETRY_S = 30.0
RTT_S = 3.0


class HostStreams:
    """The streams of one connection; `run` ends when the connection does."""

    def __init__(
        self, ctx: SweepContext, units: Iterable[str], *, kernel: bool = True, gpus: bool = True
    ) -> None:
        self.ctx = ctx
        self.units = tuple(units)
        self._kernel = kernel
        self._host_streams = gpus
        self._noted: set[str] = set()

    async def run(self, host: Host) -> None:
        async with asyncio.TaskGroup() as group:
            if self._host_streams:
                group.create_task(self._keep(host, "GPUs", self._gpus))
                group.create_task(self._rtt(host))
                group.create_task(judge_faults(self.ctx))
                if "gpm" in host.hello.can | host.hello.unknown:
                    group.create_task(self._gpm(host))
            if self._kernel and "journal" in host.hello.can:
                group.create_task(self._keep(host, "kernel log", self._kernel_log))
            elif self._kernel and not self.ctx.faults.unreadable:
                self.ctx.faults.unreadable = True
                self.ctx.note(
                    "info",
                    "this login cannot read the kernel's log: Xid errors and OOM kills are not detected",
                )
            for unit in self.units:
                feed = self.ctx.feed(unit)
                group.create_task(self._keep(host, f"state of {unit}", lambda h, f=feed: self._unit(h, f)))  # type: ignore[misc]
                group.create_task(self._keep(host, f"log of {unit}", lambda h, f=feed: self._log(h, f)))  # type: ignore[misc]

    async def _keep(self, host: Host, what: str, stream: Callable[[Host], Awaitable[None]]) -> None:
        """Restarts a stream whenever it ends, until the connection is gone."""
        while True:
            wait_s = RETRY_S
            try:
                await stream(host)
            except HostLostError:
                return
            except AgentError as error:
                refused = error.code in ("not-permitted", "not-found")
                wait_s = REFUSED_RETRY_S if refused else RETRY_S
                if what not in self._noted:
                    self._noted.add(what)
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
        """One tick of all GPUs, judged once, then emitted."""
        ctx, now = self.ctx, self.ctx.mono()
        tick = ctx.gpu_watch.take(samples, now, starting=ctx.state.restarting is not None)
        ctx.faults.take_actions(tick.actions, now)
        if tick.readings:
            ctx.emit(GpuSampled, gpus=tick.readings)
        if tick.bound is not None:
            ctx.emit(
                BoundDiagnosed,
                verdict=tick.bound.verdict,
                strength=tick.bound.strength,
                why=tick.bound.why,
                meaning=tick.bound.meaning,
                window_s=EVERY_S,
            )

    async def _gpm(self, host: Host) -> None:
        """DRAM and tensor activity, on chips that have GPM; elsewhere that is noted once."""
        stream = GpmStream()
        try:
            async with host.stream("gpm-follow", every_s=1) as batches:
                async for batch in batches:
                    for item in batch:
                        sample = stream.push(str(item.get("line", "")))
                        if sample is not None:
                            self.ctx.gpu_watch.take_gpm(sample, float(item["mono_s"]), self.ctx.mono())
        except HostLostError:
            return
        except AgentError as error:
            self.ctx.note("info", f"what limits the GPUs is judged without GPM: {error.what}")

    def _gpu_trouble(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
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
            # The offset of the shortest round trip so far is the most exact; clock drift is far below what it is used for.
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
        """Starts at the last cursor, so that lines logged while the connection was lost are joined to their cell too."""
        boot = host.hello.boot.split("/")[0].replace("-", "")
        async with host.stream("kernel-follow", after_cursor=self.ctx.faults.cursor, anchor=True) as batches:
            async for batch in batches:
                for item in batch:
                    if str(item.get("boot") or boot).replace("-", "") != boot:
                        item = {**item, "mono_us": None}  # noqa: PLW2901  another boot's clock
                    take_kernel_line(self.ctx, item)
