"""Whether a comparison is sure, in words. Pure.

The one list of these words: `sure`; `not sure`, where nothing shows it yet; `doubtful`, where what was measured may not hold.
One comparison has one of them, with its reason: what is doubtful is never called sure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ddtop.bench.judge.validity import TABLE
from ddtop.journal.results.field import Best, Doubted, MatrixCell
from ddtop.stats.differ import Comparison

Sure = Literal["", "sure", "not sure", "doubtful"]
THE_BASELINE = "the baseline"


@dataclass(frozen=True, slots=True)
class Said:
    """What a comparison says, how sure that is, and why it is not: `why` in short, `more` in full."""

    what: str
    sure: Sure
    why: str = ""
    more: str = ""

    @property
    def brief(self) -> str:
        """`better, sure`, `not sure: one measurement each`, `worse, doubtful: it is SUSPECT`."""
        return ", ".join(part for part in (self.what, self.sure) if part) + (
            f": {self.why}" if self.why else ""
        )

    @property
    def words(self) -> str:
        """The same, with the reasons in full."""
        return Said(self.what, self.sure, self.more or self.why).brief


def meaning(reason: str) -> str:
    """A reason of a doubt in words, as the table of validity has it."""
    known = TABLE.get(reason)
    return known.meaning if known is not None else reason


def because(reasons: tuple[str, ...]) -> str:
    """The first reason in words, the others counted."""
    if not reasons or not reasons[0]:
        return "no reason is recorded"
    more = len(reasons) - 1
    return meaning(reasons[0]) + (f" and {more} more reason{'s' * (more > 1)}" if more else "")


def doubts(cell: MatrixCell, baseline: str | None) -> list[tuple[str, str]]:
    """(in short, in full) why a comparison with the baseline's field may not hold; empty where nothing speaks against it."""
    name = baseline or THE_BASELINE
    out: list[tuple[str, str]] = []
    if cell.validity == "SUSPECT":
        out.append(("it is SUSPECT", because(cell.reasons)))
    if cell.base_reasons:
        out.append((f"{name} is SUSPECT there", because(cell.base_reasons)))
    if cell.unlike:
        out.append(("unlike work", cell.unlike))
    if cell.mixed_versions:
        out.append((f"another engine version than {name}'s", ""))
    return out


def _doubtful(what: str, found: list[tuple[str, str]]) -> Said:
    full = (f"{short} ({more})" if more else short for short, more in found)
    return Said(what, "doubtful", " and ".join(short for short, _ in found), "; ".join(full))


def compared(cell: MatrixCell, baseline: str | None) -> Said | None:
    """A field against the baseline's; None where there is no ratio."""
    against, found = cell.against, doubts(cell, baseline)
    if against is None or against.ratio is None:
        return None
    way = "better" if against.ratio >= 1 else "worse"
    if against.different is False:
        what = f"no clear difference from {baseline or THE_BASELINE}"
        return _doubtful(what, found) if found else Said(what, "")
    if found:
        return _doubtful(f"{'' if against.different else 'reads '}{way}", found)
    if against.different:
        return Said(way, "sure", "by the spread inside one start" if against.basis == "inside" else "")
    return Said("", "not sure", once(against))


def once(one: Comparison) -> str:
    """Why there is nothing to judge a comparison by."""
    if one.low is None:
        return "one measurement each"
    return "measured once" if one.counts[1] < 2 else "what it is compared with was measured once"


def against_words(one: Best, baseline: str | None = None) -> str:
    """The best of a load against the baseline."""
    if one.verdict == "alone":
        return "the only one measured"
    if one.verdict == "no baseline":
        return f"{baseline or THE_BASELINE} is not measured"
    said = compared(one.field, baseline) if one.verdict != "baseline" else None
    return said.brief if said is not None else THE_BASELINE


def standing_of(one: Best) -> Said:
    """The best of a load against the others, and whether that is sure."""
    if one.verdict == "alone":
        return Said("the only one measured", "")
    if one.sure:
        return Said("best", "sure", "by the spread inside one start" if one.field.basis == "inside" else "")
    if one.field.validity == "SUSPECT":
        return _doubtful("reads best", [("it is SUSPECT", because(one.field.reasons))])
    if one.field.unlike:
        return _doubtful("reads best", [("unlike work", one.field.unlike)])
    what = "best of those not in doubt" if one.doubted or len(one.among) < 2 else "reads best"
    if one.alike:
        return Said(what, "not sure", f"no clear difference from {', '.join(one.alike)}")
    if one.doubted:
        return Said(what, "not sure")  # `if_it_holds` says why
    if len(one.among) < 2:
        return Said(what, "not sure", "all others are in doubt")
    once = "one of them was measured once" if one.field.low is not None else "one measurement each"
    return Said(what, "not sure", once)


def if_it_holds(other: Doubted, ratio: str = "", *, brief: bool = False) -> str:
    """`better if it holds: tiny 3.22×, SUSPECT: the answers differ from the baseline's`. `ratio`: as it is to be named."""
    named = f"{other.config} {ratio}".rstrip()
    if brief:
        return f"better if it holds: {named}, {'SUSPECT' if other.suspect else 'unlike work'}"
    why = f"SUSPECT: {because(other.reasons)}" if other.suspect else f"but {other.unlike}"
    return f"better if it holds: {named}, {why}"
