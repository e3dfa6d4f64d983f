"""The pictures that ddtop draws: of each its axes, what its series are, and how it is read."""

from __future__ import annotations

from typing import NamedTuple

VARIABLE = "variable"
"""Stands for the first number that the plan varies between its configurations: draft tokens, a tree's budget."""


class Picture(NamedTuple):
    """One kind of picture. `x` are tried in order until one has points."""

    title: str
    x: tuple[str, ...]
    y: tuple[str, ...]
    """Several y are series of the same axis: a median and its tail."""
    note: str = ""


LOADS = ("concurrency", "rate")
SEARCH = "search"
"""The picture of searches: its y are of the loads tried, not of fields."""
PICTURES = {
    "throughput": Picture("Throughput", LOADS, ("output_tok_s",), "all streams together"),
    "speedup": Picture("Speed-up", LOADS, ("speedup",), "above 1 is faster than the baseline"),
    "ttft": Picture("Time to first token", LOADS, ("ttft_ms.p50", "ttft_ms.p99")),
    "tpot": Picture("Time per output token", LOADS, ("tpot_ms.p50", "tpot_ms.p99")),
    "budget": Picture("Throughput", (VARIABLE,), ("output_tok_s",)),
    "acceptance": Picture("Acceptance length", (VARIABLE,), ("acceptance_length",)),
    "pareto": Picture(
        "Per GPU and per user",
        ("tok_s_user",),
        ("tok_s_gpu",),
        "right and up is better; dashed: the front; hollow: another is better in both",
    ),
    "energy": Picture("Throughput and energy", ("j_per_token",), ("output_tok_s",), "left and up is better"),
    SEARCH: Picture("Search for the knee", LOADS, ("share",), "hollow: the load was too high"),
}
"""By the name that `--what` takes, in the order of the keys."""
