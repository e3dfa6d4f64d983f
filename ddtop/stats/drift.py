"""Whether a server drifted within one start: its first load measured again as its last. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

PRIOR_SD, PRIOR_FREEDOM = 0.015, 3
"""What one measurement's spread inside a start is taken for until some was seen: 1.5%, worth three degrees of
freedom. llama.cpp on an H200 had 1.9% in windows of 4 s."""
FLOOR = 0.02
"""A move below 2% is none."""
SDS = 3.0


def drifted(first: float, again: float, inside: Iterable[Sequence[float]]) -> str | None:
    """In words by how much the second measurement moved, where that is more than chance explains; else None.

    `inside`: measurements of other loads or starts, each group of one load inside one start. The limit is 2%, or
    three standard deviations of such a difference.
    """
    if not (0 < first < math.inf and 0 < again < math.inf):
        return None
    squares, freedom = PRIOR_FREEDOM * PRIOR_SD**2, PRIOR_FREEDOM
    for group in inside:
        logs = [math.log(x) for x in group if 0 < x < math.inf]
        if len(logs) > 1:
            centre = math.fsum(logs) / len(logs)
            squares += math.fsum((x - centre) ** 2 for x in logs)
            freedom += len(logs) - 1
    limit = max(FLOOR, SDS * math.sqrt(2 * squares / freedom))
    moved = again / first - 1
    if abs(math.log(again) - math.log(first)) <= math.log1p(limit):
        return None
    return f"the start's first load gave {first:.1f} tok/s, and {again:.1f} ({100 * moved:+.1f}%) as its last; limit {100 * limit:.1f}%"
