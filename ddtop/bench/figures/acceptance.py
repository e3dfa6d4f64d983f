"""Acceptance length: tokens emitted per verification step (1 = speculation gains nothing), with its source. Pure.

Exact sources come first, in the order of docs/measuring.md; log lines are the last resort and are marked so. "Accept
rate" is never used: it changed its meaning between SGLang versions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ALWAYS = 0.95  # first tokens come from the prompt's pass, so not even a drafter of every step gives all
VLLM_EACH = "vllm per request"
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Acceptance:
    """`length` with `source`; `exact` is False for log lines and estimates. `per_position`: share of steps in which the
    draft at that position was accepted. `histogram`: steps by number of accepted drafts. `problems`: what
    `judge.sanity.acceptance_problems` found in `length`."""

    length: float
    source: str
    exact: bool
    tokens: float | None = None
    steps: float | None = None
    per_position: tuple[float, ...] = ()
    histogram: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()
    others: Mapping[str, float] = field(default_factory=dict)

    def as_metrics(self) -> dict[str, Any]:
        """As the `acceptance` metric of a cell."""
        out: dict[str, Any] = {"source": self.source, "exact": self.exact}
        for key in ("tokens", "steps"):
            if getattr(self, key) is not None:
                out[key] = getattr(self, key)
        if self.per_position:
            out["per_position"] = list(self.per_position)
        if self.histogram:
            out["histogram"] = list(self.histogram)
        if self.problems:
            out["problems"] = list(self.problems)
        if self.others:
            out["others"] = dict(self.others)
        return out


def counter_deltas(counters: dict[str, Any] | None) -> dict[str, float]:
    """{series: increase} from a result's counters; a series that fell (the server restarted) makes all of it {}."""
    if not counters:
        return {}
    before, after = counters.get("before", {}).get("values"), counters.get("after", {}).get("values")
    if before is None or after is None:
        return {}
    deltas: dict[str, float] = {}
    for name, value in after.items():
        step = value - before.get(name, 0.0)
        if not math.isfinite(step):
            continue  # a series may say NaN of itself
        if step < 0 and name.partition("{")[0].endswith(("_total", "_count", "_sum")):
            return {}
        deltas[name] = step
    return deltas


def total(deltas: Mapping[str, float], *names: str) -> float | None:
    """The sum over all labels (DP ranks, engines) of the first family of `names` that is there."""
    for name in names:
        found = [value for series, value in deltas.items() if series.partition("{")[0] == name]
        if found:
            return sum(found)
    return None


def from_sglang_counters(deltas: Mapping[str, float]) -> Acceptance | None:
    """Δgeneration_tokens_total / Δspec_verify_calls_total."""
    tokens = total(deltas, "sglang:generation_tokens_total", "sglang_generation_tokens_total")
    steps = total(deltas, "sglang:spec_verify_calls_total", "sglang_spec_verify_calls_total")
    if not tokens or not steps:
        return None
    return Acceptance(tokens / steps, "sglang counters", True, tokens, steps)


def from_requests(records: Iterable[Mapping[str, Any]]) -> Acceptance | None:
    """Σ completion tokens / Σ verification steps over ok requests that report them (SGLang meta_info or
    spec_tokens_details: spec_verify_ct; vLLM metrics.speculative_decoding: num_spec_steps)."""
    tokens = steps = 0.0
    histogram: list[int] = []
    source = ""
    for record in records:
        spec = record.get("spec")
        if record.get("class") != "ok" or not spec or not record.get("tokens"):
            continue
        count = spec.get("spec_verify_ct")
        if count:
            source, tokens, steps = "sglang per request", tokens + record["tokens"], steps + count
            _add(histogram, spec.get("spec_correct_drafts_histogram") or spec.get("spec_accept_histogram"))
        elif _of_vllm(record):
            count = spec["num_spec_steps"]
            source = VLLM_EACH
            tokens += count + spec.get("num_accepted_draft_tokens", 0)
            steps += count
            _add(histogram, spec.get("acceptance_histogram"))
    if not steps:
        return None
    return Acceptance(tokens / steps, source, True, tokens, steps, per_position(histogram), tuple(histogram))


def _of_vllm(record: Mapping[str, Any]) -> bool:
    """An ok request of which vLLM says its steps with a draft, be it none (`num_spec_steps` 0)."""
    spec = record.get("spec") or {}
    return record.get("class") == "ok" and bool(record.get("tokens")) and "num_spec_steps" in spec


def _add(histogram: list[int], more: Any) -> None:
    if not isinstance(more, list) or not all(isinstance(one, (int, float)) for one in more):
        return
    histogram.extend([0] * (len(more) - len(histogram)))
    for place, count in enumerate(more):
        histogram[place] += int(count)


def per_position(histogram: Sequence[int]) -> tuple[float, ...]:
    """Steps by number of accepted drafts → share of steps in which position 1, 2, … was accepted."""
    steps = sum(histogram)
    if not steps:
        return ()
    return tuple(sum(histogram[place:]) / steps for place in range(1, len(histogram)))


def from_draft_counters(deltas: Mapping[str, float], engine: str) -> Acceptance | None:
    """1 + Δaccepted / Δdrafts, by the counters that vLLM and llama.cpp (`engine` vllm, llamacpp) both have."""
    family = f"{engine}:spec_decode_num_"
    drafts = total(deltas, family + "drafts_total", family + "drafts")
    accepted = total(deltas, family + "accepted_tokens_total", family + "accepted_tokens")
    if not drafts or accepted is None:
        return None
    positions: dict[int, float] = {}
    for series, value in deltas.items():
        name, _, labels = series.partition("{")
        if name.removesuffix("_total") == family + "accepted_tokens_per_pos":
            place = dict(LABEL.findall(labels)).get("position", "")
            if place.isdigit():
                positions[int(place)] = positions.get(int(place), 0.0) + value
    shares = tuple(positions[place] / drafts for place in sorted(positions))
    return Acceptance(1 + accepted / drafts, f"{engine} counters", True, accepted + drafts, drafts, shares)


def drafted_share(found: Acceptance, raw: Mapping[str, Any]) -> dict[str, float]:
    """{drafted_share, overall_length} where a drafter did not draft in every step (n-grams, say): the share of the
    tokens that came from steps with a draft, and tokens a step over all steps. {} where it always did, or is not known.
    """
    if found.source == VLLM_EACH:
        every = sum(record["tokens"] for record in raw.get("requests") or () if _of_vllm(record))
    elif found.source in ("vllm counters", "llamacpp counters"):
        every = total(
            counter_deltas(raw.get("counters")),
            "vllm:generation_tokens_total",
            "llamacpp:tokens_predicted_total",
        )
    else:
        return {}  # SGLang counts every step
    if not every or not found.tokens or found.steps is None or found.tokens >= ALWAYS * every:
        return {}
    accepted = found.tokens - found.steps
    return {"drafted_share": found.tokens / every, "overall_length": every / (every - accepted)}


def from_llamacpp_timings(records: Iterable[Mapping[str, Any]]) -> Acceptance | None:
    """Σ (predicted_n − 1) / Σ (predicted_n − 1 − draft_n_accepted): the first token comes from the prompt's own pass, and
    an accepted draft token costs no step of its own. Steps that drafted nothing count as steps of length 1."""
    tokens = steps = 0.0
    for record in records:
        timings = record.get("timings") or {}
        predicted, accepted = timings.get("predicted_n"), timings.get("draft_n_accepted")
        if record.get("class") == "ok" and predicted and accepted is not None and timings.get("draft_n"):
            tokens += predicted - 1
            steps += predicted - 1 - accepted
    return Acceptance(tokens / steps, "llama.cpp timings", True, tokens, steps) if steps > 0 else None


def from_log(lines: Sequence[tuple[float, float]]) -> Acceptance | None:
    """The last resort: (length, weight) of log lines inside the cell, weight = running requests × steps (SGLang) or
    drafts (vLLM). Lines run across workloads, and the first one after idle must be left out by the caller."""
    good = [(length, weight) for length, weight in lines if math.isfinite(length) and weight > 0]
    weight = sum(one for _, one in good)
    if not weight:
        return None
    return Acceptance(sum(length * one for length, one in good) / weight, "log lines", False)


def acceptance(raw: Mapping[str, Any], *, log: Sequence[tuple[float, float]] = ()) -> Acceptance | None:
    """The acceptance length by the best source of a result, with what the other sources say. None where no source has one."""
    deltas = counter_deltas(raw.get("counters"))
    records = raw.get("requests") or []
    found = [
        from_sglang_counters(deltas),
        from_requests(records),
        from_draft_counters(deltas, "vllm"),
        from_draft_counters(deltas, "llamacpp"),
        from_llamacpp_timings(records),
        from_log(log),
    ]
    good = [one for one in found if one is not None]
    if not good:
        return None
    best = good[0]
    # Take the positions from another source if it has them and its length agrees within 5%.
    shape = next((one for one in good if one.per_position), best)
    near = abs(shape.length - best.length) <= 0.05 * best.length
    return Acceptance(
        best.length,
        best.source,
        best.exact,
        best.tokens,
        best.steps,
        best.per_position or (shape.per_position if near else ()),
        best.histogram or (shape.histogram if near else ()),
        others={one.source: one.length for one in good[1:]},
    )


def duplicates(effective: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Configurations whose effective arguments are equal although their names differ (the engine overrode what made
    them different, as DFLASH forces top-k 1): groups of names; their cells are repeats of one another."""
    groups: dict[str, list[str]] = {}
    for name, arguments in effective.items():
        key = repr(sorted((key, repr(value)) for key, value in arguments.items()))
        groups.setdefault(key, []).append(name)
    return [tuple(names) for names in groups.values() if len(names) > 1]
