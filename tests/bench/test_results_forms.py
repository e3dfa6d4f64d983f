"""Result files of every tool that ddtop reads, and what nothing may be made of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtop.bench.importers import diagnose_results
from ddtop.bench.importers.needs import NEEDS, WHOLE_RUN, not_read
from ddtop.bench.importers.surroundings import planned_before
from ddtop.inspect import NotJudgedError, inspect_files
from ddtop.inspect.file_kind import guess_kind

HEAD = "============ Serving Benchmark Result ============\n"
END = "=" * 50 + "\n"


def block(**lines: str) -> str:
    """A printed block of vLLM or SGLang: label → value; healthy unless changed (None leaves a line out)."""
    sound = {
        "Successful requests": "100",
        "Benchmark duration (s)": "10.00",
        "Total input tokens": "12800",
        "Total generated tokens": "6400",
        "Request throughput (req/s)": "10.00",
        "Output token throughput (tok/s)": "640.00",
        "Total Token throughput (tok/s)": "1920.00",
        "Mean TTFT (ms)": "50.00",
        "Median TTFT (ms)": "48.00",
        "P99 TTFT (ms)": "90.00",
        "Mean TPOT (ms)": "12.00",
        "Median TPOT (ms)": "12.00",
        "P99 TPOT (ms)": "14.00",
    }
    changed = {**sound, **{label.replace("_", " "): value for label, value in lines.items()}}
    return HEAD + "".join(f"{k}: {v:>20}\n" for k, v in changed.items() if v is not None) + END


def judged(source: str | dict[str, Any] | list[Any]) -> dict[str, Any]:
    text = source if isinstance(source, str) else json.dumps(source)
    return diagnose_results(text.encode())


def answer(source: str | dict[str, Any] | list[Any]) -> str:
    got = judged(source)
    return f"{got['verdict']} {got['cause']}"


def test_a_sound_block() -> None:
    got = judged(block())
    assert (got["verdict"], got["cause"], got["usable_for_comparison"]) == ("ok", "complete", True)


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({"Total generated tokens": "0", "Output token throughput (tok/s)": "0.00"}, "failed no-tokens"),
        (
            {"Total generated tokens": "40", "Output token throughput (tok/s)": "4.00"},
            "suspect empty-answers",
        ),
        ({"P99 TTFT (ms)": "45000.00"}, "suspect impossible-times"),
        ({"Median TTFT (ms)": "95.00"}, "suspect impossible-times"),
        ({"Mean TTFT (ms)": "-3.00"}, "suspect impossible-times"),
        ({"Mean TPOT (ms)": "900.00"}, "suspect impossible-times"),
        ({"Output token throughput (tok/s)": "6400.00"}, "suspect figures-disagree"),
        ({"Request throughput (req/s)": "100.00"}, "suspect figures-disagree"),
        ({"Total Token throughput (tok/s)": "64.00"}, "suspect figures-disagree"),
        ({"Benchmark duration (s)": "nan"}, "suspect figures-disagree"),
        ({"Benchmark duration (s)": None}, "partial figures-not-read"),
        ({"Successful requests": None}, "partial figures-not-read"),
        ({"Failed requests": "3"}, "partial requests-failed-or-missing"),
        ({"Successful requests": "0"}, "failed no-request-completed"),
    ],
)
def test_a_block_that_makes_no_sense(changes: dict[str, Any], right: str) -> None:
    text = block(**changes)
    assert answer(text) == right
    if right.startswith(("suspect", "failed")) or "not-read" in right:
        assert judged(text)["usable_for_comparison"] is False


def test_one_rate_alone_is_not_read() -> None:
    rates = (
        "Request throughput (req/s)",
        "Output token throughput (tok/s)",
        "Total Token throughput (tok/s)",
    )
    assert answer(block(**dict.fromkeys(rates[1:], None))) == "ok complete", "one rate is enough"
    assert answer(block(**dict.fromkeys(rates, None))) == "partial figures-not-read"


@pytest.mark.parametrize(
    "before",
    [
        "100%|██████████| 250/250 [00:10<00:00, 25.0it/s]\n",
        "  0%|          | 0/250 [00:00<?, ?it/s]\r100%|████| 250/250 [00:10<00:00]\n",
        "Namespace(backend='vllm', num_prompts=250, seed=0)\n",
        "$ vllm bench serve --model m --num-prompts 250 --max-concurrency 8\n",
        "$ python -m sglang.bench_serving --backend sglang --num-prompts=250\n",
    ],
)
def test_what_was_sent_stands_above_the_block(before: str) -> None:
    got = judged(before + block())
    assert (got["verdict"], got["requests_planned"], got["requests_failed"]) == ("partial", 250, 150)
    assert got["usable_for_comparison"] is False


def test_other_bars_do_not_say_what_was_sent() -> None:
    for line in (
        "Loading safetensors checkpoint shards: 100%|███| 39/39 [00:10<00:00]\n",
        "Fetching 250 files: 100%|███| 250/250 [00:10<00:00]\n",
        "Warmup: 100%|███| 3/3 [00:01<00:00]\n",
    ):
        assert answer(line + block()) == "ok complete", line
    assert planned_before("Namespace(num_prompts=1000)\n100%|██| 64/64 [00:01<00:00]") == 64, (
        "a data set may hold fewer prompts than were asked for"
    )


def test_a_loop_of_runs_gives_a_record_each() -> None:
    bars = [f"100%|██| {n}/{n} [00:10<00:00]\n" for n in (100, 200)]
    got = judged(bars[0] + block() + bars[1] + block())
    assert got["records_ok"] == 2 and got["requests_planned"] == [100, 200]
    assert (got["verdict"], got["cause"]) == ("partial", "requests-failed-or-missing")


NOTHING_OUT = {
    "Total generated tokens": "0",
    "Output token throughput (tok/s)": "0.00",
    "Mean TPOT (ms)": "0.00",
    "Median TPOT (ms)": "0.00",
    "P99 TPOT (ms)": "0.00",
}


@pytest.mark.parametrize("backend", ["sglang-embedding", "openai-embeddings", "vllm-rerank", "vllm-pooling"])
def test_what_gives_no_tokens_by_nature_is_sound(backend: str) -> None:
    assert answer(block(Backend=backend, **NOTHING_OUT)) == "ok complete"
    assert answer(block(Backend="sglang-oai-chat", **NOTHING_OUT)) == "failed no-tokens"


def test_chunks_without_tokens_are_not_a_dead_server() -> None:
    came = {"Mean ITL (ms)": "77.00", "Median ITL (ms)": "77.00", "P99 ITL (ms)": "85.00"}
    got = judged(block(**NOTHING_OUT, **came))
    assert (got["verdict"], got["cause"]) == ("suspect", "tokens-not-visible-to-client")
    assert "output_tps" not in got and "tpot_mean_ms" not in got and got["ttft_mean_ms"] == 50


TIMES = {"unit": "ms", "avg": 900.0, "p50": 890.0, "p99": 1200.0}
AIPERF = {
    "request_count": {"avg": 80, "unit": "requests"},
    "request_latency": TIMES,
    "time_to_first_token": {"unit": "ms", "avg": 40.0, "p50": 39.0, "p99": 60.0},
    "benchmark_duration": {"unit": "sec", "avg": 9.0},
    "request_throughput": {"avg": 80 / 9},
    "output_token_throughput": {"avg": 8000 / 9},
    "total_osl": {"avg": 8000},
}
JSON = {
    "num_prompts": 100,
    "completed": 100,
    "failed": 0,
    "duration": 10.0,
    "total_input_tokens": 12800,
    "total_output_tokens": 6400,
    "request_throughput": 10.0,
    "output_throughput": 640.0,
    "mean_ttft_ms": 50.0,
}
LLMPERF = {
    "results_num_completed_requests": 40,
    "results_number_errors": 0,
    "results_mean_output_throughput_token_per_s": 48.1,
    "results_ttft_s_mean": 0.31,
    "results_end_to_end_latency_s_mean": 3.2,
}
PERF = {
    "load_summary": {"count": 60},
    "successes": {
        "count": 60,
        "latency": {"request_latency": {"mean": 0.5}, "time_to_first_token": {"mean": 0.03}},
        "throughput": {"requests_per_sec": 1.0, "output_tokens_per_sec": 62.0},
        "output_len": {"mean": 62.3},
    },
    "failures": {"count": 0},
}


@pytest.mark.parametrize(
    ("source", "right"),
    [
        (JSON, "ok complete"),
        ({**JSON, "total_output_tokens": 0, "output_throughput": 0.0}, "failed no-tokens"),
        (
            {**JSON, "total_output_tokens": 0, "output_throughput": 0.0, "mean_itl_ms": 7.0},
            "suspect tokens-not-visible-to-client",
        ),
        ({**JSON, "completed": 1, "request_throughput": 0.1}, "partial requests-failed-or-missing"),
        ({**JSON, "p99_ttft_ms": 99_000.0}, "suspect impossible-times"),
        ({**JSON, "duration": float("nan")}, "suspect figures-disagree"),
        ({**JSON, "output_throughput": 64.0}, "suspect figures-disagree"),
        ({k: v for k, v in JSON.items() if k != "duration"}, "partial figures-not-read"),
        (AIPERF, "ok complete"),
        ({**AIPERF, "total_osl": {"avg": 0}, "output_token_throughput": {"avg": 0}}, "failed no-tokens"),
        ({**AIPERF, "time_to_first_token": {**TIMES, "avg": 40_000.0}}, "suspect impossible-times"),
        (
            {**AIPERF, "time_to_first_token": {"unit": "ms", "avg": 40.0, "p50": 70.0, "p99": 60.0}},
            "suspect impossible-times",
        ),
        (LLMPERF, "ok complete"),
        ({**LLMPERF, "results_mean_output_throughput_token_per_s": 0.0}, "failed no-tokens"),
        ({**LLMPERF, "results_ttft_s_mean": 4.0}, "suspect impossible-times"),
        ({"results_num_completed_requests": 40, "results_number_errors": 0}, "partial figures-not-read"),
        (PERF, "ok complete"),
        (
            {**PERF, "successes": {**PERF["successes"], "throughput": {"output_tokens_per_sec": 0.0}}},
            "failed no-tokens",
        ),  # type: ignore[dict-item]
        ({**PERF, "load_summary": {"count": 600}}, "partial requests-failed-or-missing"),
    ],
)
def test_json_of_each_tool(source: dict[str, Any], right: str) -> None:
    assert answer(source) == right


BATCHED = """main: n_kv_max = 8192, n_batch = 2048

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   512 |    128 |    1 |    640 |    0.101 |  5069.31 |    0.953 |   134.31 |    1.054 |   607.21 |
|   512 |    128 |    8 |   5120 |    0.700 |  5851.43 |    1.902 |   538.38 |    2.602 |  1967.72 |
"""
BENCHY = """| model | test | t/s | peak t/s | ttfr (ms) | est_ppt (ms) | e2e_ttft (ms) |
|:------|-----:|----:|---------:|----------:|-------------:|--------------:|
| m | pp2048 | 2000.10 ± 5.00 | | 1030.00 ± 3.00 | 1025.00 ± 3.00 | 1042.00 ± 4.00 |
| m | tg32 | 49.98 ± 0.03 | 51.00 ± 0.00 | | | |
"""
OLLAMA = """>>> total duration:       4.605s
load duration:        29.47ms
prompt eval count:    26 token(s)
prompt eval duration: 120.5ms
prompt eval rate:     215.77 tokens/s
eval count:           298 token(s)
eval duration:        4.2s
eval rate:            70.95 tokens/s
"""
MLPERF = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 12.30
Completed tokens per second: 3456.70
Result is : VALID
  Performance constraints satisfied : Yes
  Min duration satisfied : Yes
99.00 percentile first token latency (ns)   : 450000000
"""
EVALSCOPE = """┏━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━┓
┃ Metric                    ┃ Value          ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━┩
│ Test Duration (s)         │ 31.20          │
│ Concurrency               │ 8              │
│ Total / Success / Failed  │ 100 / 100 / 0  │
│ Req Throughput (req/s)    │ 3.21           │
│ Avg Latency (s)           │ 2.40           │
│ TTFT (ms)                 │ 210.0          │
│ Output Throughput (tok/s) │ 812.20         │
└───────────────────────────┴────────────────┘
"""
SEND_ONE = """+-------------+--------+------------+-----------------+
| Latency (s) | Tokens | Acc Length | Speed (token/s) |
+-------------+--------+------------+-----------------+
|    2.000    |  512   |   3.210    |     256.00      |
+-------------+--------+------------+-----------------+
"""
DFLASH = """Backend:          sglang
Num prompts:      16
Concurrency:      1
Latency:          10.0s
Output tokens:    4000
Throughput:       400.00 tok/s
Accept length:    5.10
"""
HYPER = """====Result for Model: m====
Total time (seconds): 100.00 s
Successful/total requests: 90/100
Requests/sec: 1.00
Output_tokens/min: 6000.00
"""
ROW = {
    "hw": "h200",
    "tp": 8,
    "conc": 64,
    "model": "m",
    "framework": "sglang",
    "tput_per_gpu": 2000.0,
    "output_tput_per_gpu": 1000.0,
    "median_ttft": 0.2,
}


@pytest.mark.parametrize(
    ("source", "right", "figures"),
    [
        (BATCHED, "ok complete", {"output_tps": [134.31, 538.38], "concurrencies_done": [1, 8]}),
        ({"pp": 512, "tg": 128, "pl": 8, "speed_pp": 5851.4, "speed_tg": 538.4, "t": 2.6, "speed": 1967.7}, "ok complete", {"output_tps": 538.4}),
        (BENCHY, "ok complete", {"records_ok": 2}),
        (OLLAMA, "ok complete", {"output_tps": 70.95, "duration_s": 4.605, "output_tokens": 298}),
        (OLLAMA.replace("298 token", "0 token").replace("70.95", "0.00"), "failed no-tokens", {}),
        (MLPERF, "ok complete", {"output_tps": 3456.7, "ttft_p99_ms": 450.0}),
        (MLPERF.replace("VALID", "INVALID").replace("duration satisfied : Yes", "duration satisfied : NO"), "suspect declared-invalid", {}),
        (EVALSCOPE, "ok complete", {"output_tps": 812.2, "requests_ok": 100, "ttft_mean_ms": 210.0}),
        (EVALSCOPE.replace("100 / 100 / 0", "100 / 98 / 2"), "partial requests-failed-or-missing", {"requests_failed": 2}),
        (SEND_ONE, "ok complete", {"output_tps": 256.0, "accept_len": 3.21}),
        (DFLASH, "ok complete", {"requests_planned": 16, "duration_s": 10.0}),
        (DFLASH.replace("4000", "0").replace("400.00 tok", "0.00 tok"), "failed no-tokens", {}),
        (DFLASH.replace("400.00 tok", "4000.00 tok"), "suspect figures-disagree", {}),
        (HYPER, "partial requests-failed-or-missing", {"requests_failed": 10, "output_tps": 100.0}),
        (ROW, "ok complete", {"output_tps": 8000.0, "total_tps": 16000.0, "ttft_p50_ms": 200.0}),
        ([ROW, ROW], "ok complete", {"records_ok": 2}),
        ({**ROW, "tput_per_gpu": 900.0}, "suspect figures-disagree", {}),
        ("Throughput: 13.45 requests/s, 5511.20 total tokens/s, 2600.10 output tokens/s\n", "ok complete", {"output_tps": 2600.1}),
        ("Avg latency: 1.25 seconds\n50% percentile latency: 1.20 seconds\n99% percentile latency: 1.40 seconds\n", "ok complete", {"e2e_p99_ms": 1400.0}),
        ("Prefill. latency: 0.09190 s, throughput:  11142.45 token/s\nDecode.  median latency: 0.00600 s, median throughput:    166.70 token/s\nTotal. latency:  1.000 s, throughput:   1200.00 token/s\n", "ok complete", {"output_tps": 166.7, "input_tps": 11142.45}),
    ],
)  # fmt: skip
def test_other_forms(source: Any, right: str, figures: dict[str, Any]) -> None:
    assert answer(source) == right
    got = judged(source)
    for name, value in figures.items():
        assert got[name] == (pytest.approx(value) if isinstance(value, float) else value), name
    text = source if isinstance(source, str) else json.dumps(source)
    assert guess_kind({"input.txt": text.encode()}) == "results"


LOAD_TOOLS = {
    "k6": "     http_req_duration..............: avg=120.1ms min=10ms med=110ms max=900ms p(90)=200ms p(95)=300ms\n",
    "vegeta": "Requests      [total, rate, throughput]         500, 100.20, 99.80\nSuccess       [ratio]  100.00%\n",
    "hey": "Summary:\n  Total:\t2.1 secs\n  Requests/sec:\t95.1\n\nResponse time histogram:\n  0.100 [1]\t|\n",
    "wrk": "Running 30s test\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   120ms    10ms  300ms   90%\n",
    "locust": "Type     Name      # reqs      # fails |    Avg     Min     Max    Med |   req/s  failures/s\n",
    "ab": "Server Port: 8000\nConcurrency Level:      8\nTime taken for tests:   2.100 seconds\nComplete requests: 100\n",
}


@pytest.mark.parametrize("tool", LOAD_TOOLS)
def test_a_load_tools_report_is_named_and_not_judged(tool: str) -> None:
    text = LOAD_TOOLS[tool]
    got = judged(text)
    assert got["verdict"] == "unknown" and tool in got["why"] and "tokens" in got["why"]
    assert guess_kind({"input.txt": text.encode()}) == "results"
    with pytest.raises(NotJudgedError, match=tool):
        inspect_files(None, {"input.txt": text.encode()})


@pytest.mark.parametrize("text", ["hello", '{"a": 1}', "[1, 2]", "name,age\nx,3\n", "Throughput: fast\n"])
def test_an_unknown_form_is_unknown(text: str) -> None:
    assert judged(text)["verdict"] == "unknown"
    with pytest.raises(NotJudgedError):
        inspect_files("results", {"input.txt": text.encode()})


def test_tools_of_the_tables_are_those_of_the_importers() -> None:
    assert not_read({"tool": "nobody's"}) == ("the number of requests", "the duration", "a rate")
    assert not WHOLE_RUN & {tool for tool, needs in NEEDS.items() if len(needs) == 1}


def test_few_failures_do_not_hide_that_nothing_makes_sense() -> None:
    lost = {"Failed requests": "3"}
    assert judged(block(**lost))["usable_for_comparison"] is True
    hour = judged(block(**lost, **{"P99 TTFT (ms)": "3600000.00"}))
    assert hour["verdict"] == "partial" and hour["usable_for_comparison"] is False and "TTFT" in hour["why"]


def test_the_evidence_is_what_the_doubt_rests_on() -> None:
    def lines(text: str) -> list[str]:
        return [one["text"] for one in inspect_files("results", {"input.txt": text.encode()})["evidence"]]

    assert any("generated tokens" in line for line in lines(block(**NOTHING_OUT)))
    assert any("P99 TTFT" in line for line in lines(block(**{"P99 TTFT (ms)": "3600000.00"})))
    missing = lines("100%|██| 250/250 [00:10<00:00]\n" + block())
    assert any("250/250" in line for line in missing) and any("Successful" in line for line in missing)


def test_advice_where_the_client_counted_nothing() -> None:
    came = {"Mean ITL (ms)": "77.00", "Median ITL (ms)": "77.00"}
    assert "throughput" not in judged(block(**NOTHING_OUT, **came))["advice"]
