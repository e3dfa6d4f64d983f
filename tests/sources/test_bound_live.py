"""The live bound on what the agent gave on a real H200 (driver 580.159, torch: idle, matrix products, copies), and the
bound of a cell over its own window."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtop.sources.bound.diagnosis import Bound
from ddtop.sources.bound.live import AGAIN_S, STARTING, BoundWatch, GpmStream, bound_metrics, cell_bound
from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.query_stream import TickGrouper, parse_loop_line

LIVE = Path(__file__).parents[1] / "data" / "nvidia-h200" / "live.jsonl"
TRUTH = (("compute-bound", 65.458, 76.467), ("memory-bound", 80.467, 91.474))  # the load's own clock


def items(*, gpm: bool = True) -> Iterator[tuple[float, GpuSample | tuple[GpuSample, ...]]]:
    """The two streams as they came: a dmon row, or one tick of nvidia-smi."""
    stream, grouper = GpmStream(), TickGrouper(period_ms=1000)
    fields: list[str] = []
    for line in LIVE.read_text().splitlines():
        item = json.loads(line)
        if item["op"] == "gpm-follow":
            row = stream.push(item["line"])
            if row is not None and gpm:
                yield item["mono_s"], row
        elif "fields" in item:
            fields = item["fields"]
        elif "line" in item:
            sample = parse_loop_line(fields, item["line"])
            assert isinstance(sample, GpuSample)
            for tick in grouper.push(sample):
                yield item["mono_s"], tick


def told(*, gpm: bool = True) -> tuple[list[tuple[float, Bound]], BoundWatch]:
    watch, out = BoundWatch(), []
    for at, what in items(gpm=gpm):
        if isinstance(what, GpuSample):
            watch.gpm(what, at)
        elif (bound := watch.tick(watch.join(what, at), at, None)) is not None:
            out.append((at, bound))
    return out, watch


def test_a_real_h200_is_told_right_within_five_seconds() -> None:
    out, _ = told()
    assert [b.verdict for _, b in out] == ["idle", "compute-bound", "idle", "memory-bound", "idle"]
    assert all(b.strength == "strong" for _, b in out)
    for verdict, begin, end in TRUTH:
        at = next(at for at, b in out if b.verdict == verdict)
        assert begin < at < min(begin + 5.0, end)
    assert out[1][1].capped, "695 of 700 W"


def test_without_gpm_it_is_never_strong_while_it_works() -> None:
    out, _ = told(gpm=False)
    working = [b for _, b in out if b.verdict not in ("idle", "power-capped")]
    assert working and all(b.strength in ("weak", "none") for b in working)
    assert {b.verdict for b in working} <= {"memory-bound", "compute-bound", "unknown", "latency-bound"}


def test_the_commonest_verdict_of_a_span() -> None:
    _, watch = told()
    for verdict, begin, end in TRUTH:
        found = watch.between(begin + 2, end)
        assert found is not None and found.verdict == verdict and "spans of 2 s" in found.why
    assert watch.between(0.0, 1.0) is None


@pytest.mark.parametrize("verdict", ["compute-bound", "memory-bound"])
def test_a_cell_over_its_own_window(verdict: str) -> None:
    """The load generator's samples (no GPM among them) with the live stream's activity inside the window."""
    _, begin, end = next(t for t in TRUTH if t[0] == verdict)
    gpm = [(at, what) for at, what in items() if isinstance(what, GpuSample)]
    rows: list[dict[str, Any]] = []
    for at, what in items():
        if not isinstance(what, GpuSample):
            s = what[0]
            rows.append(
                {
                    "gpu": 0,
                    "t": int((at - begin) * 1e9),
                    "power_w": s.power_w,
                    "power_limit_w": s.power_limit_w,
                    "util_gpu_pct": s.util_gpu_pct,
                    "util_mem_pct": s.util_mem_pct,
                    "event_reasons": 0,
                }
            )
    raw = {"window": {"zero_mono_ns": int(begin * 1e9), "wall_s": end - begin}, "gpu_samples": rows}
    bound = cell_bound(raw, gpm, moving=True)
    assert bound is not None and (bound.verdict, bound.strength) == (verdict, "strong")
    metrics = bound_metrics(bound)
    assert metrics["bound"] == verdict and metrics["bound_meaning"] and "dram_active_pct" in metrics
    weak = cell_bound(raw, (), moving=True)
    assert weak is not None and weak.strength != "strong" and "dram_active_pct" not in bound_metrics(weak)


def test_a_cell_without_readings_has_no_bound() -> None:
    assert cell_bound({"window": {"wall_s": 1.0}}, ()) is None and bound_metrics(None) == {}


def sample(**more: Any) -> GpuSample:
    return GpuSample(
        index=0, util_gpu_pct=100, util_mem_pct=20, power_w=130, power_limit_w=600, mem_used_mib=9, **more
    )


def test_nothing_is_told_twice_within_half_a_minute_nor_before_two_seconds() -> None:
    watch, at = BoundWatch(), 0.0
    seen: list[float] = []
    while at < 100:
        if watch.tick((sample(),), at, True) is not None:
            seen.append(at)
        at += 1.0
    assert seen[0] == 2.0 and [b - a for a, b in itertools.pairwise(seen)] == [AGAIN_S] * (len(seen) - 1)


def test_a_wedged_collective_needs_that_nothing_moves() -> None:
    def last(moving: bool | None) -> Bound:
        watch = BoundWatch()
        for at in range(5):
            watch.tick((sample(),), float(at), moving)
        return watch.bounds[-1][1]

    assert last(False).verdict == "wedged-collective" and last(False).strength == "strong"
    assert last(True).verdict == "latency-bound" and last(None).verdict != "memory-bound"


def test_while_a_server_starts_the_bound_is_no_verdict_on_a_configuration() -> None:
    watch = BoundWatch()
    bounds = [watch.tick((sample(),), float(at), None, starting=True) for at in range(4)]
    (bound,) = [b for b in bounds if b is not None]
    assert bound.meaning == STARTING and not watch.bounds


def test_old_activity_is_not_joined() -> None:
    watch = BoundWatch()
    watch.gpm(GpuSample(index=0, dram_active_pct=90, tensor_active_pct=4), 10.0)
    assert watch.join([sample()], 12.0)[0].dram_active_pct == 90
    assert watch.join([sample()], 14.0)[0].dram_active_pct is None


def test_lines_that_are_no_rows() -> None:
    stream = GpmStream()
    for line in (
        "",
        "# gpu sm",
        "garbage",
        "  0  1  2",
        "  0 99 99 0 0 0 0 - - - -",
        "No devices were found",
    ):
        assert stream.push(line) is None
    got = stream.push("  3 99 99 0 0 0 0 87 12 4 90")
    assert got is not None and (got.index, got.dram_active_pct, got.tensor_active_pct) == (3, 90, 4)
