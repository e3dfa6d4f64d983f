"""Conversations and shared prefixes: figures by turn, and what the prefix cache gave. Pure; what is not known is absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.bench.figures.acceptance import counter_deltas, total
from ddtop.bench.figures.bounds import bounded_summary
from ddtop.bench.figures.requests import Request
from ddtop.bench.figures.stats import summary
from ddtop.engines.server_load import LOAD_SERIES

TEMPLATE_TOKENS = 64
"""What a chat template puts before every prompt, at most: such hits mean nothing."""


def by_turn(requests: Sequence[Request], turns: int) -> dict[str, dict[str, Any]]:
    """For each turn of the window's conversations, from "1": how many, TTFT and TPOT, the prompt, the share of it that was
    cached."""
    out: dict[str, dict[str, Any]] = {}
    for turn in range(turns):
        own = [request for request in requests if request.index % turns == turn]
        ok = [request for request in own if request.ok]
        one: dict[str, Any] = {"n": len(ok), "failed": sum(r.failed for r in own)}
        figures = {
            "ttft_ms": [r.ttft_s for r in ok if r.streamed],
            "tpot_ms": [r.tpot_s for r in ok if r.streamed],
        }
        for name, values in figures.items():
            if found := bounded_summary([value * 1e3 for value in values if value is not None]):
                one[name] = found
        prompts = [(r.prompt_tokens, r.cached_tokens) for r in ok if r.prompt_tokens]
        if prompts:
            one["prompt_tokens"] = summary([float(prompt or 0) for prompt, _ in prompts])
        known = [(prompt or 0, cached) for prompt, cached in prompts if cached is not None]
        if known:
            one["cached_share"] = sum(cached for _, cached in known) / sum(prompt for prompt, _ in known)
        if own:
            out[str(turn + 1)] = one
    return out


def prefix_cache(
    counters: dict[str, Any] | None, engine: str, records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What the prefix cache gave, by the server's own counters and by its responses: {"rate", "hit_tokens",
    "prompt_tokens", "source"} and {"responses_rate", "responses_hit_tokens"}. `counters` are around `records`, which are all
    requests of the cell, those of the burst too."""
    out: dict[str, Any] = {}
    good = [one for one in records if one.get("class") == "ok"]
    told = [(one.get("cached_tokens"), one.get("prompt_tokens")) for one in good]
    if told and all(prompt and cached is not None for cached, prompt in told):
        hits, prompts = sum(c or 0 for c, _ in told), sum(p or 0 for _, p in told)
        out.update(responses_hit_tokens=hits, responses_rate=hits / prompts)
    series, deltas = LOAD_SERIES.get(engine), counter_deltas(counters)
    if series is None:
        return out
    hit, asked = total(deltas, *series.hit), total(deltas, *series.asked)
    if asked is not None and not series.hit_are_asked:
        if hit is None and len(good) == len(records) and all(prompt for _, prompt in told):
            hit = sum(p or 0 for _, p in told) - asked  # it counts the prompt tokens that it worked on
        asked += hit or 0
    if hit is not None and asked and hit >= 0:
        source = f"{engine} counters"
        out.update(hit_tokens=round(hit), prompt_tokens=round(asked), rate=hit / asked, source=source)
    return out


def early_hits(requests: Sequence[Request], turns: int, shared: int) -> str:
    """Hits that the load itself cannot have caused, in words: first turns that found more than the shared prefix in the
    cache, so that the texts were there before the cell. "" where there are none."""
    first = [
        r
        for r in requests
        if r.ok and r.index % turns == 0 and r.prompt_tokens and r.cached_tokens is not None
    ]
    beyond = [max(0, (r.cached_tokens or 0) - shared - TEMPLATE_TOKENS) for r in first]
    prompts = sum(r.prompt_tokens or 0 for r in first)
    if not first or sum(beyond) <= 0.01 * prompts + 0.02 * shared * len(first):
        return ""
    return f"{sum(beyond) / prompts:.1%} of the tokens of first turns, beyond what the load shares"
