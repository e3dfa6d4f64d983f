"""The results of a recording as flat fields: where each was measured, and its figures by name. Pure.

Values, intervals and what counts are those of the matrix (`journal/results/matrix.py`); nothing is averaged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ddtop.bench.figures.stats import CERTIFIED, shown_percentile
from ddtop.charts.axes import DERIVED, NAME_NUMBER, PLACES
from ddtop.events import CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import DEFAULT_METRIC, Column, short_count, tps
from ddtop.journal.results.field import MatrixCell, Row
from ddtop.journal.results.matrix import fields_of, matrix, usable
from ddtop.journal.results.per_gpu import GpuPoint, per_gpu
from ddtop.plan.variables import variables

_ENDS_IN = re.compile(r"(\d{1,9})\Z")


@dataclass(frozen=True, slots=True)
class Figure:
    """One value with its 95 % interval. `bound`: too few requests for the percentile, so it is not above this."""

    value: float
    low: float | None = None
    high: float | None = None
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One configuration under one load."""

    config: str
    tp: int
    load: Column
    set: Mapping[str, float]
    """The numbers that the plan gives its configuration by name."""
    figures: Mapping[str, Figure]
    doubt: str = ""
    front: bool = False
    """No other is better both per GPU and per user (only where that was asked for)."""
    dominated_by: str = ""

    def where(self, name: str) -> str:
        """In words, what tells it from the others by `name`: one of SPLITS, of PLACES, or a variable."""
        load = self.load
        if name in self.set:
            return f"{name} {self.set[name]:g}"
        match name:
            case "config":
                return self.config
            case "tp":
                return f"tp{self.tp}"
            case "workload":
                return f"{load.workload}@{load.output_tokens}"
            case "output_tokens":
                return f"{load.output_tokens} tokens"
            case "context":
                return f"{short_count(load.context)} ctx"
            case "load":
                return load.load_name
            case "concurrency":
                return f"c{load.concurrency}" if load.concurrency else ""
            case "rate":
                return f"{load.rate:g} req/s" if load.rate is not None else ""
        return ""

    def fits(self, held: Mapping[str, str]) -> bool:
        """Whether it is where `held` (name → words; empty: anywhere) says."""
        return all(not words or self.where(name) == words for name, words in held.items())

    def number(self, name: str) -> float | None:
        """The number that the plan sets for it; None where it has none."""
        load = self.load
        known = {
            "concurrency": float(load.concurrency) if load.concurrency and load.rate is None else None,
            "rate": load.rate,
            "context": float(load.context),
            "output_tokens": float(load.output_tokens),
            "tp": float(self.tp),
        }
        return known[name] if name in known else self.set.get(name)


def field_of(spec: CellSpec) -> Field:
    """The field of one cell, without figures."""
    return Field(spec.config, spec.tp, Column.of(spec), {}, {})


def everywhere(state: State) -> list[Field]:
    """Every field of the plan, measured or not, without figures: so that a configuration has one colour in all pictures."""
    given = numbers_set(state)
    return [
        Field(spec.config, spec.tp, Column.of(spec), given.get(spec.config, {}), {})
        for spec in (cell.spec for cell in state.plan_cells)
    ]


def numbers_set(state: State) -> dict[str, dict[str, float]]:
    """Configuration → the numbers its plan sets by name; where the plan sets none, the number its name ends in."""
    configs = dict.fromkeys(cell.spec.config for cell in state.plan_cells)
    given = variables(state.run.plan_toml)
    found = {
        config: {
            name: float(value)
            for name, value in given.get(config, {}).items()
            if not isinstance(value, str) and name not in PLACES
        }
        for config in configs
    }
    if any(found.values()):
        return found
    ends = {config: _ENDS_IN.search(config) for config in configs}
    return {config: {NAME_NUMBER: float(end[1])} if end else {} for config, end in ends.items()}


def variables_of(state: State) -> list[str]:
    """Names of those numbers, in the plan's order."""
    return list(dict.fromkeys(name for one in numbers_set(state).values() for name in one))


def fields(state: State, names: Iterable[str], baseline: str | None = None) -> list[Field]:
    """Every field of the plan that has a figure of each of `names`, in the plan's order; those of a search have their knee's."""
    wanted, given, out = list(dict.fromkeys(names)), numbers_set(state), []
    shared: dict[tuple[str, int, Column], GpuPoint] = {}
    if {"tok_s_gpu", "tok_s_user"} & set(wanted):
        shared = {(p.config, p.tp, p.load): p for p in per_gpu(state)}
    for tp in tps(state):
        cells, _, _ = fields_of(state, tp)
        views = {n: matrix(state, tp, DEFAULT_METRIC if n in DERIVED else n, baseline) for n in wanted}
        main = views[wanted[0]]
        for place, row in enumerate(main.rows):
            rows = {name: view.rows[place] for name, view in views.items()}
            for index, column in enumerate(main.columns):
                point = shared.get((row.config, tp, column))
                found = {n: _figure(n, one, index, point, cells, column) for n, one in rows.items()}
                known = {name: figure for name, figure in found.items() if figure is not None}
                if len(known) < len(found):
                    continue
                doubts = [_doubt(one.cells[index]) for one in rows.values()]
                out.append(
                    Field(
                        row.config,
                        tp,
                        column,
                        given.get(row.config, {}),
                        known,
                        next((d for d in doubts if d), ""),
                        point.front if point is not None else False,
                        point.dominated_by if point is not None else "",
                    )
                )
    return out


def _figure(
    name: str,
    row: Row,
    index: int,
    point: GpuPoint | None,
    cells: Mapping[tuple[str, Column], list[CellView]],
    column: Column,
) -> Figure | None:
    """The figure of one name; None where there is none that counts."""
    cell = row.cells[index]
    if cell is None or not cell.n:
        return None
    if name == "speedup":
        found = cell.against
        return (
            None
            if row.baseline or found is None or found.ratio is None
            else Figure(found.ratio, found.low, found.high)
        )
    if name in DERIVED:
        value = getattr(point, name) if point is not None else None
        return Figure(value) if value is not None else None
    bound = _bound(name, cells[row.config, column])
    if bound is not None:
        return Figure(bound, bound=True)
    return Figure(cell.value, cell.low, cell.high) if cell.value is not None else None


def _bound(name: str, cells: Iterable[CellView]) -> float | None:
    """The bound that stands in for a percentile of too few samples: the highest of the repeats."""
    group, _, percentile = name.rpartition(".")
    if percentile not in CERTIFIED:
        return None
    found = [
        shown_percentile(stats, percentile)
        for cell in cells
        if usable(cell) and isinstance(stats := cell.metrics.get(group), dict) and "n" in stats
    ]
    return max((one[1] for one in found if one is not None and one[0]), default=None)


def _doubt(cell: MatrixCell | None) -> str:
    if cell is None or cell.validity in (None, "VALID"):
        return ""
    return ", ".join(cell.reasons) or str(cell.validity)
