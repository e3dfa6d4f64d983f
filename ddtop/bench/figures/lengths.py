"""Lengths that differ from request to request: what was asked against what the server counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.bench.figures.stats import summary

OFF_SHARE, OFF_TOKENS = 0.02, 64
"""A mean further off than both is said; a chat template adds some tokens to each prompt."""


def asked_and_got(
    records: Sequence[Mapping[str, Any]], turns: int = 1
) -> dict[str, dict[str, dict[str, float]]]:
    """{"output" | "context" | "prompt": {"asked", "got"}} of the requests that ended well, for the lengths that were drawn, or
    that a trace says. A prompt holds its context and what is asked after it; later turns of a conversation hold more."""
    good = [one for one in records if one.get("class") == "ok"]
    out: dict[str, dict[str, dict[str, float]]] = {}
    for name, key, counted in (
        ("output", "want", "tokens"),
        ("context", "want_context", "prompt_tokens"),
        ("prompt", "want_prompt", "prompt_tokens"),
    ):
        own = [one for one in good if key in one and (name != "context" or one["i"] % turns == 0)]
        if own:
            got = [float(one[counted]) for one in own if one.get(counted) is not None]
            out[name] = {"asked": summary([float(one[key]) for one in own]), "got": summary(got)}
    return out


def lengths_off(lengths: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """What of a trace's prompts is not as long as asked, in words; "" where they are, or it is not known."""
    prompt = lengths.get("prompt") or {}
    asked, got = prompt.get("asked"), prompt.get("got")
    if not asked or not got:
        return ""
    off = abs(got["mean"] - asked["mean"])
    if off <= OFF_SHARE * asked["mean"] + OFF_TOKENS:
        return ""
    return f"the trace asks for {asked['mean']:,.0f} prompt tokens on average, the server counted {got['mean']:,.0f}"
