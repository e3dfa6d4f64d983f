"""Results per GPU and per user: tokens per second and GPU against tokens per second and user, their front, and what a token costs. Pure.

GPUs are those that a configuration's processes held, as recorded at its starts; never the plan's TP.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ddtop.events import Generation
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import DEFAULT_METRIC, Column, tps
from ddtop.journal.results.field import MatrixCell
from ddtop.journal.results.matrix import matrix

TPOT = "tpot_ms.p50"
"""A user's rate is 1000 ÷ this: the median request's, without its time to first token."""


@dataclass(frozen=True, slots=True)
class GpuPoint:
    """One configuration under one load. Rates in tokens per second; None: not known."""

    config: str
    tp: int
    load: Column
    gpus: int
    tok_s_gpu: float
    tok_s_user: float | None = None
    usd_per_mtok: float | None = None
    """Dollars for a million output tokens."""
    validity: str | None = None
    front: bool = False
    """No other point of the same workload and context is better in both."""
    dominated_by: str = ""
    """Of those that are better in both, the one with the highest rate per GPU, in words."""

    @property
    def label(self) -> str:
        return f"{self.config} tp{self.tp} {self.load.load_name}"


def held_gpus(state: State, config: str, tp: int) -> int | None:
    """How many GPUs the servers of a configuration held; the last start that says so. None: not known, or none."""
    for restart in reversed(state.restarts):
        found = restart.provenance
        if (restart.config, restart.tp) == (config, tp) and found is not None and found.gpus:
            return len(found.gpus)
    return None


def held_by(state: State, generation: Generation | None) -> tuple[int, ...] | None:
    """Indices of the GPUs that one start of a server held; None: not known, or none."""
    if generation is None:
        return None
    starts = [r for r in state.restarts if r.generation is not None and r.generation.id == generation.id]
    return next(
        (r.provenance.gpus for r in reversed(starts) if r.provenance is not None and r.provenance.gpus), None
    )


def gpus_unknown(state: State, config: str, tp: int) -> str:
    """Why the GPUs of a configuration are not known, in words."""
    whys = [
        r.provenance.unknown.get("held") or r.provenance.unknown.get("all")
        for r in state.restarts
        if (r.config, r.tp) == (config, tp) and r.provenance is not None
    ]
    if not whys:
        return "no start of it recorded which GPUs it held"
    return next((why for why in reversed(whys) if why), "its processes held no GPU")


def usd_per_mtok(tok_s: float, gpus: int, usd_per_gpu_hour: float) -> float:
    """Dollars for a million tokens.

    >>> round(usd_per_mtok(1000.0, 2, 3.0), 4)
    1.6667
    """
    return usd_per_gpu_hour * gpus / 3600.0 / tok_s * 1e6


def per_gpu(state: State, usd_per_gpu_hour: float | None = None) -> list[GpuPoint]:
    """A point for each field of the matrix whose value counts and whose GPUs are known, with the fronts marked. The baseline
    measured against itself is left out."""
    points: list[GpuPoint] = []
    twins = {cell.spec.config for cell in state.plan_cells if cell.spec.aa}
    for tp in tps(state):
        speed, tpot = matrix(state, tp, DEFAULT_METRIC), matrix(state, tp, TPOT)
        for row, times in zip(speed.rows, tpot.rows, strict=True):
            gpus = held_gpus(state, row.config, tp)
            if (
                gpus is None or row.config in twins
            ):  # the baseline measured again is no other point than the baseline
                continue
            for column, cell, time in zip(speed.columns, row.cells, times.cells, strict=True):
                value = _value(cell)
                if value is None or cell is None:
                    continue
                ms = _value(time)
                points.append(
                    GpuPoint(
                        row.config,
                        tp,
                        column,
                        gpus,
                        value / gpus,
                        1000.0 / ms if ms else None,
                        usd_per_mtok(value, gpus, usd_per_gpu_hour) if usd_per_gpu_hour else None,
                        cell.validity,
                    )
                )
    return with_fronts(points)


def unknown_configs(state: State) -> dict[str, str]:
    """`b16 tp2` → why its figures per GPU are not known, for configurations with a value."""
    out: dict[str, str] = {}
    for tp in tps(state):
        for row in matrix(state, tp, DEFAULT_METRIC).rows:
            if held_gpus(state, row.config, tp) is None and any(_value(c) for c in row.cells):
                out[f"{row.config} tp{tp}"] = gpus_unknown(state, row.config, tp)
    return out


def _value(cell: MatrixCell | None) -> float | None:
    """The field's value where it counts for something."""
    return cell.value if cell is not None and cell.n and cell.value else None


def with_fronts(points: Sequence[GpuPoint]) -> list[GpuPoint]:
    """The points with their fronts: of each workload, output length and context one. A point without a user's rate is on
    none, and dominates none."""
    groups: dict[tuple[object, ...], list[GpuPoint]] = {}
    for point in points:
        if point.tok_s_user is not None:
            groups.setdefault(point.load[:3], []).append(point)
    better = {id(p): best for group in groups.values() for p, best in _best_of(group)}
    return [
        replace(p, front=(best := better[id(p)]) is None, dominated_by=best.label if best is not None else "")
        if p.tok_s_user is not None
        else p
        for p in points
    ]


def _best_of(group: Sequence[GpuPoint]) -> Iterator[tuple[GpuPoint, GpuPoint | None]]:
    """(point, the one with the highest rate per GPU of those that are better in both; None: it is on the front)."""
    best: GpuPoint | None = None
    """Of those with a higher rate per user."""
    for _, alike in itertools.groupby(
        sorted(group, key=lambda p: -(p.tok_s_user or 0.0)), key=lambda p: p.tok_s_user
    ):
        same = list(alike)
        first = max(same, key=lambda p: p.tok_s_gpu)
        for point in same:
            if best is not None and best.tok_s_gpu >= max(point.tok_s_gpu, first.tok_s_gpu):
                yield point, best
            else:
                yield point, first if first.tok_s_gpu > point.tok_s_gpu else None
        if best is None or first.tok_s_gpu > best.tok_s_gpu:
            best = first
