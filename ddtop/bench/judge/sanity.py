"""ONE table of sanity rules: what the figures of a sound result never show, whoever measured it. Pure.

A rule reads `Figures` and says what it found, or "". It asks only for figures that are stated: an unknown one (None)
speaks for and against nothing. What follows from a finding is decided elsewhere, once each: validity and fault in
`validity.TABLE`, the verdict on another tool's file in `importers/verdict.py`. Those who ask: `judge/cell.py` (our load
generator), `importers/verdict.py` (result files, `ddtop inspect results`), `sweep/cell/external_benchmark.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from ddtop.bench.figures.stats import percentile
from ddtop.bench.judge.impossible import figures_disagree, impossible_times
from ddtop.bench.judge.stated import Figures
from ddtop.words import many

__all__ = ["RULES", "Figures", "acceptance_problems", "failed_share", "found", "speculates"]

FEW = 5  # fewer successful requests give no percentile worth reading
MOST = 0.5  # from this share of failed requests on the server is at fault, and of garbage answers too
NOT_COMPARABLE = 0.1  # of another tool's result: with more failed requests than this it is not compared
INACTIVE = 1.05  # tokens a step: up to this a drafter gains nothing
VISIBLE = 0.5  # of the tokens that the server counts the client must have seen this share as text
PEAK_SLACK = 0.98  # the peak may fall this far below the mean by rounding
TOKENS_PER_GAP = 1.2  # a gap that brings more is one of chunks, reported as one of tokens
COUNTS_DIFFER = 0.05  # between the server's count of tokens and ours
RATE_LOW, RATE_HIGH = 0.8, 1.25  # the server's own tok/s, as a multiple of ours
NEAR_LOW, NEAR_HIGH = 0.5, 2.0  # tok/s, as a multiple of the neighbouring cells' median


def found(figures: Figures, *names: str) -> dict[str, str]:
    """{rule: what it found} of those among `names` that find something, in the order given. Raises KeyError."""
    return {name: words for name in names if (words := RULES[name](figures))}


def _no_tokens(f: Figures) -> str:
    return (f.failures or "0 tokens") if f.tokens is not None and f.tokens <= 0 else ""


def failed_share(f: Figures) -> float:
    """Failed requests as a share of those that ended, 0 to 1; 1 where none is known to be ok."""
    return f.failed / (f.failed + f.ok) if f.ok else 1.0


def _most_failed(f: Figures) -> str:
    return _lost(f) if f.failed and failed_share(f) >= MOST else ""


def _some_failed(f: Figures) -> str:
    return _lost(f) if f.failed and failed_share(f) < MOST else ""


def _lost(f: Figures) -> str:
    return f"{f.failed} of {f.failed + (f.ok or 0)}: {f.failures}"


def _few_samples(f: Figures) -> str:
    return many(f.ok, "request") if f.ok and f.ok < FEW else ""


def _garbage(f: Figures) -> str:
    return f"{f.garbage_share:.0%} of the answers: {f.garbage_why}" if f.garbage_share >= MOST else ""


def acceptance_problems(length: float, draft_tokens: int | None) -> tuple[str, ...]:
    """Where 1 ≤ length ≤ draft tokens + 1 (the bonus token) does not hold, in words."""
    problems = []
    if length < 0.995:
        problems.append(f"{length:.3f} is below 1: the counters do not belong to this cell")
    if draft_tokens and length > draft_tokens + 1.005:
        problems.append(f"{length:.3f} is above {draft_tokens} draft tokens + 1")
    return tuple(problems)


def _acceptance_out_of_bounds(f: Figures) -> str:
    return (
        ""
        if f.acceptance_length is None
        else "; ".join(acceptance_problems(f.acceptance_length, f.draft_tokens))
    )


def speculates(length: float) -> bool:
    """Whether an acceptance length is that of a drafter which gains something."""
    return length > INACTIVE


def _speculation_inactive(f: Figures) -> str:
    if f.acceptance_length is None or not f.speculative or not f.ok or speculates(f.acceptance_length):
        return ""
    return f"acceptance length {f.acceptance_length:.3f} by {f.acceptance_source}"


def _server_disagrees(f: Figures) -> str:
    words = ""
    if f.output_tokens and f.server_tokens and abs(f.server_tokens / f.output_tokens - 1) > COUNTS_DIFFER:
        words = f"the server counts {f.server_tokens:.0f} tokens, we {f.output_tokens:.0f}"
    if f.server_tok_s and f.output_tok_s and not RATE_LOW <= f.server_tok_s / f.output_tok_s <= RATE_HIGH:
        words = f"the server says {f.server_tok_s:.1f} tok/s, we measure {f.output_tok_s:.1f}"
    return words


def _far_off_neighbours(f: Figures) -> str:
    if not f.output_tok_s or not f.neighbours:
        return ""
    middle = percentile(sorted(f.neighbours), 50)
    near = NEAR_LOW <= f.output_tok_s / middle <= NEAR_HIGH
    return "" if near else f"{f.output_tok_s:.1f} tok/s, its neighbours {middle:.1f}"


def _tokens_not_visible(f: Figures) -> str:
    seen = f.retokenized_tokens
    if seen is None or not f.output_tokens or seen >= VISIBLE * f.output_tokens:
        return ""
    return f"{seen} of {f.output_tokens} tokens were seen as text: TTFT and ITL are those of a buffer"


def _peak_below_mean(f: Figures) -> str:
    if not f.output_tok_s or f.peak_tok_s is None or f.peak_tok_s >= PEAK_SLACK * f.output_tok_s:
        return ""
    return f"the peak ({f.peak_tok_s}) is below the mean ({f.output_tok_s})"


def _chunks_as_tokens(f: Figures) -> str:
    """Tokens that each reported gap brought, by throughput: ITL × tok/s ÷ streams."""
    if f.itl_ms is None or not f.output_tok_s or not f.streams:
        return ""
    brought = f.itl_ms * f.output_tok_s / 1e3 / f.streams
    return "ITL times throughput is more than the streams allow" if brought > TOKENS_PER_GAP else ""


def _empty_answers(f: Figures) -> str:
    """Requests that ended well and gave nothing: fewer tokens than answers."""
    if not f.ok or not f.output_tokens or f.output_tokens >= f.ok:
        return ""
    return f"{f.output_tokens:g} tokens in {f.ok} answers: some are empty"


RULES: dict[str, Callable[[Figures], str]] = {
    "no-tokens": _no_tokens,
    "most-failed": _most_failed,
    "some-failed": _some_failed,
    "few-samples": _few_samples,
    "garbage-output": _garbage,
    "acceptance-out-of-bounds": _acceptance_out_of_bounds,
    "speculation-inactive": _speculation_inactive,
    "server-disagrees": _server_disagrees,
    "far-off-neighbours": _far_off_neighbours,
    "tokens-not-visible": _tokens_not_visible,
    "peak-below-mean": _peak_below_mean,
    "chunks-as-tokens": _chunks_as_tokens,
    "empty-answers": _empty_answers,
    "impossible-times": impossible_times,
    "figures-disagree": figures_disagree,
}
"""Name of a rule (where it has one, the reason of `validity.TABLE`) → what it finds."""
