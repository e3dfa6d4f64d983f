"""What a fast number may hide: answers that speculation changed, garbage, and two names for one server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtop.events import CellOutputs
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.report.json_form import report_json
from ddtop.sweep.cell.accuracy_guard import outputs_of
from tests.stories.harness import Runner, alerts, plan_text, states_of

FAST = ("SPEED=20", "LOAD_S=2", "WARM_S=0.3")
DRAFT = (
    '"--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "/data/models/Qwen3.6-27B-DFlash"'
)
CONFIGS = f"""
a = {{}}
linear = {{ args = [{DRAFT}] }}
topk4 = {{ args = [{DRAFT}, "--speculative-eagle-topk", "4"] }}
other = {{ args = [{DRAFT}, "--context-length", "8192"] }}
garbage = {{ args = [{DRAFT}, "--context-length", "4096"] }}
"""
FAULTS = (
    "WHEN=--context-length 8192",
    "ANSWER=other",
    "WHEN=--context-length 4096",
    "ANSWER=garbage",
    "WHEN=",
)


def only(state: State, config: str) -> CellView:
    return next(c for c in state.plan_cells if c.spec.config == config)


@pytest.mark.bed
def test_answers_and_twins(ct200: Any, tmp_path: Path) -> None:
    ct200.stage()
    ct200.fault(*FAST, *FAULTS)
    plan = plan_text("answers", configs=CONFIGS, tokens="48", requests=6)
    with Runner(ct200.bed, plan, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(150)
        events, text = runner.events(), runner.text()
    state = fold(events)
    assert code == 10, text[-4000:]
    # equal answers: no doubt
    same = only(state, "linear")
    assert same.state == "done" and "answers-differ" not in same.reasons
    assert same.metrics["accuracy"]["equal_share"] == 1 and same.metrics["accuracy"]["expected_share"] == 1
    # speculation that changes answers: kept, and marked
    other = only(state, "other")
    assert other.state == "done" and other.validity == "SUSPECT" and "answers-differ" in other.reasons
    assert other.metrics["accuracy"]["equal_share"] == 0 and other.metrics["accuracy"]["compared"] == 6
    read = other.metrics["accuracy"]["differences"][0]
    assert read["baseline"] != read["other"]
    # garbage: no result, and the configuration's own fault
    assert states_of(state, "garbage") == {"broken"}
    bad = only(state, "garbage")
    assert bad.validity == "INVALID" and "garbage-output" in bad.reasons and len(bad.attempts) == 2
    assert alerts(events) == {("measuring-failed", "garbage-output")}
    # two names for one server
    twin = only(state, "topk4")
    assert twin.state == "done" and "arguments-overridden" in twin.reasons, twin.reasons
    start = next(r for r in state.restarts if r.config == "topk4")
    assert any("in effect as for linear" in words for words in start.overridden), start.overridden
    assert not any(r.overridden for r in state.restarts if r.config in ("a", "linear", "other"))
    # all answers are in the recording, and the report says what became of them
    kept = {e.cell_id: outputs_of(e) for e in events if isinstance(e, CellOutputs)}
    assert {c.id for c in state.plan_cells} == set(kept)
    assert kept[other.id].texts["0"][0][:20] == kept[only(state, "a").id].texts["0"][0][:20]
    report = {c["config"]: c for c in report_json([tmp_path / "run.ddtop"])["cells"]}
    assert (
        "answers-differ" in report["other"]["reasons"]
        and report["other"]["metrics"]["accuracy"]["equal_share"] == 0
    )
