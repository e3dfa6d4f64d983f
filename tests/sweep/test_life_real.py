"""A real server, a real load and a real agent: one that is stopped, one that is stuck, and one with a long prefill.

The limits are a fifth of the real ones, so that a test need not wait for them.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.loadgen.measure import run_cell
from ddtop.journal.fold.state import State
from ddtop.services.base import Launch
from ddtop.services.kinds import service_for
from ddtop.services.readings import UnitReading
from ddtop.sweep.cell.life import signs, silence
from ddtop.sweep.cell.life.server_watch import ChunkWatch
from ddtop.sweep.shared.context import SweepContext, UnitFeed
from tests.agent.helpers import agent
from tests.bench.conftest import start
from tests.waiting import HANG_S

pytestmark = pytest.mark.process

FIFTH = {
    (signs, "CPU_EVERY_S"): 0.8,
    (signs, "ASK_AFTER_S"): 1.2,
    (signs, "ASK_EVERY_S"): 1.0,
    (silence, "STILL_S"): 1.6,
    (silence, "LIFELESS_S"): 3.0,
    (silence, "DOUBTFUL_S"): 12.0,
}


@pytest.fixture(autouse=True)
def fifth(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), value in FIFTH.items():
        monkeypatch.setattr(module, name, value)


class Watched:
    """A server under load, watched as a job of the sweep is."""

    def __init__(self, *options: str, engine: str = "vllm", **load: Any) -> None:
        argv = [sys.executable, "-m", "tests.bench.servers.counting", "--engine", engine, *options]
        self.child, self.url = start(argv)
        self.engine = engine
        self.load = {"concurrency": 2, "requests": 400, "output_tokens": 40, "time_limit_s": 60.0, **load}
        self.hung: silence.Silence | None = None
        self.hung_at = self.bytes_at = 0.0
        self.longest = 0.0
        self.flowed = asyncio.Event()
        self.result: dict[str, Any] = {}

    async def run(self, state: Path, meanwhile: Any) -> None:
        """Until it hangs or the load ends; `meanwhile(self)` runs beside it."""
        loop = asyncio.get_running_loop()
        ctx = SweepContext(run_id="r", host_name="here", sink=lambda _: None, state=State(), sweep=None)
        service = service_for("u", "process")
        reading = UnitReading(unit="u", at=0.0, kind="process", active="active", main_pid=self.child.pid)
        ctx.feeds["u"] = UnitFeed(unit="u", service=service, reading=reading)
        port = int(self.url.rpartition(":")[2])
        launch = Launch(key="k", config="c", tp=1, kind="process", unit="u", engine=self.engine, port=port)
        chunks = ChunkWatch(ctx.mono())
        item: dict[str, Any] = {"cell": "a"}

        def tell(more: dict[str, Any]) -> None:
            item.update(more)
            loop.call_soon_threadsafe(take, dict(item))

        def take(now: dict[str, Any]) -> None:
            chunks.take(now, ctx.mono())
            if now.get("chunks", 0) > 50:
                self.flowed.set()

        def measure() -> None:
            spec = {"url": self.url, "engine": self.engine, "model": "tiny", "gpus": "none", **self.load}
            self.result = run_cell(spec, tell)

        async with agent(state) as host:
            life = signs.LifeWatch(ctx, host, launch, self.child.pid, chunks)
            loader = threading.Thread(target=measure, daemon=True)
            loader.start()
            tasks = [asyncio.create_task(life.run()), asyncio.create_task(meanwhile(self))]
            while loader.is_alive() and self.hung is None:
                await asyncio.sleep(0.1)
                now = ctx.mono()
                current = chunks.silence(life.life(now), now)
                if current is None:
                    continue
                self.longest = max(self.longest, current.quiet_s)
                if silence.is_hung(current):
                    self.hung, self.hung_at = current, now
            for task in tasks:
                task.cancel()
            self.child.send_signal(signal.SIGKILL)
            self.child.wait(HANG_S)
            loader.join(HANG_S)


async def nothing(_: Watched) -> None:
    await asyncio.sleep(0)


async def stop(server: Watched) -> None:
    """SIGSTOP in the middle of the load, once its processes were seen to compute."""
    await server.flowed.wait()
    await asyncio.sleep(2.5)
    server.child.send_signal(signal.SIGSTOP)


@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_a_stopped_server_hangs_as_soon_as_it_should_have_spoken(engine: str, tmp_path: Path) -> None:
    server = Watched("--step", "0.01", engine=engine, request_timeout_s=2.0)
    asyncio.run(server.run(tmp_path, stop))
    assert server.hung is not None
    assert silence.kind_of_life(server.hung.life) == "none", server.hung
    assert server.hung.life.counters in ("mute", None) and server.hung.quiet_s < 8, server.hung


def test_a_server_that_is_stuck_while_it_answers_for_its_counters(tmp_path: Path) -> None:
    """A lock: the process lives, /metrics answers, nothing computes."""
    server = Watched("--idle-prefill", "90")
    asyncio.run(server.run(tmp_path, nothing))
    assert server.hung is not None and server.hung.life.counters == "still", server.hung
    assert server.hung.quiet_s < 14, "at the latest as where no sign can be read"


def test_a_long_prefill_raises_nothing_while_it_computes(tmp_path: Path) -> None:
    server = Watched("--prefill", "5", requests=2, output_tokens=4)
    asyncio.run(server.run(tmp_path, nothing))
    assert server.hung is None and server.longest > 4.5, server.longest
    assert {one["class"] for one in server.result["requests"]} == {"ok"}
