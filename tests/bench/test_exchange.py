"""Exports read back by our own importers, and metric paths."""

from __future__ import annotations

import json

import pytest

from ddtop.bench.exporters import to_sglang, to_vllm
from ddtop.bench.importers import diagnose_results
from ddtop.bench.judge.cell import judge_cell
from ddtop.bench.metric_paths import MetricPathError, evaluate, evaluate_all, split_path

from .test_judge import made


@pytest.mark.parametrize("write", [to_sglang, to_vllm])
@pytest.mark.parametrize("failures", [0, 3])
def test_round_trip(write: object, failures: int) -> None:
    raw = made(12)
    raw["spec"]["requests"] = 12
    for one in raw["requests"][:failures]:
        one["class"] = "truncated"
    metrics = judge_cell(raw).metrics
    text = json.dumps(write(raw, details=True), allow_nan=False)  # type: ignore[operator]
    got = diagnose_results(text.encode(), planned=12)
    assert got["verdict"] == ("partial" if failures else "ok"), got
    assert got["requests_ok"] == 12 - failures and got["requests_failed"] == failures
    assert got["output_tps"] == pytest.approx(metrics["output_tok_s"])
    assert got["ttft_p50_ms"] == pytest.approx(metrics["ttft_ms"]["p50"])
    assert got["tpot_mean_ms"] == pytest.approx(metrics["tpot_ms"]["mean"])
    assert got["duration_s"] == pytest.approx(metrics["wall_s"])


def test_export_of_nothing_has_no_zeros() -> None:
    raw = made(4)
    for one in raw["requests"]:
        one["class"] = "empty"
    for write in (to_sglang, to_vllm):
        out = write(raw)
        assert out["completed"] == 0 and "output_throughput" not in out and "mean_ttft_ms" not in out
        assert (
            diagnose_results(json.dumps({**out, "duration": 1.0}).encode())["cause"] == "no-request-completed"
        )


DATA = {
    "results": [{"tok_s": 100.0, "n": 1}, {"tok_s": 140.0, "n": 2}, {"tok_s": None}, {"tok_s": float("nan")}],
    "x": "7.5",
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mean:results[*].tok_s", 120.0),
        ("max:results[*].tok_s", 140.0),
        ("min:results[*].tok_s", 100.0),
        ("sum:results[*].n", 3.0),
        ("last:results[*].tok_s", 140.0),
        ("x", 7.5),
        ("results[0].tok_s", 100.0),
        ("results[?n==`2`].tok_s", 140.0),
        ("nothing.here", None),
        ("mean:results[*].none", None),
    ],
)
def test_paths(path: str, value: float | None) -> None:
    assert evaluate(path, DATA) == value


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("median:results[*].tok_s", "median"),
        ("results[", "not valid JMESPath"),
        ("results[*].tok_s", "2 values" if False else "finds"),
    ],
)
def test_wrong_paths(path: str, word: str) -> None:
    with pytest.raises(MetricPathError, match=word):
        evaluate(path, DATA)


def test_all_paths() -> None:
    assert evaluate_all({"a": "x", "b": "y"}, DATA) == {"a": 7.5}
    assert split_path("results[0]") == ("", "results[0]")
