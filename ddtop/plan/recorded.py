"""The plan of a recording, read again as it was: with the prompts and variables that were recorded beside its text."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from msgspec.structs import replace

from ddtop.events import PlanSource
from ddtop.plan.cells import expand
from ddtop.plan.model import Plan
from ddtop.plan.read.plan import parse_plan


def as_begun(plan: Plan, ids: Collection[str]) -> Plan:
    """`plan` with the warm-up that a recording of these cells was begun with, where the plan says none: 1 request before
    there was a hand-over. What is finished stays finished, and one run has one kind of figures."""
    if plan.bench.warmup_written or not ids:
        return plan
    older = replace(plan, bench=replace(plan.bench, warmup=1, min_window_s=0.0))

    def known(one: Plan) -> int:
        return sum(cell.spec.id in ids for cell in expand(one))

    return older if known(older) > known(plan) else plan


def recorded_plan(text: str, source: PlanSource | None, path: str | None = None) -> Plan:
    """`text` as its run read it. Without a source (an older recording) prompts are read where the plan was, at `path`.

    Raises InvalidPlanError where this version, or this machine, cannot read it.
    """
    env = {**os.environ, **(source.env if source is not None else {})}
    plan, _ = parse_plan(
        text,
        name=path or "the recording's plan",
        folder=Path(path).parent if path else None,
        environ=env,
        files=source.files if source is not None else None,
        datasets=source.datasets if source is not None else None,
    )
    return plan
