"""Cells that a plan may ask for once some are measured: further concurrencies around a break-even. Pure.

All that could be asked for is known with the plan, so that ids, loads and starts are those of any other cell; which of
them are measured is decided from results (sweep/configuration/refine.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from ddtop.plan.cells import expand
from ddtop.plan.launch import PlannedCell
from ddtop.plan.model import Matrix, Plan

MOST = 3
"""Concurrencies that are added around one crossing, at most."""


def steps_between(low: int, high: int, most: int = MOST) -> tuple[int, ...]:
    """Up to `most` whole concurrencies between two, evenly on their logarithm.

    >>> steps_between(8, 32), steps_between(1, 3), steps_between(4, 5)
    ((11, 16, 23), (2,), ())
    """
    steps = (round(low * (high / low) ** (k / (most + 1))) for k in range(1, most + 1))
    return tuple(sorted({c for c in steps if low < c < high}))


def gaps(matrix: Matrix) -> dict[tuple[int, int], tuple[int, ...]]:
    """Neighbouring concurrencies of the plan → those that may be added between them."""
    measured = sorted({p.concurrency for p in matrix.points if p.rate is None and p.search is None})
    return {(low, high): steps for low, high in pairwise(measured) if (steps := steps_between(low, high))}


def further(plan: Plan) -> tuple[PlannedCell, ...]:
    """Every cell that refining may ask for, each with the gap that it lies in (`CellSpec.refines`). Their ids are those that
    the plan's cells have where it names these concurrencies itself."""
    if plan.matrix.refine is None:
        return ()
    gap_of = {c: gap for gap, steps in gaps(plan.matrix).items() for c in steps}
    if not gap_of:
        return ()
    matrix = msgspec.structs.replace(plan.matrix, concurrency=tuple(sorted(gap_of)), load=(), aa=False)
    return tuple(
        msgspec.structs.replace(
            cell, spec=msgspec.structs.replace(cell.spec, refines=gap_of[cell.spec.concurrency])
        )
        for cell in _to_run(expand(msgspec.structs.replace(plan, matrix=matrix)))
        if cell.spec.concurrency in gap_of  # a trace has a load of its own
    )


def _to_run(cells: Iterable[PlannedCell]) -> Iterable[PlannedCell]:
    return (c for c in cells if not c.spec.sentinel and c.spec.skip_reason is None)
