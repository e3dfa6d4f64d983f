"""Figures of llama.cpp's server: timing lines of its log, and the `timings` object of its answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.sources.figures.line_table import RunLine

_LLAMA_NAMES = (
    "prompt_ms",
    "prompt_tokens",
    "prompt_tps",
    "gen_tokens",
    "gen_ms",
    "gen_tps",
    "total_ms",
    "accept_rate",
    "accepted",
    "drafted",
    "accept_len",
    "per_pos",
)


def llama_figures(facts: Sequence[RunLine]) -> dict[str, Any]:
    """Figures of the server's timing lines: plain values for one request, lists for several.

    What a request prints of itself while it runs counts only where no request has ended: `in_progress` is the number of
    requests that are known so far by such lines alone.
    """
    tasks: list[dict[str, Any]] = []
    running: dict[Any, dict[str, Any]] = {}
    open_at: dict[Any, int] = {}
    totals: dict[str, Any] = {}
    for fact in facts:
        if fact.kind != "timing":
            continue
        values = {k: v for k, v in fact.values.items() if k in _LLAMA_NAMES}
        if fact.event == "statistics":
            totals = {**totals, **fact.values}
            continue
        key = (fact.values.get("slot"), fact.values.get("task"))
        if fact.event == "progress":
            running.setdefault(key, {}).update(values)
            continue
        if key not in open_at or (fact.event == "prompt" and "prompt_ms" in tasks[open_at[key]]):
            open_at[key] = len(tasks)
            tasks.append({})
        tasks[open_at[key]].update(values)
    found: dict[str, Any] = {"engine": "llamacpp", "lines": len(facts)}
    if running and not tasks:
        tasks = list(running.values())
        found["in_progress"] = len(tasks)
    found["requests"] = len(tasks)
    if len(tasks) == 1:
        found.update(tasks[0])
        if "prompt_tokens" in found:
            found["prompt_tps_usable"] = found["prompt_tokens"] > 1
    else:
        for name in _LLAMA_NAMES:
            if listed := [t[name] for t in tasks if name in t]:
                found[name] = listed
    steps = [
        (t["accepted"], t["accepted"] / (t["accept_len"] - 1))
        for t in tasks
        if t.get("accepted") and t.get("accept_len", 1) > 1
    ]
    if len(tasks) > 1 and steps:
        found["accept_len_weighted"] = round(1 + sum(a for a, _ in steps) / sum(d for _, d in steps), 4)
    if "accept_len" not in found and totals.get("accept_len") is not None:
        found["accept_len"] = totals["accept_len"]
    if "accept_len" not in found and totals.get("drafts") and totals.get("accepted") is not None:
        found["accept_len"] = round(1 + totals["accepted"] / totals["drafts"], 4)
    if totals.get("drafts"):
        found["drafts"] = totals["drafts"]
    return found


def _timings(value: Any, depth: int = 0) -> dict[str, Any] | None:
    """The `timings` object of a llama.cpp answer, wherever it stands (the last one wins)."""
    if depth > 6:
        return None
    if isinstance(value, Mapping):
        if "predicted_n" in value and "predicted_ms" in value:
            return dict(value)
        for child in reversed(list(value.values())):
            if (found := _timings(child, depth + 1)) is not None:
                return found
    if isinstance(value, list):
        for child in reversed(value):
            if (found := _timings(child, depth + 1)) is not None:
                return found
    return None


def _number(value: Any) -> float | None:
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        else None
    )


def from_timings(timings: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of one `timings` object. With one prompt token (a cached prompt) prompt_tps is no prefill
    speed."""
    found: dict[str, Any] = {"engine": "llamacpp", "lines": 1, "requests": 1}
    names = {
        "prompt_n": "prompt_tokens",
        "prompt_ms": "prompt_ms",
        "prompt_per_second": "prompt_tps",
        "predicted_n": "gen_tokens",
        "predicted_ms": "gen_ms",
        "predicted_per_second": "gen_tps",
        "draft_n": "draft_n",
        "draft_n_accepted": "draft_accepted",
        "cache_n": "cached_tokens",
    }
    for key, name in names.items():
        if (number := _number(timings.get(key))) is not None:
            found[name] = int(number) if key.endswith(("_n", "_accepted")) else round(number, 4)
    if found.get("draft_n") and "draft_accepted" in found:
        found["accept_rate"] = round(found["draft_accepted"] / found["draft_n"], 4)
    if "prompt_tokens" in found:
        found["prompt_tps_usable"] = found["prompt_tokens"] > 1
    return found


def json_timings(data: bytes) -> dict[str, Any] | None:
    """The `timings` object in an answer or in the last events of a stream; None when there is none."""
    if b"predicted_ms" not in data:
        return None
    text = data.decode("utf-8", "replace")
    candidates = [
        text,
        *(
            line.removeprefix("data:").strip()
            for line in reversed(text.splitlines()[-4_000:])
            if "predicted_ms" in line
        ),
    ]
    for candidate in candidates:
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if (timings := _timings(value)) is not None:
            return timings
    return None
