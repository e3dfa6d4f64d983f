"""The plan of a recording, read again as it was: with the prompts and variables that were recorded beside its text."""

from __future__ import annotations

import os
from pathlib import Path

from ddtop.events import PlanSource
from ddtop.plan.model import Plan
from ddtop.plan.read.plan import parse_plan


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
    )
    return plan
