"""One table of sanity for four doors: a file that is inspected, one that is imported, our own cells, and the results of
external benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ddtop.bench.judge.cell import judge_cell
from ddtop.cli import app
from ddtop.inspect import inspect_files
from ddtop.sweep.cell.external_benchmark import judge_command, read_metrics

from .test_judge import made
from .test_metrics import record

SOUND: dict[str, Any] = {
    "backend": "vllm",
    "num_prompts": 10,
    "completed": 10,
    "failed": 0,
    "duration": 10.0,
    "total_output_tokens": 1000,
    "output_throughput": 100.0,
    "request_throughput": 1.0,
    "mean_ttft_ms": 50.0,
    "p99_ttft_ms": 90.0,
}
NOTHING = {**SOUND, "total_output_tokens": 0, "output_throughput": 0.0}
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no-tokens": (NOTHING, "failed no-tokens", "INVALID no-tokens"),
    "hour": ({**SOUND, "p99_ttft_ms": 3.6e6}, "suspect impossible-times", "SUSPECT impossible-times"),
    "order": ({**SOUND, "median_ttft_ms": 99.0}, "suspect impossible-times", "SUSPECT impossible-times"),
    "rate": ({**SOUND, "output_throughput": 1e4}, "suspect figures-disagree", "SUSPECT figures-disagree"),
    "empty": (
        {**SOUND, "total_output_tokens": 4, "output_throughput": 0.4},
        "suspect empty-answers",
        "SUSPECT empty-answers",
    ),
    "one": (
        {**SOUND, "completed": 1, "request_throughput": 0.1},
        "partial requests-failed-or-missing",
        "INVALID most-failed",
    ),
    "two": (
        {k: v for k, v in SOUND.items() if k not in ("duration", "num_prompts")},
        "partial figures-not-read",
        "SUSPECT figures-not-read",
    ),
    "peak": (
        {**SOUND, "max_output_tokens_per_s": 30.0},
        "suspect chunks-counted-as-tokens",
        "SUSPECT peak-below-mean",
    ),
    "sound": (SOUND, "ok complete", "VALID "),
}
DONE = {"state": "done"}


def external(data: bytes, paths: dict[str, str]) -> str:
    metrics, problem, doubts = read_metrics(data, "auto", paths)
    judged = judge_command(metrics, problem, DONE, doubts)
    return f"{judged.validity} {judged.cause}"


@pytest.mark.parametrize("name", WRONG)
def test_inspect_and_import(name: str, tmp_path: Path) -> None:
    data, right, _ = WRONG[name]
    text = json.dumps(data).encode()
    got = inspect_files(None, {"input.json": text})
    assert f"{got['verdict']} {got['cause']}" == right
    file = tmp_path / "result.json"
    file.write_bytes(text)
    told = CliRunner().invoke(app, ["import", str(file)])
    imported = json.loads(told.output)
    assert (imported["verdict"], imported["cause"]) == (got["verdict"], got["cause"])
    assert imported["usable_for_comparison"] is (name in ("sound", "peak"))


@pytest.mark.parametrize("name", WRONG)
def test_an_external_benchmarks_file(name: str) -> None:
    data, _, right = WRONG[name]
    assert external(json.dumps(data).encode(), {}) == right


PATHS = {
    "output_tok_s": "output_throughput",
    "output_tokens": "total_output_tokens",
    "requests_ok": "completed",
    "requests_failed": "failed",
    "duration_s": "duration",
    "ttft_p50_ms": "median_ttft_ms",
    "ttft_p99_ms": "p99_ttft_ms",
}


@pytest.mark.parametrize("name", ["no-tokens", "hour", "order", "rate", "empty", "sound"])
def test_an_external_benchmarks_paths(name: str) -> None:
    data, _, right = WRONG[name]
    assert external(json.dumps(data).encode(), PATHS) == right


def test_an_external_benchmark_without_a_known_result_is_no_verdict_on_the_server() -> None:
    assert external(b"hello", {}) == "INVALID generator-failed"
    assert judge_command({}, "", {"state": "failed"}, {"no-tokens": "0"}).cause == "no-tokens"


def test_our_own_cells() -> None:
    assert judge_cell(made()).validity == "VALID"
    wrong = made()
    late = record(
        0, 0, 3_600_000, [10] * 14, 4
    )  # its stamps are an hour off; the generator's clock says a second
    wrong["requests"] = [late, *wrong["requests"][1:]]
    judged = judge_cell(wrong)
    assert judged.validity == "SUSPECT" and "TTFT" in judged.details["impossible-times"]
    assert judge_cell(made(requests=[])).cause == "generator-failed", "nothing was asked: no measurement"


def test_a_cell_that_the_time_limit_cut_is_not_called_contradictory() -> None:
    raw = made()
    cut = record(8, 100, 150, [10] * 14, 4)
    cut["class"] = "unfinished"
    raw["requests"].append(cut)
    assert "figures-disagree" not in judge_cell(raw).reasons
