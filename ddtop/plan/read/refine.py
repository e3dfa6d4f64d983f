"""`[matrix] refine`: whether further concurrencies are measured around a break-even."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from ddtop.plan.model import Config, LoadPoint
from ddtop.plan.read.fields import Fields
from ddtop.plan.refine import steps_between

CHOICES = ("break-even",)


def read_refine(
    fields: Fields,
    configs: Collection[Config],
    points: Iterable[LoadPoint],
    *,
    rounds: bool,
) -> str | None:
    """What the plan asks for; None where it asks for nothing. `rounds`: starts end early, by a race or a precision."""
    if not fields.has("refine"):
        return None
    refine = fields.choice("refine", CHOICES, CHOICES[0])
    streams = sorted({p.concurrency for p in points if p.rate is None and p.search is None})
    where = (*fields.path, "refine")
    if len(configs) < 2:
        fields.problems.fault(where, "has one configuration", "at least two: a baseline and one to compare")
    elif len(streams) < 2:
        fields.problems.fault(
            where, "has fewer than two concurrencies", "at least two, such as concurrency = [1, 8, 32]"
        )
    elif not any(steps_between(low, high) for low, high in pairwise(streams)):
        fields.problems.fault(where, "has no room between the concurrencies", "concurrencies further apart")
    if rounds:
        fields.problems.fault(
            where, 'stands beside race or starts = "auto"', "a fixed number of starts, or leave refine out"
        )
    return refine
