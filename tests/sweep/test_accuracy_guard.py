"""The accuracy guard: which baseline a cell is compared with, what is asked of the generator, and what is said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ddtop.agent.loadgen.records import pack, unpack
from ddtop.events import CellMeasured, CellOutputs, CellSpec, CellsPlanned, CellStateSet, Event, decode_event
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.state import State
from ddtop.sweep.cell import accuracy_guard as guard
from ddtop.sweep.cell.accuracy_guard import Outputs
from ddtop.sweep.cell.outcome import Origin, commit
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.plan import Bench, Sweep

TEXT = (
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        yield a\n        a, b = b, a + b\n"
)


def spec(config: str, **changes: Any) -> CellSpec:
    fields: dict[str, Any] = {
        "id": f"{config}-{changes.get('tp', 1)}-{changes.get('concurrency', 2)}",
        "config": config,
        "tp": 1,
        "workload": "fib",
        "output_tokens": 40,
        "concurrency": 2,
        "context": 0,
        "restart_key": config,
        "baseline": config == "auto",
    }
    return CellSpec(**{**fields, **changes})


AUTO, B15, B15_TP4 = spec("auto"), spec("b15"), spec("b15", tp=4)


def raw(
    texts: dict[str, list[str]], again: dict[str, list[str]] | None = None, bad: tuple[int, ...] = ()
) -> dict[str, Any]:
    """A result as the load generator writes it, with one request for each text."""
    requests = [
        {
            "i": int(i),
            "class": "http 500" if int(i) in bad else "ok",
            "start": 0,
            "sent": 1,
            "end": 2_000_000_000,
            "http": 200,
            "asked": 40,
            "tokens": 40,
            "source": "usage",
            "finish": "length",
            "t": [10_000_000] + [50_000_000] * 39,
            "k": 1,
            "chunks": 40,
        }
        for i in texts
    ]
    result: dict[str, Any] = {
        "schema": 1,
        "cell": "x",
        "started_at_s": 1.0,
        "ended_at_s": 3.0,
        "spec": {"concurrency": 2, "requests": len(texts)},
        "window": {"zero_mono_ns": 0, "wall_s": 2.0, "stopped": ""},
        "requests": requests,
        "texts": texts,
        "clients": [],
        "gpu": {"gpus": []},
        "gpu_samples": [],
    }
    return pack(result | ({"texts_again": again} if again is not None else {}))


def ctx() -> tuple[SweepContext, list[Event]]:
    written: list[Event] = []
    sweep = Sweep(name="s", cells=(AUTO, B15, B15_TP4), launches={}, baseline="auto", bench=Bench())
    made = SweepContext(
        run_id="r",
        host_name="h",
        sink=written.append,
        state=State(),
        sweep=sweep,
        wall=lambda: 1.0,
        mono=lambda: 1.0,
    )
    made.emit(CellsPlanned, cells=sweep.cells, baseline="auto")
    return made, written


def take(made: SweepContext, cell: CellSpec, result: dict[str, Any]) -> Any:
    origin = Origin(job=f"job-{cell.id}", generation=None, engine="sglang", engine_version="1")
    commit(made, cell.id, result, origin)
    return made.state.cells[cell.id]


SAME = {str(i): [f"{TEXT}# {i}\n{TEXT}"] for i in range(6)}
OTHER = {
    i: [text[0][:60] + "return None, never an answer that goes the same way"] for i, text in SAME.items()
}


def test_load_options_of_the_guard() -> None:
    assert guard.load_options({"temperature": 0}, AUTO) == {"keep_texts": True, "again": guard.AGAIN}
    assert guard.load_options({}, B15) == {"keep_texts": True}
    assert guard.load_options({"temperature": 0.7}, AUTO) == {}, (
        "random sampling: there is nothing to compare"
    )


def test_equal_outputs_give_no_doubt() -> None:
    made, _ = ctx()
    take(made, AUTO, raw(SAME, SAME))
    cell = take(made, B15, raw(SAME))
    assert "answers-differ" not in cell.reasons and cell.state == "done"
    assert cell.metrics["accuracy"] == {
        "baseline": AUTO.id,
        "compared": 6,
        "equal_share": 1.0,
        "expected_share": 1.0,
        "why": "all 6 outputs equal the baseline's",
    }
    assert "accuracy" not in made.state.cells[AUTO.id].metrics


def test_different_outputs_are_suspect_and_shown() -> None:
    made, _ = ctx()
    take(made, AUTO, raw(SAME, {i: SAME[i] for i in "012"}))
    cell = take(made, B15, raw(OTHER))
    assert cell.state == "done" and cell.validity == "SUSPECT" and "answers-differ" in cell.reasons
    assert (
        cell.metrics["accuracy"]["equal_share"] == 0
        and cell.metrics["accuracy"]["first_divergence_chars"] == 60
    )
    shown = cell.metrics["accuracy"]["differences"]
    assert len(shown) == guard.SHOWN and shown[0]["at"] == 60 and shown[0]["other"].startswith("return None")


def test_a_fault_in_one_group_is_not_lost_among_the_others() -> None:
    """Few outputs of one category differ at once; over all of them that reads as noise."""
    same = {str(i): [f"{TEXT}# {i}\n{TEXT}" * 8] for i in range(40)}
    other = {i: [text[0][:5] + "no"] if int(i) % 10 == 0 else text for i, text in same.items()}

    def grouped(texts: dict[str, list[str]], again: dict[str, list[str]] | None = None) -> dict[str, Any]:
        result = unpack(raw(texts, again))
        for record in result["requests"]:
            record["group"] = "code" if record["i"] % 10 == 0 else "prose"
        return pack(result)

    made, _ = ctx()
    take(made, AUTO, grouped(same, {i: same[i] for i in "01"}))
    cell = take(made, B15, grouped(other))
    found = cell.metrics["accuracy"]
    assert found["by_group"]["code"] == {"compared": 4, "equal_share": 0.0, "suspect": True}
    assert found["by_group"]["prose"] == {"compared": 36, "equal_share": 1.0, "suspect": False}
    assert "answers-differ" in cell.reasons
    made, _ = ctx()
    take(made, AUTO, raw(same))
    assert "answers-differ" not in take(made, B15, raw(other)).reasons, "as a whole they read as noise"


def test_a_baseline_that_differs_from_itself_excuses_others() -> None:
    made, _ = ctx()
    take(made, AUTO, raw(SAME, OTHER))
    cell = take(made, B15, raw(OTHER))
    assert "answers-differ" not in cell.reasons and cell.metrics["accuracy"]["expected_share"] == 0


def test_another_tp_is_not_compared() -> None:
    made, _ = ctx()
    take(made, AUTO, raw(SAME, SAME))
    assert "accuracy" not in take(made, B15_TP4, raw(OTHER)).metrics


def test_failed_requests_are_left_out() -> None:
    made, _ = ctx()
    take(made, AUTO, raw(SAME, SAME))
    cut = {**SAME, "2": ["def"]}
    cell = take(made, B15, raw(cut, bad=(2,)))
    assert cell.metrics["accuracy"]["compared"] == 5 and "answers-differ" not in cell.reasons


def test_garbage_is_invalid_and_the_servers_fault() -> None:
    made, _ = ctx()
    take(made, AUTO, raw(SAME, SAME))
    cell = take(made, B15, raw({str(i): [" print" * 80] for i in range(6)}))
    assert cell.validity == "INVALID" and "garbage-output" in cell.reasons and cell.state == "interrupted"


def test_outputs_are_kept_and_survive_the_runner() -> None:
    made, written = ctx()
    long = {str(i): [TEXT * 60 + str(i)] for i in range(40)}
    take(made, AUTO, raw(long, {"0": long["0"]}))
    take(made, B15, raw(SAME))
    kept = {e.cell_id: e for e in written if isinstance(e, CellOutputs)}
    assert guard.outputs_of(kept[AUTO.id]) == Outputs(long, {"0": long["0"]})
    assert guard.outputs_of(kept[B15.id]).texts == SAME
    assert len(kept[AUTO.id].texts) < len(str(long)) / 10, "compressed"
    order = [type(e) for e in written if isinstance(e, CellOutputs | CellMeasured)]
    assert order == [CellOutputs, CellMeasured] * 2, "a result is never without its answers"
    assert all(not any(k.startswith("texts") for k in e.raw) for e in written if isinstance(e, CellMeasured))
    read = fold(decode_event(msgspec.json.encode(e)) for e in written)
    assert read.cells[AUTO.id].outputs == kept[AUTO.id]
    assert read.cells[B15.id].outputs is None, "only what others are compared with is held in memory"
    assert guard.reference(read.plan_cells, B15) is read.cells[AUTO.id]


@pytest.mark.parametrize("state", ["failed", "broken", "running"])
def test_only_a_finished_baseline_counts(state: Any) -> None:
    made, _ = ctx()
    take(made, AUTO, raw(SAME, SAME))
    apply(made.state, CellStateSet(at_s=2.0, mono_s=2.0, host="h", cell_id=AUTO.id, state=state))
    assert guard.reference(made.state.plan_cells, B15) is None
