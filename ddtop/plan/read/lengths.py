"""Lengths as distributions: `output_tokens = { dist = "lognormal", mean = 300, p99 = 2000 }`, and `context` likewise.

What is drawn is the load generator's business (agent/loadgen/asked/lengths.py); here is said what may be written.
"""

from __future__ import annotations

import statistics
from typing import Any

from ddtop.plan.read.fields import Fields

KEYS = {
    "lognormal": ("mean", "p99"),
    "normal": ("mean", "sd"),
    "uniform": ("min", "max"),
    "fixed": ("value",),
    "list": ("values",),
}
STEEPEST = 14.9
"""A lognormal distribution whose 99th percentile is further above its mean does not exist (e to the 2.33² ÷ 2)."""


def read_lengths(fields: Fields, least: int, most: int) -> tuple[dict[str, Any], int]:
    """(the distribution as the load generator takes it, its mean in whole tokens). Lengths are from `least` to `most`."""
    faults = len(fields.problems.faults)
    kind = fields.choice("dist", tuple(KEYS), None, "lognormal, normal, uniform, fixed or list")
    out: dict[str, Any] = {"dist": kind}
    for key in KEYS.get(kind or "", ()):
        if key == "values":
            out[key] = list(fields.numbers(key, least, most, "tokens"))
        elif key in ("min", "max", "value"):
            out[key] = fields.whole(key, least, least, most)
        else:
            out[key] = fields.number(key, 1.0, 0 if key == "sd" else max(least, 1), most, "tokens")
        if not fields.has(key):
            fields.missing(key, f'what dist = "{kind}" needs: {", ".join(KEYS[kind or ""])}')
    for key in ("min", "max"):
        if fields.has(key) and key not in out:
            out[key] = fields.whole(key, least, least, most)
    fields.done()
    if len(fields.problems.faults) > faults:
        return {}, least
    if "max" in out and out["max"] < out.get("min", least):
        fields.fault("max", out["max"], f"at least min ({out.get('min', least)})")
    if kind == "lognormal" and not out["mean"] < out["p99"] < STEEPEST * out["mean"]:
        fields.fault(
            "p99", out["p99"], f"above the mean, and below {STEEPEST} times the mean ({out['mean']:g})"
        )
    if kind == "list":
        out["values"] = [int(value) for value in out["values"]]
    return out, max(least, round(_mean(out)))


def _mean(lengths: dict[str, Any]) -> float:
    """Of the distribution as written: bounds move it a little."""
    if lengths["dist"] == "uniform":
        return float(lengths["min"] + lengths["max"]) / 2
    if lengths["dist"] == "list":
        return statistics.fmean(lengths["values"]) if lengths["values"] else 0.0
    return float(lengths.get("mean", lengths.get("value", 0)))
