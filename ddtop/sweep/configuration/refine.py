"""Around a break-even: which further concurrencies are measured. Decided from the recording alone.

A configuration whose speed-up crosses 1 between two concurrencies is measured between them too, on the server that
runs, as soon as its cells of the first start and the baseline's have ended. The baseline is measured there as well:
in its next starts, or by one more start at the end of a sweep of one start each. Only results of the first start
decide, and what was planned once stays planned, so a resumed run plans the same.
"""

from __future__ import annotations

from ddtop import events as ev
from ddtop.bench.worth.break_even import crossed
from ddtop.bench.worth.curves import Load, curves_of, load_of
from ddtop.journal.fold.state import State
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES, Sweep


def settle_refinement(ctx: SweepContext) -> None:
    """Plans what the results ask for by now."""
    if ctx.sweep is None or not ctx.sweep.further:
        return
    cells = planned_now(ctx.sweep, ctx.state)
    before = {c.id for c in ctx.state.plan_cells}
    added = [c for c in cells if c.id not in before]
    if not added:
        return
    ctx.emit(ev.CellsPlanned, cells=cells, baseline=ctx.sweep.baseline, rule=ctx.sweep.rule)
    configs = dict.fromkeys(c.config for c in added if c.config != ctx.sweep.baseline)
    numbers = ", ".join(str(c) for c in sorted({c.concurrency for c in added}))
    ctx.note("info", f"the speed-up of {', '.join(configs)} crosses 1: c {numbers} are measured too")


def planned_now(sweep: Sweep, state: State) -> tuple[ev.CellSpec, ...]:
    """The sweep's cells with those that refine it, in running order: after the others of their start, before its sentinel.
    What costs a start of its own comes last."""
    chosen = wanted(sweep, state)
    if not chosen:
        return sweep.cells
    late = [c for c in chosen if _needs_a_start(sweep, c)]
    now = [c for c in chosen if c not in late]
    out: list[ev.CellSpec] = []
    keys = list(dict.fromkeys(c.restart_key for c in sweep.cells))
    for key in keys:
        mine = [c for c in sweep.cells if c.restart_key == key]
        more = [c for c in now if c.restart_key == key]
        out += [c for c in mine if not c.sentinel] + more + [c for c in mine if c.sentinel]
    return (*out, *late)


def wanted(sweep: Sweep, state: State) -> tuple[ev.CellSpec, ...]:
    """Those of `sweep.further` that are to be measured, in the order of the plan."""
    known = {c.id for c in state.cells.values() if c.spec.refines and (c.attempts or not c.hidden)}
    gaps = _crossings(sweep, state)
    once = all(c.start == 0 for c in sweep.cells)
    chosen: list[ev.CellSpec] = []
    for spec in sweep.further:
        base = spec.config == sweep.baseline
        mine = [gap for config, load, gap in gaps if load == _load(spec) and (base or config == spec.config)]
        here = any(low <= spec.refines[0] and spec.refines[1] <= high for low, high in mine if spec.refines)
        if spec.id in known or (here and (once or not base or spec.start > 0)):
            chosen.append(spec)
    return tuple(chosen)


def _crossings(sweep: Sweep, state: State) -> list[tuple[str, Load, tuple[int, int]]]:
    """(configuration, load, gap) of each crossing, by the first start's results, where all of them have ended."""
    first = {c.id for c in sweep.cells if c.start == 0 and c.concurrency and not c.sentinel}
    views = [c for c in state.cells.values() if c.id in first and not c.hidden]
    open_now = {(c.spec.config, load_of(c)) for c in views if c.state in OPEN_STATES}
    found: list[tuple[str, Load, tuple[int, int]]] = []
    for curves in curves_of(views, baseline=sweep.baseline):
        if curves.baseline is None or curves.reference != curves.baseline:
            continue
        for curve in curves.curves:
            gap = crossed(curve.found, curve.measured)
            waits = {(curve.config, curves.load), (curves.baseline, curves.load)} & open_now
            if gap is not None and not waits:
                found.append((curve.config, curves.load, gap))
    return found


def _needs_a_start(sweep: Sweep, spec: ev.CellSpec) -> bool:
    """Whether its server is not started again by the plan: the baseline's, which runs first."""
    return spec.config == sweep.baseline and spec.start == 0


def _load(spec: ev.CellSpec) -> Load:
    return Load(spec.tp, spec.workload, spec.output_tokens, spec.context)
