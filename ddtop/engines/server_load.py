"""What a server says of its own load: running, queued, KV cache, prefix hits, from the series of its `/metrics`. Pure.

Series are those of vLLM 0.1x to 0.25, SGLang 0.4 to 0.5.23 and llama.cpp (2025 and 2026), read from real pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Sequence[Any]
"""(name, labels as written, value) of one line of the page."""

_RANKS = re.compile(r'\b(?:tp_rank|pp_rank|moe_ep_rank|pid)="[^"]*",?')
"""Ranks of one batch all count the same requests; engines and data-parallel ranks have requests of their own."""


@dataclass(frozen=True, slots=True)
class LoadSeries:
    """Names of an engine's series, the one in use today first; empty where it has none."""

    running: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    """The used part of the KV cache, 0 to 1."""
    hit: tuple[str, ...] = ()
    """Counters of prompt tokens found in the prefix cache."""
    asked: tuple[str, ...] = ()
    """Counters of prompt tokens."""
    hit_are_asked: bool = True
    """Whether those found are counted among those asked."""
    steps: tuple[str, ...] = ()
    """Counters of verification steps of speculative decoding."""
    made: tuple[str, ...] = ()
    """Counters of the tokens that those steps gave."""
    bonus_apart: bool = False
    """Whether the token that each step gives in any case is not among those."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.running, *self.queued, *self.kv, *self.hit, *self.asked, *self.steps, *self.made)


LOAD_SERIES: dict[str, LoadSeries] = {
    "vllm": LoadSeries(
        running=("vllm:num_requests_running",),
        queued=("vllm:num_requests_waiting",),
        kv=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        hit=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        asked=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        steps=("vllm:spec_decode_num_drafts_total",),
        made=("vllm:spec_decode_num_accepted_tokens_total",),
        bonus_apart=True,
    ),
    "sglang": LoadSeries(
        running=("sglang:num_running_reqs",),
        queued=("sglang:num_queue_reqs",),
        kv=("sglang:token_usage",),
        hit=("sglang:cached_tokens_total",),
        asked=("sglang:prompt_tokens_total",),
        steps=("sglang:spec_verify_calls_total",),
        made=("sglang:generation_tokens_total",),
    ),
    "llamacpp": LoadSeries(
        running=("llamacpp:requests_processing",),
        queued=("llamacpp:requests_deferred",),
        kv=("llamacpp:kv_cache_usage_ratio",),
        hit=("llamacpp:prompt_tokens_cached_total",),
        asked=("llamacpp:prompt_tokens_total",),
        hit_are_asked=False,
        steps=("llamacpp:spec_decode_num_drafts_total",),
        made=("llamacpp:spec_decode_num_accepted_tokens_total",),
        bonus_apart=True,
    ),
}
"""Engine → its series."""


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """One reading. Counters run since the server's start. None: this engine does not say it."""

    running: float | None = None
    queued: float | None = None
    kv_pct: float | None = None
    hit_tokens: float | None = None
    prompt_tokens: float | None = None
    spec_steps: float | None = None
    spec_tokens: float | None = None

    def accepted_since(self, before: ServerLoad | None) -> tuple[float, float] | None:
        """(tokens, verification steps) since an earlier reading of the same server; None where it says no steps, or none
        were made."""
        if before is None or None in (
            self.spec_steps,
            self.spec_tokens,
            before.spec_steps,
            before.spec_tokens,
        ):
            return None
        tokens = (self.spec_tokens or 0.0) - (before.spec_tokens or 0.0)
        steps = (self.spec_steps or 0.0) - (before.spec_steps or 0.0)
        return (tokens, steps) if steps > 0 and tokens >= steps else None

    def hits_since(self, before: ServerLoad | None) -> tuple[float | None, float | None]:
        """(percent found in the prefix cache, prompt tokens asked) since an earlier reading of the same server.

        Both are None where that is not known; the percent is None where nothing was asked.
        """
        if before is None or None in (self.prompt_tokens, before.prompt_tokens):
            return None, None
        asked = (self.prompt_tokens or 0.0) - (before.prompt_tokens or 0.0)
        if asked < 0:  # its counters began anew
            return None, None
        if asked == 0 or self.hit_tokens is None or before.hit_tokens is None:
            return None, asked
        found = self.hit_tokens - before.hit_tokens
        return (100.0 * min(1.0, found / asked), asked) if found >= 0 else (None, asked)


def server_load(engine: str, rows: Iterable[Row]) -> ServerLoad | None:
    """The reading in these lines of an engine's page; None where none of its series is there."""
    series = LOAD_SERIES.get(engine)
    if series is None:
        return None
    groups: dict[str, dict[str, float]] = {}
    for name, labels, value in rows:
        # Ranks of one batch say the same: the largest counts once.
        group = groups.setdefault(str(name), {})
        key = _RANKS.sub("", str(labels))
        group[key] = max(float(value), group.get(key, float(value)))
    if not any(name in groups for name in series.names):
        return None
    kv = _first(groups, series.kv, max)
    hit, asked = _first(groups, series.hit, sum), _first(groups, series.asked, sum)
    if asked is not None and not series.hit_are_asked:
        asked += hit or 0.0
    steps, made = _first(groups, series.steps, sum), _first(groups, series.made, sum)
    if series.bonus_apart and steps is not None and made is not None:
        made += steps
    return ServerLoad(
        running=_first(groups, series.running, sum),
        queued=_first(groups, series.queued, sum),
        kv_pct=None if kv is None else 100.0 * kv,
        hit_tokens=hit,
        prompt_tokens=asked,
        spec_steps=steps,
        spec_tokens=made if steps is not None else None,
    )


def _first(
    groups: Mapping[str, Mapping[str, float]],
    names: Iterable[str],
    join: Callable[[Iterable[float]], float],
) -> float | None:
    return next((join(groups[name].values()) for name in names if name in groups), None)
