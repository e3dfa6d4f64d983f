"""The ramp that finds the knee under an SLO: which concurrency to try next. Pure.

Doubles the streams while the objective holds and throughput still grows, then halves the interval between the last good
and the first bad one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GROWTH = (
    1.05  # doubling the streams must bring at least this much more throughput, else the server is saturated
)


@dataclass(frozen=True, slots=True)
class Step:
    """One measured point. `good_share`: share of requests that met the SLO (None without one); `valid`: not INVALID."""

    concurrency: int
    output_tok_s: float | None
    good_share: float | None
    valid: bool


def good(step: Step, share: float) -> bool:
    """Whether a point meets the objective."""
    return (
        step.valid and step.output_tok_s is not None and (step.good_share is None or step.good_share >= share)
    )


def next_concurrency(
    steps: Sequence[Step], *, start: int = 1, limit: int = 256, share: float = 0.95
) -> int | None:
    """The next number of streams to try, or None when the knee is found (or nothing more can be tried)."""
    if not steps:
        return min(start, limit)
    tried = {step.concurrency for step in steps}
    passed = [step for step in steps if good(step, share)]
    failed = [step.concurrency for step in steps if not good(step, share)]
    top = max((step.concurrency for step in passed), default=0)
    above = min((n for n in failed if n > top), default=None)
    if above is None:
        if not passed or _saturated(passed) or top >= limit:
            return None
        return min(top * 2, limit)
    if above - top <= max(1, top // 8):
        return None
    middle = (top + above) // 2
    return middle if middle > 0 and middle not in tried else None


def _saturated(passed: Sequence[Step]) -> bool:
    ordered = sorted(passed, key=lambda step: step.concurrency)
    if len(ordered) < 2:
        return False
    before, last = ordered[-2].output_tok_s or 0.0, ordered[-1].output_tok_s or 0.0
    return last < before * GROWTH


def knee(steps: Sequence[Step], share: float = 0.95) -> Step | None:
    """The fewest streams within 5 % of the best throughput that meets the objective; None if no point meets it."""
    passed = [step for step in steps if good(step, share)]
    best = max((step.output_tok_s or 0.0 for step in passed), default=0.0)
    near = [step for step in passed if (step.output_tok_s or 0.0) >= best / GROWTH]
    return min(near, key=lambda step: step.concurrency, default=None)
