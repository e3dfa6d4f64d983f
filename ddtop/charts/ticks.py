"""Round values for an axis, and where a value stands between them. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

Scale = Literal["linear", "log2", "log10"]
STEPS = (1.0, 2.0, 5.0)
TINY = 1e-300
"""A span below it has no scale: the quotient would be infinite."""


def ticks(
    low: float, high: float, most: int = 6, scale: Scale = "linear", *, whole: bool = False
) -> list[float]:
    """Values in steps of 1, 2 or 5 × a power of ten (log2: powers of two; log10: 1, 2, 5 of each decade), from at or below `low`
    to at or above `high` (but for rounding): two at least, `most` at most. `most` is 3 or more; on a log axis `low` is above 0. `whole`: what is counted has no halves between its ticks.

    >>> ticks(0, 183)
    [0.0, 50.0, 100.0, 150.0, 200.0]
    >>> ticks(1, 32, 6, "log2")
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    >>> ticks(3, 700, 4, "log10")
    [1.0, 10.0, 100.0, 1000.0]
    """
    if scale == "log2":
        return _powers(low, high, most)
    if scale == "log10":
        return _decades(low, high, most)
    return _linear(low, high, most, whole)


def _linear(low: float, high: float, most: int, whole: bool) -> list[float]:
    span, size = high - low, max(abs(low), abs(high))
    if not math.isfinite(span) or span <= max(TINY, 1e-12 * size):  # no room for a round number between them
        return [low, low + max(1.0, abs(low))]
    power = math.floor(math.log10(span / most)) - 1
    if whole:
        power = max(0, power)
    while True:
        for step in STEPS:
            first, last = _around(low, high, step, power)
            if last - first < most:
                return [_multiple(i, step, power) for i in range(first, max(last, first + 1) + 1)]
        power += 1


def _around(low: float, high: float, step: float, power: int) -> tuple[int, int]:
    """The multiples of step × 10^power at or below `low`, and at or above `high`, but for a billionth of a step: 0.1 × 3 is 0.3."""
    unit = step * 10.0**power
    return math.floor(low / unit + 1e-9), math.ceil(high / unit - 1e-9)


def _multiple(count: int, step: float, power: int) -> float:
    """count × step × 10^power, as the nearest float to that decimal number: 0.3, not 0.30000000000000004."""
    return float(f"{count * int(step)}e{power}")


def _exponents(low: float, high: float, base: float) -> tuple[int, int]:
    """Of the powers at or below `low`, and at or above `high`; a logarithm may be rounded past a power."""
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    return first - (base**first > low), last + (base**last < high)


def _powers(low: float, high: float, most: int) -> list[float]:
    first, last = _exponents(low, high, 2.0)
    if first == last:  # one value alone stands in the middle
        first, last = first - 1, last + 1
    return [2.0**e for e in _strided(first, max(last, first + 1), most)]


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = _exponents(low, high, 10.0)
    last = max(last, first + 1)
    fine = [float(f"{int(step)}e{e}") for e in range(first, last + 1) for step in STEPS]
    below = max((v for v in fine if v <= low), default=fine[0])
    above = min((v for v in fine if v >= high and v > below), default=fine[-1])
    close = [v for v in fine if below <= v <= above]
    if len(close) <= most:
        return close
    return [float(f"1e{e}") for e in _strided(first, last, most)]


def _strided(first: int, last: int, most: int) -> list[int]:
    """Whole numbers at equal distances from `first` to at or above `last`."""
    stride = max(1, math.ceil((last - first) / (most - 1)))
    return list(range(first, last + stride, stride))


def place(value: float, span: Sequence[float], scale: Scale) -> float:
    """Where `value` stands between the first (0.0) and the last (1.0) of the ticks `span`; a tick alone is in the middle.

    >>> place(8, [1, 2, 4, 8, 16, 32, 64], "log2")
    0.5
    """
    if len(span) == 1:
        return 0.5
    low, high = span[0], span[-1]
    if scale != "linear":
        value, low, high = (math.log(max(v, TINY)) for v in (value, low, high))
    return (value - low) / (high - low) if high - low > TINY else 0.0


def tick_text(value: float, span: Sequence[float]) -> str:
    """A tick as text, with the digits that all of `span` need: `0.25`, `1,000`, `2M`.

    >>> [tick_text(v, [0, 0.5, 1]) for v in (0, 0.5, 1)]
    ['0.0', '0.5', '1.0']
    >>> tick_text(2e6, [0, 2e6, 4e6])
    '2M'
    """
    if len(span) == 1:
        return number(value)
    top = max(abs(span[0]), abs(span[-1]))
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if size <= top < size * 1e6 and all((v / size * 10).is_integer() for v in span):
            return "0" if value == 0 else f"{value / size:g}{letter}"
    if not 1e-4 <= top < 1e9:
        return f"{value:g}"
    if any(b / a > 1.5 for a, b in itertools.pairwise(span) if a > 0) and span[0] > 0:
        return f"{value:,.0f}" if value >= 1 else f"{value:g}"  # a log axis: each its own digits
    step = min(b - a for a, b in itertools.pairwise(span))
    return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def number(value: float) -> str:
    """A value in about three figures: `1,204`, `143`, `26.3`, `0.451`."""
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.3g}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
