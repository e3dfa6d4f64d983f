"""aiperf, guidellm, genai-bench, inference-perf, llama-benchy, vLLM's multi-turn benchmark. Pure.

Units: aiperf ms (its own `unit` is believed), guidellm ms except request_latency, genai-bench and inference-perf
seconds, llama-benchy ms.
"""

from __future__ import annotations

from typing import Any

from ddtop.bench.importers.common import Fields, number, put, put_stats, rate, stat_value

TO_MS = {"ms": 1.0, "milliseconds": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}


# ---- aiperf


def is_aiperf(data: dict[str, Any]) -> bool:
    """profile_export_aiperf.json."""
    return isinstance(data.get("request_count"), dict) or (
        isinstance(data.get("request_latency"), dict) and "unit" in data["request_latency"]
    )


def from_aiperf(data: dict[str, Any]) -> Fields:
    """Counts stand in `.avg`; a missing error_request_count means none, or not counted."""
    fields: Fields = {"tool": "aiperf"}
    for name, key in {
        "requests_ok": "request_count",
        "requests_failed": "error_request_count",
        "rps": "request_throughput",
        "output_tps": "output_token_throughput",
        "total_tps": "total_token_throughput",
        "duration_s": "benchmark_duration",
        "output_tokens": "total_osl",
        "input_tokens": "total_isl",
        "effective_concurrency": "effective_concurrency",
    }.items():
        put(fields, name, stat_value(data.get(key), "avg"))
    for name, key in {
        "e2e": "request_latency",
        "ttft": "time_to_first_token",
        "second_token": "time_to_second_token",
        "itl": "inter_token_latency",
        "icl": "inter_chunk_latency",
    }.items():
        stats = data.get(key)
        if isinstance(stats, dict):
            put_stats(fields, name, stats, TO_MS.get(str(stats.get("unit", "ms")).lower(), 1.0))
    # aiperf's ITL is a mean per request over tokens, which is what others call TPOT
    for stat in ("mean", "p50", "p90", "p95", "p99"):
        if f"itl_{stat}_ms" in fields:
            fields[f"tpot_{stat}_ms"] = fields.pop(f"itl_{stat}_ms")
    for name, key in {
        "energy_mj_per_token": "nvidia_energy_per_output_token",
        "tok_s_per_w": "nvidia_output_tps_per_watt",
        "power_mean_w": "nvidia_average_gpu_power",
    }.items():
        put(fields, name, stat_value(data.get(key), "avg"))
    failed = fields.get("requests_failed", 0)
    if fields.get("requests_ok") is not None and failed:
        fields["error_rate"] = failed / (fields["requests_ok"] + failed)
    if "effective_concurrency" not in fields and "rps" in fields and "e2e_mean_ms" in fields:
        fields["effective_concurrency"] = fields["rps"] * fields["e2e_mean_ms"] / 1e3
    errors = [one for one in data.get("error_summary") or [] if isinstance(one, dict)]
    if errors:
        details = errors[0].get("error_details") or {}
        put(fields, "first_error_code", details.get("code"))
        if details.get("message"):
            fields["first_error"] = str(details["message"])[:300]
        if "requests_failed" not in fields:
            put(fields, "requests_failed", sum(number(one.get("count")) or 0 for one in errors))
    load = (data.get("input_config") or {}).get("loadgen")
    if isinstance(load, dict) and not load.get(
        "benchmark_duration"
    ):  # with a duration the count is no promise
        put(fields, "requests_planned", load.get("request_count"))
    if data.get("was_cancelled"):
        fields["cancelled"] = True
    return fields


def is_aiperf_record(data: dict[str, Any]) -> bool:
    """A line of aiperf's profile_export.jsonl."""
    return (
        isinstance(data.get("metadata"), dict)
        and isinstance(data.get("metrics"), dict)
        and "request_latency" not in data
    )


def from_aiperf_records(rows: list[dict[str, Any]]) -> Fields:
    """Counts and the mean latencies of aiperf's per-request file (profiling phase only)."""
    fields: Fields = {"tool": "aiperf records"}
    rows = [row for row in rows if row["metadata"].get("benchmark_phase", "profiling") == "profiling"]
    good = [row for row in rows if not row.get("error")]
    fields["requests_ok"], fields["requests_failed"] = len(good), len(rows) - len(good)
    for name, key in {
        "ttft": "time_to_first_token",
        "e2e": "request_latency",
        "tpot": "inter_token_latency",
    }.items():
        values = [
            value
            for row in good
            if (value := number((row["metrics"].get(key) or {}).get("value"))) is not None
        ]
        if values:
            fields[f"{name}_mean_ms"] = sum(values) / len(values)
    bad = next((row["error"] for row in rows if isinstance(row.get("error"), dict)), None)
    if bad:
        put(fields, "first_error_code", bad.get("code"))
        fields["first_error"] = str(bad.get("message", ""))[:300]
    return fields


# ---- guidellm


def is_guidellm(data: dict[str, Any]) -> bool:
    """benchmarks.json of guidellm: benchmarks with metrics by request status."""
    rows = data.get("benchmarks")
    return isinstance(rows, list) and any(
        isinstance(row, dict) and isinstance(row.get("metrics"), dict) for row in rows
    )


def from_guidellm(data: dict[str, Any]) -> list[Fields]:
    """One record for each benchmark; `incomplete` (cut by the time limit) is not `errored`."""
    return [
        _guidellm(row)
        for row in data["benchmarks"]
        if isinstance(row, dict) and isinstance(row.get("metrics"), dict)
    ]


def _guidellm(row: dict[str, Any]) -> Fields:
    fields: Fields = {"tool": "guidellm"}
    metrics = row["metrics"]
    scheduler = row.get("scheduler_metrics") or {}
    totals = metrics.get("request_totals") or scheduler.get("requests_made") or {}
    for name, key in {
        "requests_ok": "successful",
        "requests_failed": "errored",
        "requests_incomplete": "incomplete",
        "requests_seen": "total",
    }.items():
        put(fields, name, totals.get(key))

    def of(key: str, prefer: tuple[str, ...] = ("successful",)) -> Any:
        by_status = metrics.get(key)
        if not isinstance(by_status, dict):
            return None
        for status in prefer:
            if isinstance(by_status.get(status), dict):
                return by_status[status]
        return None

    # Of a cut run the throughput of "successful" alone is too low: what the server gave to the cut ones counts too.
    whole = ("total", "successful")
    put(fields, "output_tps", stat_value(of("output_tokens_per_second", whole), "mean"))
    put(fields, "total_tps", stat_value(of("tokens_per_second", whole), "mean"))
    put(fields, "rps", stat_value(of("requests_per_second"), "mean"))
    put(fields, "concurrency", stat_value(of("request_concurrency", whole), "mean"))
    put(fields, "output_len_mean", stat_value(of("output_token_count"), "mean"))
    put(fields, "prompt_len_mean", stat_value(of("prompt_token_count"), "mean"))
    put_stats(fields, "ttft", of("time_to_first_token_ms"))
    put_stats(fields, "tpot", of("time_per_output_token_ms"))
    put_stats(fields, "itl", of("inter_token_latency_ms"))
    put_stats(fields, "e2e", of("request_latency"), 1e3)
    begin, end = number(scheduler.get("measure_start_time")), number(scheduler.get("measure_end_time"))
    if begin is not None and end is not None and end > begin:
        fields["duration_s"] = end - begin
    else:
        put(fields, "duration_s", row.get("duration"))
    strategy = (row.get("config") or {}).get("strategy") or {}
    if isinstance(strategy, dict):
        put(fields, "max_concurrency", strategy.get("streams") or strategy.get("max_concurrency"))
        asked = rate(strategy.get("rate"))
        if asked is not None:
            fields["request_rate"] = asked
    return fields


# ---- genai-bench


def is_genai_bench(data: dict[str, Any]) -> bool:
    """One run of genai-bench."""
    return isinstance(data.get("aggregated_metrics"), dict)


def from_genai_bench(data: dict[str, Any]) -> Fields:
    """Times in seconds unless `_time_unit` says ms."""
    aggregated = data["aggregated_metrics"]
    factor = TO_MS.get(str(data.get("_time_unit", "s")).lower(), 1e3)
    fields: Fields = {"tool": "genai-bench"}
    for name, key in {
        "requests_seen": "num_requests",
        "requests_ok": "num_completed_requests",
        "requests_failed": "num_error_requests",
        "concurrency": "num_concurrency",
        "duration_s": "run_duration",
        "output_tps": "mean_output_throughput_tokens_per_s",
        "input_tps": "mean_input_throughput_tokens_per_s",
        "total_tps": "mean_total_tokens_throughput_tokens_per_s",
        "rps": "requests_per_second",
        "error_rate": "error_rate",
    }.items():
        put(fields, name, aggregated.get(key))
    stats = aggregated.get("stats") or {}
    for name, key in {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e_latency"}.items():
        put_stats(fields, name, stats.get(key), factor)
    put(fields, "output_len_mean", stat_value(stats.get("num_output_tokens"), "mean"))
    codes = aggregated.get("error_codes_frequency") or {}
    if codes:
        put(fields, "first_error_code", next(iter(codes)))
    if fields.get("error_rate") == 0:
        del fields["error_rate"]
    return fields


# ---- inference-perf


def is_inference_perf(data: dict[str, Any]) -> bool:
    """A lifecycle report of inference-perf (stage or summary)."""
    return isinstance(data.get("successes"), dict) and "failures" in data


def from_inference_perf(data: dict[str, Any]) -> Fields:
    """All times are seconds."""
    fields: Fields = {"tool": "inference-perf"}
    load, good, bad = data.get("load_summary") or {}, data["successes"], data.get("failures") or {}
    put(fields, "requests_planned", load.get("count"))
    put(fields, "requests_ok", good.get("count"))
    put(fields, "requests_failed", bad.get("count"))
    put(fields, "requested_rate", load.get("requested_rate"))
    put(fields, "achieved_rate", load.get("achieved_rate"))
    latency, through = good.get("latency") or {}, good.get("throughput") or {}
    for name, key in {
        "e2e": "request_latency",
        "ttft": "time_to_first_token",
        "tpot": "time_per_output_token",
        "itl": "inter_token_latency",
    }.items():
        put_stats(fields, name, latency.get(key), 1e3)
    for name, key in {
        "rps": "requests_per_sec",
        "output_tps": "output_tokens_per_sec",
        "input_tps": "input_tokens_per_sec",
        "total_tps": "total_tokens_per_sec",
    }.items():
        put(fields, name, through.get(key))
    put(fields, "output_len_mean", stat_value(good.get("output_len"), "mean"))
    put(fields, "prompt_len_mean", stat_value(good.get("prompt_len"), "mean"))
    return fields


# ---- llama-benchy


def is_llama_benchy(data: dict[str, Any]) -> bool:
    """A report of llama-benchy."""
    rows = data.get("benchmarks")
    return isinstance(rows, list) and any(isinstance(row, dict) and "tg_throughput" in row for row in rows)


def from_llama_benchy(data: dict[str, Any]) -> list[Fields]:
    """One record for each test; a prefill-only phase has no generation rate."""
    out = []
    for row in data["benchmarks"]:
        if not isinstance(row, dict):
            continue
        fields: Fields = {"tool": "llama-benchy"}
        for name, key in {
            "concurrency": "concurrency",
            "prompt_tokens": "prompt_size",
            "output_tokens": "response_size",
            "context": "context_size",
        }.items():
            put(fields, name, row.get(key))
        runs = (row.get("tg_throughput") or row.get("pp_throughput") or {}).get("values")
        if isinstance(runs, list):
            fields["runs"] = len(runs)
        put(fields, "input_tps", stat_value(row.get("pp_throughput"), "mean"))
        put(fields, "output_tps", stat_value(row.get("tg_throughput"), "mean"))
        put(fields, "peak_output_tps", stat_value(row.get("peak_throughput"), "mean"))
        put_stats(fields, "ttft", row.get("ttft") or row.get("ttfr") or row.get("e2e_ttft"))
        put(fields, "network_ms", data.get("latency_ms"))
        if isinstance(data.get("model"), str):
            fields["model"] = data["model"]
        out.append(fields)
    return out


# ---- vLLM multi-turn (pandas describe() as JSON)


def is_multi_turn(data: dict[str, Any]) -> bool:
    """Statistics of vLLM's benchmark_serving_multi_turn."""
    body = data.get("statistics") if isinstance(data.get("statistics"), dict) else data
    return isinstance(body, dict) and isinstance(body.get("ttft_ms"), dict) and "latency_ms" in body


def from_multi_turn(data: dict[str, Any]) -> Fields:
    """`count`, `mean`, `50%`, … of each column, in ms; runtime and request rate beside them."""
    body = data.get("statistics") if isinstance(data.get("statistics"), dict) else data
    assert isinstance(body, dict)
    fields: Fields = {"tool": "vllm multi-turn"}
    for name, key in {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "latency_ms"}.items():
        put_stats(fields, name, body.get(key))
    put(fields, "requests_ok", stat_value(body["ttft_ms"], "count"))
    put(fields, "output_len_mean", stat_value(body.get("output_num_tokens"), "mean"))
    for where in (data, data.get("summary") or {}, data.get("params") or {}):
        put(fields, "duration_s", where.get("runtime_sec"))
        put(fields, "rps", where.get("requests_per_sec"))
    return fields
