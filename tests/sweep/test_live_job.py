"""A real job on a real agent of the oldest Python: what the screen says of it while it runs, against what came of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.agent.loadgen.records import unpack
from ddtop.bench.judge.cell import judge_cell
from ddtop.dashboard.draw.paint import plain
from ddtop.dashboard.panels.measuring import measuring_lines
from ddtop.journal.fold.apply import fold
from ddtop.journal.tables import clean
from ddtop.sweep.cell.job_watch import JobWatch
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.requests import Requests
from tests.agent.helpers import agent, oldest_python
from tests.bench.conftest import start
from tests.journal.made import Clock, spec
from tests.waiting import HANG_S

pytestmark = pytest.mark.process


async def test_the_screen_says_what_the_result_says_of_that_moment(tmp_path: Path) -> None:
    """However busy the machine is: tokens by the stamps of the finished result up to the moment of each report."""
    child, url = start(
        [sys.executable, "-m", "tests.bench.servers.prefill", "--prefill-ms", "4", "--step-ms", "8"]
    )
    state = fold([ev.CellsPlanned(**Clock()(), cells=(spec("a1", concurrency=8),))])
    screens: list[tuple[ev.CellProgress, str]] = []
    recorded: list[ev.Event] = []

    ctx = SweepContext(run_id="r", host_name="h", sink=recorded.append, state=state, sweep=None)

    def look(event: ev.Event) -> None:
        if isinstance(event, ev.CellProgress) and event.phase == "window":
            rows = measuring_lines(state, event.at_s, 120, 9)
            screens.append((event, "\n".join(plain(row) for row in rows)))

    ctx.on_event = look
    load = {"id": "a1", "url": url, "engine": "vllm", "gpus": "none", "warmup": "handover", "prompts": ["a"]}
    load |= {"output_tokens": 40, "concurrency": 8, "requests": 120}
    try:
        async with agent(tmp_path, python=oldest_python()) as host:
            await host.call(
                "job-start", job="j1", kind="loadgen", spec={"schema": 1, "cells": [load]}, limit_s=120
            )
            end = await JobWatch(ctx, Requests(), host, "j1", ["a1"], None).run()
            assert end.kind == "ended"
            page = await host.call("job-collect", job="j1", known=[])
    finally:
        child.terminate()
        child.wait(HANG_S)
    result: dict[str, Any] = unpack(page["results"][0]["result"])
    judged = judge_cell(result).metrics
    assert len(screens) >= 3 and judged["requests_ok"] == 120
    for event, shown in screens:
        assert event.tokens and event.tok_s
        span_s = event.tokens / event.tok_s
        bins = result["bins"]

        def by_result(second: float, bins: dict[str, Any] = bins) -> int:
            return sum(bins["tokens"][: max(0, int(second * 1e9 // bins["bin_ns"]) - bins["start"])])

        # what had come half a second before, and what had come then; reads may wait on a busy machine
        said = float(re.search(r"([\d,.]+) so far", shown)[1].replace(",", ""))  # type: ignore[index]
        least, most = by_result(span_s - 0.5), by_result(span_s + 0.02)
        assert 0.98 * least / span_s <= said <= 1.02 * most / span_s, shown
        assert f"{event.requests_done} of 120 requests" in shown or not event.requests_done
        assert "0 failed" in shown
    last, shown = screens[-1]
    assert "TPOT" in shown and last.tpot is not None
    assert last.tpot.p50 == pytest.approx(judged["tpot_ms"]["p50"], rel=0.1)
    sizes = [len(ev.encode(clean(event))) for event, _ in screens]
    assert max(sizes) < 900, "an event a second has to stay small"
