"""Where a configuration reads slower than the baseline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddtop.bench.worth.curves import all_curves
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import Column
from ddtop.journal.results.best import NEAR, load_words
from ddtop.journal.results.field import SIMULATED, Best, Matrix, Place
from ddtop.report.conclusion.words import NAMED, gains, names
from ddtop.stats.differ import Comparison
from ddtop.words import many

CLAUSES = 4


@dataclass(frozen=True, slots=True)
class Worse:
    """A configuration that reads slower than the baseline under some loads of a closed loop."""

    config: str
    of: int
    """Loads at which both are measured."""
    loads: tuple[str, ...]
    where: str
    """Those loads in words, each place once: `fib@256 c8, c16`."""
    ratios: tuple[Comparison, ...]
    at: str = ""
    """At which concurrency they are, where that is one: `, at c128`."""
    suspect: bool = False
    """Whether any of these results is SUSPECT."""
    until: str = ""
    """Its break-even, where it has one curve: `until c 11 [8, 16]`."""

    @property
    def shown(self) -> bool:
        """Whether an interval shows every one of these losses."""
        return all(one.different for one in self.ratios)

    @property
    def sure(self) -> str:
        """What speaks against the loss, in words."""
        if all(one.different is None for one in self.ratios):
            words = "single runs"
        else:
            words = "" if self.shown else "not all of it shown by an interval"
        return ", ".join(w for w in (words, "SUSPECT" if self.suspect else "") if w)


def worse_than_baseline(state: State, views: Sequence[Matrix], baseline: str | None) -> Iterable[Worse]:
    """Configurations in the plan's order. A difference that is not shown where it could be is no loss."""
    twins = {cell.spec.config for cell in state.plan_cells if cell.spec.aa}
    curves = [(c.config, c.found) for one in all_curves(state, baseline=baseline) for c in one.curves]
    places = [Place(view.tp, *load[:3]) for view in views for load in view.columns]
    compared: dict[str, list[tuple[tuple[Place, Column], Comparison, bool]]] = {}
    for view in views:
        for row in view.rows:
            for load, cell in zip(view.columns, row.cells, strict=True):
                if row.baseline or row.config in twins or cell is None or not cell.n or cell.unlike:
                    continue
                if any(c in state.cells and SIMULATED in state.cells[c].reasons for c in cell.ids):
                    continue
                if load.rate is None and not load.search and cell.against and cell.against.ratio is not None:
                    here = (Place(view.tp, *load[:3]), load)
                    compared.setdefault(row.config, []).append(
                        (here, cell.against, cell.validity == "SUSPECT")
                    )
    for config, mine in compared.items():
        slower = [one for one in mine if _slower(one[1])]
        if slower:
            found = [even for name, even in curves if name == config]
            until = found[0].words if len(found) == 1 and found[0].verdict == "until" else ""
            at = [place for place, _, _ in slower]
            first = at[0][1].load_name
            yield Worse(
                config,
                len(mine),
                tuple(load_words(place, [load], places) for place, load in at),
                _where(at, places),
                tuple(ratio for _, ratio, _ in slower),
                f", at {first}" if len({load.load_name for _, load in at}) == 1 else "",
                any(doubted for _, _, doubted in slower),
                until,
            )


def _slower(one: Comparison) -> bool:
    """Whether it is shown to be slower, or reads so by more than single runs differ anyway."""
    ratio = one.ratio or 1.0
    return ratio < 1.0 if one.different else one.different is None and ratio < 1.0 - NEAR


def _where(at: Sequence[tuple[Place, Column]], places: Sequence[Place]) -> str:
    by_place: dict[Place, list[Column]] = {}
    for place, load in at:
        by_place.setdefault(place, []).append(load)
    return names(
        ", ".join([load_words(place, loads[:1], places), *(one.load_name for one in loads[1:])])
        for place, loads in by_place.items()
    )


def worse_sentence(found: Sequence[Best], worse: Sequence[Worse], baseline: str | None) -> str:
    """Where it does not pay, or that it is unknown."""
    if not any(one.compared for one in found):
        named = (
            "the run names no baseline"
            if baseline is None
            else f"nothing is measured beside {baseline}, the baseline"
        )
        return f"Where it does not pay is unknown: {named}."
    if not worse:
        return f"No configuration reads slower than {baseline} at a load where both are measured."
    groups: dict[tuple[bool, str, tuple[str, ...], str], list[Worse]] = {}
    for one in worse:
        everywhere = len(one.loads) == one.of
        groups.setdefault((everywhere, one.sure, () if everywhere else one.loads, one.until), []).append(one)
    clauses = [_clause(mine, key[0]) for key, mine in groups.items()]
    more = len(clauses) - CLAUSES
    listed = clauses[:CLAUSES] + ([f"and {many(more, 'more group')} at some loads"] if more > 0 else [])
    return f"Slower than {baseline}: {'; '.join(listed)}."


def _clause(mine: Sequence[Worse], everywhere: bool) -> str:
    first = mine[0]
    notes = [gains(c for one in mine for c in one.ratios), first.sure]
    if everywhere:
        counts = sorted({one.of for one in mine})
        where = (
            first.loads[0]
            if counts == [1] and len({one.loads for one in mine}) == 1
            else "every load measured"
        )
    else:
        where = (
            first.where if len(first.loads) <= NAMED else f"{len(first.loads)} of {first.of} loads{first.at}"
        )
        notes.append(f"it pays {first.until}" if first.until else "")
    return f"{names(one.config for one in mine)} at {where} ({'; '.join(n for n in notes if n)})"
