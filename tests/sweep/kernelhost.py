"""SIMULATED: the host in memory, with a kernel log and GPUs that stream. A test bed's hosts share one kernel with the
machine that runs the tests, so a fault of the kernel cannot be made there for one host alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ddtop.agent.service.journal import Joiner
from ddtop.hosts.base import Hello
from tests.sweep.fakehost import FakeConnector, FakeHost, World

KERNEL = Path(__file__).parents[1] / "data" / "kernel"
FIELDS = [
    "index",
    "uuid",
    "pci.bus_id",
    "power.draw",
    "enforced.power.limit",
    "memory.used",
    "utilization.gpu",
    "utilization.memory",
    "gpu_recovery_action",
]
BUSES = ("00000000:17:00.0", "00000000:41:00.0", "00000000:61:00.0")


class KernelWorld(World):
    """`gpm`: (SM, occupancy, tensor, DRAM) of every GPU, None without GPM. `actions`: bus → gpu_recovery_action; None:
    an older driver, which does not know the field. `die_with`: the serving unit is killed with the next kernel lines."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.kernel: list[dict[str, Any]] = []
        self.gpm: tuple[int, int, int, int] | None = (87, 12, 4, 90)
        self.actions: dict[str, str] | None = {}
        self.power_w = 620.0

    def kernel_says(self, name: str, *, die: bool = False) -> None:
        """The lines of a fixture, now; with `die` the server is gone a moment before they can be read."""
        serving = self.serving
        if die and serving is not None:
            self._crash(serving, serving.invocation, "a line that explains nothing")
        joiner = Joiner()
        for line in (KERNEL / name).read_text().splitlines():
            entry = json.loads(line)
            entry["__MONOTONIC_TIMESTAMP"] = str(int(self.now() * 1e6))
            entry["__CURSOR"] = f"k{len(self.kernel)}"
            entry["_BOOT_ID"] = f"boot{self.boots}"
            item = joiner.add(entry)
            if item is not None:
                self.kernel.append(item)
        self.tell()

    def gpu_lines(self) -> list[str]:
        rows = []
        for index, bus in enumerate(BUSES):
            action = (self.actions or {}).get(bus, "None")
            cells = [str(index), f"GPU-{index}", bus, f"{self.power_w}", "700.00", "90000", "100", "88"]
            rows.append(", ".join(cells if self.actions is None else [*cells, action]))
        return rows


class KernelHost(FakeHost):
    world: KernelWorld

    @property
    def hello(self) -> Hello:
        base = super().hello
        can = base.can | {"journal", "nvidia-smi"} | ({"gpm"} if self.world.gpm else set())
        return Hello(
            **{f: getattr(base, f) for f in base.__struct_fields__ if f != "can"}, can=frozenset(can)
        )

    async def _items(self, op: str, args: dict[str, Any]) -> AsyncIterator[list[dict[str, Any]]]:
        if op in ("gpu-follow", "gpm-follow"):
            async for batch in self._gpus(op):
                yield batch
        elif op == "kernel-follow":
            async for batch in self._kernel(args):
                yield batch
        else:
            async for batch in super()._items(op, args):
                yield batch

    async def _gpus(self, op: str) -> AsyncIterator[list[dict[str, Any]]]:
        world = self.world
        if op == "gpu-follow":
            yield [{"fields": FIELDS if world.actions is not None else FIELDS[:-1]}]
        else:
            yield [
                {
                    "line": "# gpu     sm    mem    enc    dec    jpg    ofa smutil  smocc mmaact   dram",
                    "mono_s": 0.0,
                }
            ]
        while True:
            await asyncio.sleep(1.0)
            self._check()
            now = world.now()
            if op == "gpu-follow":
                yield [{"line": line, "mono_s": now} for line in world.gpu_lines()]
            elif world.gpm:
                values = " ".join(map(str, world.gpm))
                yield [{"line": f"{i} 99 100 0 0 0 0 {values}", "mono_s": now} for i in range(len(BUSES))]

    async def _kernel(self, args: dict[str, Any]) -> AsyncIterator[list[dict[str, Any]]]:
        world, cursor = self.world, args.get("after_cursor")
        at = len(world.kernel)
        if cursor:
            at = next((i + 1 for i, e in enumerate(world.kernel) if e["cursor"] == cursor), 0)
        else:
            yield [
                {
                    "anchor": True,
                    "text": "",
                    "cursor": world.kernel[-1]["cursor"] if world.kernel else "k-none",
                }
            ]
        news = asyncio.Event()
        world.changed.append(news)
        try:
            while True:
                self._check()
                await asyncio.sleep(0.3)  # journalctl -f tells it that late
                if world.kernel[at:]:
                    batch, at = [dict(e) for e in world.kernel[at:]], len(world.kernel)
                    yield batch
                news.clear()
                await news.wait()
        finally:
            if news in world.changed:
                world.changed.remove(news)


class KernelConnector(FakeConnector):
    async def connect(self) -> FakeHost:
        await super().connect()
        self.world.hosts.pop()
        return KernelHost(self.world)
