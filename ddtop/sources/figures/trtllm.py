"""Figures of TensorRT-LLM's iteration log (`print_iter_log`): a line for each pass of the model. Pure.

`num_generation_tokens` counts the requests that pad a CUDA graph too; `num_scheduled_requests` are real. So the tokens
of a pass are the scheduled requests that are not in their prompt's pass.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ddtop.sources.figures.line_table import mean

_MARK = b"num_scheduled_requests"
_FIELD = re.compile(r"'?(\w+)'?\s*[=:]\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)(s|ms)?\b")
_RANK = "global_rank"


def trtllm_figures(lines: list[bytes]) -> dict[str, Any] | None:
    """The figures of such lines, of one rank (each prints every pass); None where there is none."""
    passes = [_fields(line) for line in lines if _MARK in line]
    passes = [one for one in passes if one.get("num_scheduled_requests") is not None]
    if not passes:
        return None
    first = passes[0].get(_RANK)
    passes = [one for one in passes if one.get(_RANK) == first]
    found: dict[str, Any] = {
        "engine": "trtllm",
        "lines": len(passes),
        "running": int(passes[-1][_MARK.decode()]),
    }
    rates, padded = [], 0
    for one in passes:
        real = one["num_scheduled_requests"] - one.get("num_ctx_requests", 0)
        seconds = one.get("elapsed_time", 0.0)
        padded += max(0, int(one.get("num_generation_tokens", real) - real))
        if real > 0 and seconds > 0 and math.isfinite(seconds) and not one.get("num_ctx_requests"):
            rates.append(round(real / seconds, 4))
    if rates:
        found["gen_tps"], found["gen_tps_mean"] = rates, mean(rates)
    if padded:
        found["padded_tokens"] = padded
    if prompt := sum(int(one.get("num_ctx_tokens", 0)) for one in passes):
        found["prompt_tokens"] = prompt
    return found


def _fields(line: bytes) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, value, unit in _FIELD.findall(line.decode("utf-8", "replace")):
        if name == "elapsed_time" or name.endswith("_time"):
            out.setdefault("elapsed_time", float(value) * (1e-3 if unit == "ms" else 1.0))
        elif name not in out:
            out[name] = float(value)
    return out
