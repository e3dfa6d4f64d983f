"""Which configuration to run at which concurrency, from the curves of one load. Pure.

Between measured concurrencies the fitted speed-ups are interpolated; nothing is said outside of them, except that a
baseline that has taken the lead keeps it: a curve that falls does not rise again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddtop.bench.worth.break_even import ratio_at
from ddtop.bench.worth.curves import Curve, Curves
from ddtop.stats.differ import FLOOR


@dataclass(frozen=True, slots=True)
class Range:
    """Concurrencies `first` … `last` (None: and above) at which `config` is the one to run. `gain` is its fitted speed-up
    over the reference at both ends; `shown`: the 95% interval shows it at every concurrency of the range (None: the
    reference itself, or no repeats to judge by)."""

    config: str
    first: int
    last: int | None
    gain: tuple[float, float]
    shown: bool | None

    @property
    def words(self) -> str:
        if self.last is None:
            return f"from {self.first}: {self.config}"
        if self.last == self.first:
            return f"{self.first}: {self.config}"
        return f"{self.first}–{self.last}: {self.config}"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to run under one load. No ranges where nothing was measured."""

    curves: Curves
    ranges: tuple[Range, ...]

    @property
    def words(self) -> str:
        """`c 1–6: b32 · 7–14: b15 · from 15: auto`; says so where nothing is known."""
        if not self.ranges:
            return f"not known: {self.curves.why or 'nothing is measured under this load'}"
        return "c " + " · ".join(one.words for one in self.ranges)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why: one line a configuration, then what the ranges rest on."""
        curves = self.curves
        if curves.reference is None:
            return ()
        out = [f"{one.config}: {_reason(one)}" for one in curves.curves]
        if curves.doubts:
            out.insert(0, f"{curves.reference}: ratios are to it; SUSPECT: {', '.join(curves.doubts)}")
        run = {one.config for one in self.ranges}
        out.extend(
            f"{one.config} gives other answers than {curves.reference}: see that they are as good before you run it"
            for one in curves.curves
            if one.config in run and "answers-differ" in one.doubts
        )
        if curves.floor > FLOOR:
            out.append(
                f"the baseline differs from itself by up to {curves.floor:.1%}: smaller gains do not count"
            )
        if curves.inside:
            out.append("intervals are by the spread inside one start only: starts may differ by more")
        return tuple(out)

    @property
    def not_measured(self) -> tuple[str, ...]:
        """What was not measured, and where nothing is therefore said."""
        out: list[str] = []
        curves = self.curves
        if curves.reference is not None and curves.reference != curves.baseline:
            out.append(curves.why)
        rows = [(curves.reference, curves.missing), *((c.config, c.missing) for c in curves.curves)]
        for config, missing in rows:
            by_why: dict[str, list[int]] = {}
            for c, why in missing:
                by_why.setdefault(why, []).append(c)
            out.extend(f"{config} at c {_listed(cs)}: {why}" for why, cs in by_why.items())
        measured = curves.concurrencies
        if len(measured) == 1:
            out.append(f"c {measured[0]} alone is measured: nothing is known of any other concurrency")
        elif self.ranges:
            if measured[0] > 1:
                out.append(f"below c {measured[0]}")
            if self.ranges[-1].last is not None:
                out.append(f"above c {measured[-1]}")
        return tuple(out)


def advise(curves: Curves) -> Advice:
    """The ranges of one load. A configuration takes over only where it is faster by `curves.floor` or more."""
    if curves.reference is None or not curves.concurrencies:
        return Advice(curves, ())
    whole = (
        curves.concurrencies
        if len(curves.concurrencies) == 1
        else range(curves.concurrencies[0], curves.concurrencies[-1] + 1)
    )
    ranges: list[Range] = []
    holder, first, before = "", 0, 0
    for c in whole:
        best = _best(curves, c, holder)
        if best != holder:
            if holder:
                ranges.append(_range(curves, holder, first, before))
            holder, first = best, c
        before = c
    ranges.append(_range(curves, holder, first, before))
    last = ranges[-1]
    if last.config == curves.baseline and _has_taken_the_lead(curves):
        ranges[-1] = Range(last.config, last.first, None, last.gain, last.shown)
    return Advice(curves, tuple(ranges))


def _has_taken_the_lead(curves: Curves) -> bool:
    """Whether the last measured points show that the reference leads from there on: one of them at the highest concurrency,
    and no configuration whose gain was never seen to end."""
    at_end = any(one.measured[-1:] == curves.concurrencies[-1:] for one in curves.curves)
    ends = [one.found.fit[-1].ratio for one in curves.curves if one.found.fit]
    return at_end and len(curves.concurrencies) > 1 and all(ratio < 1 + curves.floor for ratio in ends)


def _best(curves: Curves, c: int, holder: str) -> str:
    """The fastest at `c`: the reference where nothing gains the floor over it, else the one that has the lead already where
    nothing gains the floor over that. Where repeats could show a gain and show none anywhere, there is none to run for."""
    reference = curves.reference or ""
    gains = {reference: 1.0}
    for curve in curves.curves:
        gain = ratio_at(curve.found.fit, c)
        if gain is not None and (curve.found.lo is not None or not _judged(curve)):
            gains[curve.config] = gain
    best = max(gains, key=lambda name: gains[name])
    for kept in (reference, holder):
        if kept in gains and math.log(gains[best] / gains[kept]) < math.log1p(curves.floor):
            return kept
    return best


def _range(curves: Curves, config: str, first: int, last: int) -> Range:
    curve = next((one for one in curves.curves if one.config == config), None)
    if curve is None:
        return Range(config, first, last, (1.0, 1.0), None)
    fit = curve.found.fit
    gain = (ratio_at(fit, first) or math.nan, ratio_at(fit, last) or math.nan)
    return Range(config, first, last, gain, last <= (curve.found.lo or 0) if _judged(curve) else None)


def _judged(curve: Curve) -> bool:
    """Whether there are repeats to judge its speed-ups by."""
    return any(p.low is not None for p in curve.found.fit)


def _reason(curve: Curve) -> str:
    found = curve.found
    points = ", ".join(
        f"c {p.concurrency} {p.ratio:.2f}×" + (f" [{p.low:.2f}–{p.high:.2f}]" if p.low and p.high else "")
        for p in found.fit
    )
    parts = [found.words + (f" ({found.why})" if found.why else ""), points]
    if curve.doubts:
        parts.append(f"SUSPECT: {', '.join(curve.doubts)}")
    return "; ".join(part for part in parts if part)


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(n) for n in numbers)
