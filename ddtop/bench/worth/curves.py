"""The measured speed-ups of a recording as curves over concurrency: one for each configuration under each load. Pure.

Works on any recording, also on one that has not ended: what was not measured, and why, is part of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ddtop.bench.worth.break_even import BreakEven, Point, break_even
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import DEFAULT_METRIC, short_count, tps
from ddtop.journal.results.field import SIMULATED, Best, Matrix
from ddtop.journal.results.matrix import matrix, starts_in
from ddtop.stats.differ import FLOOR, differences
from ddtop.stats.spread import Starts, mean, pooled

Rows = dict[str, dict[int, list[CellView]]]
"""Configuration → concurrency → cells."""


class Load(NamedTuple):
    """What is held equal along a curve."""

    tp: int
    workload: str
    output_tokens: int
    context: int

    @property
    def label(self) -> str:
        """`tp1 · fib@256`, with the context where there is one."""
        context = f" · {short_count(self.context)} ctx" if self.context else ""
        return f"tp{self.tp} · {self.workload}@{self.output_tokens}{context}"


def load_of(cell: CellView) -> Load:
    """The load that a cell is measured under."""
    spec = cell.spec
    return Load(spec.tp, spec.workload, spec.output_tokens, spec.context)


@dataclass(frozen=True, slots=True)
class Curve:
    """One configuration under one load. `missing`: concurrency → why it is on no curve."""

    config: str
    found: BreakEven
    measured: tuple[int, ...]
    missing: tuple[tuple[int, str], ...] = ()
    doubts: tuple[str, ...] = ()
    """Reasons of its results that are SUSPECT."""


@dataclass(frozen=True, slots=True)
class Curves:
    """All configurations under one load. `reference` is what ratios are to: the baseline, else (with `why`) another
    configuration, and then the ratios say nothing of speculation; None where nothing was measured."""

    load: Load
    baseline: str | None
    reference: str | None
    why: str
    curves: tuple[Curve, ...]
    """Without the reference."""
    concurrencies: tuple[int, ...]
    """Those of the reference that were measured."""
    missing: tuple[tuple[int, str], ...] = ()
    """Of the reference: concurrency → why it is not measured."""
    floor: float = FLOOR
    """Gains below it do not matter: 1%, or the most by which the baseline differs from itself, where that is measured."""
    inside: bool = False
    """True where intervals are by the spread inside one start only."""
    doubts: tuple[str, ...] = ()
    """Reasons of the reference's results that are SUSPECT."""
    bests: tuple[tuple[int, Best], ...] = ()
    """Concurrency → the best there, as the matrix has it; empty for curves of cells alone."""


def all_curves(state: State, metric: str = DEFAULT_METRIC, baseline: str | None = None) -> tuple[Curves, ...]:
    """The curves of every load of the present plan, in the plan's order. Higher `metric` is better."""
    found = curves_of(state.plan_cells, metric, baseline if baseline is not None else state.run.baseline)
    views = {tp: matrix(state, tp, metric, baseline) for tp in tps(state)}
    return tuple(replace(one, bests=_bests(views[one.load.tp], one.load)) for one in found)


def _bests(view: Matrix, load: Load) -> tuple[tuple[int, Best], ...]:
    """The best at each concurrency of a load; those of rates and searches have no place on this axis."""
    here = [
        (column.concurrency, best)
        for column, best in zip(view.columns, view.bests, strict=True)
        if best is not None and column.concurrency and column.rate is None and not column.search
        if (view.tp, column.workload, column.output_tokens, column.context) == load
    ]
    return tuple(sorted(here, key=lambda pair: pair[0]))


def curves_of(
    cells: Iterable[CellView], metric: str = DEFAULT_METRIC, baseline: str | None = None
) -> tuple[Curves, ...]:
    """The curves of every load of these cells."""
    loads: dict[Load, Rows] = {}
    for cell in cells:
        spec = cell.spec
        if spec.sentinel or not spec.concurrency:
            continue  # measured to judge the others; or a rate, which has no place on an axis of streams
        rows = loads.setdefault(load_of(cell), {}).setdefault(spec.config, {})
        rows.setdefault(spec.concurrency, []).append(cell)
    return tuple(_curves(load, configs, metric, baseline) for load, configs in loads.items())


def _curves(load: Load, everything: Rows, metric: str, baseline: str | None) -> Curves:
    twins = {name for name, rows in everything.items() if any(c.spec.aa for cs in rows.values() for c in cs)}
    configs = {name: rows for name, rows in everything.items() if name not in twins}
    values = {
        config: {c: found for c, cells in rows.items() if (found := _starts(cells, metric))}
        for config, rows in configs.items()
    }
    spreads = {
        c: pooled(rows[c] for rows in values.values() if c in rows)
        for c in {c for rows in values.values() for c in rows}
    }
    reference, why = _reference(values, baseline)
    base = values.get(reference or "", {})
    versions = {c.engine_version for cells in configs.get(reference or "", {}).values() for c in cells}
    inside = any(spread.basis == "inside" for spread in spreads.values())
    curves: list[Curve] = []
    for config, rows in configs.items():
        if config == reference:
            continue
        points: list[Point] = []
        missing: list[tuple[int, str]] = []
        for c, cells in sorted(rows.items()):
            mine = values[config].get(c)
            if mine is None:
                missing.append((c, _absent(cells)))
                continue
            theirs = base.get(c)
            against = differences(theirs, {config: mine}, spreads[c])[config] if theirs else None
            if against is None or against.ratio is None:
                missing.append((c, f"{reference} is not measured there"))
                continue
            points.append(Point(c, against.ratio, against.low, against.high))
        if reference is not None and reference != baseline:
            even = BreakEven("not known", why, tuple(points))
        else:
            even = break_even(points)
        measured = tuple(p.concurrency for p in points)
        curves.append(Curve(config, even, measured, tuple(missing), _doubts(rows.values(), versions)))
    absent = tuple(
        (c, _absent(cells)) for c, cells in sorted(configs.get(reference or "", {}).items()) if c not in base
    )
    floor = _floor(base, [everything[name] for name in twins], metric) if reference == baseline else FLOOR
    doubts = _doubts(configs.get(reference or "", {}).values(), set())
    return Curves(
        *(load, baseline, reference, why, tuple(curves), tuple(sorted(base)), absent, floor, inside, doubts)
    )


def _floor(base: dict[int, Starts], twins: Iterable[dict[int, list[CellView]]], metric: str) -> float:
    """The most by which the baseline differs from itself at one concurrency, at least FLOOR."""
    again = [(base[c], _starts(cells, metric)) for rows in twins for c, cells in rows.items() if c in base]
    shifts = [abs(mean(found) / mean(first) - 1) for first, found in again if found and mean(first) > 0]
    return max([FLOOR, *shifts])


def _reference(values: dict[str, dict[int, Starts]], baseline: str | None) -> tuple[str | None, str]:
    if baseline is not None and values.get(baseline):
        return baseline, ""
    most = max(values, key=lambda config: len(values[config]), default=None)
    if most is None or not values[most]:
        return None, "nothing is measured under this load"
    name = f"the baseline {baseline} is not measured" if baseline else "the run has no baseline"
    return most, f"{name}: ratios are to {most}, and say nothing of what speculation is worth"


def _starts(cells: Iterable[CellView], metric: str) -> Starts:
    """The values that count, less those made by simulated acceptance."""
    return starts_in([c for c in cells if SIMULATED not in c.reasons], metric)


def _absent(cells: Iterable[CellView]) -> str:
    """Why there is no value, of the first cell that says so."""
    for cell in cells:
        if SIMULATED in cell.reasons:
            return "its acceptance is simulated"
        if cell.validity == "INVALID":
            return f"INVALID: {', '.join(cell.reasons)}"
        if cell.state != "done":
            return f"{cell.state}: {cell.reason}" if cell.reason else cell.state
    return "it has no such figure"


def _doubts(rows: Iterable[list[CellView]], versions: set[str | None]) -> tuple[str, ...]:
    """Reasons of SUSPECT results, and another version of the engine than the reference's (`versions`)."""
    cells = [c for row in rows for c in row]
    found = dict.fromkeys(reason for c in cells if c.validity == "SUSPECT" for reason in c.reasons)
    mine = {c.engine_version for c in cells if c.engine_version}
    if mine and versions - {None} and mine != versions - {None}:
        found[f"engine {', '.join(sorted(mine))}, the baseline's is another"] = None
    return tuple(found)
