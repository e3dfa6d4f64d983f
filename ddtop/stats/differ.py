"""Whether results differ: ratios with 95% intervals, and Holm's rule over the configurations that are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ddtop.stats.spread import Basis, Spread, Starts, around, mean, samples
from ddtop.stats.student import quantile, two_sided

FLOOR = 0.01
"""A difference below 1% does not matter, however small the spread."""
RISK = 0.05
"""The chance that any of the configurations compared at one load is called different where none is."""
ONCE = "one side was measured once: nothing shows whether its figure holds"
MOST_MORE = 30
"""So many more samples are not worth naming: the answer is then "no"."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio` = value ÷ reference's, with a 95% interval [low, high] (None without a spread). `different` is None where
    there is nothing to judge by, or where one side was measured once: the others' spread says nothing of a mishap in that
    one. True also means that it holds for all configurations compared at once."""

    different: bool | None
    ratio: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""
    basis: Basis | None = None
    sd: float = 0.0
    """The relative spread that it was judged by."""
    freedom: int = 0
    counts: tuple[int, int] = (0, 0)
    """Samples of the reference and of the result: starts, or repeats where `basis` is `inside`."""
    among: int = 1
    """Configurations that were compared at once."""

    def turned(self) -> Comparison:
        """The same as reference ÷ value, for a figure of which less is better: above 1 is better then too."""
        if not self.ratio:
            return replace(self, ratio=None, low=None, high=None)
        low = 1 / self.high if self.high else None
        high = 1 / self.low if self.low else None
        return replace(self, ratio=1 / self.ratio, low=low, high=high)


def samples_needed(one: Comparison, floor: float = FLOOR) -> int | None:
    """How many samples more of both sides would call this ratio different, at the same spread. None where none up to
    MOST_MORE would, where it is different already, or where there is no spread to say it by."""
    if one.different is not False or one.ratio is None or one.ratio <= 0 or not one.sd or not all(one.counts):
        return None
    if abs(one.ratio - 1) < floor:
        return None
    for more in range(1, MOST_MORE + 1):
        error = one.sd * math.sqrt(sum(1 / (count + more) for count in one.counts))
        if _risk(one.ratio, error, one.freedom + 2 * more) * one.among <= RISK:
            return more
    return None


def differences(
    reference: Starts, results: Mapping[str, Starts], spread: Spread, floor: float = FLOOR
) -> dict[str, Comparison]:
    """Each of `results` (by name) against `reference`, all of one load with one pooled spread.

    `floor`: what a ratio must differ from 1 by to matter, such as what the baseline differs from itself by.
    """
    risks: dict[str, float] = {}
    out: dict[str, Comparison] = {}
    for name, result in results.items():
        one = _ratio(reference, result)
        if one.ratio is not None and spread.basis is not None:
            error = math.hypot(spread.error(reference), spread.error(result))
            half = quantile(1 - RISK, spread.freedom) * error
            low, high = around(one.ratio, half)
            sizes = (len(samples(reference, spread.basis)), len(samples(result, spread.basis)))
            if min(sizes) > 1:
                risks[name] = _risk(one.ratio, error, spread.freedom)
            one = Comparison(
                *(None, one.ratio, low, high, ONCE, spread.basis),
                *(spread.sd, spread.freedom, sizes),
            )
        out[name] = one
    for name, risk in holm(risks).items():
        out[name] = _judged(out[name], risk, len(risks), max(floor, FLOOR))
    return out


def holm(risks: Mapping[str, float]) -> dict[str, float]:
    """p-values → p-values that hold for all of them at once (Holm 1979).

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    out: dict[str, float] = {}
    worst = 0.0
    for rank, (name, risk) in enumerate(sorted(risks.items(), key=lambda item: item[1])):
        worst = max(worst, min(1.0, (len(risks) - rank) * risk))
        out[name] = worst
    return out


def _ratio(reference: Starts, result: Starts) -> Comparison:
    if not reference or not result:
        return Comparison(None, None, why="no measurement on one side")
    if mean(reference) == 0:
        return Comparison(None, None, why="the reference is zero: no ratio")
    return Comparison(
        None, mean(result) / mean(reference), why="one measurement on each side: no spread to judge by"
    )


def _risk(ratio: float, error: float, freedom: int) -> float:
    shift = abs(math.log(ratio)) if ratio > 0 else math.inf
    if error == 0:
        return 1.0 if shift == 0 else 0.0
    return two_sided(shift / error, freedom)


def _judged(one: Comparison, risk: float, count: int, floor: float) -> Comparison:
    assert one.ratio is not None and one.low is not None and one.high is not None
    only = "; spread inside one start only" if one.basis == "inside" else ""
    different = risk <= RISK and abs(one.ratio - 1) >= floor
    if different:
        why = "different: the 95% interval of the ratio excludes 1"
    elif abs(one.ratio - 1) < floor:
        why = f"not different: less than {100 * floor:.3g}%"
    elif not one.low <= 1 <= one.high:
        why = f"not different: among {count} configurations a difference like this comes by chance"
    else:
        why = "not different: the 95% interval of the ratio includes 1"
    return replace(one, different=different, why=why + only, among=count)
