"""Which configuration to run at which concurrency, from the curves of one load. Pure.

At a measured concurrency it is the best there (`journal/results/best.py`), or one that cannot be told apart from it. Between
them the fitted speed-ups of those without a doubt are interpolated; nothing is said outside of them, except that a baseline
that has taken the lead keeps it: a curve that falls does not rise again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ddtop.bench.worth.break_even import ratio_at
from ddtop.bench.worth.curves import Curve, Curves
from ddtop.bench.worth.sure import if_it_holds
from ddtop.journal.results.field import Best, Doubted
from ddtop.stats.differ import FLOOR


@dataclass(frozen=True, slots=True)
class Range:
    """Concurrencies `first` … `last` (None: and above) at which `config` is the one to run. `gain` is its fitted speed-up
    over the reference at both ends (None: its fit does not reach there); `shown`: the 95% interval shows it at every
    concurrency of the range (None: the reference itself, or no repeats to judge by)."""

    config: str
    first: int
    last: int | None
    gain: tuple[float | None, float | None]
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
        return "; ".join(["c " + " · ".join(one.words for one in self.ranges), *self.held])

    @property
    def held(self) -> tuple[str, ...]:
        """What reads better and is in doubt: `better if it holds: tiny at c 1, 8, SUSPECT: …`."""
        at: dict[str, list[int]] = {}
        doubted: dict[str, Doubted] = {}
        for c, best in self.curves.bests:
            for other in best.doubted:
                at.setdefault(other.config, []).append(c)
                doubted.setdefault(other.config, other)
        return tuple(if_it_holds(doubted[name], f"at c {_listed(cs)}") for name, cs in at.items())

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
        asked = run | {d.config for _, best in curves.bests for d in best.doubted}
        for c, best in curves.bests:
            if best.config not in run and any(one.first <= c <= (one.last or c) for one in self.ranges):
                out.append(f"at c {c} {best.config} reads best, {_why_not(best)}")
        out.extend(
            f"{one.config} gives other answers than {curves.reference}: see that they are as good before you run it"
            for one in curves.curves
            if one.config in asked and "answers-differ" in one.doubts
        )
        measured = {*curves.concurrencies, *(c for c, _ in curves.bests)}
        if any(one.first not in measured for one in self.ranges):
            out.append(
                f"measured at c {_listed(sorted(measured))} alone: between them the ranges are interpolated"
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
        measured = sorted({*curves.concurrencies, *(c for c, _ in curves.bests)})
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
    measured = sorted({*curves.concurrencies, *(c for c, _ in curves.bests)})
    whole = measured if len(measured) == 1 else range(measured[0], measured[-1] + 1)
    ranges: list[Range] = []
    holder, first, before = "", 0, 0
    bests = dict(curves.bests)
    for c in whole:
        best = _best_at(curves, bests[c], c, holder) if c in bests else _between(curves, bests, c, holder)
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


def _best_at(curves: Curves, best: Best, c: int, holder: str) -> str:
    """What to run where it was measured: the best there; the reference where no gain over it is shown or it gains less than
    the floor; else the one that has the lead already, where it cannot be told apart and loses less than the floor."""
    if best.verdict == "not shown" and curves.reference in best.among:
        return curves.reference or ""
    gains = _gains(curves, c)
    for kept in (curves.reference or "", holder):
        near = kept in best.alike and kept in gains
        if near and math.log(_value(best, gains) / gains[kept]) < math.log1p(curves.floor):
            return kept
    return best.config


def _value(best: Best, gains: Mapping[str, float]) -> float:
    """The speed-up of the best: as measured, since a fit may not be on it."""
    if best.field.speedup:
        return best.field.speedup
    return gains.get(best.config, 1.0)


def _between(curves: Curves, bests: Mapping[int, Best], c: int, holder: str) -> str:
    """The fastest at a concurrency that was not measured, of those without a doubt at both its neighbours: the reference
    where nothing gains the floor over it, else the one that has the lead already where nothing gains the floor over that.
    Where repeats could show a gain and show none anywhere, there is none to run for."""
    near = [max((n for n in bests if n < c), default=None), min((n for n in bests if n > c), default=None)]
    known = [set(bests[n].among) for n in near if n is not None]
    judged = {one.config for one in curves.curves if one.found.lo is not None or not _judged(one)}
    gains = {
        name: gain
        for name, gain in _gains(curves, c).items()
        if all(name in mine for mine in known) and (name in judged or name == curves.reference)
    }
    if not gains:
        return holder or curves.reference or ""
    best = max(gains, key=lambda name: gains[name])
    for kept in (curves.reference or "", holder):
        if kept in gains and math.log(gains[best] / gains[kept]) < math.log1p(curves.floor):
            return kept
    return best


def _gains(curves: Curves, c: int) -> dict[str, float]:
    """The fitted speed-ups at a concurrency, the reference's among them."""
    fits = {one.config: ratio_at(one.found.fit, c) for one in curves.curves}
    return {curves.reference or "": 1.0, **{name: gain for name, gain in fits.items() if gain is not None}}


def _why_not(best: Best) -> str:
    """Why another is advised than what reads best somewhere."""
    if best.verdict == "not shown":
        return "and no gain over the baseline is shown"
    return "and cannot be told apart from what is advised there"


def _range(curves: Curves, config: str, first: int, last: int) -> Range:
    curve = next((one for one in curves.curves if one.config == config), None)
    if curve is None:
        return Range(config, first, last, (1.0, 1.0), None)
    fit = curve.found.fit
    gain = (ratio_at(fit, first), ratio_at(fit, last))
    sure = all(
        best.config == config and best.verdict == "gain" for c, best in curves.bests if first <= c <= last
    )
    return Range(
        config, first, last, gain, sure and last <= (curve.found.lo or 0) if _judged(curve) else None
    )


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
