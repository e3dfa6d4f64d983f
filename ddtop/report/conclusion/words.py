"""Words that the sentences of a conclusion share. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ddtop.bench.judge.validity import TABLE
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import counts
from ddtop.report.text import number
from ddtop.stats.differ import Comparison
from ddtop.words import many

NAMED = 3
"""Names that a clause lists."""
REASON = 60
"""Characters of a reason that a sentence has room for."""


def names(items: Iterable[str], between: str = ", ") -> str:
    """A few of `items`, the rest counted.

    >>> names("ab"), names("abcde"), names("abcd")
    ('a and b', 'a, b, c and 2 more', 'a, b, c and d')
    """
    found = list(dict.fromkeys(items))
    more = len(found) - NAMED
    if more > 1:
        return between.join(found[:NAMED]) + f" and {more} more"
    return found[0] if len(found) == 1 else f"{between.join(found[:-1])} and {found[-1]}" if found else ""


def share(count: int, of: int, word: str, verb: tuple[str, str] = ("is", "are")) -> str:
    """`1 of 6 results is`, `2 of 6 results are`."""
    return f"{count} of {many(of, word)} {verb[count != 1]}"


def reasons_words(slugs: Iterable[str]) -> str:
    """Reasons of a doubt by what each means, as the table of validity has it."""
    meanings = [TABLE[slug].meaning if slug in TABLE else slug for slug in slugs]
    return names(meanings, "; ") or "no reason is recorded"


def tally(cells: Iterable[CellView]) -> str:
    """Cells without a result by state, each with its reasons: `2 failed: CUDA error; 12 skipped: time; 2 not measured`."""
    kept = list(cells)
    parts: list[str] = []
    for state in ("failed", "broken", "skipped"):
        mine = [c for c in kept if c.state == state]
        reasons = [_short(c.reason) for c in mine if c.reason]
        parts += [f"{len(mine)} {state}{': ' + names(reasons) if reasons else ''}"] if mine else []
    left = counts(kept).remaining
    return "; ".join([*parts, *([f"{left} not measured"] if left else [])])


def times(one: Comparison | None) -> str:
    """A ratio with its 95% interval, where there is one.

    >>> times(Comparison(True, 5.5, 5.31, 5.7)), times(Comparison(None, 12.34)), times(None)
    ('5.50× [5.31–5.70]', '12.3×', '')
    """
    if one is None or one.ratio is None:
        return ""
    interval = f" [{two(one.low)}–{two(one.high)}]" if one.low is not None and one.high is not None else ""
    return f"{two(one.ratio)}×{interval}"


def two(value: float | None) -> str:
    """A ratio with two digits after the point, one from 10 on."""
    return "" if value is None else f"{value:.2f}" if value < 9.995 else number(value)


def gains(ratios: Iterable[Comparison | None]) -> str:
    """One ratio with its interval, or the smallest and the largest with theirs."""
    known = sorted(
        (one for one in ratios if one is not None and one.ratio is not None), key=lambda one: one.ratio or 0.0
    )
    if not known:
        return ""
    first, last = times(known[0]), times(known[-1])
    return first if first == last else f"{first} to {last}"


def _short(reason: str) -> str:
    line = (reason.splitlines() or [""])[0].rstrip(". ")
    if line[1:2].islower():  # a sentence of its own becomes part of ours; `GPU` stays
        line = line[0].lower() + line[1:]
    return line if len(line) <= REASON else line[: REASON - 1].rstrip() + "…"
