"""What the host adds to a cell's judgement: what limited the GPUs, kernel faults during its window, a server that
simulates its acceptance, and one that drifted during its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ddtop.agent.loadgen.records import unpack
from ddtop.bench.judge.cell import CellJudgement
from ddtop.bench.judge.validity import judge_reasons
from ddtop.events import CellMeasured, Generation
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import DEFAULT_METRIC, metric_value
from ddtop.journal.results.matrix import usable
from ddtop.stats.drift import drifted
from ddtop.sweep.shared.context import SweepContext

DRIFT = "drift-in-start"


def with_host(
    ctx: SweepContext, cell: CellView, judged: CellJudgement, raw: Mapping[str, Any]
) -> CellJudgement:
    """The judgement with what limited the GPUs over the cell, and with the kernel's reasons against it."""
    tokens = judged.metrics.get("output_tokens")
    moving = bool(tokens) if isinstance(tokens, int | float) else None
    began = cell.attempts[-1].started_mono_s if cell.attempts else None
    try:
        whole = unpack(dict(raw))
    except ValueError:
        whole = {}
    bound = ctx.gpu_watch.cell_metrics(whole, moving=moving, begin=began, end=ctx.mono())
    window = raw.get("window") or {}
    zero = window.get("zero_mono_ns") if isinstance(window, Mapping) else None
    doubts = _simulated(ctx, cell)
    if isinstance(zero, int):
        doubts |= ctx.faults.doubts(zero / 1e9, zero / 1e9 + float(window.get("wall_s") or 0.0))
    return add_doubts(replace(judged, metrics={**judged.metrics, **bound}), doubts)


def _simulated(ctx: SweepContext, cell: CellView) -> dict[str, str]:
    """The doubt about a server whose acceptance was found to be simulated when it became ready."""
    generation = cell.attempts[-1].generation if cell.attempts else None
    starts = [r for r in ctx.state.restarts if generation is not None and r.generation == generation]
    said = starts[-1].acceptance_simulated if starts else None
    return {"acceptance-simulated": said} if said else {}


def with_drift(
    ctx: SweepContext, cell: CellView, judged: CellJudgement, generation: Generation | None
) -> CellJudgement:
    """The judgement of a sentinel, with the drift that it shows. All other results of its start are then doubted too,
    before its own is recorded: a runner that dies in between judges it again."""
    again = metric_value(judged.metrics, DEFAULT_METRIC)
    if not cell.spec.sentinel or judged.validity == "INVALID" or again is None:
        return judged
    key = cell.spec.restart_key
    mine = [c for c in ctx.state.plan_cells if c.spec.restart_key == key and usable(c)]
    mine = [c for c in mine if c.generation == generation]
    first = next((c for c in mine if c.spec.load[:-1] == cell.spec.load[:-1]), None)
    value = metric_value(first.metrics, DEFAULT_METRIC) if first is not None else None
    why = drifted(value, again, _inside(ctx, cell)) if value is not None else None
    if why is None:
        return judged
    for other in mine:
        _doubt_drift(ctx, other)
    return add_doubts(judged, {DRIFT: why})


def _inside(ctx: SweepContext, cell: CellView) -> list[list[float]]:
    """Measurements of one load inside one start, of all starts but this cell's and those that drifted: on a real server
    that drifts by 60% in every start, these would call the third drift chance."""
    groups: dict[tuple[object, ...], list[float]] = {}
    for other in ctx.state.plan_cells:
        value = metric_value(other.metrics, DEFAULT_METRIC)
        counts = other.state == "done" and other.validity != "INVALID" and DRIFT not in other.reasons
        if counts and value is not None and other.spec.restart_key != cell.spec.restart_key:
            server = other.generation.id if other.generation is not None else ""
            groups.setdefault((other.spec.restart_key, server, *other.spec.load[:-2]), []).append(value)
    return list(groups.values())


def _doubt_drift(ctx: SweepContext, cell: CellView) -> None:
    if DRIFT in cell.reasons or not cell.attempts:
        return
    reasons = (*cell.reasons, DRIFT)
    ctx.emit(
        CellMeasured,
        cell_id=cell.id,
        attempt=cell.attempts[-1].number,
        validity=judge_reasons(reasons).validity,
        reasons=reasons,
        metrics=dict(cell.metrics),
        engine=cell.engine,
        engine_version=cell.engine_version,
        driver=cell.driver,
        generation=cell.generation,
    )


def add_doubts(judged: CellJudgement, doubts: Mapping[str, str]) -> CellJudgement:
    """The judgement with further reasons (slug → evidence in words)."""
    if not doubts:
        return judged
    details = {**judged.details, **doubts}
    again = judge_reasons(dict.fromkeys((*judged.reasons, *doubts)))
    return replace(
        judged,
        validity=again.validity,
        reasons=tuple(dict.fromkeys((*judged.reasons, *doubts))),
        fault=again.fault,
        state=again.state,
        cause=again.cause,
        details=details,
    )
