"""Figures that a server gives when it is asked: `/metrics`, SGLang's `/server_info`, the `meta_info` of an answer. Pure.

Counters run since the server's start, so what is made of them is marked `cumulative`: it is no window of one workload.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ddtop.engines.metrics_page import samples

_FAMILY = re.compile(r"^(?:sglang|vllm|llamacpp)[:_]", re.M)
_PLAIN = {
    "sglang:gen_throughput": "gen_tps",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "queued",
    "sglang:prompt_tokens_total": "prompt_tokens",
    "sglang:generation_tokens_total": "gen_tokens",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "queued",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "gen_tokens",
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "drafted",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "llamacpp:predicted_tokens_seconds": "gen_tps",
    "llamacpp:prompt_tokens_seconds": "prompt_tps",
    "llamacpp:requests_processing": "running",
    "llamacpp:requests_deferred": "queued",
    "llamacpp:tokens_predicted_total": "gen_tokens",
    "llamacpp:prompt_tokens_total": "prompt_tokens",
}
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def number(value: Any) -> float | None:
    """A finite number of JSON or of a sample line, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        read = float(value)
    except ValueError:
        return None
    return read if math.isfinite(read) else None


def server_figures(data: bytes) -> dict[str, Any] | None:
    """The figures of one such answer; None for anything else."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        answers = value if isinstance(value, list) else [value]
        told = [one for one in answers if isinstance(one, Mapping)]
        return _of_answers(told) or (_of_server_info(told[0]) if len(told) == 1 else None)
    return _of_metrics(text)


def _put(found: dict[str, Any], name: str, value: Any) -> None:
    if (read := number(value)) is not None:
        found[name] = int(read) if float(read).is_integer() and not name.endswith(("_tps", "_len")) else read


def _of_answers(answers: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """`meta_info` of SGLang's `/generate`: exact per request, where the log's line covers 40 steps of all."""
    metas = [meta for one in answers if isinstance(meta := one.get("meta_info"), Mapping)]
    if not metas:
        return None
    found: dict[str, Any] = {"engine": "sglang", "lines": len(metas), "requests": len(metas)}
    for name, key in (
        ("prompt_tokens", "prompt_tokens"),
        ("gen_tokens", "completion_tokens"),
        ("cached_tokens", "cached_tokens"),
        ("drafts", "spec_verify_ct"),
        ("accepted", "spec_accept_token_num"),
        ("drafted", "spec_draft_token_num"),
    ):
        told = [read for meta in metas if (read := number(meta.get(key))) is not None]
        if told:
            _put(found, name, sum(told))
    if found.get("drafts") and found.get("gen_tokens"):
        found["accept_len"] = round(found["gen_tokens"] / found["drafts"], 4)
    elif len(metas) == 1:
        _put(found, "accept_len", metas[0].get("spec_accept_length"))
    if len(metas) == 1:
        _put(found, "accept_rate", metas[0].get("spec_accept_rate"))
    return found


def _of_server_info(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """`/server_info`: one state per data-parallel rank; throughputs add up, lengths do not."""
    states = info.get("internal_states")
    states = [state for state in states if isinstance(state, Mapping)] if isinstance(states, list) else []
    if not states:
        return None
    found: dict[str, Any] = {"engine": "sglang", "lines": len(states), "cumulative": True}
    rates = [r for state in states if (r := number(state.get("last_gen_throughput"))) is not None]
    lengths = [r for state in states if (r := number(state.get("avg_spec_accept_length"))) is not None]
    if rates:
        found["gen_tps"] = sum(rates)
    if lengths:
        found["accept_len"] = round(sum(lengths) / len(lengths), 4)
    return found


def _of_metrics(text: str) -> dict[str, Any] | None:
    """`/metrics` in Prometheus' text form; the values of several engines or ranks are added."""
    if _FAMILY.search(text) is None:  # a log: most texts are
        return None
    sums: dict[str, float] = {}
    lengths: list[float] = []
    positions: dict[int, float] = {}
    for name, labels, value in samples(text):
        known = name if name in _PLAIN or name.endswith("_total") else f"{name}_total"
        if known in _PLAIN:
            sums[known] = sums.get(known, 0.0) + value
        elif name == "sglang:spec_accept_length":
            lengths.append(value)
        elif name == "sglang:spec_verify_calls_total":
            sums[name] = sums.get(name, 0.0) + value
        elif known == _PER_POSITION and (at := re.search(r'position="(\d{1,3})"', labels)):
            positions[int(at[1])] = positions.get(int(at[1]), 0.0) + value
    if not sums and not lengths:
        return None
    engine = next(iter(sums), "sglang:").partition(":")[0]
    found: dict[str, Any] = {"engine": engine, "lines": len(sums) + len(lengths), "cumulative": True}
    for key, value in sums.items():
        if key in _PLAIN:
            _put(found, _PLAIN[key], value)
    drafts, verify = found.get("drafts"), sums.get("sglang:spec_verify_calls_total")
    if drafts and "accepted" in found:
        found["accept_len"] = round(1 + found["accepted"] / drafts, 4)
        if found.get("drafted"):
            found["accept_rate"] = round(found["accepted"] / found["drafted"], 4)
        if positions:
            found["per_pos"] = [round(positions[at] / drafts, 4) for at in sorted(positions)]
    elif verify and found.get("gen_tokens"):
        found["accept_len"] = round(found["gen_tokens"] / verify, 4)
    elif any(lengths):
        found["accept_len"] = round(sum(lengths) / len(lengths), 4)  # of the last window only
    return found
