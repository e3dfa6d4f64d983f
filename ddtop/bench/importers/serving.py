"""SGLang bench_serving (JSON lines, console), vLLM bench serve (JSON, console, sweep lists), one_batch_server. Pure.

The two tools grew from one script and share most names; they differ in what they leave out. SGLang's file has neither
the number of planned requests nor that of failed ones.
"""

from __future__ import annotations

import re
from typing import Any

from ddtop.bench.importers.common import STATS, Fields, number, put, rate

CONSOLE = {
    "successful requests": "requests_ok",
    "failed requests": "requests_failed",
    "benchmark duration (s)": "duration_s",
    "total input tokens": "input_tokens",
    "total generated tokens": "output_tokens",
    "total generated tokens (retokenized)": "retokenized_tokens",
    "request throughput (req/s)": "rps",
    "request goodput (req/s)": "goodput_rps",
    "input token throughput (tok/s)": "input_tps",
    "output token throughput (tok/s)": "output_tps",
    "peak output token throughput (tok/s)": "peak_output_tps",
    "peak concurrent requests": "peak_concurrency",
    "total token throughput (tok/s)": "total_tps",
    "concurrency": "concurrency",
    "max request concurrency": "max_concurrency",
    "maximum request concurrency": "max_concurrency",
    "accept length": "accept_len",
    "acceptance length": "accept_len",
    "avg decoded tokens per iter": "accept_len",
}
CONSOLE_TIMES = {"e2e latency": "e2e", "e2el": "e2e", "ttft": "ttft", "tpot": "tpot", "itl": "itl"}
TIME_LINE = re.compile(
    r"^(mean|median|std|max|min|p\d+(?:\.\d+)?)\s+(e2e latency|e2el|ttft|tpot|itl) \(ms\)$", re.I
)


def is_sglang(data: dict[str, Any]) -> bool:
    """A line of SGLang's bench_serving."""
    return (
        "accept_length" in data or "total_output_tokens_retokenized" in data or "sharegpt_output_len" in data
    )


def is_serving(data: dict[str, Any]) -> bool:
    """A result of either tool."""
    return "completed" in data and ("output_throughput" in data or "duration" in data)


def from_json(data: dict[str, Any]) -> Fields:
    """One result of either tool."""
    fields: Fields = {"tool": "sglang" if is_sglang(data) and "num_prompts" not in data else "vllm"}
    for name, keys in {
        "requests_planned": ("num_prompts",),
        "requests_ok": ("completed",),
        "requests_failed": ("failed",),
        "duration_s": ("duration",),
        "input_tokens": ("total_input_tokens",),
        "output_tokens": ("total_output_tokens",),
        "retokenized_tokens": ("total_output_tokens_retokenized",),
        "rps": ("request_throughput",),
        "goodput_rps": ("request_goodput",),
        "input_tps": ("input_throughput",),
        "output_tps": ("output_throughput",),
        "total_tps": ("total_token_throughput", "total_throughput"),
        "peak_output_tps": ("max_output_tokens_per_s",),
        "peak_concurrency": ("max_concurrent_requests",),
        "concurrency": ("concurrency",),
        "max_concurrency": ("max_concurrency",),
        "accept_len": ("accept_length", "spec_decode_acceptance_length"),
        "draft_tokens": ("spec_decode_num_speculative_tokens", "num_speculative_tokens"),
    }.items():
        for key in keys:
            put(fields, name, data.get(key))
            if name in fields:
                break
    if data.get("request_rate") is not None and (asked := rate(data["request_rate"])) is not None:
        fields["request_rate"] = asked
    for name, key in {"e2e": "e2e_latency", "ttft": "ttft", "tpot": "tpot", "itl": "itl"}.items():
        for stat in STATS:
            word = "median" if stat == "p50" else stat
            for spelling in (
                f"{word}_{key}_ms",
                f"{stat}_{key}_ms",
                f"{word}_e2el_ms" if name == "e2e" else "",
            ):
                put(fields, f"{name}_{stat}_ms", data.get(spelling))
                if f"{name}_{stat}_ms" in fields:
                    break
    for name in ("model_id", "backend", "tag", "label", "date"):
        if isinstance(data.get(name), str):
            fields["model" if name == "model_id" else name] = data[name]
    for name in ("endpoint_type", "task_type"):
        if isinstance(data.get(name), str):
            fields.setdefault("backend", data[name])
    server = data.get("server_info")
    if isinstance(server, dict):
        fields["server_info"] = server
        put(fields, "draft_tokens", server.get("speculative_num_draft_tokens"))
    errors = [one for one in data.get("errors") or [] if one]
    if errors:
        fields["first_error"] = str(errors[0])[:300]
        fields.setdefault("requests_failed", len(errors))
    return fields


def is_one_batch(data: dict[str, Any]) -> bool:
    """A line of sglang.bench_one_batch_server."""
    return "batch_size" in data and "output_len" in data and ("last_ttft" in data or "latency" in data)


def from_one_batch(data: dict[str, Any]) -> Fields:
    """bench_one_batch_server: one batch, times in seconds."""
    fields: Fields = {"tool": "sglang one_batch_server"}
    for name, key in {
        "concurrency": "batch_size",
        "prompt_tokens": "input_len",
        "output_tokens": "total_output_tokens",
        "output_len": "output_len",
        "input_tps": "input_throughput",
        "output_tps": "output_throughput",
        "total_tps": "overall_throughput",
        "accept_len": "acc_length",
        "steady_output_tps": "steady_state_output_throughput",
    }.items():
        put(fields, name, data.get(key))
    put(fields, "e2e_mean_ms", data.get("latency"), 1e3)
    put(fields, "ttft_max_ms", data.get("last_ttft"), 1e3)
    if number(data.get("latency")):
        put(fields, "duration_s", data["latency"])
    if "concurrency" in fields:
        early = number(data.get("num_early_stopped")) or 0
        fields["requests_ok"] = fields["concurrency"] - early
        fields["requests_failed"] = early
    return fields


def from_console(text: str) -> Fields | None:
    """The printed block of either tool, whole or in part; None if no line of it is known."""
    fields: Fields = {}
    for line in text.splitlines():
        label, colon, value = line.rpartition(":")
        label = label.strip().lower()
        if not colon:
            continue
        if label in CONSOLE:
            put(fields, CONSOLE[label], value)
        elif label in ("traffic request rate", "request rate configured (rps)"):
            asked = rate(value.strip())
            if asked is not None:
                fields["request_rate"] = asked
        elif label == "backend":
            fields["backend"] = value.strip()
        elif found := TIME_LINE.match(label):
            stat, name = found.group(1).lower(), CONSOLE_TIMES[found.group(2).lower()]
            put(fields, f"{name}_{'p50' if stat == 'median' else stat}_ms", value)
    if not fields:
        return None
    fields["tool"] = (
        "sglang"
        if "backend" in fields or "accept_len" in fields or "retokenized_tokens" in fields
        else "vllm"
    )
    return fields
