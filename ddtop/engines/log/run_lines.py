"""Lines of a running server: SGLang decode and prefill, vLLM statistics and SpecDecoding, llama.cpp timings.

They are read as key–value pairs, never by one long regex: the set and order of the fields changes with every version.
"""

from __future__ import annotations

import math
import re
from typing import Any

_BATCH = re.compile(r"(?P<what>Decode|Prefill|Extend|Idle) batch(?:[.,]| ?\[\d+\],?|(?= #)) ?(?=[#A-Za-z])")
_PAIR = re.compile(r"(?:^|, ?)(?P<k>[#A-Za-z][^,:]{0,60}?): *(?P<v>[^,]+)")
_FRAGMENT = re.compile(r"^(?:accept len|gen throughput \(token/s\)|#running-req|#new-seq): *[\d.]")
_STATS = re.compile(r"(?:Engine (?P<e>\d+): )?Avg prompt throughput: ")
_SPEC = re.compile(r"(?:SpecDecoding|Speculative|DiffusionDecoding) metrics: ")
_FLOAT = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)", re.IGNORECASE)
_PER_POS = re.compile(r"[Pp]er-position acceptance rate: *(?P<l>(?:(?:[\d.]+|nan)(?:, ?|(?=$)|(?= )))+)")
_LLAMA_TIME = re.compile(
    r"(?P<what>prompt eval|eval|total) time = *(?P<ms>[\d.]+) ms / *(?P<n>\d+) (?:tokens|runs)"
    r"(?: *\( *(?P<per>[\d.]+|inf|nan) ms per token, *(?P<tps>[\d.]+|inf|nan) tokens per second\))?"
)
_LLAMA_DRAFT = re.compile(
    r"draft acceptance(?: rate)? = *(?P<rate>[\d.]+|nan) *\( *(?P<acc>\d+) accepted */ *(?P<gen>\d+) generated\)"
)
_LLAMA_PROGRESS = re.compile(
    r"\bn_(?:decoded|gen) = *(?P<n>\d+), tg = *(?P<tps>[\d.]+|inf|nan) t/s"
    r"|\bprompt processing, n_tokens = *(?P<pn>\d+), progress = *[\d.]+(?:, t = *(?P<s>[\d.]+) s(?: / *(?P<ptps>[\d.]+|inf|nan) tokens per second)?)?"
)
"""Since 2026, every few seconds while a prompt is read or a request is generated: figures of the request so far."""
_LLAMA_LEN = re.compile(r"mean (?:acceptance length|acc(?:epted)? len|len) = *(?P<len>[\d.]+)")
_LLAMA_POS = re.compile(r"(?:acceptance rate per position|#acc rate/pos) = *\((?P<l>[\d., nan]*)\)")
_LLAMA_STAT = re.compile(r"statistics +(?P<kind>[\w.\-]+): (?P<rest>#calls.*)")
_LLAMA_TASK = re.compile(r"id +(?P<slot>-?\d+) \| task +(?P<task>-?\d+)")

SGLANG_KEYS = {
    "#running-req": "running",
    "#queue-req": "queued",
    "#token": "tokens",
    "#full token": "tokens",
    "token usage": "token_usage",
    "full token usage": "token_usage",
    "swa token usage": "swa_token_usage",
    "mamba usage": "mamba_usage",
    "accept len": "accept_len",
    "accept rate": "accept_rate",
    "cap len": "cap_len",
    "block accept len": "block_accept_len",
    "gen throughput (token/s)": "gen_tps",
    "input throughput (token/s)": "input_tps",
    "cuda graph": "cuda_graph",
    "#new-seq": "new_seqs",
    "#new-token": "new_tokens",
    "#cached-token": "cached_tokens",
    "#retracted-req": "retracted",
    "#prealloc-req": "prealloc",
    "#transfer-req": "transfer",
}
"""Names of a decode or prefill line → our names. What is not named here keeps its own name."""

_VLLM_KEYS = {
    "Avg prompt throughput": "prompt_tps",
    "Avg generation throughput": "gen_tps",
    "Running": "running",
    "Waiting": "queued",
    "Pending": "queued",
    "Swapped": "swapped",
    "GPU KV cache usage": "kv_usage_pct",
    "KV cache usage": "kv_usage_pct",
    "CPU KV cache usage": "cpu_kv_usage_pct",
    "Prefix cache hit rate": "prefix_hit_pct",
    "Mean acceptance length": "accept_len",
    "Accepted throughput": "accepted_tps",
    "Drafted throughput": "drafted_tps",
    "Accepted": "accepted",
    "Number of accepted tokens": "accepted",
    "Drafted": "drafted",
    "Number of draft tokens": "drafted",
    "Number of emitted tokens": "emitted",
    "Number of speculative tokens": "spec_tokens",
    "Draft acceptance rate": "draft_rate",
    "Avg Draft acceptance rate": "draft_rate",
    "System efficiency": "efficiency",
}

RunFact = tuple[str, str, str, dict[str, Any]]


def plain_float(text: str) -> float | None:
    """The first number in `text`; None for `nan`, `inf` or no number: no data is never 0."""
    match = _FLOAT.search(text)
    if match is None:
        return None
    value = float(match[0])
    return value if math.isfinite(value) else None


def _value(text: str) -> Any:
    text = text.strip()
    if text in ("True", "False"):
        return text == "True"
    number = plain_float(text)
    if number is None:
        return None
    return (
        int(number)
        if number.is_integer() and re.match(r"-?\d+(?!\S)", text) and abs(number) < 2**53
        else number
    )


def pairs(text: str, names: dict[str, str]) -> dict[str, Any]:
    """`a: 1, b: 2.5 units, c: True, ` → our names and values; unreadable values are left out, the first one wins."""
    found: dict[str, Any] = {}
    for match in _PAIR.finditer(text[:4000]):
        value = _value(match["v"])
        if value is not None:
            found.setdefault(names.get(match["k"].strip(), match["k"].strip()), value)
    return found


def _sglang(message: str) -> RunFact | None:
    match = _BATCH.search(message)
    if match:
        values = pairs(message[match.end() :], SGLANG_KEYS)
        kind = "decode" if match["what"] == "Decode" else "prefill"
        return (kind, kind, "sglang", values) if values else None
    if _FRAGMENT.match(message):
        values = pairs(message, SGLANG_KEYS)
        kind = (
            "prefill"
            if "new_seqs" in values or ("input_tps" in values and "gen_tps" not in values)
            else "decode"
        )
        return kind, kind, "sglang", values
    return None


def _vllm(message: str) -> RunFact | None:
    if (match := _STATS.search(message)) is not None:
        values = pairs(
            message[match.start() if match["e"] is None else message.index("Avg", match.start()) :],
            _VLLM_KEYS,
        )
        values["engine"] = int(match["e"] or 0)
        return "stats", "stats", "vllm", values
    if (match := _SPEC.search(message)) is None:
        return None
    rest = message[match.end() :]
    values = {}
    per_pos = _PER_POS.search(rest)
    if per_pos is not None:
        rates = [plain_float(p) for p in per_pos["l"].split(",") if p.strip()]
        values["positions"] = len(rates)
        if rates and all(r is not None for r in rates):
            values["per_pos"] = rates
        rest = rest[: per_pos.start()] + rest[per_pos.end() :]
    values.update(pairs(rest, _VLLM_KEYS))
    rate = values.pop("draft_rate", None)
    if rate is not None:
        percent = re.search(r"[Dd]raft acceptance rate: *[\d.]+ ?%", message)
        values["draft_rate_pct"] = float(rate) if percent else round(float(rate) * 100, 6)
    return "spec", "spec", "vllm", values


def _llama(message: str) -> RunFact | None:
    who = _LLAMA_TASK.search(message)
    base: dict[str, Any] = {"slot": int(who["slot"]), "task": int(who["task"])} if who else {}
    if (match := _LLAMA_TIME.search(message)) is not None:
        name = {"prompt eval": "prompt", "eval": "gen", "total": "total"}[match["what"]]
        base |= {f"{name}_ms": float(match["ms"]), f"{name}_tokens": int(match["n"])}
        if match["tps"] and (tps := plain_float(match["tps"])) is not None:
            base[f"{name}_tps"] = tps
        return "timing", name, "llamacpp", base
    if (match := _LLAMA_PROGRESS.search(message)) is not None:
        name = "gen" if match["n"] else "prompt"
        base[f"{name}_tokens"] = int(match["n"] or match["pn"])
        if (tps := plain_float(match["tps"] or match["ptps"] or "")) is not None:
            base[f"{name}_tps"] = tps
        if match["s"]:
            base["prompt_ms"] = round(float(match["s"]) * 1e3, 3)
        return "timing", "progress", "llamacpp", base
    if (match := _LLAMA_DRAFT.search(message)) is not None:
        base |= {"accepted": int(match["acc"]), "drafted": int(match["gen"])}
        if (rate := plain_float(match["rate"])) is not None:
            base["accept_rate"] = rate
        _llama_lengths(message, base)
        return "timing", "draft", "llamacpp", base
    if (match := _LLAMA_STAT.search(message)) is not None:
        base["spec_kind"] = match["kind"]
        for key, name in (
            ("#gen drafts", "drafts"),
            ("#acc drafts", "accepted_drafts"),
            ("#gen tokens", "drafted"),
            ("#acc tokens", "accepted"),
        ):
            if found := re.search(rf"{re.escape(key)} = *(\d+)", match["rest"][:2000]):
                base[name] = int(found[1])
        _llama_lengths(match["rest"], base)
        return "timing", "statistics", "llamacpp", base
    return None


def _llama_lengths(text: str, into: dict[str, Any]) -> None:
    if (length := _LLAMA_LEN.search(text)) is not None and (value := plain_float(length["len"])) is not None:
        into["accept_len"] = value
    if (per_pos := _LLAMA_POS.search(text)) is not None:
        rates = [plain_float(p) for p in per_pos["l"].split(",") if p.strip()]
        if rates and all(r is not None for r in rates):
            into["per_pos"] = rates


_TRTLLM = re.compile(
    r"\biter = (?P<iter>\d+), .{0,200}?elapsed_time = (?P<s>[\d.eE+-]+)s, .{0,400}?num_scheduled_requests: (?P<n>\d+)"
)
_TRTLLM_STATE = re.compile(r"'(?P<k>num_\w+)': (?P<v>\d+)")


def _trtllm(message: str) -> RunFact | None:
    """One iteration. Its generation tokens are padded for CUDA graphs: the scheduled requests are the real ones."""
    if (match := _TRTLLM.search(message)) is None:
        return None
    seconds, scheduled = plain_float(match["s"]), int(match["n"])
    state = {m["k"]: int(m["v"]) for m in _TRTLLM_STATE.finditer(message, match.end())}
    values: dict[str, Any] = {"iter": int(match["iter"]), "running": scheduled, **state}
    decoding = scheduled - state.get("num_ctx_requests", 0)
    if seconds and decoding > 0:
        values |= {"step_s": seconds, "gen_tps": decoding / seconds}
    return "timing", "iteration", "trtllm", values


def run_fact(engine: str | None, message: str) -> RunFact | None:
    """Read a line of a running server: (kind, event, engine, values), or None when it is none of these lines."""
    if engine in (None, "any", "sglang") and (
        "batch" in message
        or "accept len: " in message
        or "#running-req" in message
        or "gen throughput" in message
    ):
        found = _sglang(message)
        if found is not None:
            return found
    if engine in (None, "any", "vllm") and ("throughput: " in message or " metrics: " in message):
        found = _vllm(message)
        if found is not None:
            return found
    if engine in (None, "any", "trtllm") and "num_scheduled_requests: " in message:
        return _trtllm(message)
    if engine in (None, "any", "llamacpp", "ollama") and (
        " time = " in message
        or ", tg = " in message
        or "prompt processing, n_tokens" in message
        or "draft acceptance" in message
        or "statistics " in message
    ):
        return _llama(message)
    return None
