"""A search for the knee as a cell: each load is a job of its own, each result a step; the last one gives the cell its result.

Which load comes next is decided by `bench/search.py` from the recorded steps alone, so a search goes on after a cut link or a
killed runner. All its loads are measured on one start of the server: on another one it begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddtop.agent.loadgen.records import unpack
from ddtop.bench.figures.metrics import Slo
from ddtop.bench.judge.cell import CellJudgement, judge_cell, judgement
from ddtop.bench.search import (
    EXPECTED,
    OVERLOAD,
    Point,
    PointVerdict,
    Tried,
    as_tried,
    attained,
    bracket,
    measured_at,
    next_point,
    verdict_on,
)
from ddtop.events import Generation, Search, SearchStep
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import metric_value
from ddtop.sweep.cell.attempts import begin_cell, has_result
from ddtop.sweep.cell.host_doubts import with_host
from ddtop.sweep.cell.outcome import Committed, Origin, commit_judged, without_bulk
from ddtop.sweep.shared.context import SweepContext


def steps_on(cell: CellView, generation: Generation | None) -> list[SearchStep]:
    """The steps that the search goes on from: of a ladder that is not over, on this start of the server."""
    if cell.searched or generation is None:
        return []
    return cell.ladder if all(s.generation and s.generation.id == generation.id for s in cell.ladder) else []


def tried(step: SearchStep) -> Tried:
    """A recorded step, as the search decides on it."""
    slo = step.metrics.get("slo")
    return as_tried(
        Point(step.tried, step.confirm), step.verdict, step.metrics, slo if isinstance(slo, Mapping) else {}
    )


def following(search: Search, steps: Sequence[SearchStep]) -> Point | None:
    """The load to measure next; None where the search is over."""
    return next_point([tried(step) for step in steps], search)


def take_load(
    ctx: SweepContext,
    cell: CellView,
    raw: Mapping[str, Any],
    origin: Origin,
    *,
    known: Mapping[str, Any] | None = None,
    answer_by_s: float | None = None,
) -> Committed | None:
    """Takes the result of one load: a step, and the cell's result where it was the last one. None where it is recorded."""
    search = cell.spec.search
    assert search is not None
    if has_result(cell, origin.job):
        return None
    steps = steps_on(cell, origin.generation)
    asked = raw.get("spec")
    point = measured_at(search, asked if isinstance(asked, Mapping) else {})
    try:
        whole = unpack(dict(raw))
        judged = judge_cell(whole, slo=Slo(**search.slo), spec=known)
    except (ValueError, KeyError, TypeError) as error:
        judged = judgement({"generator-failed": f"its result cannot be read: {error}"}, {})
    begin_cell(ctx, cell, origin.job, origin.generation)
    judged = with_host(ctx, cell, _of_a_load(judged, point), raw)
    verdict = verdict_on(
        judged.validity, judged.reasons, judged.metrics, point, [tried(s) for s in steps], search
    )
    again = any(a.validity == "INVALID" for a in cell.attempts)
    if verdict in ("missed", "failed") and not again and (still := _stood_still(judged)):
        verdict, judged = None, judgement(still, judged.metrics)
    if verdict is None:
        return commit_judged(ctx, cell, judged, without_bulk(raw), origin, answer_by_s=answer_by_s)
    step = _step(cell, judged, point, verdict, steps, raw, origin)
    ctx.emit(SearchStep, **step)
    if step["next"] is None:
        return finish(ctx, cell, cell.ladder, without_bulk(raw), origin)
    return Committed(state="running")


def _stood_still(judged: CellJudgement) -> dict[str, str]:
    """The reasons of a load at which the server paused, or answered nothing at all; empty where it shows more.

    It is measured again once: a server that was held up answers then, and a load that is too high shows the same again.
    """
    ended = judged.metrics.get("requests_ok") or judged.metrics.get("requests_failed")
    why = judged.details.get("server-paused") or ("" if ended else "no request was answered, and none failed")
    kept = {k: v for k, v in judged.details.items() if k != "server-paused" and k not in OVERLOAD}
    return {"server-stood-still": why, **kept} if why else {}


def _of_a_load(judged: CellJudgement, point: Point) -> CellJudgement:
    if point.confirm:
        return judged
    return judgement({k: v for k, v in judged.details.items() if k not in EXPECTED}, judged.metrics)


def _step(
    cell: CellView,
    judged: CellJudgement,
    point: Point,
    verdict: PointVerdict,
    steps: Sequence[SearchStep],
    raw: Mapping[str, Any],
    origin: Origin,
) -> dict[str, Any]:
    """The fields of the SearchStep."""
    search = cell.spec.search
    assert search is not None
    slo = attained(judged.metrics, verdict)
    metrics = {**judged.metrics, "slo": slo} if slo else judged.metrics
    now = as_tried(point, verdict, metrics, slo)
    all_tried = [*(tried(step) for step in steps), now]
    known, after = bracket(all_tried, search), next_point(all_tried, search)
    start, end = raw.get("started_at_s"), raw.get("ended_at_s")
    both = isinstance(start, int | float) and isinstance(end, int | float)
    return {
        "parent": cell.id,
        "number": len(steps),
        "tried": point.load,
        "confirm": point.confirm,
        "verdict": verdict,
        "low": known.low,
        "high": known.high,
        "next": after.load if after is not None else None,
        "job": origin.job,
        "generation": origin.generation,
        "validity": judged.validity,
        "reasons": judged.reasons,
        "metrics": metrics,
        "host_span_s": (start, end) if both else None,
    }


def finish(
    ctx: SweepContext, cell: CellView, steps: Sequence[SearchStep], raw: dict[str, Any], origin: Origin
) -> Committed:
    """The cell's result: the figures at the knee, and where the search ended."""
    search = cell.spec.search
    assert search is not None
    judged = found(search, steps)
    spans = [step.host_span_s for step in steps if step.host_span_s is not None]
    asked = {"mode": "closed" if search.by == "concurrency" else "open", search.by: steps[-1].tried}
    raw = {"spec": asked, **raw}  # where the runner ended before the result was recorded, this much is known
    if spans:
        raw = {**raw, "started_at_s": spans[0][0], "ended_at_s": spans[-1][1]}
    return commit_judged(ctx, cell, judged, {**raw, "search": judged.metrics["search"]}, origin)


def found(search: Search, steps: Sequence[SearchStep]) -> CellJudgement:
    """What the steps of a search that is over amount to.

    The metrics are those of the last measurement at the knee, with `knee` and `search` {low, high, confirmed, loads,
    requests}. Without a load that was met there is no knee, and no figure.
    """
    known = bracket([tried(step) for step in steps], search)
    about = {
        "low": known.low,
        "high": known.high,
        "confirmed": known.confirmed,
        "loads": len(steps),
        "requests": sum(int(metric_value(step.metrics, "slo.n") or 0) for step in steps),
    }
    at = next((step for step in reversed(steps) if step.tried == known.low), None)
    if at is None or known.low is None:
        lowest = min(steps, key=lambda step: step.tried)
        reason = "slo-undecided" if lowest.verdict == "undecided" else "slo-not-met"
        why = f"{lowest.tried:g} {search.unit}: {lowest.verdict}; {search.limits} is wanted"
        return judgement({reason: why}, {"search": about})
    details = dict.fromkeys(at.reasons, "")
    if known.high is None:
        details["knee-above-max"] = f"{known.low:g} {search.unit} met {search.limits}"
    judged = judgement(details, {})
    return replace(judged, metrics={**at.metrics, "knee": known.low, "search": about})
