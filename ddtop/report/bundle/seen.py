"""What the checklist looks at: one recording's results, starts and plan, as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddtop.errors import PlanError
from ddtop.events import CellMeasured, StartProvenance
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView, RestartView
from ddtop.journal.read.select import counts, tps
from ddtop.journal.results.field import Matrix, MatrixCell
from ddtop.journal.results.matrix import matrix, usable
from ddtop.plan import Plan, recorded_plan
from ddtop.words import many

SHOWN = 4
"""Names that a sentence lists."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One run, as its checklist sees it."""

    simulated: bool
    ended: str
    """How it ended, in words; empty while it runs."""
    left: int
    """Cells that the plan has and that have no result and were not skipped."""
    cells: tuple[CellView, ...]
    """Those whose figures count."""
    specs: Mapping[str, Mapping[str, Any]]
    """Cell id → the load as the generator was given it, prompts by hash."""
    sentinels: tuple[CellView, ...]
    matrices: tuple[Matrix, ...]
    starts: tuple[RestartView, ...]
    """Those that a counting result was measured on."""
    baseline: str | None
    plan: Plan | None = None
    selftest: Mapping[str, Any] | None = None
    """The load generator's own error on this host, as `ddtop selftest --json` gives it."""
    searches: frozenset[str] = field(default_factory=frozenset)
    """Ids of cells that are searches for a knee."""

    @property
    def fields(self) -> list[tuple[str, MatrixCell]]:
        """(name, field) of every field with a value that counts."""
        return [
            (f"{row.config} tp{view.tp} {column.load_name}", cell)
            for view in self.matrices
            for row in view.rows
            for column, cell in zip(view.columns, row.cells, strict=True)
            if cell is not None and cell.n
        ]

    @property
    def loads(self) -> list[CellView]:
        """The counting cells that are of one load each: no searches."""
        return [c for c in self.cells if c.id not in self.searches]

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Reason of doubt → the cells that have it."""
        found: dict[str, list[str]] = {}
        for cell in self.cells:
            for reason in cell.reasons:
                found.setdefault(reason, []).append(cell.spec.label)
        return found

    def provenance(self) -> list[tuple[str, StartProvenance | None]]:
        """(start, what it recorded of what it runs on)."""
        return [(f"{r.config} tp{r.tp}", r.provenance) for r in self.starts]


def names(items: Iterable[str]) -> str:
    """A few of `items`, the rest counted: `b15, b16 and 3 more`."""
    found = list(dict.fromkeys(items))
    more = len(found) - SHOWN
    return ", ".join(found[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def some(labels: Iterable[str], of: int) -> str:
    """`names`, or `all 6 cells` where it is every one of several."""
    found = list(dict.fromkeys(labels))
    return f"all {many(of, 'cell')}" if len(found) == of > 1 else names(found)


def see(state: State, measured: Iterable[CellMeasured], selftest: Mapping[str, Any] | None = None) -> Seen:
    """`measured`: the recording's results with what the load generator gave, in order."""
    specs: dict[str, Mapping[str, Any]] = {}
    for event in measured:
        if isinstance(spec := event.raw.get("spec"), dict):
            specs[event.cell_id] = spec
    cells = tuple(c for c in state.plan_cells if usable(c))
    generations = {c.generation.id for c in cells if c.generation is not None}
    tally, ended = counts(state.plan_cells), state.run.ended
    plan = None
    if state.run.plan_toml:
        try:
            plan = recorded_plan(state.run.plan_toml, state.run.plan_source, state.run.plan_path)
        except PlanError:
            plan = None
    return Seen(
        simulated=state.run.simulated,
        ended="" if ended is None else f"{ended.outcome}: {tally.of_total(ended=True)}",
        left=tally.total - tally.done - tally.skipped,
        cells=cells,
        specs={i: s for i, s in specs.items() if i in state.cells},
        sentinels=tuple(c for c in state.plan_cells if c.spec.sentinel),
        matrices=tuple(matrix(state, tp) for tp in tps(state)),
        starts=tuple(
            r for r in state.restarts if r.generation is not None and r.generation.id in generations
        ),
        baseline=state.run.baseline,
        plan=plan,
        selftest=selftest,
        searches=frozenset(c.id for c in cells if c.spec.search is not None),
    )
