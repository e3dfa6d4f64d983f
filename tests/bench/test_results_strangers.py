"""Result inputs as strangers give them, each with the answer that was written down before ddtop was asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtop.inspect import NotJudgedError, inspect_files

CASES: list[tuple[str, str, Any]] = []


def case(name: str, right: str, source: Any) -> None:
    CASES.append((name, right, source))


def said(source: Any) -> str:
    data = (
        source
        if isinstance(source, bytes)
        else (source if isinstance(source, str) else json.dumps(source)).encode()
    )
    try:
        got = inspect_files(None, {"input.txt": data})
    except NotJudgedError:
        return "unknown"
    return f"{got['kind']}: {got['verdict']} {got['cause']}"


S = "============ Serving Benchmark Result ============\n"
E = "=" * 50 + "\n"


def blk(**k: str) -> str:
    return S + "".join(f"{a.ljust(40)} {b}\n" for a, b in k.items()) + E


B = {
    "Successful requests:": "16",
    "Benchmark duration (s):": "8.00",
    "Total input tokens:": "1600",
    "Total generated tokens:": "2048",
    "Request throughput (req/s):": "2.00",
    "Output token throughput (tok/s):": "256.00",
}
# journal prefix
case(
    "journal",
    "results: ok complete",
    "".join(
        f"Apr 03 09:19:0{i % 10} gpu01 bench[612]: {row}\n" for i, row in enumerate(blk(**B).splitlines())
    ),
)
case(
    "pod-prefix",
    "results: ok complete",
    "".join(f"[pod/bench-x7/bench] {row}\n" for row in blk(**B).splitlines()),
)
case(
    "loop-of-3-one-dead",
    "results: failed no-tokens",
    "".join(
        blk(**{**B, **x})
        for x in ({}, {"Total generated tokens:": "0", "Output token throughput (tok/s):": "0.00"}, {})
    ),
)
case(
    "ctrl-c",
    "results: partial requests-failed-or-missing",
    "  3%|▎         | 16/500 [00:08<04:02,  2.0it/s]\n" + blk(**B),
)
case(
    "server log and block",
    "results: ok complete",
    'INFO: 127.0.0.1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\nstarting benchmark\n' + blk(**B),
)
case(
    "tpot-impossible",
    "results: suspect impossible-times",
    blk(**{**B, "Mean TPOT (ms):": "500.00", "Median TPOT (ms):": "500.00"}),
)
case(
    "little-law",
    "results: suspect impossible-times",
    blk(**{**B, "Max request concurrency:": "1", "Mean E2E Latency (ms):": "4000.00"}),
)
case(
    "itl-nan-one-token",
    "results: ok complete",
    blk(
        **{
            **B,
            "Total generated tokens:": "16",
            "Output token throughput (tok/s):": "2.00",
            "Mean TPOT (ms):": "nan",
            "Mean ITL (ms):": "nan",
        }
    ),
)
case("burst", "results: partial requests-failed-or-missing", blk(**{**B, "Failed requests:": "1"}))
case(
    "peak-below",
    "results: suspect chunks-counted-as-tokens",
    blk(**{**B, "Peak output token throughput (tok/s):": "90.00"}),
)
case("german comma?", "results: partial figures-not-read", blk(**{**B, "Benchmark duration (s):": "acht"}))
case(
    "embedding openai",
    "results: ok complete",
    blk(
        **{
            "Successful requests:": "300",
            "Benchmark duration (s):": "3.36",
            "Total input tokens:": "76537",
            "Request throughput (req/s):": "89.32",
            "Total Token throughput (tok/s):": "22787.4",
            "Mean E2EL (ms):": "59.2",
        }
    ),
)
case(
    "rerank json",
    "results: ok complete",
    {
        "backend": "vllm-rerank",
        "num_prompts": 10,
        "completed": 10,
        "failed": 0,
        "duration": 1.0,
        "total_output_tokens": 0,
        "output_throughput": 0.0,
        "request_throughput": 10.0,
    },
)
case(
    "json-nan-tput",
    "results: suspect figures-disagree",
    '{"num_prompts":8,"completed":8,"failed":0,"duration":12.0,"total_output_tokens":800,"output_throughput":NaN,"request_throughput":0.667}',
)
case(
    "json-all-zero",
    "results: failed no-request-completed",
    {
        "num_prompts": 8,
        "completed": 0,
        "failed": 8,
        "duration": 12.0,
        "total_output_tokens": 0,
        "output_throughput": 0.0,
        "request_throughput": 0.0,
    },
)
case(
    "json-duration-zero",
    "results: suspect impossible-times",
    {
        "num_prompts": 8,
        "completed": 8,
        "failed": 0,
        "duration": 0.0,
        "total_output_tokens": 800,
        "output_throughput": 100.0,
        "request_throughput": 1.0,
    },
)
case(
    "jsonl-two-one-bad",
    "results: failed no-tokens",
    "\n".join(
        json.dumps(
            {
                "backend": "sglang",
                "max_concurrency": c,
                "completed": 8,
                "duration": 2.0,
                "total_output_tokens": t,
                "output_throughput": t / 2,
                "accept_length": 2.0,
            }
        )
        for c, t in ((1, 800), (4, 0))
    ),
)
case(
    "accept-over-draft",
    "results: suspect acceptance-out-of-bounds",
    {
        "num_prompts": 8,
        "completed": 8,
        "failed": 0,
        "duration": 8.0,
        "total_output_tokens": 800,
        "output_throughput": 100.0,
        "num_speculative_tokens": 4,
        "spec_decode_acceptance_length": 7.5,
    },
)
case(
    "genaiperf-csv",
    "results: ok complete",
    "Metric,avg,min,max,p99,p95,p90,p75,p50,p25\nTime To First Token (ms),60,50,80,79,75,70,65,59,55\nRequest Latency (ms),600,500,710,700,690,680,650,590,550\n\nMetric,Value\nOutput Token Throughput (per sec),150.2\nRequest Throughput (per sec),1.5\nRequest Count (count),30\n",
)
case(
    "genaiperf-csv-zero",
    "results: failed no-tokens",
    "Metric,avg,min,max,p99,p95,p90,p75,p50,p25\nRequest Latency (ms),600,500,710,700,690,680,650,590,550\nOutput Sequence Length,0,0,0,0,0,0,0,0,0\n\nMetric,Value\nOutput Token Throughput (per sec),0.00\nRequest Throughput (per sec),1.5\nRequest Count (count),30\n",
)
case(
    "genaiperf-csv-order",
    "results: suspect impossible-times",
    "Metric,avg,min,max,p99,p95,p90,p75,p50,p25\nRequest Latency (ms),600,500,710,700,690,680,650,790,550\n\nMetric,Value\nOutput Token Throughput (per sec),150.00\nRequest Throughput (per sec),1.5\nRequest Count (count),30\n",
)
case(
    "batched-jsonl",
    "results: ok complete",
    '{"n_kv_max": 8192, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 1, "is_pp_shared": 0, "n_gpu_layers": 99, "n_threads": 8, "n_threads_batch": 8, "pp": 128, "tg": 128, "pl": 1, "n_kv": 256, "t_pp": 0.2, "speed_pp": 640.0, "t_tg": 1.0, "speed_tg": 128.0, "t": 1.2, "speed": 213.3}\n{"n_kv_max": 8192, "pp": 128, "tg": 128, "pl": 2, "n_kv": 512, "t_pp": 0.2, "speed_pp": 1280.0, "t_tg": 1.0, "speed_tg": 256.0, "t": 1.2, "speed": 426.6}\n',
)
case(
    "benchy json zero",
    "results: failed no-tokens",
    {
        "model": "m",
        "benchmarks": [
            {
                "concurrency": 1,
                "prompt_size": 128,
                "response_size": 32,
                "tg_throughput": {"mean": 0.0, "values": [0.0]},
            }
        ],
    },
)
case(
    "evalscope json",
    "results: suspect impossible-times",
    {
        "Time taken for tests (s)": 10.0,
        "Number of concurrency": 1,
        "Total requests": 5,
        "Succeed requests": 5,
        "Failed requests": 0,
        "Output token throughput (tok/s)": 50.0,
        "Average time to first token (s)": 90.0,
    },
)
case(
    "trtllm full ok",
    "results: ok complete",
    "= PERFORMANCE OVERVIEW\nNumber of requests:             1000\nRequest Throughput (req/sec):                     43.2089\nTotal Output Throughput (tokens/sec):             5530.7382\nTotal Latency (ms):                               23143.4\nAverage request latency (ms):                     9903.4456\n",
)
case(
    "trtllm latency over total",
    "results: suspect impossible-times",
    "= PERFORMANCE OVERVIEW\nNumber of requests:             1000\nRequest Throughput (req/sec):                     43.2089\nTotal Output Throughput (tokens/sec):             5530.7382\nTotal Latency (ms):                               23143.4\nAverage request latency (ms):                     75903.4456\n",
)
case(
    "llmperf negative",
    "results: suspect impossible-times",
    {
        "results_num_completed_requests": 40,
        "results_number_errors": 0,
        "results_mean_output_throughput_token_per_s": 48.1,
        "results_ttft_s_mean": -0.31,
    },
)
case(
    "infx table",
    "results: ok complete",
    "| Model | Hardware | Framework | TP | EP | Conc | TTFT (ms) | TPOT (ms) | TPUT per GPU | Output TPUT per GPU |\n|---|---|---|---|---|---|---|---|---|---|\n| dsr1 | h200 | sglang | 8 | 8 | 64 | 310.0 | 15.0 | 1000.5 | 500.2 |\n",
)
case(
    "oha",
    "unknown",
    "Summary:\n  Success rate:\t100.00%\n  Total:\t2.0 secs\n  Requests/sec:\t95.0\n\nResponse time histogram:\n",
)
case(
    "hyper-json",
    "results: partial requests-failed-or-missing",
    {
        "config": {},
        "metrics": {
            "num_prompts_attempted": 100,
            "num_prompts_succeeded": 90,
            "benchmark_time": 10.0,
            "throughput": 100.0,
            "total_output_token": 1000,
        },
    },
)
case(
    "guidellm-in-progress",
    "results: failed no-request-completed",
    {
        "benchmarks": [
            {
                "metrics": {"request_totals": {"successful": 0, "errored": 5, "incomplete": 0, "total": 5}},
                "duration": 10.0,
            }
        ]
    },
)
case(
    "wrk",
    "unknown",
    "Running 30s test @ http://x\n  2 threads and 8 connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   120.00ms    5.00ms 300.00ms   90.00%\n",
)
case(
    "ok-of-100-by-command",
    "results: partial requests-failed-or-missing",
    "$ python3 -m sglang.bench_serving --backend sglang --num-prompts 100 --max-concurrency 4\n" + blk(**B),
)
case(
    "rounded slow",
    "results: ok complete",
    blk(
        **{
            "Successful requests:": "1",
            "Benchmark duration (s):": "400.00",
            "Total generated tokens:": "1",
            "Request throughput (req/s):": "0.00",
            "Output token throughput (tok/s):": "0.00",
        }
    ),
)
# 1 vllm 2026 with speculative section, healthy
case(
    "vllm-2026-spec",
    "results: suspect chunks-counted-as-tokens",
    S
    + """Successful requests:                     960       
Failed requests:                         0         
Maximum request concurrency:             16        
Benchmark duration (s):                  206.67    
Total input tokens:                      227546    
Total generated tokens:                  288000    
Request throughput (req/s):              4.65      
Output token throughput (tok/s):         1393.52   
Peak output token throughput (tok/s):    585.00    
Peak concurrent requests:                25.00     
Total token throughput (tok/s):          2494.53   
---------------Time to First Token----------------
Mean TTFT (ms):                          209.36    
Median TTFT (ms):                        193.29    
P99 TTFT (ms):                           414.69    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          10.76     
Median TPOT (ms):                        10.80     
P99 TPOT (ms):                           17.09     
---------------Inter-token Latency----------------
Mean ITL (ms):                           38.40     
Median ITL (ms):                         22.08     
P99 ITL (ms):                            156.83    
---------------Speculative Decoding---------------
Acceptance rate (%):                     86.20
Acceptance length:                       3.59
Drafts:                                  80000
Draft tokens:                            240000
Accepted tokens:                         207000
"""
    + E,
)
# 2 log prefix (docker compose / kubectl / timestamps) in front of each line
case(
    "block-compose-prefix",
    "results: failed no-tokens",
    "".join(
        "bench-1  | " + row + "\n"
        for row in (
            S
            + "Successful requests: 10\nBenchmark duration (s): 2.00\nTotal generated tokens: 0\nOutput token throughput (tok/s): 0.00\nRequest throughput (req/s): 5.00\n"
            + E
        ).splitlines()
    ),
)
case(
    "block-kubectl-ts",
    "results: partial requests-failed-or-missing",
    "".join(
        "2026-05-01T10:00:00.123456789Z " + row + "\n"
        for row in (
            "Namespace(backend='vllm', num_prompts=64)\n"
            + S
            + "Successful requests: 10\nBenchmark duration (s): 2.00\nTotal generated tokens: 640\nOutput token throughput (tok/s): 320.00\nRequest throughput (req/s): 5.00\n"
            + E
        ).splitlines()
    ),
)
case(
    "block-ansi",
    "results: ok complete",
    "\x1b[1m"
    + S.rstrip()
    + "\x1b[0m\n"
    + "".join(
        f"\x1b[32m{k}\x1b[0m: {v}\n"
        for k, v in {
            "Successful requests": "10",
            "Benchmark duration (s)": "2.00",
            "Total generated tokens": "640",
            "Output token throughput (tok/s)": "320.00",
        }.items()
    )
    + E,
)
case(
    "block-crlf",
    "results: ok complete",
    (
        S
        + "Successful requests: 10\nBenchmark duration (s): 2.00\nTotal generated tokens: 640\nOutput token throughput (tok/s): 320.00\n"
        + E
    ).replace("\n", "\r\n"),
)
case(
    "two-figures",
    "results: partial figures-not-read",
    S + "Output token throughput (tok/s): 320.00\nMean TTFT (ms): 20.00\n" + E,
)
case("cut-in-the-middle", "results: partial figures-not-read", S + "Successful requests: 10\nBenchmark durat")
case(
    "thousands",
    "results: ok complete",
    S
    + "Successful requests: 1,000\nBenchmark duration (s): 20.00\nTotal generated tokens: 64,000\nOutput token throughput (tok/s): 3,200.00\n"
    + E,
)
case(
    "sglang-tqdm-desc",
    "results: partial requests-failed-or-missing",
    "benchmark_args=Namespace(backend='sglang', num_prompts=1000, max_concurrency=16)\n#Input tokens: 1000\n#Output tokens: 1000\n 45%|████▌     | 452/1000 [01:00<01:10,  7.5it/s]\n"
    + S
    + "Backend: sglang\nTraffic request rate: inf\nMax request concurrency: 16\nSuccessful requests: 452\nBenchmark duration (s): 60.00\nTotal input tokens: 4520\nTotal generated tokens: 45200\nRequest throughput (req/s): 7.53\nOutput token throughput (tok/s): 753.33\n"
    + E,
)
case(
    "sglang-jsonl-zero",
    "results: failed no-tokens",
    {
        "backend": "sglang",
        "completed": 16,
        "duration": 3.0,
        "total_output_tokens": 0,
        "output_throughput": 0.0,
        "request_throughput": 5.3,
        "accept_length": None,
        "mean_ttft_ms": 0.0,
    },
)
case(
    "sglang-jsonl-embed",
    "results: ok complete",
    {
        "backend": "sglang-embedding",
        "completed": 16,
        "duration": 3.0,
        "total_input_tokens": 3000,
        "total_output_tokens": 0,
        "output_throughput": 0.0,
        "request_throughput": 5.33,
        "input_throughput": 1000.0,
        "mean_e2e_latency_ms": 50.0,
    },
)
case(
    "vllm-pooling-json",
    "results: ok complete",
    {
        "date": "x",
        "endpoint_type": "openai-embeddings",
        "num_prompts": 100,
        "completed": 100,
        "failed": 0,
        "duration": 4.0,
        "total_input_tokens": 10000,
        "request_throughput": 25.0,
        "total_token_throughput": 2500.0,
        "mean_e2el_ms": 30.0,
    },
)
case(
    "vllm-errors-list",
    "results: partial requests-failed-or-missing",
    {
        "num_prompts": 4,
        "completed": 3,
        "duration": 4.0,
        "total_output_tokens": 300,
        "output_throughput": 75.0,
        "request_throughput": 0.75,
        "errors": ["", "", "ServerDisconnected", ""],
    },
)
case(
    "hour-ttft",
    "results: suspect impossible-times",
    {
        "num_prompts": 8,
        "completed": 8,
        "failed": 0,
        "duration": 12.0,
        "total_output_tokens": 800,
        "output_throughput": 66.7,
        "request_throughput": 0.667,
        "mean_ttft_ms": 450000.0,
        "p99_ttft_ms": 3600000.0,
    },
)
case(
    "e2e-under-ttft",
    "results: suspect impossible-times",
    {
        "num_prompts": 8,
        "completed": 8,
        "failed": 0,
        "duration": 12.0,
        "total_output_tokens": 800,
        "output_throughput": 66.7,
        "request_throughput": 0.667,
        "mean_ttft_ms": 4500.0,
        "mean_e2el_ms": 900.0,
    },
)
case(
    "rate-factor-1000",
    "results: suspect figures-disagree",
    {
        "num_prompts": 8,
        "completed": 8,
        "failed": 0,
        "duration": 12.0,
        "total_output_tokens": 800,
        "output_throughput": 66700.0,
        "request_throughput": 0.667,
    },
)
case(
    "genai-perf-json",
    "results: ok complete",
    {
        "request_throughput": {"unit": "requests/sec", "avg": 1.5},
        "request_latency": {"unit": "ms", "avg": 600, "p50": 590, "p99": 700, "min": 500, "max": 710},
        "time_to_first_token": {"unit": "ms", "avg": 60, "p50": 59, "p99": 70},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 150},
        "request_count": {"unit": "count", "avg": 30},
    },
)
case(
    "genai-perf-json-cut",
    "results: partial figures-not-read",
    {"request_latency": {"unit": "ms", "avg": 600, "p50": 590, "p99": 700}},
)
case(
    "aiperf-zero-osl",
    "results: failed no-tokens",
    {
        "request_count": {"avg": 10, "unit": "requests"},
        "request_latency": {"unit": "ms", "avg": 60},
        "request_throughput": {"avg": 10},
        "output_token_throughput": {"avg": 0.0},
        "benchmark_duration": {"unit": "sec", "avg": 1.0},
    },
)
case(
    "aiperf-max-below-p99",
    "results: suspect impossible-times",
    {
        "request_count": {"avg": 10},
        "request_latency": {"unit": "ms", "avg": 60, "p99": 90, "max": 80},
        "request_throughput": {"avg": 10},
        "output_token_throughput": {"avg": 100},
        "benchmark_duration": {"unit": "sec", "avg": 1.0},
    },
)
G = {
    "request_totals": {"successful": 10, "errored": 0, "incomplete": 0, "total": 10},
    "output_tokens_per_second": {"successful": {"mean": 0.0}, "total": {"mean": 0.0}},
    "output_token_count": {"successful": {"mean": 0.0}},
    "request_latency": {"successful": {"mean": 1.0}},
}
case("guidellm-zero", "results: failed no-tokens", {"benchmarks": [{"metrics": G, "duration": 10.0}]})
G2 = {
    **G,
    "output_tokens_per_second": {"total": {"mean": 90.0}},
    "output_token_count": {"successful": {"mean": 9.0}},
    "time_to_first_token_ms": {"successful": {"mean": 2000.0, "percentiles": {"p50": 1900}}},
}
case(
    "guidellm-ttft-over-latency",
    "results: suspect impossible-times",
    {"benchmarks": [{"metrics": G2, "duration": 10.0}]},
)
case(
    "infperf-nothing-failed-count",
    "results: partial requests-failed-or-missing",
    {
        "load_summary": {"count": 100},
        "successes": {
            "count": 1,
            "latency": {"request_latency": {"mean": 1}},
            "throughput": {"output_tokens_per_sec": 40.0},
        },
        "failures": {"count": 99},
    },
)
case(
    "llama-bench-nan",
    "results: suspect figures-disagree",
    [{"n_prompt": 0, "n_gen": 128, "avg_ts": float("nan"), "samples_ts": []}],
)
case(
    "llama-bench-zero",
    "results: failed no-tokens",
    [{"n_prompt": 0, "n_gen": 128, "avg_ts": 0.0, "samples_ts": [0.0]}],
)
case(
    "llama-bench-csv",
    "results: ok complete",
    "build_commit,build_number,model_filename,model_type,n_prompt,n_gen,n_depth,avg_ts,stddev_ts\nabc,1,m.gguf,llama,0,128,0,131.2,0.3\n",
)
case(
    "batched-zero",
    "results: failed no-tokens",
    "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n|---|---|---|---|---|---|---|---|---|---|\n|   512 |    128 |    1 |    640 |    0.101 |  5069.31 |    0.953 |   0.00 |    1.054 |   0.00 |\n",
)
case(
    "evalscope-json-zero",
    "results: failed no-tokens",
    {
        "Time taken for tests (s)": 10.0,
        "Number of concurrency": 1,
        "Total requests": 5,
        "Succeed requests": 5,
        "Failed requests": 0,
        "Output token throughput (tok/s)": 0.0,
        "Average output tokens per request": 0.0,
    },
)
case(
    "evalscope-one-of-100",
    "results: partial requests-failed-or-missing",
    {
        "Time taken for tests (s)": 10.0,
        "Number of concurrency": 1,
        "Total requests": 100,
        "Succeed requests": 1,
        "Failed requests": 99,
        "Output token throughput (tok/s)": 10.0,
    },
)
case(
    "trtllm-zero",
    "results: failed no-tokens",
    "=== PERFORMANCE OVERVIEW\nRequest Throughput (req/sec): 43.2\nTotal Output Throughput (tokens/sec): 0.0\nTotal Latency (ms): 1000.0\n",
)
case(
    "trtllm-no-latency",
    "results: partial figures-not-read",
    "= PERFORMANCE OVERVIEW\nTotal Output Throughput (tokens/sec): 5530.7\n",
)
case(
    "ollama-with-text",
    "results: ok complete",
    ">>> why is the sky blue\nBecause of Rayleigh scattering: light\n\ntotal duration:       1m2.605s\nload duration:        29.47ms\nprompt eval count:    26 token(s)\nprompt eval duration: 120.5ms\nprompt eval rate:     215.77 tokens/s\neval count:           4298 token(s)\neval duration:        1m0.5s\neval rate:            71.04 tokens/s\n",
)
case(
    "ollama-json",
    "results: ok complete",
    {
        "model": "m",
        "response": "hi there",
        "done": True,
        "done_reason": "stop",
        "total_duration": 4605000000,
        "load_duration": 29000000,
        "prompt_eval_count": 26,
        "prompt_eval_duration": 120500000,
        "eval_count": 298,
        "eval_duration": 4200000000,
    },
)
case(
    "hypercomputer-all-failed",
    "results: failed no-request-completed",
    "====Result for Model: m====\nErrors: {'ClientConnectorError': 100}\nTotal time: 3.0 s\nSuccessful/total requests: 0/100\nRequests/min: 2000.0\nOutput_tokens/min: 0.00\n",
)
case(
    "dflash-vllm-no-accept",
    "results: ok complete",
    "Backend:          vllm\nDataset:          gsm8k\nNum prompts:      128\nConcurrency:      8\nLatency:          20.0s\nOutput tokens:    40000\nThroughput:       2000.00 tok/s\n",
)
case(
    "dflash-transformers-cut",
    "results: partial figures-not-read",
    "Baseline throughput: 45.48 tok/s\nDecoding speedup: 4.73\n",
)
case(
    "mlperf-invalid",
    "results: suspect declared-invalid",
    "================================================\nMLPerf Results Summary\n================================================\nScenario : Offline\nMode     : PerformanceOnly\nSamples per second: 12.3\nTokens per second: 3400.0\nResult is : INVALID\n  Min duration satisfied : NO\n  Min queries satisfied : Yes\n",
)
case(
    "inferencex-row-zero",
    "results: failed no-tokens",
    {"hw": "h200", "tp": 8, "conc": 64, "tput_per_gpu": 0.0, "output_tput_per_gpu": 0.0, "median_ttft": 0.2},
)
case("k6-json", "unknown", {"metrics": {"http_reqs": {"values": {"count": 10}}}, "root_group": {"name": ""}})
case(
    "vegeta-json",
    "unknown",
    {
        "latencies": {"total": 1, "mean": 1},
        "bytes_in": {"total": 1},
        "bytes_out": {"total": 1},
        "status_codes": {"200": 10},
        "rate": 10,
        "success": 1,
    },
)
case(
    "locust-csv",
    "unknown",
    "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time\nPOST,/v1/chat/completions,100,0,120,130\n,Aggregated,100,0,120,130\n",
)
case(
    "hey",
    "unknown",
    "\nSummary:\n  Total:\t2.1050 secs\n  Slowest:\t0.3 secs\n  Requests/sec:\t95.01\n\nResponse time histogram:\n  0.100 [1]\t|\n\nStatus code distribution:\n  [200]\t200 responses\n",
)
case(
    "sglang-one-token",
    "results: ok complete",
    {
        "backend": "sglang",
        "completed": 16,
        "duration": 3.2,
        "total_output_tokens": 16,
        "output_throughput": 5.0,
        "request_throughput": 5.0,
        "accept_length": None,
        "mean_ttft_ms": 100.0,
        "mean_tpot_ms": 0.0,
        "mean_itl_ms": float("nan"),
    },
)
case(
    "sglang-offline-block",
    "results: ok complete",
    "====== Offline Throughput Benchmark Result =======\nBackend:                                 engine\nSuccessful requests:                     10        \nBenchmark duration (s):                  4.00      \nTotal input tokens:                      1960      \nTotal generated tokens:                  2774      \nLast generation throughput (tok/s):      100.00\nRequest throughput (req/s):              2.50      \nInput token throughput (tok/s):          490.00     \nOutput token throughput (tok/s):         693.50    \nTotal token throughput (tok/s):          1183.50    \n"
    + E,
)
case(
    "vllm-2023",
    "results: ok complete",
    "Namespace(backend='vllm', num_prompts=100)\n100%|██| 100/100 [00:12<00:00]\nTotal time: 12.30 s\nThroughput: 8.13 requests/s\nAverage latency: 3.20 s\nAverage latency per token: 0.02 s\nAverage latency per output token: 0.10 s\n",
)
case(
    "llmperf-printed",
    "results: ok complete",
    "\\Results for token benchmark for m queried with the openai api.\n\ninter_token_latency_s\n    p25 = 0.01\n    p50 = 0.02\n    p99 = 0.03\n    mean = 0.02\n    min = 0.01\n    max = 0.03\n    stddev = 0.01\nttft_s\n    p50 = 0.3\n    p99 = 0.4\n    mean = 0.31\n    min = 0.2\n    max = 0.5\n    stddev = 0.01\nend_to_end_latency_s\n    p50 = 3.0\n    p99 = 4.0\n    mean = 3.1\nNumber Of Errored Requests: 0\nOverall Output Throughput: 48.1\nNumber Of Completed Requests: 20\nCompleted Requests Per Minute: 19.0\n",
)
case(
    "csv-of-vllm-sweep",
    "results: ok complete",
    "max_concurrency,num_prompts,completed,failed,duration,total_output_tokens,output_throughput,request_throughput,mean_ttft_ms\n1,10,10,0,10.0,1000,100.0,1.0,20.0\n4,40,40,0,10.0,4000,400.0,4.0,30.0\n",
)
case(
    "csv-one-failed",
    "results: partial requests-failed-or-missing",
    "max_concurrency,num_prompts,completed,failed,duration,total_output_tokens,output_throughput,request_throughput,mean_ttft_ms\n1,10,10,0,10.0,1000,100.0,1.0,20.0\n4,40,1,39,10.0,100,10.0,0.1,30.0\n",
)


EVALSCOPE_2024 = """Benchmarking summary:
 Time taken for tests: 22.512 seconds
 Expected number of requests: 100
 Number of concurrency: 128
 Total requests: 100
 Succeed requests: 100
 Failed requests: 0
 Average QPS: 4.442
 Average latency: 14.140
 Throughput(average output tokens per second): 891.275
 Average time to first token: 2.701
 Average input tokens per request: 28.890
 Average output tokens per request: 200.640
"""
case("evalscope 2024", "results: ok complete", EVALSCOPE_2024)
case(
    "evalscope 2024 lost some",
    "results: partial requests-failed-or-missing",
    EVALSCOPE_2024.replace("Succeed requests: 100", "Succeed requests: 60"),
)
case(
    "evalscope 2024 no tokens",
    "results: failed no-tokens",
    EVALSCOPE_2024.replace("891.275", "0.000").replace("200.640", "0.000"),
)
# its version 1.3.0 gave the number of tokens as the rate where there was one request
case(
    "evalscope total as rate",
    "results: suspect figures-disagree",
    {
        "Time taken for tests (s)": 20.0,
        "Number of concurrency": 1,
        "Total requests": 1,
        "Succeed requests": 1,
        "Failed requests": 0,
        "Output token throughput (tok/s)": 2048.0,
        "Average output tokens per request": 2048.0,
    },
)
case(
    "evalscope nan",
    "results: suspect figures-disagree",
    "+---+---+\n| Key | Value |\n+===+===+\n| Time taken for tests (s) | 2.0 |\n| Total requests | 10 |\n| Succeed requests | 10 |\n| Failed requests | 0 |\n| Output token throughput (tok/s) | nan |\n",
)
# a healthy run with long prompts and two tokens a request
case(
    "prefill only",
    "results: ok complete",
    S
    + "Backend:                                 sglang    \nTraffic request rate:                    inf       \nMax request concurrency:                 not set   \nSuccessful requests:                     64        \nBenchmark duration (s):                  15.30     \nTotal input tokens:                      2097122   \nTotal generated tokens:                  101       \nTotal generated tokens (retokenized):    89        \nRequest throughput (req/s):              4.18      \nInput token throughput (tok/s):          137022.74 \nOutput token throughput (tok/s):         6.60      \nTotal token throughput (tok/s):          137029.34 \nConcurrency:                             49.12     \nMean E2E Latency (ms):                   11746.39  \nMedian E2E Latency (ms):                 15285.35  \nMean TTFT (ms):                          7252.11   \nMedian TTFT (ms):                        6711.85   \nP99 TTFT (ms):                           15292.66  \nMean ITL (ms):                           8132.74   \nMedian ITL (ms):                         8584.20   \nP95 ITL (ms):                            13752.97  \nP99 ITL (ms):                            13753.42  \n"
    + E,
)
case(
    "long healthy",
    "results: ok complete",
    S
    + "Backend:                                 sglang\nTraffic request rate:                    4.8\nMax request concurrency:                 512\nSuccessful requests:                     10240\nBenchmark duration (s):                  2343.93\nTotal input tokens:                      41943040\nTotal generated tokens:                  15728640\nTotal generated tokens (retokenized):    15673809\nRequest throughput (req/s):              4.37\nInput token throughput (tok/s):          17894.29\nOutput token throughput (tok/s):         6710.36\nTotal token throughput (tok/s):          24604.65\nConcurrency:                             489.92\nMean E2E Latency (ms):                   112143.54\nMedian E2E Latency (ms):                 113007.21\nMean TTFT (ms):                          1052.21\nMedian TTFT (ms):                        939.13\nP99 TTFT (ms):                           2528.55\nMean ITL (ms):                           72.37\nMedian ITL (ms):                         71.14\nP95 ITL (ms):                            89.53\nP99 ITL (ms):                            150.60\n"
    + E,
)
case(
    "queued healthy",
    "results: ok complete",
    S
    + "Successful requests:                     1000      \nBenchmark duration (s):                  126.75    \nTotal input tokens:                      1799000   \nTotal generated tokens:                  121341    \nRequest throughput (req/s):              7.89      \nOutput token throughput (tok/s):         957.33    \nTotal Token throughput (tok/s):          15150.76  \nMean TTFT (ms):                          62234.51  \nMedian TTFT (ms):                        62255.56  \nP99 TTFT (ms):                           122673.07 \nMean TPOT (ms):                          32.89     \nMedian TPOT (ms):                        33.15     \nP99 TPOT (ms):                           33.74     \n"
    + E,
)
case(
    "plot above the block",
    "results: ok complete",
    "      |           * *         * *           * |\n  0.5 |                     *    |\n  0 +-------+\n"
    + blk(**B),
)
case(
    "2026 namespace above",
    "results: ok complete",
    "Namespace(subparser='bench', bench_type='serve', seed=2025, num_prompts=16, dataset_name='random', request_rate=inf, max_concurrency=None)\nStarting initial single prompt test run...\nInitial test run completed.\n100%|████████| 16/16 [00:08<00:00,  2.0it/s]\n"
    + blk(**B),
)


LMDEPLOY = """concurrency: 256
elapsed_time: 399.739s

first token latency(s)(min, max, ave): 0.068, 4.066, 0.285
per-token latency(s) percentile(50, 75, 95, 99): [0, 0.094, 0.169, 0.227]

number of prompt tokens: 2238364
number of completion tokens: 2005448
token throughput (completion token): 5016.892 token/s
token throughput (prompt + completion token): 10616.453 token/s
RPS (request per second): 25.016 req/s
RPM (request per minute): 1500.979 req/min
"""
case("lmdeploy", "results: ok complete", LMDEPLOY)
case(
    "lmdeploy no tokens",
    "results: failed no-tokens",
    LMDEPLOY.replace("tokens: 2005448", "tokens: 0").replace("5016.892", "0.000"),
)
case(
    "lmdeploy first token later than the run",
    "results: suspect impossible-times",
    LMDEPLOY.replace("0.068, 4.066, 0.285", "0.068, 4066.0, 0.285"),
)
case(
    "lmdeploy mean below its min",
    "results: suspect impossible-times",
    LMDEPLOY.replace("0.068, 4.066, 0.285", "0.868, 4.066, 0.285"),
)
TRTLLM_JSON = {
    "engine": {"model": "m"},
    "request_info": {
        "num_requests": 100,
        "avg_num_concurrent_requests": 8.0,
        "avg_input_length": 128.0,
        "avg_output_length": 128.0,
    },
    "performance": {
        "total_latency_ms": 10000.0,
        "avg_request_latency_ms": 800.0,
        "request_throughput_req_s": 10.0,
        "system_output_throughput_tok_s": 1280.0,
        "system_total_throughput_tok_s": 2560.0,
        "request_latency_percentiles_ms": {
            "p50": 790.0,
            "p99": 900.0,
            "minimum": 700.0,
            "maximum": 950.0,
            "average": 800.0,
        },
    },
    "streaming_metrics": {"avg_ttft_ms": 60.0, "avg_tpot_ms": 5.8},
}
case("trtllm report", "results: ok complete", TRTLLM_JSON)
case(
    "trtllm report ten times",
    "results: suspect figures-disagree",
    {
        **TRTLLM_JSON,
        "performance": {
            **TRTLLM_JSON["performance"],
            "system_output_throughput_tok_s": 12800.0,
            "system_total_throughput_tok_s": 25600.0,
        },
    },
)  # type: ignore[dict-item]
case(
    "trtllm report late first token",
    "results: suspect impossible-times",
    {**TRTLLM_JSON, "streaming_metrics": {"avg_ttft_ms": 6000.0}},
)
ONE_BATCH = """Input lens: (1024,). Output lens: (128,).
| batch size | input len | latency (s) | input throughput (tok/s)  | output throughput (tok/s) | acc length | ITL (ms) | input cost ($/1M) | output cost ($/1M) |
| ---------- | --------- | ----------- | ------------------------- | ------------------------- | ---------- | -------- | ----------------- | ------------------ |
| 1 | 1024 | 1.20 | 12000.00 | 115.00 | n/a | 8.70 | 0.05 | 4.83 |
| 16 | 1024 | 1.90 | 30000.00 | 1500.00 | 3.10 | 10.67 | 0.02 | 0.37 |
"""
case("one batch table", "results: ok complete", ONE_BATCH)
case("one batch table dead", "results: failed no-tokens", ONE_BATCH.replace("1500.00", "0.00"))
case(
    "perf analyzer",
    "unknown",
    "*** Measurement Settings ***\nConcurrency: 1, throughput: 12.3 infer/sec, latency 81234 usec\n",
)


# aiperf console table, real
case(
    "aiperf-table",
    "results: ok complete",
    """                                            NVIDIA AIPerf | LLM Metrics                                            
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━┓
┃                               Metric ┃      avg ┃      min ┃      max ┃      p99 ┃      p90 ┃      p50 ┃    std ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━┩
│             Time to First Token (ms) │   912.29 │    81.52 │ 2,270.46 │ 2,045.55 │ 1,259.84 │ 1,052.06 │ 392.14 │
│            Time to Second Token (ms) │   374.69 │    11.73 │ 1,186.79 │ 1,181.85 │   695.01 │   213.90 │ 324.90 │
│                 Request Latency (ms) │ 2,808.01 │ 2,745.55 │ 3,780.53 │ 3,780.14 │ 2,776.65 │ 2,767.19 │ 198.50 │
│             Inter Token Latency (ms) │    14.93 │    11.88 │    21.91 │    21.10 │    17.34 │    13.48 │   2.68 │
│     Output Token Throughput Per User │    69.01 │    45.65 │    84.15 │    84.13 │    84.07 │    74.17 │  11.43 │
│                    (tokens/sec/user) │          │          │          │          │          │          │        │
│      Output Sequence Length (tokens) │   127.98 │   123.00 │   129.00 │   128.00 │   128.00 │   128.00 │   0.25 │
│       Input Sequence Length (tokens) │ 1,024.00 │ 1,024.00 │ 1,025.00 │ 1,024.00 │ 1,024.00 │ 1,024.00 │   0.05 │
│ Output Token Throughput (tokens/sec) │ 4,537.16 │        - │        - │        - │        - │        - │      - │
│    Request Throughput (requests/sec) │    35.45 │        - │        - │        - │        - │        - │      - │
│             Request Count (requests) │ 1,000.00 │        - │        - │        - │        - │        - │      - │
└──────────────────────────────────────┴──────────┴──────────┴──────────┴──────────┴──────────┴──────────┴────────┘

CLI Command: aiperf profile --model m --url localhost:8000 --request-count 1000 --concurrency 100
Benchmark Duration: 28.21 sec
""",
)
case(
    "aiperf-table-lost",
    "results: partial requests-failed-or-missing",
    """NVIDIA AIPerf | LLM Metrics
┃                               Metric ┃      avg ┃      min ┃      max ┃
│             Time to First Token (ms) │   912.29 │    81.52 │ 2,270.46 │
│                 Request Latency (ms) │ 2,808.01 │ 2,745.55 │ 3,780.53 │
│ Output Token Throughput (tokens/sec) │ 4,537.16 │        - │        - │
│             Request Count (requests) │   800.00 │        - │        - │

CLI Command: aiperf profile --model m --url localhost:8000 --request-count 1000 --concurrency 100
""",
)
case(
    "aiperf json with input_config planned",
    "results: partial requests-failed-or-missing",
    {
        "request_count": {"avg": 10},
        "request_latency": {"unit": "ms", "avg": 60},
        "request_throughput": {"avg": 10},
        "output_token_throughput": {"avg": 100},
        "benchmark_duration": {"unit": "sec", "avg": 1.0},
        "input_config": {"loadgen": {"request_count": 100, "concurrency": 1}},
    },
)
case(
    "guidellm errored all but one",
    "results: partial requests-failed-or-missing",
    {
        "benchmarks": [
            {
                "metrics": {
                    "request_totals": {"successful": 1, "errored": 99, "incomplete": 0, "total": 100},
                    "output_tokens_per_second": {"total": {"mean": 10.0}},
                    "requests_per_second": {"successful": {"mean": 0.1}},
                },
                "duration": 10.0,
            }
        ]
    },
)
case(
    "sglang json w/ server_info",
    "results: ok complete",
    {
        "backend": "sglang",
        "completed": 16,
        "duration": 8.0,
        "total_output_tokens": 2048,
        "output_throughput": 256.0,
        "request_throughput": 2.0,
        "accept_length": 3.2,
        "server_info": {"speculative_num_draft_tokens": 4, "speculative_dflash_block_size": None},
    },
)
case(
    "sglang json accept above",
    "results: suspect acceptance-out-of-bounds",
    {
        "backend": "sglang",
        "completed": 16,
        "duration": 8.0,
        "total_output_tokens": 2048,
        "output_throughput": 256.0,
        "request_throughput": 2.0,
        "accept_length": 9.2,
        "server_info": {"speculative_num_draft_tokens": 4},
    },
)
case(
    "dflash bar",
    "results: ok complete",
    "[warmup] 1 requests ...\nRunning benchmark: 128 prompts, concurrency=1 ...\nBenchmarking: 100%|██████████| 128/128 [01:24<00:00]\n\n==================================================\nBackend:          sglang\nDataset:          gsm8k\nNum prompts:      128\nConcurrency:      1\nLatency:          84.8s\nOutput tokens:    39253\nThroughput:       462.95 tok/s\nAccept length:    6.360\nSpec verify ct:   6428\n==================================================\n",
)
case(
    "hyper-2",
    "results: ok complete",
    "====Result for Model: m====\nErrors: {}\nTotal time (seconds): 124.76 s\nSuccessful/total requests: 100/100\nRequests/sec: 0.80\nSLO met count: N/A\nQueries/sec: 0.80\nOutput_tokens/min: 13530.96\nInput_tokens/min: 13015.89\nTokens/min: 26546.85\nAverage Time to First Token (s): 0.5\nAverage output length: 281.35\n",
)
case(
    "hyper-late",
    "results: suspect impossible-times",
    "====Result for Model: m====\nTotal time: 12.00 s\nSuccessful/total requests: 10/10\nRequests/min: 50.0\nOutput_tokens/min: 5000.0\nAverage milliseconds/request (includes waiting time on server): 39549.75\nAverage output length: 100.0\n",
)
case(
    "warmup only block then nothing",
    "results: partial figures-not-read",
    "============ Serving Benchmark Result ============\nBackend:                                 sglang\n",
)
case(
    "two blocks one missing",
    "results: partial figures-not-read",
    blk(**B) + blk(**{"Successful requests:": "16", "Output token throughput (tok/s):": "256.00"}),
)
case(
    "vllm json nested list of runs",
    "results: failed no-tokens",
    [
        {
            "num_prompts": 8,
            "completed": 8,
            "failed": 0,
            "duration": 8.0,
            "total_output_tokens": 800,
            "output_throughput": 100.0,
        },
        {
            "num_prompts": 8,
            "completed": 8,
            "failed": 0,
            "duration": 8.0,
            "total_output_tokens": 0,
            "output_throughput": 0.0,
        },
    ],
)
case(
    "text tool-call retokenized 0",
    "results: suspect tokens-not-visible-to-client",
    blk(**{**B, "Total generated tokens (retokenized):": "0"}),
)
case(
    "bom+json",
    "results: ok complete",
    "\ufeff"
    + json.dumps(
        {
            "num_prompts": 8,
            "completed": 8,
            "failed": 0,
            "duration": 8.0,
            "total_output_tokens": 800,
            "output_throughput": 100.0,
        }
    ),
)
case(
    "ollama bench long",
    "results: suspect figures-disagree",
    "total duration:       4.605s\nload duration:        29.47ms\nprompt eval count:    26 token(s)\nprompt eval duration: 120.5ms\nprompt eval rate:     215.77 tokens/s\neval count:           298 token(s)\neval duration:        4.2s\neval rate:            7095.00 tokens/s\n",
)
case("utf16 of PowerShell", "results: ok complete", ("\ufeff" + blk(**B)).encode("utf-16-le"))


@pytest.mark.parametrize(("right", "source"), [(r, t) for _, r, t in CASES], ids=[n for n, _, _ in CASES])
def test_the_answer_is_the_one_written_first(right: str, source: Any) -> None:
    assert said(source) == right


def test_there_are_many() -> None:
    assert len(CASES) >= 80
