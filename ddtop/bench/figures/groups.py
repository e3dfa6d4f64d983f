"""Figures of a cell by group of its prompts: acceptance length and speed of code, mathematics, prose. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.bench.figures.acceptance import Acceptance, drafted_share, from_llamacpp_timings, from_requests
from ddtop.bench.figures.requests import Request
from ddtop.bench.figures.stats import summary


def by_group(
    records: Sequence[Mapping[str, Any]], requests: Sequence[Request], prompts: int, whole: Acceptance | None
) -> dict[str, dict[str, Any]]:
    """{group: {n, output_tokens, acceptance_length, acceptance_source, decode_tok_s, tpot_ms}}; {} where no prompt has one.

    Of the requests that are whole passes through the `prompts` (a window may go on beyond them), so that each prompt weighs
    alike in every configuration; of all, where not even one pass is whole. `whole`: the cell's acceptance, which is the
    group's where it has no other; else a group has one only by the counters of its own responses.
    """
    sent = max((request.index for request in requests), default=-1) + 1
    passes = sent // prompts * prompts if prompts else 0
    rows = [
        (record, request)
        for record, request in zip(records, requests, strict=True)
        if record.get("group") and (not passes or request.index < passes)
    ]
    groups = dict.fromkeys(str(record["group"]) for record, _ in rows)
    out: dict[str, dict[str, Any]] = {}
    for group in groups:
        mine = [(record, request) for record, request in rows if record["group"] == group and request.ok]
        figures: dict[str, Any] = {"n": len(mine)}
        if not mine:
            out[group] = figures
            continue
        own = [record for record, _ in mine]
        accepted = from_requests(own) or from_llamacpp_timings(own) or (whole if len(groups) == 1 else None)
        if accepted is not None:
            figures["acceptance_length"] = accepted.length
            figures["acceptance_source"] = accepted.source
            figures.update(drafted_share(accepted, {"requests": own}))
        if all(request.tokens is not None for _, request in mine):
            figures["output_tokens"] = sum(request.tokens or 0 for _, request in mine)
        streamed = [request for _, request in mine if request.streamed]
        rates = summary([rate for request in streamed if (rate := request.decode_tok_s) is not None])
        if rates:
            figures["decode_tok_s"] = rates
        if tpot := summary([1e3 * one for request in streamed if (one := request.tpot_s) is not None]):
            figures["tpot_ms"] = tpot
        out[group] = figures
    return out
