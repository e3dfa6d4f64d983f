"""The variables of a recorded plan's configurations: `set`, and of `for` the value that each configuration has. Pure.

Reads the text alone: neither prompt files nor the environment of the machine that ran it are needed.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import tomli

from ddtop.plan.model import Scalar
from ddtop.plan.placeholders import fill

MOST = 1000
"""Configurations of one entry, as a plan may have them."""


def variables(plan_toml: str | None) -> dict[str, dict[str, Scalar]]:
    """Configuration → variable → its value; {} where the text cannot be read.

    >>> variables('[configs]\\nplain = {}\\n"draft{n}" = { for = { n = [2, 4] } }')
    {'plain': {}, 'draft2': {'n': 2}, 'draft4': {'n': 4}}
    """
    try:
        configs = tomli.loads(plan_toml or "").get("configs")
    except (tomli.TOMLDecodeError, RecursionError):
        return {}
    out: dict[str, dict[str, Scalar]] = {}
    for template, table in configs.items() if isinstance(configs, dict) else ():
        constants, ranges = (_named(table, key) for key in ("set", "for"))
        lists = {name: values for name, values in ranges.items() if isinstance(values, list)}
        if math.prod(len(values) for values in lists.values()) > MOST:
            continue
        for combination in itertools.product(*lists.values()):
            values = {**constants, **dict(zip(lists, combination, strict=True))}
            known = {name: v for name, v in values.items() if isinstance(v, str | int | float)}
            out.setdefault(fill(template, known), known)
    return out


def _named(table: Any, key: str) -> dict[str, Any]:
    found = table.get(key) if isinstance(table, dict) else None
    return found if isinstance(found, dict) else {}
