"""The measured server's own figures at 1 Hz: a real agent and a real HTTP server; the fold; the summary of a cell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.agent.host.metrics import pause_s
from ddtop.dashboard.panels.cell.page import cell_lines
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.server_figures import load_of
from ddtop.journal.results.matrix import matrix
from ddtop.report import report_json
from ddtop.report.tables.server import server_rows
from ddtop.services.base import Launch
from ddtop.sweep.cell import server_figures
from ddtop.sweep.cell.server_figures import follow_figures
from ddtop.sweep.shared.context import SweepContext
from tests.agent.helpers import agent
from tests.agent.test_http import ok, server
from tests.journal.made import Clock, measured, restart, sweep
from tests.waiting import HANG_S


class Followed:
    """What `follow_figures` emits for a server whose page is `answer`, until `wanted` events have come."""

    def __init__(self, engine: str) -> None:
        self.events: list[ev.Event] = []
        self.engine = engine
        self.ctx = SweepContext(run_id="r", host_name="h", sink=self.events.append, state=State(), sweep=None)

    async def until(self, host: Any, port: int, kind: type[ev.Event], wanted: int) -> list[Any]:
        launch = Launch(key="k", config="c", tp=1, kind="process", unit="u", engine=self.engine, port=port)
        task = asyncio.create_task(follow_figures(self.ctx, host, launch))
        try:
            async with asyncio.timeout(HANG_S):
                while sum(isinstance(e, kind) for e in self.events) < wanted:
                    await asyncio.sleep(0.01)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return [e for e in self.events if isinstance(e, kind)]


@pytest.mark.process
async def test_figures_come_from_the_page_as_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_figures, "EVERY_S", 0.2)
    asked = 0

    def page(_request: bytes) -> bytes:
        nonlocal asked
        asked += 1
        body = (
            f'vllm:num_requests_running{{engine="0"}} {asked}.0\nvllm:num_requests_waiting{{engine="0"}} 2.0\n'
            f'vllm:kv_cache_usage_perc{{engine="0"}} 0.5\nvllm:prefix_cache_queries_total {asked * 100}\n'
            f"vllm:prefix_cache_hits_total {asked * 25}\n"
        )
        return ok(body.encode(), "text/plain")

    followed = Followed("vllm")
    async with agent(tmp_path) as host, server(page) as url:
        found = await followed.until(host, int(url.rpartition(":")[2]), ev.ServerFigures, 3)
    assert [f.running for f in found[:3]] == [1.0, 2.0, 3.0]
    assert {(f.queued, f.kv_pct) for f in found} == {(2.0, 50.0)}
    assert [(f.prefix_hit_pct, f.prompt_tokens) for f in found[:2]] == [(None, None), (25.0, 100.0)]
    assert found[0].host_mono_s < found[1].host_mono_s < found[2].host_mono_s


@pytest.mark.process
async def test_a_server_without_the_page_is_noted_once_with_what_to_do(tmp_path: Path) -> None:
    followed = Followed("sglang")
    none = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    async with agent(tmp_path) as host, server(lambda _: none) as url:
        port = int(url.rpartition(":")[2])
        (note,) = await followed.until(host, port, ev.Note, 1)
    assert note.text == (
        "u gives no figures of its load (/metrics: HTTP 404): start the server with --enable-metrics"
    )


def test_a_slow_page_is_asked_for_less_often() -> None:
    """At most 2% of the time while an answer takes less than 0.2 s; then each 10 s."""
    for took_s in (0.001, 0.01, 0.05, 0.1, 0.19):
        assert took_s / pause_s(1.0, took_s) <= 0.02 + 1e-9
    assert pause_s(1.0, 5.0) == 10.0


def figures(clock: Clock, mono_s: float, **fields: Any) -> ev.ServerFigures:
    return ev.ServerFigures(**clock(), unit="u", host_mono_s=mono_s, **fields)


def one_cell() -> State:
    """A cell with readings before it, in its warm-up, in its window, and after it."""
    clock = Clock()
    events = [e for e in sweep() if isinstance(e, ev.RunStarted | ev.CellsPlanned)]
    _, started, _, result, done = measured(clock, "a1", 100.0)
    assert isinstance(result, ev.CellMeasured)
    window = {"window": {"zero_mono_ns": 1_000_000_000_000, "wall_s": 10.0}}
    gpus = tuple(ev.GpuReading(index=i, power_w=w) for i, w in enumerate((300.0, 200.0)))
    return fold(
        [
            *events,
            figures(clock, 900.0, running=99.0),  # before the cell: of nobody
            started,
            ev.GpuSampled(**clock(), gpus=gpus),
            figures(clock, 999.0, running=1.0, queued=9.0, prefix_hit_pct=0.0, prompt_tokens=50.0),  # warm-up
            figures(
                clock, 1001.0, running=8.0, queued=0.0, kv_pct=10.0, prefix_hit_pct=50.0, prompt_tokens=30.0
            ),
            figures(
                clock, 1005.0, running=6.0, queued=4.0, kv_pct=30.0, prefix_hit_pct=0.0, prompt_tokens=10.0
            ),
            ev.CellMeasured(
                **{f: getattr(result, f) for f in result.__struct_fields__ if f != "raw"}, raw=window
            ),
            done,
            figures(clock, 1006.0, running=77.0),
        ]
    )


def test_a_cell_keeps_what_was_said_in_its_window() -> None:
    state = one_cell()
    assert load_of(state.cells["a1"]) == {
        "n": 2,
        "running": {"mean": 7.0, "max": 8.0},
        "queued": {"mean": 2.0, "max": 4.0},
        "kv_pct": {"mean": 20.0, "max": 30.0},
        "power_w": {"mean": 500.0, "max": 500.0},
        "prefix_hit_pct": 37.5,
    }
    assert len(state.cells["a1"].attempts[-1].figures) == 3
    assert load_of(state.cells["b1"]) == {}


def test_the_cells_screen_and_the_reports_show_it() -> None:
    state = one_cell()
    rows = cell_lines(state, state.cells["a1"], matrix(state), 100)
    text = "\n".join("".join(span[0] for span in row) for row in rows)
    shown = [
        line.split() for line in text.splitlines() if line.strip().startswith(("running", "queued", "KV"))
    ]
    assert [row[-5:] for row in shown] == [
        ["mean", "7", "max", "8", "requests"],
        ["mean", "2", "max", "4", "requests"],
        ["mean", "20", "max", "30", "%"],
    ]
    assert server_rows(state)[1:] == [
        ["auto fib@256 tp1 c1", "7, 8", "2, 4", "20.0, 30.0", "37.5", "500, 500", "2"]
    ]
    assert report_json([state])["cells"][0]["server"]["queued"] == {"mean": 2.0, "max": 4.0}


def test_the_power_is_that_of_the_gpus_that_the_server_holds() -> None:
    clock = Clock()
    events = [e for e in sweep() if isinstance(e, ev.RunStarted | ev.CellsPlanned)]
    _, started, *_ = measured(clock, "a1", 100.0)
    gpus = tuple(ev.GpuReading(index=i, power_w=w) for i, w in enumerate((300.0, 30.0, 30.0)))
    state = fold(
        [
            *events,
            *restart(clock, "auto", "at-1"),
            ev.StartProvenance(**clock(), attempt_id="at-1", gpus=(0, 1)),
            started,
            ev.GpuSampled(**clock(), gpus=gpus),
            figures(clock, 1001.0, running=8.0),
        ]
    )
    assert [p.power_w for p in state.cells["a1"].attempts[-1].figures] == [330.0]
