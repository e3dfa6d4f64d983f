"""What a record of another tool states, for the rules of sanity, and what they find in it by the names of each asker. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ddtop.bench.importers.common import STATS
from ddtop.bench.importers.needs import WHOLE_RUN
from ddtop.bench.judge.sanity import Figures, found

ASKED_TOKENS = ("llama-bench", "llama-benchy", "llama-batched-bench", "sglang one_batch_server")
"""Tools whose number of tokens is what was asked for, not what came."""
PER_CHUNK_TOOLS = ("sglang", "vllm")
DOUBTS = {
    "some-failed": "requests-failed-or-missing",
    "tokens-not-visible": "tokens-not-visible-to-client",
    "peak-below-mean": "chunks-counted-as-tokens",
    "chunks-as-tokens": "chunks-counted-as-tokens",
    "acceptance-out-of-bounds": "acceptance-out-of-bounds",
    "empty-answers": "empty-answers",
    "impossible-times": "impossible-times",
    "figures-disagree": "figures-disagree",
    "no-tokens": "no-tokens",
}
"""Rule of sanity → cause of another tool's file."""
IMPOSSIBLE = ("figures-disagree", "impossible-times", "acceptance-out-of-bounds", "empty-answers")
"""Rules that leave nothing of a result to compare."""

OUR_NAMES = {
    "output_tok_s": "output_tps",
    "total_tok_s": "total_tps",
    "input_tok_s": "input_tps",
    "peak_tok_s": "peak_output_tps",
    "requests_s": "rps",
    "wall_s": "duration_s",
    "acceptance_length": "accept_len",
    "ttft_ms": "ttft_mean_ms",
    "tpot_ms": "tpot_mean_ms",
    "itl_ms": "itl_mean_ms",
    "e2e_ms": "e2e_mean_ms",
}
"""Names of metrics in a plan's `[bench] metrics` → those of a record."""


def command_doubts(metrics: Mapping[str, Any]) -> dict[str, str]:
    """{reason of validity.TABLE: what was found} in the metrics of an external benchmark, by the rules of sanity."""
    plain = {k: v for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    figures = stated({"tool": "command", **{OUR_NAMES.get(k, k): v for k, v in plain.items()}})
    figures = replace(figures, failures="")
    asked = ("no-tokens", "most-failed", "some-failed", *IMPOSSIBLE, "tokens-not-visible", "peak-below-mean")
    return found(figures, *asked)


def reasons_of(judged: Mapping[str, Any]) -> dict[str, str]:
    """The same of a judged result file (`diagnose_results`): {} where it is ok."""
    why = str(judged.get("why", ""))
    cause = judged.get("cause")
    if cause in ("no-tokens", "no-request-completed"):
        return {"no-tokens": why}
    if cause == "requests-failed-or-missing":
        ok, failed = judged.get("requests_ok"), judged.get("requests_failed")
        known = isinstance(ok, int) and isinstance(failed, int)
        figures = Figures(ok=ok, failed=failed or 1, failures=why) if known else Figures()
        return found(figures, "most-failed", "some-failed") or {"some-failed": why}
    if cause in ("figures-not-read", "last-line-truncated"):
        return {"figures-not-read": why}
    rule = next((rule for rule, name in DOUBTS.items() if name == cause), cause)
    return {} if judged.get("verdict") == "ok" else {str(rule): why}


def stated(fields: Mapping[str, Any]) -> Figures:
    """What a record states, for the rules of sanity."""
    tokens, tps = fields.get("output_tokens"), fields.get("output_tps")
    length = fields.get("output_len_mean")
    if fields.get("tool") in ASKED_TOKENS:
        tokens = None
    if (
        tokens is None
        and length is not None
        and fields.get("tool") in WHOLE_RUN
        and fields.get("requests_ok")
    ):
        tokens = length * fields["requests_ok"]
    told = [one for one in (tokens, tps, length) if one is not None]
    # 0.00 tok/s of tokens that did come is a rounded rate, not their absence
    some = tokens if tokens else min(told, default=None)
    return Figures(
        tokens=some,
        failures="requests succeeded and 0 tokens were counted",
        ok=fields.get("requests_ok"),
        failed=fields.get("requests_failed") or 0,
        output_tokens=fields.get("output_tokens") if "output_s" in fields else tokens,
        output_s=fields.get("output_s"),
        output_tok_s=tps,
        peak_tok_s=fields.get("peak_output_tps"),
        retokenized_tokens=fields.get("retokenized_tokens"),
        itl_ms=_reported_itl_ms(fields),
        streams=_streams_for_gaps(fields),
        most_streams=fields.get("max_concurrency") if fields.get("tool") in PER_CHUNK_TOOLS else None,
        acceptance_length=fields.get("accept_len"),
        draft_tokens=fields.get("draft_tokens"),
        duration_s=fields.get("duration_s"),
        whole_run=fields.get("tool") in WHOLE_RUN,
        requests_s=fields.get("rps"),
        input_tokens=fields.get("input_tokens"),
        input_tok_s=fields.get("input_tps"),
        total_tok_s=fields.get("total_tps"),
        times_ms={name: stats for name in ("ttft", "tpot", "itl", "e2e") if (stats := _stats(fields, name))},
        not_numbers=tuple(fields.get("not_numbers") or ()),
    )


def _stats(fields: Mapping[str, Any], name: str) -> dict[str, float]:
    return {
        stat: fields[f"{name}_{stat}_ms"] for stat in STATS if stat != "std" and f"{name}_{stat}_ms" in fields
    }


def streams(fields: Mapping[str, Any]) -> float | None:
    for name in ("concurrency", "effective_concurrency", "max_concurrency"):
        if fields.get(name):
            return float(fields[name])
    if fields.get("rps") and fields.get("e2e_mean_ms"):
        return float(fields["rps"]) * float(fields["e2e_mean_ms"]) / 1e3
    return None


def _reported_itl_ms(fields: Mapping[str, Any]) -> float | None:
    """The ITL of a tool that may report the gaps between chunks under this name."""
    itl = fields.get("itl_p50_ms", fields.get("itl_mean_ms"))
    return float(itl) if itl is not None and fields.get("tool") in PER_CHUNK_TOOLS else None


def _streams_for_gaps(fields: Mapping[str, Any]) -> float | None:
    """Streams at a time. A bare excerpt does not say how many: one, unless it names requests or a rate."""
    known = streams(fields)
    if known is None and "requests_ok" not in fields and "request_rate" not in fields:
        return 1.0
    return known
