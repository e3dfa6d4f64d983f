"""Infer the number of draft tokens from printed acceptance lengths and rates (SGLang has had two
definitions)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

MAX_PAIRS = 2_000


def _interval(
    length: float, rate: float, digits: float = 0.005
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Draft tokens that a pair (accept len, accept rate) allows, as intervals: old definition, new
    definition.

    old: rate = len / n (≤ 0.5.10, bonus token included); new: rate = (len - 1) / (n - 1) (0.5.23). Both figures are
    printed with two decimals.
    """
    if rate <= digits or length <= 0:
        return None
    low, high = max(rate - digits, 1e-9), rate + digits
    old = ((length - digits) / high, (length + digits) / low)
    new = ((length - 1 - digits) / high + 1, (length - 1 + digits) / low + 1)
    return old, new


def _whole_in(low: float, high: float, *, least: int) -> list[int]:
    first = max(math.ceil(low - 1e-9), least)
    last = min(math.floor(high + 1e-9), 4096)
    return list(range(first, last + 1)) if last - first < 64 else []


def draft_tokens(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """How many draft tokens a server used, by its acceptance lengths and rates; {} where they do not show it.

    One number that explains all lines under one definition is the answer. Lines that no single definition explains
    come from servers whose rates cannot be compared; each is then explained by itself.
    """
    distinct = list(dict.fromkeys(pairs))[:MAX_PAIRS]
    known = [(p, i) for p in distinct if (i := _interval(*p)) is not None]
    if not known:
        return {}
    sets = [
        (
            set(_whole_in(*i[0], least=max(1, math.ceil(p[0] - 0.005)))),
            set(_whole_in(*i[1], least=max(2, math.ceil(p[0] - 0.005)))),
        )
        for p, i in known
    ]
    old = set.intersection(*(s[0] for s in sets))
    new = set.intersection(*(s[1] for s in sets))
    if old or new:
        definition, number = _best(known, old, new)
        return {"draft_tokens_inferred": number, "accept_rate_definition": definition} if number else {}
    found: dict[str, Any] = {"accept_rate_comparable": False}
    for one, (old_one, new_one) in zip(known, sets, strict=True):
        definition, number = _best([one], old_one, new_one)
        if number:
            found.setdefault(f"{definition}_definition_draft_tokens", number)
    return found


def _best(
    known: Sequence[tuple[tuple[float, float], Any]], old: set[int], new: set[int]
) -> tuple[str, int | None]:
    """The candidate that lies nearest to the figures, measured in their rounding."""

    def misfit(definition: str, n: int) -> float:
        worst = 0.0
        for (length, rate), _ in known:
            expected = length / n if definition == "old" else (length - 1) / (n - 1)
            worst = max(worst, abs(expected - rate))
        return worst + (1e-4 if n & (n - 1) else 0.0)  # a power of two is the likelier of two equals

    candidates = [("old", n) for n in old] + [("new", n) for n in new]
    if not candidates:
        return "", None
    best = min(candidates, key=lambda c: misfit(*c))
    if len(known) > 1 and best[0] == "new" and any(misfit("old", n) <= misfit(*best) + 1e-3 for n in old):
        return "old", min(old, key=lambda n: misfit("old", n))
    return best
