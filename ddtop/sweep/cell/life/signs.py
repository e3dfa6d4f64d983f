"""Signs of life of the server that is measured, read beside the load and never by the load generator.

CPU time of its processes every few seconds; its own counters only once it has been silent; the GPUs as the run samples
them anyway. What it did while tokens came is the measure for what it does while none do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from ddtop.agent.loadgen.engine_calls import METRICS_PATH, parse_prometheus
from ddtop.agent.service.activity import COMPILERS
from ddtop.errors import AgentError, HostLostError
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.sweep.cell.life.ended import EndedProcess
from ddtop.sweep.cell.life.server_watch import ChunkWatch
from ddtop.sweep.cell.life.silence import BUSY_PCT, Counters, Life, gpu_state, power_w
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.limits import (
    ASK_AFTER_S,
    ASK_EVERY_S,
    ASK_MOST_S,
    CPU_EVERY_S,
    MOVING_WITHIN_S,
)
from ddtop.sweep.start.evidence.progress import CPU_BUSY

RETRY_S = 5.0
SPENT_S = 2.0
"""Processes that have used so much CPU time are the server, not only a client that started it elsewhere."""
GPU_FRESH_S = 5.0
LIGHT, NOTHING, IDLE_SHARE = 0.01, 0.003, 0.2
"""Cores: what a light server uses while tokens come, and what is nothing; share of that use below which it stands still."""
NO_WORK = ("http_", "process_", "python_")
"""Parts of the names of counters that move without the engine's doing: our question itself is counted."""


class CpuWatch:
    """Since when the CPU time of a server's processes stands still. All `at` are the runner's monotonic clock."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        """(the host's clock, CPU seconds)."""
        self._flow: float | None = None
        """Cores in use while tokens came."""
        self._moved_at: float | None = None
        self._read_at: float | None = None
        self.trusted = False
        """These processes were seen to compute: that they do not speaks against the server."""
        self.compiling_at: float | None = None

    def take(self, item: Mapping[str, Any], at: float, *, flowing: bool = False) -> None:
        """One item of the agent's `activity` stream. `flowing`: tokens came all the time since the last one."""
        cpu, clock = item.get("cpu_s"), float(item.get("mono_s") or at)
        if item.get("compilers"):
            self.compiling_at = at
        if not isinstance(cpu, int | float) or not item.get("pids"):
            self._last = self._read_at = None
            return
        self.trusted = self.trusted or cpu >= SPENT_S
        if self._last is None:
            self._moved_at = at
        elif clock > self._last[0]:
            self._read_at = at
            rate = (cpu - self._last[1]) / (clock - self._last[0])
            if flowing:
                self._flow = max(rate, self._flow or 0.0)
            self.trusted = self.trusted or rate >= CPU_BUSY or (flowing and rate >= LIGHT)
            if rate >= min(CPU_BUSY, max(NOTHING, IDLE_SHARE * (self._flow or 1.0))):
                self._moved_at = at
        self._last = (clock, float(cpu))

    def still_s(self, now: float) -> float | None:
        """For how long it has stood still; None where it is not known, or these processes never computed."""
        fresh = self._read_at is not None and now - self._read_at <= 3 * CPU_EVERY_S
        if not (fresh and self.trusted) or self._moved_at is None or self._read_at is None:
            return None
        return 0.0 if self._read_at - self._moved_at <= 0 else now - self._moved_at


class CounterWatch:
    """What a server's own counters do while it is silent."""

    def __init__(self) -> None:
        self._last: dict[str, float] | None = None
        self._gave = False
        self._said: Counters | None = None

    def begin(self) -> None:
        """A new silence."""
        self._last, self._said = None, None

    def take(self, body: str | None) -> None:
        """An answer of /metrics; None where none came."""
        values = {k: v for k, v in parse_prometheus(body or "").items() if counts(k)}
        if not values:
            self._said = "mute" if self._gave else None
            return
        self._gave = True
        if self._last is not None:
            moved = any(v != self._last.get(k, v) for k, v in values.items())
            self._said = "move" if moved else "still"
        self._last = values

    @property
    def said(self) -> Counters | None:
        return self._said


def counts(name: str) -> bool:
    """Whether a metric counts work of the engine, and moves with nothing else.

    >>> counts('vllm:generation_tokens_total{engine="0"}'), counts('sglang:http_requests_total{endpoint="/metrics"}')
    (True, False)
    >>> counts('sglang:num_running_reqs{}')
    False
    """
    family = name.partition("{")[0]
    return family.endswith(("_total", "_count", "_sum")) and not any(part in family for part in NO_WORK)


class LifeWatch:
    """Reads the signs of life of one server while its job runs; `life` is what they say now."""

    def __init__(
        self, ctx: SweepContext, host: Host, launch: Launch, main_pid: int | None, chunks: ChunkWatch
    ) -> None:
        self.ctx, self.host, self.chunks = ctx, host, chunks
        self.launch, self.main_pid = launch, main_pid
        self._cpu, self._counters = CpuWatch(), CounterWatch()
        self._flow_power: float | None = None
        self._flow_at: float | None = None
        self._gpu_wanted = False
        self._first: dict[tuple[int, int], str] = {}
        """The processes when the job began: (pid, start time) → name."""
        self._pids = 0
        self._fewer = asyncio.Event()
        self.ended_first: tuple[EndedProcess, ...] = ()
        """Processes of the server that ended while its main process ran on."""

    async def run(self) -> None:
        """Until it is cancelled or the connection is lost. Never raises for what cannot be read."""
        await asyncio.gather(self._follow_cpu(), self._ask_counters(), self._follow_processes())

    def life(self, now: float) -> Life:
        self._take_gpus(now)
        gpus = self.ctx.gpu_watch
        fresh = gpus.read_at is not None and now - gpus.read_at <= GPU_FRESH_S
        compiling = self._cpu.compiling_at
        return Life(
            cpu_still_s=self._cpu.still_s(now),
            gpu=gpu_state(gpus.readings, self._flow_power) if fresh else None,
            gpu_wanted=self._gpu_wanted,
            counters=self._counters.said,
            compiling=compiling is not None and now - compiling <= 2 * CPU_EVERY_S,
        )

    def _take_gpus(self, now: float) -> None:
        """What the GPUs draw while tokens come, smoothed."""
        gpus, quiet_s = self.ctx.gpu_watch, self.chunks.quiet_s(now)
        if quiet_s is None or quiet_s > MOVING_WITHIN_S / 2 or gpus.read_at in (None, self._flow_at):
            return
        self._flow_at = gpus.read_at
        if max((g.util_gpu_pct or 0.0 for g in gpus.readings), default=0.0) < BUSY_PCT:
            return
        self._gpu_wanted = True
        drawn = power_w(gpus.readings)
        if drawn is not None:
            self._flow_power = drawn if self._flow_power is None else 0.8 * self._flow_power + 0.2 * drawn

    async def _follow_processes(self) -> None:
        await self.look()
        while True:
            await self._fewer.wait()
            self._fewer.clear()
            await self.look()

    async def look(self) -> None:
        """Notes which processes of the server have ended while its main process runs on."""
        feed, main = self.ctx.feed(self.launch.unit), self.main_pid
        args = feed.service.activity_args(feed.reading) if feed.reading is not None else None
        if args is None or not main or self.ended_first:
            return
        with contextlib.suppress(AgentError, HostLostError):
            rows = (await self.host.call("processes", **args))["processes"]
            self._take_processes(rows, main)

    def _take_processes(self, rows: list[Mapping[str, Any]], main: int) -> None:
        alive = {(row["pid"], row["start_ticks"]): row for row in rows if row.get("state") not in ("Z", "X")}
        gone = {(row["pid"], row["start_ticks"]): row for row in rows if row.get("state") in ("Z", "X")}
        if not any(pid == main for pid, _ in alive):
            return
        if not self._first:
            self._first = {key: str(row["comm"]) for key, row in alive.items()}
            return
        self.ended_first = tuple(
            EndedProcess(name, key[0], gone.get(key, {}).get("wait_status"))
            for key, name in self._first.items()
            if key not in alive and name not in COMPILERS
        )

    async def _follow_cpu(self) -> None:
        feed = self.ctx.feed(self.launch.unit)
        while True:
            args = feed.service.activity_args(feed.reading) if feed.reading is not None else None
            try:
                if args is not None:
                    async with self.host.stream("activity", every_s=CPU_EVERY_S, **args) as batches:
                        async for batch in batches:
                            for item in batch:
                                self._take_cpu(item)
            except HostLostError:
                return
            except AgentError:
                pass  # what this login or agent cannot read is no sign of life, and none against it
            await asyncio.sleep(RETRY_S)

    def _take_cpu(self, item: Mapping[str, Any]) -> None:
        now = self.ctx.mono()
        quiet_s = self.chunks.quiet_s(now)
        pids = int(item.get("pids") or 0) - int((item.get("states") or {}).get("Z", 0))
        if pids < self._pids:
            self._fewer.set()
        self._pids = pids
        self._cpu.take(item, now, flowing=quiet_s is not None and quiet_s <= MOVING_WITHIN_S / 2)

    async def _ask_counters(self) -> None:
        launch = self.launch
        path = METRICS_PATH.get(launch.engine)
        while path is not None:
            await asyncio.sleep(ASK_EVERY_S)
            quiet_s = self.chunks.quiet_s(self.ctx.mono())
            if quiet_s is None or quiet_s < ASK_AFTER_S:
                self._counters.begin()
                continue
            try:
                reply = await self.host.call(
                    "http", method="GET", url=f"http://127.0.0.1:{launch.port}{path}", timeout_s=ASK_MOST_S
                )
            except HostLostError:
                return
            except AgentError:
                continue
            self._counters.take(str(reply.get("body")) if reply.get("status") == 200 else None)
