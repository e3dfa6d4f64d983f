"""The conclusion of one recording. Pure.

Nothing is claimed that the values of the matrix, their intervals and the break-evens do not carry; what is not known is
said to be unknown. Every form of report has these sentences.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddtop.bench.worth.sure import if_it_holds
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import DEFAULT_METRIC, tps
from ddtop.journal.results.best import LATENCY, load_words
from ddtop.journal.results.field import Best
from ddtop.journal.results.matrix import bests, matrix
from ddtop.report.conclusion.best import best_json
from ddtop.report.conclusion.doubts import doubt_sentence, doubts_of
from ddtop.report.conclusion.words import gains, names, reasons_words, tally
from ddtop.report.conclusion.worse import CLAUSES, Worse, worse_sentence, worse_than_baseline
from ddtop.report.text import number
from ddtop.stats.differ import Comparison, samples_needed
from ddtop.words import many


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Three sentences, and what they rest on."""

    baseline: str | None
    sentences: tuple[str, str, str]
    best: tuple[Best, ...]
    worse: tuple[Worse, ...]
    doubts: tuple[str, ...]
    """All of them; the third sentence names the gravest."""

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        return {
            "baseline": self.baseline,
            "sentences": list(self.sentences),
            "best": best_json(self.best),
            "does_not_pay": [
                {
                    "config": one.config,
                    "loads": list(one.loads),
                    "of": one.of,
                    "ratios": [c.ratio for c in one.ratios],
                    "shown": one.shown,
                    "suspect": one.suspect,
                    "break_even": one.until or None,
                }
                for one in self.worse
            ],
            "doubts": list(self.doubts),
        }


def conclude(state: State, baseline: str | None = None) -> Conclusion:
    """The conclusion of a recording, against `baseline` (else the plan's)."""
    against = baseline if baseline is not None else state.run.baseline
    views = [matrix(state, tp, baseline=against) for tp in tps(state)]
    found = tuple(bests(state, against))
    worse = tuple(worse_than_baseline(state, views, against))
    doubts = tuple(doubts_of(state, views, found, against))
    said = (
        best_sentence(state, found, against),
        worse_sentence(found, worse, against),
        doubt_sentence(doubts),
    )
    return Conclusion(against, said, found, worse, doubts)


def best_sentence(state: State, found: Sequence[Best], baseline: str | None) -> str:
    """The best configuration of each load with its interval; counted where a list would be no sentence."""
    if not state.plan_cells:
        return "Nothing is compared: this recording has no sweep."
    if not found:
        why = tally(state.plan_cells)
        return f"What is best is unknown: no cell has a result that counts{f' ({why})' if why else ''}."
    if all(one.verdict == "alone" for one in found):
        values = [one.field.value or 0.0 for one in found if one.metric == DEFAULT_METRIC]
        low, high = (number(v) for v in (min(values, default=0.0), max(values, default=0.0)))
        rate = (
            f", {low if low == high else f'{low} to {high}'} tok/s over {many(len(values), 'load')}"
            if values
            else ""
        )
        return f"Nothing is compared: no load has results of two configurations; {names(o.config for o in found)} alone{rate}."
    clauses = _clauses(found)
    if len(clauses) > CLAUSES:
        clauses = _counted(found)
    metrics = {one.metric for one in found}
    by = {frozenset({LATENCY}): "median latency", frozenset({"knee"}): "its knee"}.get(
        frozenset(metrics), "tok/s"
    )
    to = (
        f" (× is the ratio to {baseline})"
        if any(one.gain is not None or one.doubted for one in found)
        else ""
    )
    return f"Best by {by}{to}: {'; '.join(clauses)}{_intervals(found)}."


def _clauses(found: Sequence[Best]) -> list[str]:
    """One clause for each row of neighbouring loads with the same answer."""
    places = [one.place for one in found]
    out: list[str] = []
    for _, alike in itertools.groupby(found, key=_answer):
        group = list(alike)
        out.append(f"at {load_words(group[0].place, [one.load for one in group], places)} {_said(group)}")
    return out


def _answer(one: Best) -> tuple[object, ...]:
    others = tuple((d.config, d.reasons[:1]) for d in one.doubted)
    return one.place, one.metric, one.config, one.verdict, one.alike, one.suspect, others


def _said(group: Sequence[Best]) -> str:
    first = group[0]
    ratio = gains(one.gain for one in group)
    notes = [ratio] if ratio else []
    if first.suspect:
        notes.append(f"SUSPECT: {reasons_words(first.suspect)}")
    if first.alike and first.verdict != "not shown":
        notes.append(f"{names(first.alike)} cannot be told apart from it")
    if first.verdict == "no baseline":
        notes.append("the baseline is not measured there")
    for other in first.doubted:
        ratios = [Comparison(None, d.ratio) for one in group for d in one.doubted if d.config == other.config]
        notes.append(if_it_holds(other, gains(ratios)))
    note = f" ({'; '.join(notes)})" if notes else ""
    if first.verdict == "alone":
        return f"only {first.config} is measured{note}"
    needed = samples_needed(first.gain) if first.gain is not None and len(group) == 1 else None
    if first.verdict == "not shown" and needed:
        kind = "start" if first.field.basis == "starts" else "repeat"
        note = f"{note[:-1]}; {many(needed, f'more {kind}')} of both would show it)"
    if first.verdict == "not shown":
        return f"no gain is shown: {first.config} reads best{note}"
    return f"{first.config}{', the baseline' if first.verdict == 'baseline' else ''}{note}"


def _counted(found: Sequence[Best]) -> list[str]:
    """At how many loads each configuration is the best."""
    groups: dict[tuple[str, str], list[Best]] = {}
    for one in found:
        groups.setdefault(("" if one.verdict == "not shown" else one.config, one.verdict), []).append(one)
    out: list[str] = []
    for (config, verdict), mine in sorted(groups.items(), key=lambda item: -len(item[1])):
        ratio = gains(one.gain for one in mine if one.metric == DEFAULT_METRIC)
        at = f"at {len(mine)} of {many(len(found), 'load')}{_which(mine, found)}"
        if verdict == "not shown":
            out.append(f"no gain is shown {at}")
        elif verdict == "alone":
            out.append(f"only {config} is measured {at}")
        else:
            what = {
                "baseline": ", the baseline,",
                "single": "",
                "no baseline": " (without the baseline)",
            }.get(verdict, "")
            notes = [ratio] if ratio else []
            notes += ["SUSPECT"] if any(one.field.validity == "SUSPECT" for one in mine) else []
            notes += [f"better if it holds: {names(held)}"] if (held := _held(mine)) else []
            out.append(f"{config}{what} {at}" + (f" ({'; '.join(notes)})" if notes else ""))
    left = len(out) - CLAUSES - 1
    return out if left < 2 else [*out[: CLAUSES + 1], f"and {many(left, 'smaller group')}"]


def _held(found: Sequence[Best]) -> list[str]:
    """What reads better and is in doubt."""
    return list(
        dict.fromkeys(f"{d.config}, SUSPECT" if d.suspect else d.config for one in found for d in one.doubted)
    )


def _which(mine: Sequence[Best], found: Sequence[Best]) -> str:
    """Of loads that are counted, at which concurrency or rate they are, where that is not every one."""
    named = list(dict.fromkeys(one.load.load_name for one in mine))
    every = {one.load.load_name for one in found}
    return f", at {', '.join(named)}" if len(named) < len(every) and len(named) <= CLAUSES else ""


def _intervals(found: Sequence[Best]) -> str:
    """What the intervals are by, in words."""
    compared = [one for one in found if one.compared]
    if not compared:
        return ""
    bases = {one.field.basis for one in compared if one.field.low is not None}
    if not bases:
        return "; single runs, so no interval is known"
    if not any(one.gain is not None and one.gain.low is not None for one in compared):
        return ""
    names_of = (("starts", "between starts"), ("inside", "inside one start only"))
    by = " or ".join(word for basis, word in names_of if basis in bases)
    some = "; single runs where none is given" if any(o.gain and o.gain.low is None for o in compared) else ""
    return f"; […] is the 95% interval by the spread {by}{some}"
