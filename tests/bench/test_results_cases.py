"""Every group H case: another tool's result file and the right answer to it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ddtop.bench.importers import diagnose_results

from .test_sse_cases import CASES, META


def wrong_fields(expect: dict[str, Any], got: dict[str, Any]) -> list[str]:
    wrong = []
    for key, value in expect.items():
        mine = got.get(key)
        if value == "absent":
            if mine is not None:
                wrong.append(f"{key} should be absent, is {mine!r}")
        elif isinstance(value, float):
            if mine is None or abs(mine - value) > max(0.005 * abs(value), 5e-4):
                wrong.append(f"{key}: {mine!r} is not {value!r}")
        elif mine != value:
            wrong.append(f"{key}: {mine!r} is not {value!r}")
    return wrong


@pytest.mark.parametrize("folder", sorted(CASES.glob("H*")), ids=lambda folder: folder.name)
def test_case(folder: Path) -> None:
    expect = tomllib.loads((folder / "expect.toml").read_text())
    for file in sorted(folder.glob("input*")):
        suffix = file.stem.removeprefix("input")
        mine = {}
        for key, value in expect.items():
            found = re.fullmatch(r"(.*)_input(\d+)", key)
            if found and found.group(2) == suffix:
                mine[found.group(1)] = value
            elif not found and not suffix and key not in META:
                mine[key] = value
        assert wrong_fields(mine, diagnose_results(file)) == [], file.name


def test_there_are_cases() -> None:
    assert len(list(CASES.glob("H*"))) >= 12


def test_second_record_file_of_aiperf() -> None:
    got = diagnose_results(CASES / "H09-aiperf-errors-exit-0" / "record.jsonl")
    assert got["verdict"] == "failed" and got["first_error_code"] == 499 and got["requests_failed"] == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "empty"),
        (b"hello", "neither JSON"),
        (b'{"a": 1}', "keys a"),
        (b"[1, 2]", "list"),
        (b"\xff\xfe\x00", "neither"),
    ],
)
def test_what_is_no_result(text: bytes, why: str) -> None:
    got = diagnose_results(text)
    assert got["verdict"] == "unknown" and got["cause"] == "not-a-result" and why in got["why"]


def test_zero_of_zero_is_no_measurement_in_every_format() -> None:
    zero = {"unit": "ms", "avg": 0}
    for data in (
        {"completed": 0, "duration": 3.0, "output_throughput": 0.0, "accept_length": None},
        {"request_count": {"avg": 0}, "request_latency": zero, "error_request_count": {"avg": 4}},
        {
            "aggregated_metrics": {
                "num_completed_requests": 0,
                "num_error_requests": 3,
                "mean_output_throughput_tokens_per_s": 0,
            }
        },
        {"successes": {"count": 0}, "failures": {"count": 9}},
    ):
        got = diagnose_results(json.dumps(data).encode())
        assert (got["verdict"], got["cause"]) == ("failed", "no-request-completed"), data
        assert "output_tps" not in got and "e2e_mean_ms" not in got


def test_a_speculative_vllm_result_keeps_no_itl() -> None:
    data = {
        "num_prompts": 8,
        "completed": 8,
        "failed": 0,
        "duration": 4.0,
        "max_concurrency": 2,
        "output_throughput": 250.0,
        "mean_itl_ms": 20.0,
        "median_itl_ms": 20.0,
        "mean_tpot_ms": 5.0,
        "spec_decode_acceptance_length": 3.9,
    }
    got = diagnose_results(json.dumps(data).encode())
    assert got["verdict"] == "suspect" and got["cause"] == "chunks-counted-as-tokens"
    assert got["itl_reported"] == 20.0 and "itl_p50_ms" not in got and got["tpot_mean_ms"] == 5.0
    assert got["itl_from_throughput"] == 8.0


def test_healthy_results_raise_no_doubt() -> None:
    data = {
        "num_prompts": 8,
        "completed": 8,
        "failed": 0,
        "duration": 4.0,
        "max_concurrency": 4,
        "output_throughput": 400.0,
        "median_itl_ms": 9.8,
        "max_output_tokens_per_s": 420.0,
    }
    got = diagnose_results(json.dumps(data).encode())
    assert got["verdict"] == "ok" and got["itl_p50_ms"] == 9.8 and got["peak_output_tps"] == 420.0


def test_appended_lines_supersede() -> None:
    lines = [
        {
            "backend": "sglang",
            "max_concurrency": c,
            "completed": 16,
            "duration": 2.0,
            "output_throughput": t,
            "accept_length": 3.0,
        }
        for c, t in ((1, 100.0), (4, 300.0), (1, 110.0))
    ]
    got = diagnose_results("\n".join(map(json.dumps, lines)).encode())
    assert (
        got["verdict"] == "ok" and got["concurrencies_done"] == [4, 1] and got["output_tps"] == [300.0, 110.0]
    )
    assert got["records"][1]["superseded"] == 1


def test_genai_bench_seconds() -> None:
    data = {
        "aggregated_metrics": {
            "num_requests": 10,
            "num_completed_requests": 10,
            "num_error_requests": 0,
            "num_concurrency": 2,
            "run_duration": 5.0,
            "mean_output_throughput_tokens_per_s": 123.0,
            "error_rate": 0.0,
            "stats": {"ttft": {"mean": 0.5, "p50": 0.4, "p99": 0.9}, "e2e_latency": {"mean": 1.5}},
        },
        "individual_request_metrics": [],
        "_time_unit": "s",
    }
    got = diagnose_results(json.dumps(data).encode())
    assert (
        got["verdict"] == "ok"
        and got["ttft_mean_ms"] == 500
        and got["ttft_p50_ms"] == 400
        and got["e2e_mean_ms"] == 1500
    )
    data["_time_unit"] = "ms"
    assert diagnose_results(json.dumps(data).encode())["ttft_mean_ms"] == 0.5


def test_one_batch_server() -> None:
    line = {
        "run_name": "x",
        "batch_size": 8,
        "input_len": 100,
        "output_len": 64,
        "latency": 2.0,
        "output_throughput": 256.0,
        "last_ttft": 0.3,
        "acc_length": 3.1,
    }
    got = diagnose_results(json.dumps(line).encode())
    assert (
        got["verdict"] == "ok"
        and got["concurrency"] == 8
        and got["e2e_mean_ms"] == 2000
        and got["accept_len"] == 3.1
    )


def test_guidellm_prefers_the_total() -> None:
    metrics = {
        "request_totals": {"successful": 5, "errored": 0, "incomplete": 3, "total": 8},
        "output_tokens_per_second": {"successful": {"mean": 50.0}, "total": {"mean": 80.0}},
        "request_latency": {"successful": {"mean": 1.25}},
    }
    got = diagnose_results(json.dumps({"benchmarks": [{"metrics": metrics, "duration": 9.0}]}).encode())
    assert (
        got["verdict"] == "ok"
        and got["output_tps"] == 80.0
        and got["e2e_mean_ms"] == 1250
        and got["requests_incomplete"] == 3
    )


@pytest.mark.parametrize(
    ("data", "field", "value"),
    [
        ([{"n_prompt": 0, "n_gen": 128, "avg_ts": 26.1, "samples_ts": [26.0, 26.2]}], "output_tps", 26.1),
        ({"n_prompt": 512, "n_gen": 0, "avg_ts": 900.5, "samples_ts": [1]}, "input_tps", 900.5),
        (
            {"elapsed_time": 2.0, "num_requests": 10, "tokens_per_second": 500.0, "requests_per_second": 5.0},
            "total_tps",
            500.0,
        ),
        (
            {"avg_latency": 0.5, "latencies": [0.5], "percentiles": {"50": 0.4, "99": 0.9}},
            "e2e_p99_ms",
            900.0,
        ),
        ({"successful_requests": 4, "total_latency": 2.0, "output_throughput": 77.0}, "output_tps", 77.0),
    ],
)
def test_benchmarks_of_the_engines(data: Any, field: str, value: float) -> None:
    got = diagnose_results(json.dumps(data).encode())
    assert got["verdict"] == "ok" and got[field] == pytest.approx(value)


def test_multi_turn() -> None:
    column = {"count": 20, "mean": 50.0, "50%": 45.0, "99%": 90.0}
    data = {
        "ttft_ms": column,
        "tpot_ms": column,
        "latency_ms": column,
        "summary": {"runtime_sec": 9.0, "requests_per_sec": 2.0},
    }
    got = diagnose_results(json.dumps(data).encode())
    assert (
        got["verdict"] == "ok" and got["ttft_p50_ms"] == 45 and got["requests_ok"] == 20 and got["rps"] == 2
    )
