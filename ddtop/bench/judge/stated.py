"""What a result states, whoever measured it: the figures that the sanity rules read. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a result states. None, or empty: not stated."""

    tokens: float | None = None
    """Output tokens or tok/s: what shows whether a single token came."""
    failures: str = ""
    """What became of the requests that are not ok, in words."""
    ok: int | None = None
    failed: int = 0
    garbage_share: float = 0.0
    garbage_why: str = ""
    output_tokens: float | None = None
    output_tok_s: float | None = None
    peak_tok_s: float | None = None
    itl_ms: float | None = None
    streams: float | None = None
    retokenized_tokens: float | None = None
    """Tokens of the text that the client saw."""
    acceptance_length: float | None = None
    acceptance_source: str = ""
    draft_tokens: int | None = None
    speculative: bool = True
    """False where the configuration does not speculate."""
    server_tokens: float | None = None
    server_tok_s: float | None = None
    neighbours: tuple[float, ...] = ()
    """tok/s of the neighbouring cells."""
    duration_s: float | None = None
    """How long the run took."""
    whole_run: bool = False
    """Whether `duration_s` spans every request from its start to its end, and the rates are over it."""
    output_s: float | None = None
    """How long output was generated, where the rate of output is over that alone."""
    requests_s: float | None = None
    input_tokens: float | None = None
    input_tok_s: float | None = None
    total_tok_s: float | None = None
    most_streams: float | None = None
    """The limit of requests at a time; at most so many were under way."""
    times_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """ttft, tpot, itl, e2e → mean, p50, p90, p95, p99, min, max."""
    not_numbers: tuple[str, ...] = ()
    """Names of figures that are given as NaN, infinite or negative."""
