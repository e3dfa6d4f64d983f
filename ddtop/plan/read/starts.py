"""`starts`, `race` and what belongs to them in `[matrix]`: how often every configuration's server is started."""

from __future__ import annotations

from ddtop.plan.model import Config
from ddtop.plan.read.fields import Fields
from ddtop.stats.race import Rules

AUTO = "auto"
MAX_STARTS = 100
USUAL_MOST = 6
"""`max_starts` where the plan does not say."""
PCT = (0.1, 50.0)


def read_starts(fields: Fields, configs: tuple[Config, ...]) -> tuple[int, Rules | None]:
    """(rounds at most, when configurations are started no more; None: never before that)."""
    auto = fields.data.get("starts") == AUTO
    starts = fields.choice("starts", [AUTO], AUTO) if auto else None
    fixed = None if starts else fields.whole("starts", 1, 1, MAX_STARTS) if fields.has("starts") else None
    race = fields.flag("race", False)
    most = fields.whole("max_starts", USUAL_MOST, 2, MAX_STARTS)
    epsilon = fields.number("epsilon_pct", 2.0, *PCT, "%")
    precision = fields.number("precision_pct", 2.0, *PCT, "%")
    _check(fields, configs, auto, race, fixed)
    if race:
        return fixed or most, Rules(rule="race", most=fixed or most, epsilon=epsilon / 100)
    if auto:
        return most, Rules(rule="precision", most=most, precision=precision / 100)
    return fixed or 1, None


def _check(fields: Fields, configs: tuple[Config, ...], auto: bool, race: bool, fixed: int | None) -> None:
    """Keys that contradict one another, or that would do nothing."""
    problems = fields.problems
    if race and len(configs) == 1:
        problems.fault((*fields.path, "race"), "has one configuration", "at least two, or leave race out")
    compared = len(configs) > 1 or fields.data.get("aa") is True
    if not compared and (auto or (fixed or 1) > 1) and not race:
        problems.warn(
            (*fields.path, "starts"),
            "has one configuration to start again",
            "its own value gets an interval; there is nothing to compare it with",
        )
    if race and fixed == 1:
        problems.fault(
            (*fields.path, "starts"),
            "found 1",
            "allowed: with race, at least 2, or leave it out for max_starts",
        )
    if fields.has("max_starts") and not auto and (fixed is not None or not race):
        what = f"beside starts = {fixed}" if fixed is not None else "without starts"
        do = 'it belongs to starts = "auto" or race = true'
        if race:
            do = "with race either of them is the limit: leave one out"
        problems.fault((*fields.path, "max_starts"), f"stands {what}", do)
    if fields.has("epsilon_pct") and not race:
        problems.fault((*fields.path, "epsilon_pct"), "stands without race", "it belongs to race = true")
    if fields.has("precision_pct") and (race or not auto):
        why = "beside race, which ends by epsilon_pct" if race else 'without starts = "auto"'
        problems.fault(
            (*fields.path, "precision_pct"), f"stands {why}", 'it belongs to starts = "auto" without race'
        )
