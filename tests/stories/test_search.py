"""A plan with a search, on a host of the bed: the runner is killed in the middle of it, and the search goes on.

The server runs 3 requests at a time and refuses the fourth (`--max-running-requests 3 --max-queued-requests 0`), so its knee is
known whatever the machine does meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtop.events import CellMeasured, Event, SearchStep
from ddtop.journal.fold.apply import fold
from tests.stories.harness import HEAD, Runner, alerts, states_of, took

CONFIGS = 'a = { args = ["--max-running-requests", "3", "--max-queued-requests", "0"] }'
LOAD = """
load = [
  { rate = 10.0, duration_s = 2 },
  { search = "concurrency", slo = { e2e_ms = 60000 }, max = 16, confirm_s = 2 },
]
baseline = "a"
"""
LADDER = [(1, False), (2, False), (4, False), (3, False), (3, True)]


def plan(name: str) -> str:
    """Requests of a tenth of a second or so: a SIMULATED GPU that is asked between shorter ones says that it is idle."""
    text = HEAD.format(
        name=name, host="ct200", configs=CONFIGS, tokens="64", requests=4, answer_s=3, policy=""
    )
    return text.replace('baseline = "a"\n', LOAD.lstrip())


def steps(events: list[Event]) -> list[SearchStep]:
    return [e for e in events if isinstance(e, SearchStep)]


@pytest.mark.bed
def test_a_search_goes_on_after_its_runner_was_killed(ct200: Any, tmp_path: Path) -> None:
    ct200.stage()
    ct200.fault("SPEED=20", "LOAD_S=2", "WARM_S=0.5")
    recording, home = tmp_path / "run.ddtop", tmp_path / "home"
    with Runner(ct200.bed, plan("knee"), recording, home) as first:
        first.until(lambda events: len(steps(events)) >= 2, 90, "two loads of the search")
    began = ct200.bed.now()
    with Runner(ct200.bed, plan("knee"), recording, home) as second:
        assert second.wait(120) == 0, second.text()[-4000:]
        events = second.events()
    took("a search, from its runner's death to the end", "search", (ct200.bed.now() - began) / 1e9)
    state = fold(events)
    (cell,) = [c for c in state.plan_cells if c.spec.search is not None]
    assert states_of(state, "a") == {"done"} and len(state.plan_cells) == 2
    (rate,) = [c for c in state.plan_cells if c.spec.rate is not None]
    sent = rate.metrics["requests_ok"] + rate.metrics["requests_failed"]
    assert sent == 20 and "start_lag_ms" in rate.metrics, "an open loop of 10 × 2 requests"
    assert alerts(events) <= {("interrupted", "interrupted")}
    assert [(s.tried, s.confirm) for s in steps(events)] == LADDER, "nothing is measured and recorded twice"
    assert [s.number for s in cell.ladder] == [0, 1, 2, 3, 4]
    assert (cell.metrics["knee"], cell.metrics["search"]["confirmed"]) == (3.0, True)
    assert [s.verdict in ("missed", "failed") for s in cell.ladder] == [False, False, True, False, False]
    assert len({s.generation.id for s in cell.ladder if s.generation}) == 1, "all on one start of the server"
    assert len([e for e in events if isinstance(e, CellMeasured) and e.cell_id == cell.id]) == 1
    assert "knee c3: c4 is too much" in second.text()
