"""The second user's plan, complete: plans/b300-kimi-k2.6.toml as it is shipped. His script rewrites the unit and restarts
it, his benchmark measures; ddtop believes neither, and takes the acceptance length from the service.

How it goes when the script lies is told in test_silent_restarts.py, ten times each; here: that it goes on rightly.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import AlertRaised, CellMeasured, Event
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.report.json_form import report_json
from tests.bed.config import REPO
from tests.stories.harness import Runner, alerts, left_behind, noted, states_of, took
from tests.stories.test_plans import derived

AS_WRITTEN = (REPO / "plans/b300-kimi-k2.6.toml").read_text()
SHIPPED = derived(AS_WRITTEN, {"starts = 2": "starts = 1"})
"""As shipped, less its second round."""
QUICK = {
    "concurrency = [1, 8, 32]": "concurrency = [1, 8]",
    "context = [0, 8192, 32768]": "context = [0, 8192]",
}
FAST = ("SPEED=20", "LOAD_S=2", "WARM_S=0.3")
TITLE = "the plan of b300: ddtop's figures ÷ the ledger's"
SCRIPT = "/root/reconfig_ddtree.sh"


def sweep(host: Any, tmp_path: Path, plan: str, limit_s: float) -> tuple[int, State, list[Event], str]:
    started = time.monotonic()
    with Runner(host.bed, plan, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(limit_s)
        events, text = runner.events(), runner.text()
    state = fold(events)
    took("the plan of b300", f"{len(state.plan_cells)} cells", time.monotonic() - started)
    return code, state, events, text


def rows_of(events: list[Event], cell: CellView) -> tuple[list[dict[str, Any]], CellMeasured]:
    """What the user's benchmark wrote for the cell, as the recording has it."""
    event = next(e for e in reversed(events) if isinstance(e, CellMeasured) and e.cell_id == cell.id)
    return event.raw["result"]["results"], event


def job_requests(ledger: list[dict[str, Any]], cell: CellView) -> list[dict[str, Any]]:
    """The benchmark's requests in the ledger: those of its length, between start and result of the cell."""
    attempt = cell.attempts[-1]
    assert attempt.started_at_s is not None and attempt.measured_at_s is not None
    return [
        r
        for r in ledger
        if attempt.started_at_s * 1e9 <= r["start_ns"] <= attempt.measured_at_s * 1e9 and r["tokens"] == 256
    ]


def hold_against_ledger(
    host: Any, state: State, events: list[Event], since: int, source: str, within: float
) -> None:
    """Metrics by their paths, tokens exactly, acceptance by its source."""
    ledger = host.requests(since_ns=since)
    lengths = []
    for cell in state.plan_cells:
        assert cell.state == "done" and cell.validity in ("VALID", "SUSPECT"), (
            cell.spec,
            cell.state,
            cell.reason,
        )
        rows, event = rows_of(events, cell)
        assert {r["context"] for r in rows} == {cell.spec.context} and {r["concurrency"] for r in rows} == {
            cell.spec.concurrency
        }
        assert cell.metrics["output_tok_s"] == pytest.approx(statistics.fmean(r["tok_s"] for r in rows))
        assert cell.metrics["output_tokens"] == sum(r["tokens"] for r in rows)
        served = job_requests(ledger, cell)
        assert len(served) == 2 * cell.spec.concurrency, (cell.spec, len(served))
        assert sum(r["tokens"] for r in served) == cell.metrics["output_tokens"]
        assert event.metrics["acceptance"]["source"].startswith(source), event.metrics["acceptance"]
        truth = sum(r["tokens"] for r in served) / sum(r["verify"] for r in served)
        lengths.append(cell.metrics["acceptance_length"] / truth)
        noted(TITLE, f"acceptance length by {source}", lengths[-1])
    assert 1 - within < min(lengths) and max(lengths) < 1 + within, (min(lengths), max(lengths))
    by_budget = [
        statistics.median(c.metrics["acceptance_length"] for c in state.plan_cells if c.spec.config == b)
        for b in ("b16", "b32", "b64")
    ]
    assert by_budget[0] < by_budget[1] < by_budget[2], "a larger tree accepts more"


def as_found(host: Any, before: dict[str, Any], state: State) -> None:
    """All is put back but what the user's own script wrote last, and that is said."""
    assert left_behind(host, before, ("/etc/systemd/system/kimi.service", "/dev/shm/Kimi-K2.6")) == []
    ended = state.run.ended
    assert ended is not None and any("keeps the arguments" in words for words in ended.left_behind)


def whole(host: Any, tmp_path: Path, plan: str, limit_s: float) -> State:
    host.fault(*FAST)
    before, began = host.snapshot(), host.bed.now()
    code, state, events, text = sweep(host, tmp_path, plan, limit_s)
    assert code == 0, text[-4000:]
    assert not any(isinstance(e, AlertRaised) for e in events), alerts(events)
    assert [r.outcome for r in state.restarts] == ["ready"] * 3, "one start a budget"
    ran = [e["budget"] for e in host.ledger("reconfig-begin", since_ns=began)]
    assert ran == [16, 32, 64], "the script ran once a budget"
    hold_against_ledger(host, state, events, began, "counters", 0.02)
    as_found(host, before, state)
    report = report_json([tmp_path / "run.ddtop"])
    assert [c["metrics"]["acceptance"]["source"] for c in report["cells"]] == ["counters"] * len(
        state.plan_cells
    )
    return state


@pytest.mark.bed
def test_a_part_of_the_plan(b300: Any, tmp_path: Path) -> None:
    assert len(whole(b300, tmp_path, derived(SHIPPED, QUICK), 150).plan_cells) == 12


@pytest.mark.bed
@pytest.mark.stories
def test_the_whole_plan(b300: Any, tmp_path: Path) -> None:
    assert len(whole(b300, tmp_path, SHIPPED, 900).plan_cells) == 27


@pytest.mark.bed
def test_acceptance_from_the_log(b300: Any, tmp_path: Path) -> None:
    """A build without counters: the log's lines are the last resort, and are said to be."""
    b300.stage()
    b300.fault(*FAST)
    b300.sh(f"sed 's/ --enable-metrics//' {SCRIPT} > {SCRIPT}.plain && chmod +x {SCRIPT}.plain")
    began = b300.bed.now()
    quick = {"concurrency = [1, 8, 32]": "concurrency = [8]", "context = [0, 8192, 32768]": "context = [0]"}
    plain = {SCRIPT: f"{SCRIPT}.plain"}
    code, state, events, text = sweep(b300, tmp_path, derived(SHIPPED, quick | plain), 120)
    assert code == 0, text[-4000:]
    hold_against_ledger(b300, state, events, began, "log", 0.25)
    assert all(c.metrics["acceptance"]["lines"] >= 1 for c in state.plan_cells)


@pytest.mark.bed
def test_a_benchmark_that_fails_is_not_the_servers_fault(b300: Any, tmp_path: Path) -> None:
    """Its paths find nothing, or it ends in an error: the cell is run again, never broken, and the reason is said."""
    b300.stage()
    b300.fault(*FAST)
    quick = {
        "concurrency = [1, 8, 32]": "concurrency = [1]",
        "context = [0, 8192, 32768]": "context = [0]",
        "budget = [16, 32, 64]": "budget = [16]",
    }
    wrong = {"mean:results[*].tok_s": "mean:rows[*].tok_s", "sum:results[*].tokens": "sum:rows[*].tokens"}
    code, state, _, text = sweep(b300, tmp_path, derived(SHIPPED, quick | wrong), 120)
    assert code == 10 and states_of(state, "b16") == {"failed"}, text[-4000:]
    cell = state.plan_cells[0]
    assert len(cell.attempts) == 3 and cell.reasons == ("generator-failed",)
    assert len([r for r in state.restarts if r.outcome == "ready"]) == 1, "the server is not restarted for it"


@pytest.mark.bed
def test_two_starts_measured_by_his_own_benchmark(b300: Any, tmp_path: Path) -> None:
    """Rounds with a script that restarts and a benchmark that is not ours: each round runs both, each cell has its own result."""
    b300.stage()
    b300.fault(*FAST)
    began = b300.bed.now()
    few = {
        "concurrency = [1, 8, 32]": "concurrency = [1, 8]",
        "context = [0, 8192, 32768]": "context = [0]",
        "budget = [16, 32, 64]": "budget = [16, 64]",
    }
    code, state, _, text = sweep(b300, tmp_path, derived(AS_WRITTEN, few), 150)
    assert code == 0, text[-4000:]
    ran = [e["budget"] for e in b300.ledger("reconfig-begin", since_ns=began)]
    assert ran == [16, 64, 64, 16], "the second round begins with the other one"
    assert {c.state for c in state.plan_cells} == {"done"} and len(state.plan_cells) == 12
    assert sum(c.spec.sentinel for c in state.plan_cells) == 4
    assert len({c.attempts[-1].job for c in state.plan_cells}) == 12
