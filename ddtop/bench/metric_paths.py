"""Metrics of any tool's result by path: JMESPath with `mean:`, `max:`, `min:`, `sum:` or `last:` before it. Pure.

`"mean:results[*].tok_s"` gathers the numbers that the path finds and reduces them; without a prefix the path must find
one number. Numbers in text ("410.6") count; null, NaN and infinity do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError

REDUCERS = ("mean", "max", "min", "sum", "last")


class MetricPathError(ValueError):
    """The path is wrong, or what it finds is no number; the text says which and what is allowed."""


def split_path(path: str) -> tuple[str, str]:
    """(reducer or "", JMESPath). Raises MetricPathError on an unknown prefix or a path that does not compile."""
    head, colon, rest = path.partition(":")
    reducer = ""
    if colon and head.strip().isalpha():
        if head.strip() not in REDUCERS:
            raise MetricPathError(
                f"{path!r}: no such prefix as {head.strip()!r}; allowed are {', '.join(REDUCERS)}"
            )
        reducer, path = head.strip(), rest.strip()
    try:
        jmespath.compile(path)
    except JMESPathError as error:
        raise MetricPathError(f"{path!r} is not valid JMESPath: {str(error).splitlines()[0]}") from None
    return reducer, path


def evaluate(path: str, data: Any) -> float | None:
    """The number that `path` gives of `data`; None if it finds nothing. Raises MetricPathError."""
    reducer, expression = split_path(path)
    try:
        found = jmespath.search(expression, data)
    except JMESPathError as error:
        raise MetricPathError(f"{expression!r}: {str(error).splitlines()[0]}") from None
    numbers = _numbers(found)
    if not numbers:
        return None
    if not reducer:
        if isinstance(found, list) and len(found) > 1:
            raise MetricPathError(
                f"{expression!r} finds {len(found)} values; say which: one of {', '.join(r + ':' for r in REDUCERS)}"
            )
        return numbers[0]
    return {
        "mean": math.fsum(numbers) / len(numbers),
        "max": max(numbers),
        "min": min(numbers),
        "sum": math.fsum(numbers),
        "last": numbers[-1],
    }[reducer]


def evaluate_all(paths: Mapping[str, str], data: Any) -> dict[str, float]:
    """{metric: number} for every path that finds one; those that find nothing are absent. Raises MetricPathError."""
    out: dict[str, float] = {}
    for name, path in paths.items():
        value = evaluate(path, data)
        if value is not None:
            out[name] = value
    return out


def _numbers(found: Any) -> list[float]:
    if isinstance(found, list):
        return [number for one in found for number in _numbers(one)]
    if isinstance(found, bool) or found is None:
        return []
    if isinstance(found, str):
        try:
            found = float(found)
        except ValueError:
            return []
    if isinstance(found, (int, float)) and math.isfinite(found):
        return [float(found)]
    return []
