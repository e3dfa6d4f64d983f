"""`[sampling]`, and `[[sampling]]`: the variants that each workload is measured with."""

from __future__ import annotations

import math
from typing import Any, cast

import msgspec

from ddtop.plan.model import ENDPOINTS, Bench, Endpoint, Sampling
from ddtop.plan.problems import Problems, shown
from ddtop.plan.read.configs import NAME
from ddtop.plan.read.fields import Fields


def read_samplings(problems: Problems, value: Any, bench: Bench) -> tuple[Sampling, ...]:
    """What stands under `sampling`: a table, a list of named tables, or nothing."""
    if not isinstance(value, list):
        return (read_sampling(Fields(problems, value, ("sampling",))) if value is not None else Sampling(),)
    found: list[Sampling] = []
    for index, item in enumerate(value):
        fields = Fields(problems, item, ("sampling", index))
        name = (
            fields.text("name", required='a name for this variant: name = "greedy"')
            or f"sampling-{index + 1}"
        )
        if not NAME.match(name):
            fields.fault("name", name, "letters, digits and . _ + -, at most 64")
        if name in {one.name for one in found}:
            fields.problems.fault(
                (*fields.path, "name"), f"{shown(name)} is used twice", "give each variant its own name"
            )
        found.append(msgspec.structs.replace(read_sampling(fields), name=name))
    if not found:
        problems.fault(("sampling",), "is an empty list", "a table [sampling], or [[sampling]] with a name")
    if bench.kind == "command" and len(found) > 1:
        problems.fault(
            ("sampling",),
            "has variants, and your own benchmark has its own sampling",
            "leave [[sampling]] out",
        )
    return tuple(found) or (Sampling(),)


def read_sampling(fields: Fields) -> Sampling:
    """`[sampling]`."""
    endpoint = cast(Endpoint, fields.choice("endpoint", ENDPOINTS, "chat"))
    temperature = fields.number("temperature", 0.0, 0, 10)
    ignore_eos = fields.flag("ignore_eos", True)
    extra = fields.any_table("extra_body")
    fields.done()
    for key in ("model", "stream", "messages", "prompt", "max_tokens"):
        if key in extra:
            fields.problems.fault((*fields.path, "extra_body", key), "is set by ddtop itself", "leave it out")
    if _plain(extra) is None:
        fields.problems.fault(
            (*fields.path, "extra_body"), "holds a date, a time, nan or inf", "what JSON can say"
        )
        extra = {}
    return Sampling(endpoint=endpoint, temperature=temperature, ignore_eos=ignore_eos, extra_body=extra)


def _plain(value: Any) -> bool | None:
    """True where JSON can say `value`, None where not (TOML has dates, infinities and NaN besides)."""
    if isinstance(value, dict):
        return True if all(_plain(v) for v in value.values()) else None
    if isinstance(value, list):
        return True if all(_plain(v) for v in value) else None
    if isinstance(value, float):
        return True if math.isfinite(value) else None
    return True if isinstance(value, str | int | bool) else None
