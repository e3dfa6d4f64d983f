"""What the server said of its load over one cell, in a few numbers. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ddtop.journal.fold.series import FigurePoint
from ddtop.journal.fold.views import AttemptView, CellView

SHOWN = (
    ("running", "running", "requests"),
    ("queued", "queued", "requests"),
    ("kv_pct", "KV cache", "%"),
    ("prefix_hit_pct", "prefix hits", "%"),
    ("power_w", "power", "W"),
)
"""Field of a point → its name and unit for people."""


def measured_attempt(cell: CellView) -> AttemptView | None:
    """The try whose result the cell has, else the last one."""
    for attempt in reversed(cell.attempts):
        if attempt.metrics:
            return attempt
    return cell.attempts[-1] if cell.attempts else None


def window_points(attempt: AttemptView) -> Sequence[FigurePoint]:
    """The readings within the measured window; all of the attempt while the window is not known."""
    if attempt.window_mono_s is None:
        return tuple(attempt.figures)
    begin, end = attempt.window_mono_s
    return [p for p in attempt.figures if p.host_mono_s is not None and begin <= p.host_mono_s <= end]


def load_over(points: Iterable[FigurePoint]) -> dict[str, Any]:
    """{n, running {mean, max}, queued {…}, kv_pct {…}, power_w {…}, prefix_hit_pct}: the prefix cache's share is of all
    prompt tokens. What the server never said is absent; {} without a reading."""
    taken = list(points)
    if not taken:
        return {}
    out: dict[str, Any] = {"n": len(taken)}
    for name in ("running", "queued", "kv_pct", "power_w"):
        values = [v for p in taken if (v := getattr(p, name)) is not None and math.isfinite(v)]
        if values:
            out[name] = {"mean": sum(v / len(values) for v in values), "max": max(values)}
    asked = [(p.prefix_hit_pct, p.prompt_tokens) for p in taken if p.prompt_tokens]
    tokens = sum(n for hit, n in asked if hit is not None and n is not None)
    if tokens:
        found = sum(hit * n for hit, n in asked if hit is not None and n is not None)
        share = found / tokens
        if math.isfinite(share):  # absurd counters overflow
            out["prefix_hit_pct"] = share
    return out


def load_of(cell: CellView) -> dict[str, Any]:
    """`load_over` the window of a cell's measured try; {} where nothing was read."""
    attempt = measured_attempt(cell)
    return load_over(window_points(attempt)) if attempt is not None else {}
