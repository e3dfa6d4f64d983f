"""The spread between starts, pooled over configurations, and the interval of a value.

A result is a list of starts, each a list of its repeats. Its value is the mean of the starts' means. Noise of servers
is relative (1% of 100 and of 1,000 tok/s alike), so spreads are of logarithms: 0.01 is 1%. One spread is pooled over
all configurations of a load, because two or three starts of one alone say next to nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ddtop.stats.student import quantile

Starts = Sequence[Sequence[float]]
"""One result: of each start the figures of its repeats."""
Basis = Literal["starts", "inside"]
"""What a spread is of: between starts, or between repeats inside one start only."""
LEVEL = 0.95
MOST_HALF = 300.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Relative standard deviation of one sample, with its degrees of freedom. `basis` None: no spread to judge by."""

    basis: Basis | None = None
    sd: float = 0.0
    freedom: int = 0

    def error(self, starts: Starts) -> float:
        """Relative standard error of a result's value."""
        return self.sd / math.sqrt(len(samples(starts, self.basis)))

    def half_width(self, count: int) -> float | None:
        """Half the relative 95% interval of a value of `count` samples; None without a spread."""
        if self.basis is None or not count:
            return None
        return quantile(LEVEL, self.freedom) * self.sd / math.sqrt(count)


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a result, with its 95% interval where there is a spread to judge by."""

    value: float
    low: float | None
    high: float | None
    n: int
    """Measurements."""
    starts: int


def mean(starts: Starts) -> float:
    """The mean of the starts' means. Raises ZeroDivisionError on none."""
    return math.fsum(math.fsum(s) / len(s) for s in starts) / len(starts)


def samples(starts: Starts, basis: Basis | None) -> list[float]:
    """What the spread of this basis is of: the starts' means, or every repeat."""
    return [math.fsum(s) / len(s) for s in starts] if basis == "starts" else [x for s in starts for x in s]


def pooled(results: Iterable[Starts]) -> Spread:
    """The spread of `results` of one load: between starts where any has two, else inside the one start they have.

    None of it where a figure is not positive: its logarithm does not exist.
    """
    known = [r for r in results if r]
    if any(x <= 0 or not math.isfinite(x) for r in known for s in r for x in s):
        return Spread()
    basis: Basis = "starts" if any(len(r) > 1 for r in known) else "inside"
    squares, freedom = 0.0, 0
    for result in known:
        logs = [math.log(x) for x in samples(result, basis)]
        centre = math.fsum(logs) / len(logs)
        squares += math.fsum((x - centre) ** 2 for x in logs)
        freedom += len(logs) - 1
    return Spread(basis, math.sqrt(squares / freedom), freedom) if freedom else Spread()


def combined(spreads: Iterable[Spread]) -> Spread:
    """One spread between starts from those of several loads or runs, each by its degrees of freedom."""
    known = [s for s in spreads if s.basis == "starts"]
    freedom = sum(s.freedom for s in known)
    if not freedom:
        return Spread()
    return Spread("starts", math.sqrt(math.fsum(s.freedom * s.sd**2 for s in known) / freedom), freedom)


def around(value: float, half: float) -> tuple[float, float]:
    """The interval of a positive value whose logarithm is known to ± `half`; absurd figures give a wide one, no overflow."""
    factor = math.exp(min(half, MOST_HALF))
    return value / factor, value * factor


def value_of(starts: Starts, spread: Spread) -> Value | None:
    """The value of a result and its interval; None where there is no measurement."""
    if not starts:
        return None
    value, count = mean(starts), sum(len(s) for s in starts)
    half = spread.half_width(len(samples(starts, spread.basis)))
    if half is None:
        return Value(value, None, None, count, len(starts))
    return Value(value, *around(value, half), count, len(starts))
