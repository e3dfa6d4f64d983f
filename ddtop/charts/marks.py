"""Places on a load axis that matter: break-evens (`bench/worth`) and knees of searches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ddtop.bench.worth.curves import all_curves
from ddtop.charts.fields import Field, field_of
from ddtop.charts.model import Mark
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import Column


def break_evens(
    state: State, held: Mapping[str, str], baseline: str | None, tones: Sequence[str]
) -> list[Mark]:
    """Where the speed-up of each configuration falls through 1, under the load that is held still."""
    out: list[Mark] = []
    for curves in all_curves(state, baseline=baseline):
        load = curves.load
        here = Field("", load.tp, Column(load.workload, load.output_tokens, load.context, 0), {}, {})
        if curves.reference != curves.baseline or not here.fits(_beside_load(held)):
            continue
        for curve in curves.curves:
            found = curve.found
            if found.at is None or curve.config not in tones:
                continue
            low, high = (float(v) if v is not None else None for v in (found.lo, found.hi))
            doubt = " ?" if curve.doubts or curves.doubts else ""  # it rests on results that are SUSPECT
            out.append(
                Mark(f"{curve.config} {found.words}{doubt}", found.at, tones.index(curve.config), low, high)
            )
    return out


def knees_beside(state: State, x: str, held: Mapping[str, str], tones: Sequence[str]) -> list[Mark]:
    """Where the searches over streams or a rate (`x`) ended, under the load that is held still."""
    return knees(
        (
            cell
            for cell in state.plan_cells
            if cell.spec.search is not None
            and cell.spec.search.by == x
            and field_of(cell.spec).fits(_beside_load(held))
        ),
        tones,
    )


def knees(cells: Iterable[CellView], tones: Sequence[str]) -> list[Mark]:
    """Where the searches of `cells` ended: of several starts with one knee, one mark."""
    found = dict.fromkeys(
        (cell.spec.config, knee)
        for cell in cells
        if cell.spec.config in tones and (knee := knee_of(cell)) is not None
    )
    return [Mark(f"knee of {config}: {knee:g}", knee, tones.index(config)) for config, knee in found]


def knee_of(cell: CellView) -> float | None:
    """The load where its search ended; None while it goes on, without a search, or where no load was met."""
    last = cell.ladder[-1] if cell.spec.search is not None and cell.ladder else None
    return last.low if last is not None and last.next is None else None


def _beside_load(held: Mapping[str, str]) -> dict[str, str]:
    return {name: words for name, words in held.items() if name in ("tp", "workload", "context")}
