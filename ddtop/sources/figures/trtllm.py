"""Figures of TensorRT-LLM's iteration log (`print_iter_log`): a line for each pass of the model. Pure.

`num_generation_tokens` counts the requests that pad a CUDA graph too; `num_scheduled_requests` are real. So the tokens
of a pass are the scheduled requests that are not in their prompt's pass.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ddtop.sources.figures.line_table import mean

_MARKS = (b"num_generation_tokens", b"num_scheduled_requests")
_FIELD = re.compile(r"'?\b(\w+)'?\s*[=:]\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)(s|ms)?\b")
_TIMES = ("elapsed_time", "host_step_time", "prev_device_step_time")
_PADDED_AT_MOST = 2  # batch sizes of CUDA graphs at most double; more tokens a request than that are drafts


def trtllm_figures(lines: list[bytes]) -> dict[str, Any] | None:
    """The figures of such lines, of one rank (each prints every pass); None where there is none.

    `gen_tps` has a pass each of those that only generate. It is absent where the real requests are not logged (before
    2025-05), and where there are more tokens than padding explains: then drafts are verified, and how many of them
    were accepted is not logged.
    """
    passes = [_fields(line) for line in lines if b"iter = " in line and any(mark in line for mark in _MARKS)]
    if not passes:
        return None
    first = passes[0].get("global_rank")
    passes = [one for one in passes if one.get("global_rank") == first]
    found: dict[str, Any] = {"engine": "trtllm", "lines": len(passes)}
    if "num_scheduled_requests" in passes[-1]:
        found["running"] = _real(passes[-1])
    rates, padded = [], 0
    for one in passes:
        real, seconds = _real(one), one.get("seconds", 0.0)
        if not real or one.get("num_ctx_requests"):
            continue
        tokens = int(one.get("num_generation_tokens", real))
        if tokens > _PADDED_AT_MOST * real:
            continue
        padded += max(0, tokens - real)
        if seconds > 0 and math.isfinite(seconds):
            rates.append(round(real / seconds, 4))
    if rates:
        found["gen_tps"], found["gen_tps_mean"] = rates, mean(rates)
    if padded:
        found["padded_tokens"] = padded
    if prompt := sum(int(one.get("num_ctx_tokens", 0)) for one in passes):
        found["prompt_tokens"] = prompt
    return found


def _real(one: dict[str, float]) -> int:
    """Requests that wait for a token of this pass: scheduled, and no stand-ins of attention data parallelism."""
    scheduled = one.get("num_scheduled_requests", 0.0)
    return max(0, int(scheduled - one.get("num_dummy", 0.0) - one.get("num_ctx_requests", 0.0)))


def _fields(line: bytes) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, value, unit in _FIELD.findall(line.decode("utf-8", "replace")):
        if name in _TIMES:
            out.setdefault("seconds", float(value) * (1e-3 if unit == "ms" else 1.0))
        else:
            out.setdefault(name, float(value))
    return out
