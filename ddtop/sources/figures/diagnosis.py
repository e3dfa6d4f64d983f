"""`log_metrics`: the figures of a log or of a server's answer, and what they say of speculation.

Exact sources are counters (`Engine.acceptance_counters`); a log is the second choice. What is not logged is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.services.causes import verdict_fields
from ddtop.sources.figures.line_table import Rows, Run, RunLine, log_lines, read_run, run_evidence
from ddtop.sources.figures.llamacpp import from_timings, json_timings, llama_figures
from ddtop.sources.figures.server_answers import server_figures
from ddtop.sources.figures.sglang import sglang_figures
from ddtop.sources.figures.trtllm import trtllm_figures
from ddtop.sources.figures.vllm import vllm_figures

MAX_LISTED = 5_000
"""Values listed one by one; means and sums are over all of them."""


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


def _figures(run: Run) -> dict[str, Any]:
    """The figures of the engine that wrote most of the lines."""
    vllm = [f for f in run.lines if f.engine == "vllm"]
    llama = [f for f in run.lines if f.engine == "llamacpp"]
    sglang = run.decode.count + run.prefill.count
    if not (sglang or vllm or llama):
        return {"lines": 0}
    if sglang >= max(len(vllm), len(llama)):
        return sglang_figures(run.decode, run.prefill)
    return vllm_figures(vllm) if len(vllm) >= len(llama) else llama_figures(llama)


def log_metrics(data: bytes | Mapping[str, bytes], *, engine: str | None = None) -> dict[str, Any]:
    """The figures of a log, of a llama.cpp `timings` object, or of a server's answer (see `server_answers`).

    data  the log's bytes, or a mapping of file name → bytes (`input.*` counts)

    Returns verdict (ok, partial), cause, severity, advice, evidence, and by engine:
    SGLang `lines`, `gen_tps` (one per decode line), `gen_tps_mean`, `gen_tps_first_line_usable`, `accept_len`,
    `accept_len_mean`, `accept_rate`, `draft_tokens_inferred`, `ranks`, `gen_tps_sum_over_ranks`, `input_tps`;
    vLLM `gen_tps`, `kv_usage_pct`, `accept_len`, `accept_len_weighted`, `per_pos`, `drafts`, `spec_tokens`, `window_s`;
    llama.cpp one value (or a list, one per request) of `prompt_tps`, `gen_tps`, `accept_len`, `accept_rate`, …
    Lengths include the bonus token. What is not logged is absent, never 0.
    """
    name = "input.log"
    if isinstance(data, Mapping):
        names = sorted(n for n in data if n.startswith("input")) or sorted(data)
        name = names[0] if names else name
        data = bytes(data[name]) if names else b""
    lines = log_lines(data)
    timings = json_timings(data)
    run = Run(Rows(0, {}, []), Rows(0, {}, []), [])
    if timings is not None:
        found = from_timings(timings)
    elif (told := server_figures(data)) is not None:
        found = told
    elif (passes := trtllm_figures(lines)) is not None:
        found = passes
    else:
        run = read_run(lines, engine)
        found = _figures(run)
    answer = {**verdict_fields(_cause(found, run.lines)), **found, "evidence": run_evidence(lines, name)}
    long = {k: len(v) for k, v in answer.items() if isinstance(v, list) and len(v) > MAX_LISTED}
    for key in long:
        answer[key] = answer[key][:MAX_LISTED]
    if long:
        answer["lists_cut_at"] = MAX_LISTED
    return answer
