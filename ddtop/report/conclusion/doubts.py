"""All that speaks against the numbers of a recording, the gravest first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.results.field import Best, Matrix
from ddtop.journal.results.matrix import usable
from ddtop.report.conclusion.words import names, reasons_words, share, tally, two
from ddtop.report.recording import NOT_REAL
from ddtop.words import many

LISTED = 5
"""Doubts that the sentence lists."""
ENDINGS = {
    "host-lost": "the host was lost",
    "refused": "the run was refused",
    "stopped": "the run was stopped before its end",
    "interrupted": "the run was interrupted",
    "crashed": "the runner crashed",
}


def doubts_of(
    state: State, views: Sequence[Matrix], found: Sequence[Best], baseline: str | None
) -> Iterable[str]:
    """Every doubt in words."""
    if state.run.simulated:
        yield f"SIMULATED: {NOT_REAL}"
    cells = state.plan_cells
    if cells:
        yield from _missing(state, cells)
        yield from _baseline(cells, views, found, baseline)
    results = [c for c in cells if c.state == "done" and c.validity is not None]
    for word, more in (("INVALID", " and count for nothing"), ("SUSPECT", "")):
        mine = [c for c in results if c.validity == word]
        if mine:
            why = reasons_words(dict.fromkeys(r for c in mine for r in c.reasons))
            yield f"{share(len(mine), len(results), 'result')} {word}{more} ({why})"
    yield from _better_but_suspect(found)
    compared = [one for one in found if one.verdict != "alone"]
    if compared:
        bases = {one.field.basis for one in compared if one.field.low is not None}
        if not bases:
            yield "one measurement of each, so the spread is not known"
        elif "inside" in bases:
            yield "the spread is that inside one start only: other starts may differ by more"
    near = [one for one in compared if one.alike or one.verdict == "not shown"]
    if near:
        yield f"at {len(near)} of {many(len(found), 'load')} the best cannot be told apart from another"
    floors = [abs(view.aa.ratio - 1) for view in views if view.aa is not None and view.aa.ratio is not None]
    if floors:
        yield f"{baseline} differs from itself by up to {100 * max(floors):.1f}%, so no smaller difference counts"
    unlike = {
        r.config: c.unlike for v in views for r in v.rows for c in r.cells if c is not None and c.unlike
    }
    if unlike:
        first = next(iter(unlike))
        yield f"{names(unlike)} did other work than {baseline} ({first}: {unlike[first]})"
    mixed = [
        r.config for v in views for r in v.rows if any(c is not None and c.mixed_versions for c in r.cells)
    ]
    if mixed:
        yield f"{names(mixed)} ran on another version of the engine than {baseline}"


def _missing(state: State, cells: Sequence[CellView]) -> Iterable[str]:
    ended = state.run.ended
    if ended is None:
        yield "the run has not ended"
    elif ended.outcome in ENDINGS:
        yield ENDINGS[ended.outcome]
    wanted = [c for c in cells if not (c.state == "skipped" and c.by in ("race", "precision"))]
    missing = [c for c in wanted if c.state != "done"]
    if missing:
        yield f"{share(len(missing), len(wanted), 'cell', ('has', 'have'))} no result ({tally(missing)})"


def _baseline(
    cells: Sequence[CellView], views: Sequence[Matrix], found: Sequence[Best], baseline: str | None
) -> Iterable[str]:
    mine = [c for c in cells if c.spec.config == baseline and not c.spec.sentinel]
    if len({c.spec.config for c in cells}) < 2:
        return
    if baseline is None:
        yield "there is no baseline, so no speed-up is known"
    elif not any(usable(c) for c in mine):
        why = tally(mine) or "its results are INVALID" if mine else "it has no cells"
        yield f"the baseline {baseline} has no result, so no speed-up is known ({why})"
    elif any(one.compared for one in found):
        fields = [c for v in views for r in v.rows if r.baseline for c in r.cells if c is not None and c.n]
        suspect = [c for c in fields if c.validity == "SUSPECT"]
        if suspect:
            why = reasons_words(dict.fromkeys(r for c in suspect for r in c.reasons))
            where = f"at {len(suspect)} of {many(len(fields), 'load')}, and so is every ratio to it there"
            yield f"{baseline}, the baseline, is SUSPECT {where} ({why})"


def _better_but_suspect(found: Sequence[Best]) -> Iterable[str]:
    most: dict[str, float | None] = {}
    for one in found:
        for other in one.doubted:
            ratios = [r for r in (most.get(other.config), other.ratio) if r is not None]
            most[other.config] = max(ratios, default=None)
    if most:
        named = names(c if r is None else f"{c} (up to {two(r)}×)" for c, r in most.items())
        words = ("reads", "is") if len(most) == 1 else ("read", "are")
        yield f"{named} {words[0]} better than the best at some loads, and {words[1]} in doubt there"


def doubt_sentence(doubts: Sequence[str]) -> str:
    """The gravest doubts, or that none is recorded."""
    if not doubts:
        return "No doubt is recorded: every cell has a VALID result."
    more = len(doubts) - LISTED
    listed = [*doubts[:LISTED], *([f"and {many(more, 'more doubt')}"] if more > 0 else [])]
    return f"In doubt: {'; '.join(listed)}."
