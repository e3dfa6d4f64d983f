"""What the host adds to a cell's judgement: what limited the GPUs, kernel faults during its window, and a server that
simulates its acceptance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ddtop.agent.loadgen.records import unpack
from ddtop.bench.judge.cell import CellJudgement
from ddtop.bench.judge.validity import judge_reasons
from ddtop.journal.fold.views import CellView
from ddtop.sweep.shared.context import SweepContext


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
