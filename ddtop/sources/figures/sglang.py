"""Figures of SGLang's decode and prefill lines.

A decode line comes every 40 steps. The first one after an idle time counts the idle time too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ddtop.sources.figures.draft_token_count import draft_tokens
from ddtop.sources.figures.line_table import Rows, mean

FIRST_LINE_LOW = 0.5
"""A first decode line below this share of the others' median held idle time."""


def sglang_figures(decode: Rows, prefill: Rows) -> dict[str, Any]:
    """Figures of the decode and prefill lines: throughput, acceptance length and rate, draft tokens, ranks."""
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
        found["gen_tps_mean"] = mean(gen)
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
        found["accept_len_mean"] = mean(lengths)
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
    found["gen_tps_mean_excluding_first"] = mean(gen[1:])
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
