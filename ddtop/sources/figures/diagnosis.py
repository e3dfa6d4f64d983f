"""Figures from a log: acceptance length, throughput, per-position rates; absent when the log does not tell
them.

Exact sources are counters (`Engine.acceptance_counters`); a log is the second choice: SGLang prints a line
every 40
decode steps, its first line after an idle time counts the idle time too, and vLLM's windows must be weighted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ddtop.services.causes import verdict_fields
from ddtop.sources.figures.draft_token_count import draft_tokens
from ddtop.sources.figures.line_table import Rows, Run, RunLine, read_run, run_evidence
from ddtop.sources.figures.llamacpp import from_timings, json_timings, llama_figures
from ddtop.sources.figures.server_answers import server_figures

FIRST_LINE_LOW = 0.5
"""A first decode line below this share of the others' median held idle time."""
MAX_LISTED = 5_000
"""Values listed one by one; means and sums are over all of them."""


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def _numbers(facts: Sequence[RunLine], key: str) -> list[Any]:
    return [f.values[key] for f in facts if f.values.get(key) is not None]


# -- SGLang
# -------------------------------------------------------------------------------------------------------


def _sglang(decode: Rows, prefill: Rows) -> dict[str, Any]:
    found: dict[str, Any] = {"engine": "sglang", "lines": decode.count, "decode_lines": decode.count}
    if prefill.count:
        found["prefill_lines"] = prefill.count
        if rates := prefill.given("input_tps"):
            found["input_tps"] = rates
    if not decode.count:
        return found
    gen, lengths, rates = decode.given("gen_tps"), decode.given("accept_len"), decode.given("accept_rate")
    ranks = [r for r in dict.fromkeys(decode.ranks) if r]
    if gen:
        found["gen_tps"] = gen
        found["gen_tps_mean"] = _mean(gen)
    for key, name in (
        ("running", "running"),
        ("queued", "queued"),
        ("tokens", "tokens_last"),
        ("token_usage", "token_usage"),
    ):
        if (last := decode.column(key)[-1]) is not None:
            found[name] = last
    if lengths:
        found["accept_len"] = lengths
        weighted = [
            (a, r or 1)
            for a, r in zip(decode.column("accept_len"), decode.column("running"), strict=True)
            if a is not None
        ]
        found["accept_len_mean"] = _mean(lengths)
        found["accept_len_weighted"] = round(sum(a * r for a, r in weighted) / sum(r for _, r in weighted), 4)
        found["drafter_accepts_nothing"] = len(lengths) >= 3 and max(lengths) <= 1.05
    if rates:
        found["accept_rate"] = rates
        pairs = zip(decode.column("accept_len"), decode.column("accept_rate"), strict=True)
        found.update(
            draft_tokens([(a, r) for a, r in dict.fromkeys(pairs) if a is not None and r is not None])
        )
    if ranks:
        found["ranks"] = ranks
    dp = {r.split()[0] for r in ranks if r.startswith("DP")}
    if len(dp) > 1:
        rows = zip(decode.ranks, decode.column("gen_tps"), decode.column("running"), strict=True)
        newest = {rank: (tps or 0, running or 0) for rank, tps, running in rows if rank}
        found["gen_tps_sum_over_ranks"] = round(sum(tps for tps, _ in newest.values()), 4)
        found["running_total"] = sum(int(running) for _, running in newest.values())
    else:
        _first_line(found, decode, gen)
        if not lengths:
            _per_line(found, decode)
    return found


def _first_line(found: dict[str, Any], decode: Rows, gen: Sequence[float]) -> None:
    if len(gen) < 2 or decode.column("gen_tps")[0] is None:
        return
    others = sorted(gen[1:])
    usable = gen[0] >= FIRST_LINE_LOW * others[len(others) // 2]
    found["gen_tps_first_line_usable"] = usable
    found["gen_tps_mean_excluding_first"] = _mean(gen[1:])
    if not usable:
        found["gen_tps_mean"] = found["gen_tps_mean_excluding_first"]


def _per_line(found: dict[str, Any], decode: Rows) -> None:
    """Tokens from one line to the next, where one request runs alone and nothing is speculated: the log
    interval."""
    rows = list(zip(decode.column("running"), decode.column("tokens"), strict=True))
    steps = {
        b[1] - a[1]
        for a, b in pairwise(rows)
        if a[0] == 1 and b[0] == 1 and a[1] is not None and b[1] is not None
    }
    if len(steps) == 1 and (step := steps.pop()) > 0:
        found["tokens_per_line"] = step


# -- vLLM
# ---------------------------------------------------------------------------------------------------------


def _vllm(facts: Sequence[RunLine]) -> dict[str, Any]:
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


def _vllm_spec(found: dict[str, Any], spec: Sequence[RunLine]) -> None:
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
        _vllm_drafts(found, active, int(next(iter(sizes)) or 0), lengths)
    windows = [
        f.values["accepted"] / f.values["accepted_tps"]
        for f in active
        if f.values.get("accepted_tps") and f.values.get("accepted")
    ]
    if windows:
        found["window_s"] = round(sum(windows) / len(windows))


# -- all together
# -------------------------------------------------------------------------------------------------


def _cause(found: Mapping[str, Any], facts: Sequence[RunLine]) -> str:
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


def _vllm_drafts(
    found: dict[str, Any], active: Sequence[RunLine], size: int, lengths: Sequence[float]
) -> None:
    """Drafts of each window, and the acceptance length weighted by them.

    V0 (with `Number of emitted tokens`) counts from the start, and counts accepted tokens behind a rejected one too:
    there the emitted tokens over the drafts are the length, and the last line is the whole.
    """
    found["spec_tokens"] = size
    if any(f.values["drafted"] % size for f in active) or not all("accepted" in f.values for f in active):
        pairs = [(f.values.get("accepted"), f.values.get("accept_len")) for f in active]
        steps = [(a, a / (length - 1)) for a, length in pairs if a and length and length > 1]
        if steps and len(steps) == len(active):
            found["accept_len_weighted"] = round(1 + sum(a for a, _ in steps) / sum(d for _, d in steps), 4)
        return
    drafts = [f.values["drafted"] // size for f in active]
    found["drafts"] = drafts
    if all("emitted" in f.values for f in active):
        found["accept_len"] = [round(f.values["emitted"] / d, 4) for f, d in zip(active, drafts, strict=True)]
        found["accept_len_weighted"] = found["accept_len"][-1]
        found["cumulative"] = True
        return
    found["accept_len_weighted"] = round(1 + sum(f.values["accepted"] for f in active) / sum(drafts), 4)
    if not lengths:
        found["accept_len"] = [
            round(1 + f.values["accepted"] / d, 4) for f, d in zip(active, drafts, strict=True)
        ]


def _figures(run: Run) -> dict[str, Any]:
    """The figures of the engine that wrote most of the lines."""
    vllm = [f for f in run.lines if f.engine == "vllm"]
    llama = [f for f in run.lines if f.engine == "llamacpp"]
    sglang = run.decode.count + run.prefill.count
    if not (sglang or vllm or llama):
        return {"lines": 0}
    if sglang >= max(len(vllm), len(llama)):
        return _sglang(run.decode, run.prefill)
    return _vllm(vllm) if len(vllm) >= len(llama) else llama_figures(llama)


def log_metrics(data: bytes | Mapping[str, bytes], *, engine: str | None = None) -> dict[str, Any]:
    """The figures of a log, of a llama.cpp `timings` object, or of what a server says when asked (serverfigures).

    data  the log's bytes, or a mapping of file name → bytes (`input.*` counts)
    Returns verdict (ok, partial), cause, severity, advice, and by engine:
    SGLang `lines`, `gen_tps` (one per decode line), `gen_tps_mean`, `gen_tps_first_line_usable`,
    `accept_len`,
    `accept_len_mean`, `accept_rate`, `draft_tokens_inferred`, `ranks`, `gen_tps_sum_over_ranks`, `input_tps`;
    vLLM `gen_tps`, `kv_usage_pct`, `accept_len`, `accept_len_weighted`, `per_pos`, `drafts`, `spec_tokens`,
    `window_s`;
    llama.cpp one value (or a list, one per request) of `prompt_tps`, `gen_tps`, `accept_len`, `accept_rate`,
    …
    Lengths include the bonus token. What the log does not tell is absent, never 0.
    """
    name = "input.log"
    if isinstance(data, Mapping):
        names = sorted(n for n in data if n.startswith("input")) or sorted(data)
        name = names[0] if names else name
        data = bytes(data[name]) if names else b""
    timings = json_timings(data)
    run = Run(Rows(0, {}, []), Rows(0, {}, []), [])
    if timings is not None:
        found = from_timings(timings)
    elif (told := server_figures(data)) is not None:
        found = told
    else:
        run = read_run(data, engine)
        found = _figures(run)
    answer = {**verdict_fields(_cause(found, run.lines)), **found, "evidence": run_evidence(data, name)}
    long = {k: len(v) for k, v in answer.items() if isinstance(v, list) and len(v) > MAX_LISTED}
    for key in long:
        answer[key] = answer[key][:MAX_LISTED]
    if long:
        answer["lists_cut_at"] = MAX_LISTED
    return answer
