"""Requests that are not ours: the server's own counters over a cell against what we can have caused. Pure.

Every figure of ours is an upper bound: a request that failed may have run to its end on the server, and one of the
warm-up that was cut may still run in the window. What the server counts beyond that was asked by others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddtop.bench.figures.acceptance import counter_deltas, total

REQUESTS = ("sglang:num_requests_total", "sglang_num_requests_total", "vllm:request_success_total")
PROMPTS = (
    "sglang:prompt_tokens_total",
    "sglang_prompt_tokens_total",
    "vllm:prompt_tokens_total",
    "llamacpp:prompt_tokens_total",
)
TOKENS = (
    "sglang:generation_tokens_total",
    "sglang_generation_tokens_total",
    "vllm:generation_tokens_total",
    "llamacpp:tokens_predicted_total",
)
AGAIN = ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total", "sglang:num_retractions_total")
"""Requests that were begun anew: their prompts are counted again."""
SLACK_SHARE = 0.01
SLACK_TOKENS = 2
"""Of our tokens, and for each request: an engine may count a token that it then does not give (a stop string)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What was asked in a window: requests, tokens of prompts and of answers. None: not known."""

    requests: float | None
    prompt_tokens: float | None
    output_tokens: float | None


def ours_at_most(result: Mapping[str, Any]) -> Load:
    """The most that our own requests can have made the server count during the window of an unpacked result."""
    spec = result.get("spec") or {}
    records = _all_requests(result)
    choices = max(1, _whole((spec.get("extra_body") or {}).get("n")))
    asked = _whole(spec.get("output_tokens")) or 128
    left = _left_over(result)
    prompts = [_whole(one.get("prompt_tokens")) for one in records]
    longest = max(prompts, default=0)
    known_prompts = longest > 0 and all(
        p for p, one in zip(prompts, records, strict=True) if one.get("class") == "ok"
    )
    tokens = 0
    for one in records:
        given = one.get("tokens")
        sure = one.get("class") == "ok" and isinstance(given, int)
        tokens += given if sure and isinstance(given, int) else (_whole(one.get("asked")) or asked) * choices
    return Load(
        requests=(len(records) + left) * choices,
        prompt_tokens=sum(p or longest for p in prompts) + left * longest if known_prompts else None,
        output_tokens=tokens + left * asked * choices,
    )


def whole_run(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The counters around all of our requests, where nothing of ours was under way: those of the window's zero stand amid
    the burst's, if its load was handed over."""
    counters = result.get("counters")
    if counters and "start" in counters:
        return {**counters, "before": counters["start"]}
    return counters


def _all_requests(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*(result.get("burst") or ()), *(result.get("requests") or ())]


def counted(result: Mapping[str, Any]) -> Load:
    """What the server counted meanwhile; None each where the engine has no such counter, or was restarted."""
    deltas = counter_deltas(whole_run(result))
    again = total(deltas, *AGAIN)
    return Load(
        requests=total(deltas, *REQUESTS),
        prompt_tokens=None if again else total(deltas, *PROMPTS),
        output_tokens=total(deltas, *TOKENS),
    )


def foreign_load(result: Mapping[str, Any]) -> str:
    """What the server answered beyond our requests, in words; "" where nothing, or where it does not count."""
    if not result.get("requests"):
        return ""
    theirs, ours = counted(result), ours_at_most(result)
    words = []
    slack = max(SLACK_TOKENS * len(_all_requests(result)), SLACK_SHARE * (ours.output_tokens or 0.0))
    for what, seen, most, more in (
        ("requests", theirs.requests, ours.requests, 0.0),
        ("prompt tokens", theirs.prompt_tokens, ours.prompt_tokens, 0.0),
        ("output tokens", theirs.output_tokens, ours.output_tokens, slack),
    ):
        if seen is not None and most is not None and seen > most + more:
            words.append(f"{seen:,.0f} {what} (ours: {most:,.0f} at most)")
    return "the server counted " + ", ".join(words) if words else ""


def _left_over(result: Mapping[str, Any]) -> int:
    """Requests of the warm-up that did not end well: the server may still work on them in the window."""
    classes = (result.get("warmup") or {}).get("classes") or {}
    return sum(_whole(number) for name, number in classes.items() if name != "ok")


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
