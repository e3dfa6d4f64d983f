"""A plan: a sweep written in TOML, checked to the last key, and expanded into cells with stable ids.

    plan, warnings = check_plan(Path("plans/quick.toml"))
    for planned in expand(plan):
        planned.spec, planned.launch, planned.bench

Everything a person can get wrong is a `PlanError` that names every fault at once, with its place.
"""

from ddtop.plan.cells import expand
from ddtop.plan.launch import BenchSpec, LaunchSpec, PlannedCell
from ddtop.plan.model import Plan
from ddtop.plan.problems import InvalidPlanError
from ddtop.plan.read.plan import check_plan, parse_plan
from ddtop.plan.recorded import as_begun, recorded_plan
from ddtop.plan.show import show

__all__ = [
    "BenchSpec",
    "InvalidPlanError",
    "LaunchSpec",
    "Plan",
    "PlannedCell",
    "as_begun",
    "check_plan",
    "expand",
    "parse_plan",
    "recorded_plan",
    "show",
]
