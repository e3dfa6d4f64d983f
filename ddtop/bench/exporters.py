"""A cell's result in the formats of SGLang bench_serving and vLLM bench serve, so that notebooks keep working. Pure.

Only what those formats define is written; their ITL is the gap between chunks, so it is ours that is written there as
`itl` per token, and the export says so. Infinity and NaN are never written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ddtop.agent.loadgen.records import unpack
from ddtop.bench.figures.requests import read_request
from ddtop.bench.judge.cell import CellJudgement, judge_cell

NOTE = "written by ddtop: itl is per token (gap / tokens it brought), failed requests are in no average"


def _stats(
    out: dict[str, Any], metrics: Mapping[str, Any], name: str, key: str, percentiles: tuple[str, ...]
) -> None:
    stats = metrics.get(key)
    if not stats:
        return
    out[f"mean_{name}_ms"] = stats["mean"]
    out[f"median_{name}_ms"] = stats["p50"]
    if "sd" in stats:
        out[f"std_{name}_ms"] = stats["sd"]
    for p in percentiles:
        if p in stats:
            out[f"{p}_{name}_ms"] = stats[p]


def _details(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Per-request lists (seconds); failed requests carry their class in `errors`, as both tools do."""
    records = unpack(dict(raw)).get("requests") or []
    requests = [read_request(record) for record in records]
    texts = raw.get("texts") or {}
    return {
        "input_lens": [request.prompt_tokens or 0 for request in requests],
        "output_lens": [request.tokens or 0 for request in requests],
        "ttfts": [request.ttft_s or 0.0 for request in requests],
        "itls": [list(request.gaps) for request in requests],
        "start_times": [request.start_s for request in requests],
        "generated_texts": ["".join(texts.get(str(request.index), [])) for request in requests],
        "errors": [
            "" if request.ok else record.get("why", request.cls)
            for request, record in zip(requests, records, strict=True)
        ],
    }


def to_sglang(
    raw: Mapping[str, Any], judged: CellJudgement | None = None, *, details: bool = False
) -> dict[str, Any]:
    """One line of bench_serving's JSON-lines file."""
    judged = judged or judge_cell(raw)
    metrics, spec = judged.metrics, dict(raw.get("spec") or {})
    out: dict[str, Any] = {
        "tag": raw.get("cell"),
        "backend": {"generate": "sglang", "chat": "sglang-oai-chat"}.get(
            spec.get("endpoint", "chat"), "sglang-oai"
        ),
        "dataset_name": "ddtop",
        "request_rate": spec.get("rate") or None,  # null: unlimited
        "max_concurrency": spec.get("concurrency"),
        "random_output_len": spec.get("output_tokens"),
        "completed": metrics["requests_ok"],
        "note": NOTE,
        "ddtop_validity": judged.validity,
        "ddtop_reasons": list(judged.reasons),
    }
    for name, key in {
        "duration": "wall_s",
        "total_input_tokens": "input_tokens",
        "total_output_tokens": "output_tokens",
        "request_throughput": "requests_s",
        "input_throughput": "input_tok_s",
        "output_throughput": "output_tok_s",
        "total_throughput": "total_tok_s",
        "max_output_tokens_per_s": "peak_tok_s",
        "max_concurrent_requests": "in_flight_max",
        "concurrency": "in_flight_mean",
        "accept_length": "acceptance_length",
    }.items():
        if metrics.get(key) is not None:
            out[name] = metrics[key]
    out.setdefault("accept_length", None)
    for name, key in {"e2e_latency": "e2e_ms", "ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms"}.items():
        _stats(out, metrics, name, key, ("p90", "p99"))
    if details:
        out.update({key: value for key, value in _details(raw).items() if key != "start_times"})
    return out


def to_vllm(
    raw: Mapping[str, Any], judged: CellJudgement | None = None, *, details: bool = False
) -> dict[str, Any]:
    """The object of `vllm bench serve --save-result`."""
    judged = judged or judge_cell(raw)
    metrics, spec = judged.metrics, dict(raw.get("spec") or {})
    started = raw.get("started_at_s")
    out: dict[str, Any] = {
        "date": time.strftime("%Y%m%d-%H%M%S", time.gmtime(started)) if started else None,
        "endpoint_type": "openai-chat" if spec.get("endpoint", "chat") == "chat" else "openai",
        "backend": "openai-chat" if spec.get("endpoint", "chat") == "chat" else "openai",
        "label": raw.get("cell"),
        "model_id": raw.get("model"),
        "tokenizer_id": None,
        "num_prompts": spec.get("requests", metrics["requests_ok"] + metrics["requests_failed"]),
        "request_rate": spec.get("rate") or "inf",
        "burstiness": 1.0,
        "max_concurrency": spec.get("concurrency"),
        "completed": metrics["requests_ok"],
        "failed": metrics["requests_failed"],
        "note": NOTE,
        "ddtop_validity": judged.validity,
        "ddtop_reasons": list(judged.reasons),
    }
    for name, key in {
        "duration": "wall_s",
        "total_input_tokens": "input_tokens",
        "total_output_tokens": "output_tokens",
        "request_throughput": "requests_s",
        "request_goodput": "goodput_s",
        "output_throughput": "output_tok_s",
        "total_token_throughput": "total_tok_s",
        "max_output_tokens_per_s": "peak_tok_s",
        "max_concurrent_requests": "in_flight_max",
        "spec_decode_acceptance_length": "acceptance_length",
    }.items():
        if metrics.get(key) is not None:
            out[name] = metrics[key]
    for name, key in {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2e_ms"}.items():
        _stats(out, metrics, name, key, ("p90", "p99"))
    if details:
        out.update(_details(raw))
    return out
