"""A `/metrics` page in Prometheus' text form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_SAMPLE = re.compile(
    r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>[^\n]*)\})?[ \t]+(?P<value>\S+)(?:[ \t]+\d+)?[^\S\n]*$", re.M
)


class Sample(NamedTuple):
    """One line of the page; `labels` as written, without the braces."""

    name: str
    labels: str
    value: float


def samples(text: str) -> Iterator[Sample]:
    """Every sample whose value is a finite number, in the order of the page."""
    for match in _SAMPLE.finditer(text):
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            yield Sample(match["name"], match["labels"] or "", value)


def metric_sums(text: str, names: Sequence[str]) -> dict[str, float]:
    """Sums over all label sets of the named series. A name that does not occur is not in the result."""
    sums: dict[str, float] = {}
    for name, _, value in samples(text):
        if name in names:
            sums[name] = sums.get(name, 0.0) + value
    return sums
