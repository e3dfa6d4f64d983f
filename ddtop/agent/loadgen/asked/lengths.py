"""Lengths drawn from a distribution: the same ones for every configuration and on every machine. Pure.

A draw depends on the seed and the number of the request alone. It is made of SHA-256 and decimal arithmetic, whose
results are defined to the last digit, so that no machine's mathematical library rounds it otherwise.
"""

from __future__ import annotations

import decimal
import hashlib
from decimal import Decimal
from typing import Any

EXACT = decimal.Context(prec=28, rounding=decimal.ROUND_HALF_EVEN)
Z99 = Decimal("2.3263478740408408")
"""Standard deviations from the mean to the 99th percentile of a normal distribution."""
WANTED = {
    "lognormal": ("mean", "p99"),
    "normal": ("mean", "sd"),
    "uniform": ("min", "max"),
    "fixed": ("value",),
    "list": ("values",),
}
"""Distribution → what it needs. `min` and `max` bound every one."""
# Wichura's algorithm AS 241 (PPND7): the quantile of the normal distribution to seven digits.
_NEAR = (
    ("3.3871327179", "50.434271938", "159.29113202", "59.109374720"),
    ("17.895169469", "78.757757664", "67.187563600"),
)
_FAR = (("1.4234372777", "2.7568153900", "1.3067284816", "0.17023821103"), ("0.73700164250", "0.12021132975"))
_TAIL = (
    ("6.6579051150", "3.0812263860", "0.42868294337", "0.017337203997"),
    ("0.24197894225", "0.012258202635"),
)


class Draws:
    """The lengths of a load's requests by their numbers, drawn once each."""

    def __init__(self, lengths: dict[str, Any], seed: str, least: int) -> None:
        self.lengths, self.seed = {"min": least, **lengths}, seed
        self._drawn: dict[int, int] = {}

    def of(self, number: int) -> int:
        """Tokens of the request of this number."""
        found = self._drawn.get(number)
        if found is None:
            found = self._drawn[number] = draw(self.lengths, self.seed, number)
        return found


def draw(lengths: dict[str, Any], seed: str, number: int) -> int:
    """Tokens of the request of this number."""
    chance = int(hashlib.sha256(("%s/%d" % (seed, number)).encode()).hexdigest()[:16], 16)
    low, high = int(lengths.get("min", 0)), lengths.get("max")
    kind = lengths["dist"]
    if kind == "fixed":
        return int(lengths["value"])
    if kind == "list":
        return int(lengths["values"][chance * len(lengths["values"]) >> 64])
    if kind == "uniform":
        return low + (chance * (int(lengths["max"]) - low + 1) >> 64)
    with decimal.localcontext(EXACT):
        z = quantile((Decimal(chance) + Decimal("0.5")) / (1 << 64))
        if kind == "normal":
            value = Decimal(str(lengths["mean"])) + z * Decimal(str(lengths["sd"]))
        else:
            mu, sigma = lognormal(lengths)
            value = (mu + z * sigma).exp()
        tokens = int(value.to_integral_value())
    return max(low, tokens if high is None else min(tokens, int(high)))


def lognormal(lengths: dict[str, Any]) -> tuple[Decimal, Decimal]:
    """Mean and standard deviation of the logarithm, by the mean and the 99th percentile of the lengths."""
    mean, p99 = Decimal(str(lengths["mean"])), Decimal(str(lengths["p99"]))
    sigma = Z99 - (Z99 * Z99 - 2 * (p99 / mean).ln()).sqrt()
    return mean.ln() - sigma * sigma / 2, sigma


def quantile(chance: Decimal) -> Decimal:
    """Standard deviations below which a share of the normal distribution lies."""
    centred = chance - Decimal("0.5")
    if abs(centred) <= Decimal("0.425"):
        return centred * _ratio(Decimal("0.180625") - centred * centred, *_NEAR)
    root = (-min(chance, 1 - chance).ln()).sqrt()
    far = _ratio(root - Decimal("1.6"), *_FAR) if root <= 5 else _ratio(root - 5, *_TAIL)
    return far if centred > 0 else -far


def _ratio(at: Decimal, above: tuple[str, ...], below: tuple[str, ...]) -> Decimal:
    top = bottom = Decimal(0)
    for one in reversed(above):
        top = top * at + Decimal(one)
    for one in reversed(("1", *below)):
        bottom = bottom * at + Decimal(one)
    return top / bottom


def problem_of(lengths: Any, least: int) -> str:
    """What is wrong with a distribution, in words; "" where nothing is. `least`: the fewest tokens that can be asked."""
    if not isinstance(lengths, dict) or lengths.get("dist") not in WANTED:
        return 'wanted {"dist": one of %s, …}' % ", ".join(WANTED)
    for key, value in lengths.items():
        numbers = value if key == "values" and isinstance(value, list) else [value]
        if key != "dist" and not all(
            isinstance(one, (int, float)) and not isinstance(one, bool) and one >= 0 for one in numbers
        ):
            return "%s: %r; wanted a number from 0 on" % (key, value)
    missing = [key for key in WANTED[lengths["dist"]] if key not in lengths]
    if missing:
        return "%s is missing" % missing[0]
    if lengths["dist"] == "lognormal":
        mean, p99 = float(lengths["mean"]), float(lengths["p99"])
        if not 0 < mean < p99 < 14.9 * mean:
            return "p99: %g; wanted above the mean (%g), and below 14.9 times the mean" % (p99, mean)
    if "max" in lengths and lengths["max"] < max(least, lengths.get("min", 0)):
        return "max: %r; wanted at least min (%d)" % (lengths["max"], max(least, lengths.get("min", 0)))
    if lengths["dist"] == "list" and (not lengths["values"] or min(lengths["values"]) < least):
        return "values: wanted at least one, each %d or more" % least
    return ""
