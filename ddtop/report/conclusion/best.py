"""The best configuration under each load as words, rows and values. Which it is: `journal/results/best.py`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.bench.worth.sure import against_words, doubts, if_it_holds, standing_of
from ddtop.journal.read.select import DEFAULT_METRIC
from ddtop.journal.results.best import LATENCY, load_words
from ddtop.journal.results.field import Best, Place
from ddtop.report.conclusion.words import times
from ddtop.report.text import number
from ddtop.stats.differ import Comparison
from ddtop.words import many

TITLE = "Best configuration for each load"
MOST = 6
"""Loads that are named; the rest is counted."""
UNITS = {DEFAULT_METRIC: "tok/s", LATENCY: "ms median latency"}


def best_text(one: Best, places: Sequence[Place], baseline: str | None = None) -> str:
    """One load's best in a line: `fib@256 c8: b15 ☆ 182.9 tok/s, 3.80×; reads best, not sure: …`."""
    star = "" if one.verdict == "alone" else f" {one.star}"
    ratio = f", {times(one.gain)} {baseline or ''}".rstrip() if one.gain is not None else ""
    parts = [
        f"{load_words(one.place, [one.load], places)}: {one.config}{star} {value_words(one)}{ratio}",
        standing_of(one).brief,
        *(if_it_holds(d, times_of(d.ratio)) for d in one.doubted),
    ]
    return "; ".join(parts)


def best_lines(found: Sequence[Best], baseline: str | None, most: int = MOST) -> list[str]:
    """The best of each load in a line each; from `most` on they are counted."""
    places = [one.place for one in found]
    more = len(found) - most
    lines = [best_text(one, places, baseline) for one in found[:most]]
    return [*lines, *([f"and {many(more, 'load')} more: ddtop report"] if more > 0 else [])]


def value_words(one: Best) -> str:
    """The value of a best with what it is: `182.9 tok/s`; of a search `at most 5 within the limits`."""
    if one.metric == "knee":
        return f"at most {number(one.field.value or 0.0)} within the limits"
    return f"{number(one.field.value or 0.0)} {UNITS.get(one.metric, one.metric)}"


def times_of(ratio: float | None) -> str:
    """A ratio without an interval; empty where there is none."""
    return times(Comparison(None, ratio))


def best_rows(found: Sequence[Best]) -> list[list[str]]:
    """Header and a row for each load; empty without a result to compare."""
    if not any(one.verdict != "alone" for one in found):
        return []
    places = [one.place for one in found]
    head = ["load", "best", "value", "× baseline [95% interval]", "to the baseline", "of all", "in doubt"]
    rows = [head, *(_row(one, places) for one in found)]
    used = [n for n in range(len(head)) if any(row[n] for row in rows[1:])]
    return [[row[n] for n in used] for row in rows]


def _row(one: Best, places: Sequence[Place]) -> list[str]:
    found = doubts(one.field, None) if one.verdict != "alone" or one.field.validity == "SUSPECT" else []
    why = [": ".join(part for part in pair if part) for pair in found]
    why += [if_it_holds(d, times_of(d.ratio)) for d in one.doubted]
    return [
        load_words(one.place, [one.load], places),
        one.config if one.verdict == "alone" else f"{one.star} {one.config}",
        value_words(one),
        times(one.gain),
        against_words(one),
        standing_of(one).brief if one.verdict != "alone" else "",
        "; ".join(why),
    ]


def best_json(found: Sequence[Best]) -> list[dict[str, Any]]:
    """For programs; what is not known is null. A ratio above 1 is better, of latencies too."""
    return [
        {
            **one.place._asdict(),
            "load": one.load.load_name,
            "metric": one.metric,
            "config": one.config,
            "value": one.field.value,
            "verdict": one.verdict,
            "sure": one.sure,
            **_ratio(one.gain),
            "spread": one.field.basis,
            "n": one.field.n,
            "starts": one.field.starts,
            "alike": list(one.alike),
            "suspect": list(one.suspect),
            "doubted": [
                {"config": d.config, "ratio": d.ratio, "suspect": list(d.reasons), "unlike": d.unlike or None}
                for d in one.doubted
            ],
        }
        for one in found
    ]


def _ratio(one: Comparison | None) -> Mapping[str, float | None]:
    if one is None:
        return dict.fromkeys(("ratio", "low", "high"))
    return {"ratio": one.ratio, "low": one.low, "high": one.high}
