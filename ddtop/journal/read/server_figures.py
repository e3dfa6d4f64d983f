"""What the server said of its load over one cell, in a few numbers. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import compress
from typing import Any

from ddtop.journal.fold.series import FigureSeries
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


def load_over(figures: FigureSeries, window_mono_s: tuple[float, float] | None = None) -> dict[str, Any]:
    """{n, running {mean, max}, queued {…}, kv_pct {…}, power_w {…}, prefix_hit_pct} of the readings within a window by the
    host's monotonic clock (None: of all): the prefix cache's share is of all prompt tokens. What the server never said is
    absent; {} without a reading."""
    inside = [True] * len(figures)
    if window_mono_s is not None:
        begin, end = window_mono_s
        inside = [at is not None and begin <= at <= end for at in figures.column("host_mono_s")]

    def column(name: str) -> Iterable[float | None]:
        return compress(figures.column(name), inside)

    if not any(inside):
        return {}
    out: dict[str, Any] = {"n": sum(inside)}
    for name in ("running", "queued", "kv_pct", "power_w"):
        values = [v for v in column(name) if v is not None and math.isfinite(v)]
        if values:
            out[name] = {"mean": sum(v / len(values) for v in values), "max": max(values)}
    asked = [(hit, n) for hit, n in zip(column("prefix_hit_pct"), column("prompt_tokens"), strict=True) if n]
    tokens = sum(n for hit, n in asked if hit is not None)
    if tokens:
        found = sum(hit * n for hit, n in asked if hit is not None)
        share = found / tokens
        if math.isfinite(share):  # absurd counters overflow
            out["prefix_hit_pct"] = share
    return out


def load_of(cell: CellView) -> dict[str, Any]:
    """`load_over` the window of a cell's measured try (all of it while the window is not known); {} where nothing was read."""
    attempt = measured_attempt(cell)
    return load_over(attempt.figures, attempt.window_mono_s) if attempt is not None else {}
