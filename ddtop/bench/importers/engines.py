"""Benchmarks that engines bring along without a server: llama-bench, vLLM throughput and latency, SGLang offline;
ollama's own API, and AI-Hypercomputer's and trtllm-bench's saved results. Pure."""

from __future__ import annotations

from typing import Any

from ddtop.bench.importers.common import Fields, number, put


def is_llama_bench(data: dict[str, Any]) -> bool:
    """One test of llama.cpp's llama-bench (`-o json` or `-o jsonl`)."""
    return "avg_ts" in data and "n_gen" in data and "n_prompt" in data


def from_llama_bench(data: dict[str, Any]) -> Fields:
    """A prompt test gives input_tps, a generation test output_tps; a mixed one (pp+tg) only their sum."""
    fields: Fields = {"tool": "llama-bench"}
    prompt, generated = number(data["n_prompt"]) or 0, number(data["n_gen"]) or 0
    for key, count in (("prompt_tokens", prompt), ("output_tokens", generated)):
        if count:
            fields[key] = count
    put(fields, "context", data.get("n_depth"))
    name = "total_tps" if prompt and generated else "output_tps" if generated else "input_tps"
    put(fields, name, data["avg_ts"])
    put(fields, "std_tps", data.get("stddev_ts"))
    samples = data.get("samples_ts")
    if isinstance(samples, list):
        fields["runs"] = len(samples)
    model = data.get("model_filename") or data.get("model_type")
    if isinstance(model, str):
        fields["model"] = model
    return fields


def is_vllm_throughput(data: dict[str, Any]) -> bool:
    """`vllm bench throughput --output-json`."""
    return "tokens_per_second" in data and "elapsed_time" in data


def from_vllm_throughput(data: dict[str, Any]) -> Fields:
    """Offline: its tokens per second count prompt and output together."""
    fields: Fields = {"tool": "vllm throughput"}
    put(fields, "duration_s", data["elapsed_time"])
    put(fields, "requests_ok", data.get("num_requests"))
    put(fields, "total_tps", data["tokens_per_second"])
    put(fields, "rps", data.get("requests_per_second"))
    return fields


def is_vllm_latency(data: dict[str, Any]) -> bool:
    """`vllm bench latency --output-json`."""
    return "avg_latency" in data and "latencies" in data


def from_vllm_latency(data: dict[str, Any]) -> Fields:
    """Offline: seconds for one batch."""
    fields: Fields = {"tool": "vllm latency"}
    put(fields, "e2e_mean_ms", data["avg_latency"], 1e3)
    if isinstance(data["latencies"], list):
        fields["runs"] = len(data["latencies"])
    for key, value in (data.get("percentiles") or {}).items():
        if str(key) in ("50", "90", "99"):
            put(fields, f"e2e_p{key}_ms", value, 1e3)
    return fields


def is_sglang_offline(data: dict[str, Any]) -> bool:
    """A line of sglang.bench_offline_throughput."""
    return "total_latency" in data and "successful_requests" in data


def from_sglang_offline(data: dict[str, Any]) -> Fields:
    """Offline throughput of the engine."""
    fields: Fields = {"tool": "sglang offline"}
    for name, key in {
        "requests_ok": "successful_requests",
        "duration_s": "total_latency",
        "input_tokens": "total_input_tokens",
        "output_tokens": "total_output_tokens",
        "rps": "request_throughput",
        "input_tps": "input_throughput",
        "output_tps": "output_throughput",
        "total_tps": "total_throughput",
    }.items():
        put(fields, name, data.get(key))
    return fields


def is_ollama(data: dict[str, Any]) -> bool:
    """The last object of ollama's own API: counts, and durations in ns."""
    return "eval_count" in data and "eval_duration" in data


def from_ollama(data: dict[str, Any]) -> Fields:
    """One request."""
    fields: Fields = {"tool": "ollama", "requests_ok": 1}
    put(fields, "duration_s", data.get("total_duration"), 1e-9)
    for count, span, tokens, rate in (
        ("eval_count", "eval_duration", "output_tokens", "output_tps"),
        ("prompt_eval_count", "prompt_eval_duration", "input_tokens", "input_tps"),
    ):
        put(fields, tokens, data.get(count))
        seconds = number(data.get(span))
        if seconds and tokens in fields:
            fields[rate] = fields[tokens] / (seconds * 1e-9)
    if isinstance(data.get("model"), str):
        fields["model"] = data["model"]
    return fields


def is_hypercomputer(data: dict[str, Any]) -> bool:
    """AI-Hypercomputer's saved result, alone or as the `metrics` of a report."""
    body = data.get("metrics", data)
    return isinstance(body, dict) and "num_prompts_attempted" in body


def from_hypercomputer(data: dict[str, Any]) -> Fields:
    """Its `throughput_rps` counts requests that failed, so it is not taken."""
    body = data.get("metrics", data)
    fields: Fields = {"tool": "ai-hypercomputer"}
    for name, key in {
        "requests_ok": "num_prompts_succeeded",
        "requests_planned": "num_prompts_attempted",
        "duration_s": "benchmark_time",
        "output_tps": "throughput",
        "output_tokens": "total_output_token",
        "input_tokens": "total_input_tokens",
    }.items():
        put(fields, name, body.get(key))
    return fields


def is_trtllm(data: dict[str, Any]) -> bool:
    """trtllm-bench `--report_json`."""
    body = data.get("performance")
    return isinstance(body, dict) and "system_output_throughput_tok_s" in body


def from_trtllm(data: dict[str, Any]) -> Fields:
    """Its latencies' percentiles name minimum, maximum and average in full."""
    fields: Fields = {"tool": "trtllm-bench"}
    for part, names in {
        "performance": {
            "duration_s": "total_latency_ms",
            "e2e_mean_ms": "avg_request_latency_ms",
            "rps": "request_throughput_req_s",
            "output_tps": "system_output_throughput_tok_s",
            "total_tps": "system_total_throughput_tok_s",
        },
        "request_info": {
            "requests_ok": "num_requests",
            "concurrency": "avg_num_concurrent_requests",
            "input_len_mean": "avg_input_length",
            "output_len_mean": "avg_output_length",
        },
        "streaming_metrics": {"ttft_mean_ms": "avg_ttft_ms", "tpot_mean_ms": "avg_tpot_ms"},
    }.items():
        body = data.get(part)
        if not isinstance(body, dict):
            continue
        for name, key in names.items():
            put(fields, name, body.get(key), 1e-3 if name == "duration_s" else 1.0)
    percentiles = data["performance"].get("request_latency_percentiles_ms")
    percentiles = percentiles if isinstance(percentiles, dict) else {}
    for stat in ("p50", "p90", "p95", "p99", "min", "max"):
        put(fields, f"e2e_{stat}_ms", percentiles.get({"min": "minimum", "max": "maximum"}.get(stat, stat)))
    lengths = (data.get("decoding_stats") or {}).get("acceptance_length_percentiles")
    if isinstance(lengths, dict):
        put(fields, "accept_len", lengths.get("average"))
    return fields
