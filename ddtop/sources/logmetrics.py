"""Figures from a log: acceptance length, throughput, per-position rates; absent when the log does not tell them.

Exact sources are counters (`Engine.acceptance_counters`); a log is the second choice: SGLang prints a line every 40
decode steps, its first line after an idle time counts the idle time too, and vLLM's windows must be weighted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ddtop.engines.grammar import LogFact, parse_line
from ddtop.services.journal_json import join_split_lines, looks_like_journal_json, parse_journal_json
from ddtop.sources.causes import verdict_fields
from ddtop.sources.drafttokens import draft_tokens
from ddtop.sources.llamametrics import from_timings, json_timings, llama_figures

FIRST_LINE_LOW = 0.5
"""A first decode line below this share of the others' median held idle time."""
MAX_LISTED = 5_000
_RUN = (
    b"batch",
    b"accept len",
    b"throughput",
    b"metrics",
    b" time =",
    b"draft acceptance",
    b"statistics ",
    b"#running-req",
)


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def _numbers(facts: Sequence[LogFact], key: str) -> list[Any]:
    return [f.values[key] for f in facts if f.values.get(key) is not None][:MAX_LISTED]


def run_facts(data: bytes, engine: str | None = None) -> list[LogFact]:
    """Every decode, prefill, statistics and timing line of a log, in order. Other lines are not even parsed."""
    if looks_like_journal_json(data):
        lines = [
            (e.text or "").encode("utf-8", "replace") for e in join_split_lines(parse_journal_json(data))
        ]
    else:
        lines = data.split(b"\n")
    found: list[LogFact] = []
    for line in lines:
        if any(word in line for word in _RUN):
            found.extend(
                f
                for f in parse_line(engine, line[:65_536].decode("utf-8", "replace"))
                if f.phase == "run" and f.kind != "phase"
            )
    return found


# -- SGLang -------------------------------------------------------------------------------------------------------


def _sglang(facts: Sequence[LogFact]) -> dict[str, Any]:
    decode = [f for f in facts if f.kind == "decode"]
    prefill = [f for f in facts if f.kind == "prefill"]
    found: dict[str, Any] = {"engine": "sglang", "lines": len(decode), "decode_lines": len(decode)}
    if prefill:
        found["prefill_lines"] = len(prefill)
        if rates := _numbers(prefill, "input_tps"):
            found["input_tps"] = rates
    if not decode:
        return found
    gen = _numbers(decode, "gen_tps")
    lengths = _numbers(decode, "accept_len")
    rates = _numbers(decode, "accept_rate")
    ranks = list(dict.fromkeys(f.rank for f in decode if f.rank))
    if gen:
        found["gen_tps"] = gen
        found["gen_tps_mean"] = _mean(gen)
    last = decode[-1].values
    for key, name in (
        ("running", "running"),
        ("queued", "queued"),
        ("tokens", "tokens_last"),
        ("token_usage", "token_usage"),
    ):
        if last.get(key) is not None:
            found[name] = last[key]
    if lengths:
        found["accept_len"] = lengths
        weights = [f.values.get("running") or 1 for f in decode if f.values.get("accept_len") is not None]
        found["accept_len_mean"] = _mean(lengths)
        found["accept_len_weighted"] = round(
            sum(a * w for a, w in zip(lengths, weights, strict=False)) / sum(weights), 4
        )
        found["drafter_accepts_nothing"] = len(lengths) >= 3 and max(lengths) <= 1.05
    if rates:
        found["accept_rate"] = rates
        found.update(
            draft_tokens(
                [
                    (f.values["accept_len"], f.values["accept_rate"])
                    for f in decode
                    if "accept_len" in f.values and "accept_rate" in f.values
                ]
            )
        )
    if ranks:
        found["ranks"] = ranks
    dp = {r.split()[0] for r in ranks if r.startswith("DP")}
    if len(dp) > 1:
        newest = {f.rank: f.values for f in decode if f.rank}
        found["gen_tps_sum_over_ranks"] = round(sum(v.get("gen_tps") or 0 for v in newest.values()), 4)
        found["running_total"] = sum(int(v.get("running") or 0) for v in newest.values())
    else:
        _first_line(found, decode, gen)
        _per_line(found, decode)
    return found


def _first_line(found: dict[str, Any], decode: Sequence[LogFact], gen: Sequence[float]) -> None:
    if len(gen) < 2 or decode[0].values.get("gen_tps") is None:
        return
    others = sorted(gen[1:])
    usable = gen[0] >= FIRST_LINE_LOW * others[len(others) // 2]
    found["gen_tps_first_line_usable"] = usable
    found["gen_tps_mean_excluding_first"] = _mean(gen[1:])
    if not usable:
        found["gen_tps_mean"] = found["gen_tps_mean_excluding_first"]


def _per_line(found: dict[str, Any], decode: Sequence[LogFact]) -> None:
    """Tokens from one line to the next, where one request runs alone and nothing is speculated: the log interval."""
    steps = [
        b.values["tokens"] - a.values["tokens"]
        for a, b in pairwise(decode)
        if a.values.get("running") == b.values.get("running") == 1
        and "tokens" in a.values
        and "tokens" in b.values
    ]
    if steps and len(set(steps)) == 1 and steps[0] > 0:
        found["tokens_per_line"] = steps[0]


# -- vLLM ---------------------------------------------------------------------------------------------------------


def _vllm(facts: Sequence[LogFact]) -> dict[str, Any]:
    stats = [f for f in facts if f.kind == "stats"]
    spec = [f for f in facts if f.kind == "spec"]
    found: dict[str, Any] = {"engine": "vllm", "lines": len(stats) + len(spec)}
    if stats:
        found["gen_tps"] = _numbers(stats, "gen_tps")
        busy = [g for f in stats if (g := f.values.get("gen_tps")) and (f.values.get("running") or g)]
        if busy:
            found["gen_tps_mean"] = _mean(busy)
        found["prompt_tps"] = _numbers(stats, "prompt_tps")
        if usage := _numbers(stats, "kv_usage_pct"):
            found["kv_usage_pct"] = usage
        for key in ("running", "queued"):
            if stats[-1].values.get(key) is not None:
                found[key] = stats[-1].values[key]
        engines = {f.values.get("engine", 0) for f in stats}
        if len(engines) > 1:
            newest = {f.values.get("engine", 0): f.values for f in stats}
            found["gen_tps_sum_over_ranks"] = round(sum(v.get("gen_tps") or 0 for v in newest.values()), 4)
            found["running_total"] = sum(int(v.get("running") or 0) for v in newest.values())
    if spec:
        _vllm_spec(found, spec)
    return found


def _vllm_spec(found: dict[str, Any], spec: Sequence[LogFact]) -> None:
    active = [f for f in spec if f.values.get("drafted")]
    lengths = _numbers(active, "accept_len")
    if lengths:
        found["accept_len"] = lengths
        found["accept_len_unweighted"] = _mean(lengths)
        found["accept_len_mean"] = found["accept_len_unweighted"]
    if not active:
        return
    for key in ("accepted", "drafted", "draft_rate_pct", "per_pos"):
        if values := _numbers(active, key):
            found[key] = values
    sizes = {f.values.get("positions") or f.values.get("spec_tokens") for f in active} - {None}
    if len(sizes) == 1:
        size = int(next(iter(sizes)) or 0)
        found["spec_tokens"] = size
        drafts = [round(f.values["drafted"] / size) for f in active]
        exact = all(f.values["drafted"] % size == 0 for f in active)
        if exact and all("accepted" in f.values for f in active):
            found["drafts"] = drafts
            found["accept_len_weighted"] = round(
                1 + sum(f.values["accepted"] for f in active) / sum(drafts), 4
            )
            if not lengths:
                found["accept_len"] = [
                    round(1 + f.values["accepted"] / d, 4) for f, d in zip(active, drafts, strict=True)
                ]
    windows = [
        f.values["accepted"] / f.values["accepted_tps"]
        for f in active
        if f.values.get("accepted_tps") and f.values.get("accepted")
    ]
    if windows:
        found["window_s"] = round(sum(windows) / len(windows))


# -- all together -------------------------------------------------------------------------------------------------


def _cause(found: Mapping[str, Any], facts: Sequence[LogFact]) -> str:
    spec_lines = [f for f in facts if f.kind == "spec"]
    if (
        found.get("accept_len") is not None
        or found.get("draft_n")
        or (found.get("engine") == "llamacpp" and found.get("drafted"))
    ):
        return "speculation-active"
    if any(f.values.get("drafted") for f in spec_lines):
        return "acceptance-length-not-logged"
    if found.get("accept_rate") is not None and found.get("engine") == "sglang":
        return "acceptance-length-not-logged"
    gen = found.get("gen_tps")
    if not found.get("lines"):
        return "no-metrics-lines"
    if found.get("engine") == "vllm" and (gen is None or not any(gen)) and not found.get("running"):
        return "idle"
    if spec_lines and found.get("engine") == "vllm" and not any(gen or []):
        return "idle"
    return "no-speculation"


def log_metrics(data: bytes | Mapping[str, bytes], *, engine: str | None = None) -> dict[str, Any]:
    """The figures of a log, or of a llama.cpp `timings` object.

    data  the log's bytes, or a mapping of file name → bytes (`input.*` counts)
    Returns verdict (ok, partial), cause, severity, advice, and by engine:
    SGLang `lines`, `gen_tps` (one per decode line), `gen_tps_mean`, `gen_tps_first_line_usable`, `accept_len`,
    `accept_len_mean`, `accept_rate`, `draft_tokens_inferred`, `ranks`, `gen_tps_sum_over_ranks`, `input_tps`;
    vLLM `gen_tps`, `kv_usage_pct`, `accept_len`, `accept_len_weighted`, `per_pos`, `drafts`, `spec_tokens`, `window_s`;
    llama.cpp one value (or a list, one per request) of `prompt_tps`, `gen_tps`, `accept_len`, `accept_rate`, …
    Lengths include the bonus token. What the log does not tell is absent, never 0.
    """
    if isinstance(data, Mapping):
        names = sorted(n for n in data if n.startswith("input")) or sorted(data)
        data = bytes(data[names[0]]) if names else b""
    timings = json_timings(data)
    facts: list[LogFact] = []
    if timings is not None:
        found = from_timings(timings)
    else:
        facts = run_facts(data, engine)
        by_engine = {name: [f for f in facts if f.engine == name] for name in ("sglang", "vllm", "llamacpp")}
        name = max(by_engine, key=lambda n: len(by_engine[n]))
        found = (
            {"sglang": _sglang, "vllm": _vllm, "llamacpp": llama_figures}[name](by_engine[name])
            if facts
            else {"lines": 0}
        )
    return {**verdict_fields(_cause(found, facts)), **found}
