"""Figures of vLLM's statistics and SpecDecoding lines. Each line is a window: lengths are weighted by its drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddtop.sources.figures.line_table import RunLine, mean


def _numbers(facts: Sequence[RunLine], key: str) -> list[Any]:
    return [f.values[key] for f in facts if f.values.get(key) is not None]


def vllm_figures(facts: Sequence[RunLine]) -> dict[str, Any]:
    """Figures of the statistics and SpecDecoding lines: throughput, KV cache usage, acceptance length and rate."""
    stats = [f for f in facts if f.kind == "stats"]
    spec = [f for f in facts if f.kind == "spec"]
    found: dict[str, Any] = {"engine": "vllm", "lines": len(stats) + len(spec)}
    if stats:
        found["gen_tps"] = _numbers(stats, "gen_tps")
        busy = [g for f in stats if (g := f.values.get("gen_tps")) and (f.values.get("running") or g)]
        if busy:
            found["gen_tps_mean"] = mean(busy)
        found["prompt_tps"] = _numbers(stats, "prompt_tps")
        if usage := _numbers(stats, "kv_usage_pct"):
            found["kv_usage_pct"] = usage
        for key in ("running", "queued"):
            if stats[-1].values.get(key) is not None:
                found[key] = stats[-1].values[key]
        engines = {f.values.get("engine", 0) for f in stats}
        if len(engines) > 1:
            newest = {f.values.get("engine", 0): f.values for f in stats}
            found["gen_tps_sum_over_ranks"] = round(sum(v.get("gen_tps") or 0 for v in newest.values()), 4)
            found["running_total"] = sum(int(v.get("running") or 0) for v in newest.values())
    if spec:
        _spec(found, spec)
    return found


def _spec(found: dict[str, Any], spec: Sequence[RunLine]) -> None:
    active = [f for f in spec if f.values.get("drafted")]
    lengths = _numbers(active, "accept_len")
    if lengths:
        found["accept_len"] = lengths
        found["accept_len_unweighted"] = mean(lengths)
        found["accept_len_mean"] = found["accept_len_unweighted"]
    if not active:
        return
    for key in ("accepted", "drafted", "draft_rate_pct", "per_pos"):
        if values := _numbers(active, key):
            found[key] = values
    sizes = {f.values.get("positions") or f.values.get("spec_tokens") for f in active} - {None}
    if len(sizes) == 1:
        _drafts(found, active, int(next(iter(sizes)) or 0), lengths)
    windows = [
        f.values["accepted"] / f.values["accepted_tps"]
        for f in active
        if f.values.get("accepted_tps") and f.values.get("accepted")
    ]
    if windows:
        found["window_s"] = round(sum(windows) / len(windows))


def _drafts(found: dict[str, Any], active: Sequence[RunLine], size: int, lengths: Sequence[float]) -> None:
    """Drafts of each window, and the acceptance length weighted by them.

    V0 (with `Number of emitted tokens`) counts from the start, and counts accepted tokens behind a rejected one too:
    there the emitted tokens over the drafts are the length, and the last line is the whole.
    """
    found["spec_tokens"] = size
    if any(f.values["drafted"] % size for f in active) or not all("accepted" in f.values for f in active):
        pairs = [(f.values.get("accepted"), f.values.get("accept_len")) for f in active]
        steps = [(a, a / (length - 1)) for a, length in pairs if a and length and length > 1]
        if steps and len(steps) == len(active):
            found["accept_len_weighted"] = round(1 + sum(a for a, _ in steps) / sum(d for _, d in steps), 4)
        return
    drafts = [f.values["drafted"] // size for f in active]
    found["drafts"] = drafts
    if all("emitted" in f.values for f in active):
        found["accept_len"] = [round(f.values["emitted"] / d, 4) for f, d in zip(active, drafts, strict=True)]
        found["accept_len_weighted"] = found["accept_len"][-1]
        found["cumulative"] = True
        return
    found["accept_len_weighted"] = round(1 + sum(f.values["accepted"] for f in active) / sum(drafts), 4)
    if not lengths:
        found["accept_len"] = [
            round(1 + f.values["accepted"] / d, 4) for f, d in zip(active, drafts, strict=True)
        ]
