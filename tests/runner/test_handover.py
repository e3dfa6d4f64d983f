"""Loads that are handed over, by a live runner: what is committed, and a recording that was begun before there was that."""

from __future__ import annotations

from ddtop.events import CellMeasured
from tests.runner.rig import Rig


def test_a_cell_is_handed_over_and_its_burst_kept_apart(rig: Rig) -> None:
    plan = rig.plan("a = {}", requests=4, bench="min_window_s = 1.0")
    plan = plan.replace("warmup = 0", 'warmup = "handover"').replace(
        'baseline = "a"', 'baseline = "a"\nconcurrency = 4'
    )
    runner = rig.start(plan)
    assert runner.wait() == 0
    (measured,) = runner.of(CellMeasured)
    assert measured.metrics["burst"]["requests"] >= 8 and measured.metrics["wall_s"] >= 1.0
    assert measured.metrics["requests_ok"] >= 16 and measured.metrics["output_tok_s"] > 0
    assert measured.raw["handover"]["by"] in ("settled", "requests")


def test_a_recording_of_an_older_version_goes_on_with_its_own_warm_up(rig: Rig) -> None:
    """The same plan, which names no warm-up, first read as when the default was one request: its finished cell is known
    again, and the other is measured as it was planned then."""
    plan = rig.plan("a = {}", tokens="[8, 400]").replace("warmup = 0\n", "")
    older = rig.start(plan, patch={"ddtop.plan.read.bench.DEFAULT_WARM_UP": 1})
    older.until(lambda state: any(c.state == "done" for c in state.plan_cells), "a finished cell")
    older.kill()
    planned = [c.id for c in older.state().plan_cells]
    now = rig.start(plan)
    assert now.wait() == 0
    cells = now.state().plan_cells
    assert [c.id for c in cells] == planned and [c.state for c in cells] == ["done", "done"]
    assert len(cells[0].attempts) == 1
    assert [m.raw["spec"]["warmup"] for m in now.of(CellMeasured)] == [1, 1]
