"""What all importers share: tolerant JSON, numbers that are numbers, and the record every tool's result becomes. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any

Fields = dict[str, Any]
"""A record: names of metrics with units (`output_tps`, `ttft_mean_ms`, …) → number or text; what is not known is absent."""

STATS = ("mean", "p50", "p90", "p95", "p99", "std", "min", "max")


class ResultFormatError(ValueError):
    """The bytes are no result file that ddtop knows; the text says what was found."""


def number(value: Any) -> float | int | None:
    """A finite number (also from text such as "410.61", "1,234" or "inf" → None); bool and NaN are none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value.replace(",", "").strip())
        except ValueError:
            return None
        value = int(value) if math.isfinite(value) and value.is_integer() else value
    if isinstance(value, (int, float)) and math.isfinite(value):
        return value
    return None


def rate(value: Any) -> float | int | str | None:
    """A request rate: a number, or "unlimited" for inf in each of its spellings."""
    if isinstance(value, str) and value.strip().lower() in ("inf", "infinity", "unlimited"):
        return "unlimited"
    if isinstance(value, float) and value == math.inf:
        return "unlimited"
    return number(value)


CORE = re.compile(r"requests_ok|duration_s|rps|(?:input|output|total)_(?:tps|tokens)|(?:ttft|e2e)_\w+_ms")
"""Figures that a sound run always has as numbers. (TPOT and ITL are NaN where each answer is one token.)"""


def put(fields: Fields, name: str, value: Any, factor: float = 1.0) -> None:
    """Set a field if the value is a number; a NaN or infinity in a figure of CORE is noted in `not_numbers`."""
    found = number(value)
    if found is not None:
        fields[name] = found * factor if factor != 1.0 else found
    elif CORE.fullmatch(name) and _not_finite(value) and name not in fields.get("not_numbers", ()):
        fields.setdefault("not_numbers", []).append(name)


def _not_finite(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("nan", "inf", "-inf", "infinity", "-infinity")
    return isinstance(value, float) and not math.isfinite(value)


def put_stats(fields: Fields, name: str, stats: Any, factor: float = 1.0) -> None:
    """{mean|avg, median|p50, p90, …} → name_mean_ms, name_p50_ms, …; `factor` turns the unit into ms."""
    if not isinstance(stats, dict):
        return
    spread = stats.get("percentiles")
    merged = {**spread, **stats} if isinstance(spread, dict) else stats
    for stat, keys in {
        "mean": ("mean", "avg"),
        "p50": ("median", "p50", "50%"),
        "p90": ("p90", "90%"),
        "p95": ("p95", "95%"),
        "p99": ("p99", "99%"),
        "max": ("max",),
        "min": ("min",),
        "std": ("std", "std_dev", "stddev"),
    }.items():
        for key in keys:
            if number(merged.get(key)) is not None:
                put(fields, f"{name}_{stat}_ms", merged[key], factor)
                break


def stat_value(stats: Any, *keys: str) -> Any:
    """The first of `keys` in a statistics object, or the value itself if it is a plain number."""
    if isinstance(stats, dict):
        for key in keys or ("mean", "avg"):
            if number(stats.get(key)) is not None:
                return stats[key]
        return None
    return stats


def loads(text: str) -> Any:
    """JSON as Python writes it (NaN, Infinity taken). Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply to be a result file") from error


def json_lines(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(whole objects, damaged lines) of a JSON-lines file; a truncated last line is one damaged line."""
    good: list[dict[str, Any]] = []
    bad: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            value = loads(line)
        except ValueError:
            bad.append(line)
            continue
        if isinstance(value, dict):
            good.append(value)
        else:
            bad.append(line)
    return good, bad


def peek(line: str, key: str) -> Any:
    """The value of a plain `"key": value` in a damaged JSON line, or None."""
    found = re.search(rf'"{re.escape(key)}"\s*:\s*("[^"]*"|[^,}}\s]+)\s*[,}}]', line)
    if found is None:
        return None
    try:
        return loads(found.group(1))
    except ValueError:
        return None
