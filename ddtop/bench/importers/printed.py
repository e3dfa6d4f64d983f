"""Results that other tools print or write under names of their own: llama-bench's tables, EvalScope, trtllm-bench,
LLMPerf; and the blocks and tables of `blocks` and `markdown`. Pure."""

from __future__ import annotations

import csv
import re
from typing import Any

from ddtop.bench.importers import markdown
from ddtop.bench.importers.blocks import from_block
from ddtop.bench.importers.common import Fields, number, put
from ddtop.bench.importers.engines import from_llama_bench, is_llama_bench

_TEST = re.compile(r"(?:pp ?(?P<pp>\d+))?\+?(?:tg ?(?P<tg>\d+))?(?: @ d(?P<depth>\d+))?$")
_EVALSCOPE: dict[str, tuple[str, float]] = {
    "time taken for tests (s)": ("duration_s", 1.0),
    "number of concurrency": ("max_concurrency", 1.0),
    "total requests": ("requests_planned", 1.0),
    "succeed requests": ("requests_ok", 1.0),
    "failed requests": ("requests_failed", 1.0),
    "output token throughput (tok/s)": ("output_tps", 1.0),
    "total token throughput (tok/s)": ("total_tps", 1.0),
    "request throughput (req/s)": ("rps", 1.0),
    "average latency (s)": ("e2e_mean_ms", 1e3),
    "average time to first token (s)": ("ttft_mean_ms", 1e3),
    "average time per output token (s)": ("tpot_mean_ms", 1e3),
    "average inter-token latency (s)": ("itl_mean_ms", 1e3),
    "average output tokens per request": ("output_len_mean", 1.0),
    "average input tokens per request": ("input_len_mean", 1.0),
    "throughput(average tokens/s)": ("output_tps", 1.0),
    "throughput(average output tokens/s)": ("output_tps", 1.0),
    # since 2026
    "test duration (s)": ("duration_s", 1.0),
    "concurrency": ("max_concurrency", 1.0),
    "req throughput (req/s)": ("rps", 1.0),
    "avg latency (s)": ("e2e_mean_ms", 1e3),
    "ttft (ms)": ("ttft_mean_ms", 1.0),
    "tpot (ms)": ("tpot_mean_ms", 1.0),
    "itl (ms)": ("itl_mean_ms", 1.0),
    "avg output tokens": ("output_len_mean", 1.0),
    "avg input tokens": ("input_len_mean", 1.0),
    "output throughput (tok/s)": ("output_tps", 1.0),
    "total throughput (tok/s)": ("total_tps", 1.0),
    "decoded tok/iter": ("accept_len", 1.0),
}
_COUNTS = re.compile(r"(\d+)\s*/\s*(\d+)\s*/\s*(\d+)")
_TRTLLM = {
    "number of requests": "requests_ok",
    "number of concurrent requests": "concurrency",
    "request throughput (req/sec)": "rps",
    "total output throughput (tokens/sec)": "output_tps",
    "total token throughput (tokens/sec)": "total_tps",
    "average request latency (ms)": "e2e_mean_ms",
    "average time-to-first-token [ttft] (ms)": "ttft_mean_ms",
    "average time-per-output-token [tpot] (ms)": "tpot_mean_ms",
    "average input length (tokens)": "input_len_mean",
    "average output length (tokens)": "output_len_mean",
}
_LLMPERF = {
    "num_concurrent_requests": "max_concurrency",
    "results_num_completed_requests": "requests_ok",
    "results_number_errors": "requests_failed",
    "results_mean_output_throughput_token_per_s": "output_tps",
    "mean_input_tokens": "input_len_mean",
}
_LLMPERF_TIMES = {
    "ttft_s": "ttft",
    "inter_token_latency_s": "itl",
    "end_to_end_latency_s": "e2e",
}


def from_printed(text: str) -> list[Fields]:
    """The records of a printed table or block; [] where it is none of these tools'."""
    rows = [
        [cell.strip() for cell in re.split(r"[|│┃]", line.strip().strip("|│┃"))]
        for line in text.splitlines()
        if re.search(r"[|│┃]", line)
    ]
    if records := _llama_bench_rows(rows) or markdown.from_rows(rows):
        return records
    pairs = {row[0]: row[1] for row in rows if len(row) == 2}
    if pairs and (found := _evalscope(pairs)):
        return [found]
    if text.lstrip().startswith("build_commit,"):
        table = csv.DictReader(text.lstrip().splitlines())
        return [from_llama_bench(dict(row)) for row in table if is_llama_bench(row)]
    return [found] if (found := _trtllm(text) or from_block(text)) else []


def from_foreign_json(data: dict[str, Any]) -> Fields | None:
    """EvalScope's summary, or LLMPerf's; None for anything else."""
    return _llmperf(data) if "results_num_completed_requests" in data else _evalscope(data)


def _llama_bench_rows(rows: list[list[str]]) -> list[Fields]:
    """llama-bench's Markdown: a row a test, `5174.61 ± 22.64` in its last column."""
    head = next((row for row in rows if "test" in row and row[-1] == "t/s"), None)
    if head is None:
        return []
    records = []
    for row in rows:
        if len(row) != len(head) or not (test := _TEST.match(row[head.index("test")])):
            continue
        rate, _, spread = row[-1].partition("±")
        data = {
            "avg_ts": rate.strip(),
            "n_prompt": int(test["pp"] or 0),
            "n_gen": int(test["tg"] or 0),
            "n_depth": int(test["depth"]) if test["depth"] else None,
            "stddev_ts": spread.strip() or None,
            "model_type": row[head.index("model")] if "model" in head else None,
        }
        if number(data["avg_ts"]) is not None and (data["n_prompt"] or data["n_gen"]):
            records.append(from_llama_bench(data))
    return records


def _evalscope(pairs: dict[str, Any]) -> Fields | None:
    fields: Fields = {}
    for label, value in pairs.items():
        name, factor = _EVALSCOPE.get(str(label).strip().lower(), ("", 1.0))
        if name:
            put(fields, name, value, factor)
        elif str(label).strip().lower() == "total / success / failed" and (
            counts := _COUNTS.match(str(value))
        ):
            for each, count in zip(
                ("requests_planned", "requests_ok", "requests_failed"), counts.groups(), strict=True
            ):
                put(fields, each, count)
    known = "requests_ok" in fields and ("output_tps" in fields or "duration_s" in fields)
    return {"tool": "evalscope", **fields} if known else None


def _trtllm(text: str) -> Fields | None:
    fields: Fields = {}
    for line in text.splitlines():
        label, colon, value = line.rpartition(":")
        label = re.sub(r"\s+", " ", label.strip().lower())
        if colon and label in _TRTLLM:
            put(fields, _TRTLLM[label], value)
        elif colon and label == "total latency (ms)":
            put(fields, "duration_s", value, 1e-3)
    return {"tool": "trtllm-bench", **fields} if "output_tps" in fields else None


def _llmperf(data: dict[str, Any]) -> Fields:
    fields: Fields = {"tool": "llmperf"}
    for key, name in _LLMPERF.items():
        put(fields, name, data.get(key))
    for key, name in _LLMPERF_TIMES.items():
        put(fields, f"{name}_mean_ms", data.get(f"results_{key}_mean"), 1e3)
        for quantile in ("p50", "p90", "p95", "p99"):
            put(fields, f"{name}_{quantile}_ms", data.get(f"results_{key}_quantiles_{quantile}"), 1e3)
    if isinstance(data.get("model"), str):
        fields["model"] = data["model"]
    return fields
