"""What a cell's measurement looked like, second by second: a few numbers for each moment, bounded however long it takes.

A try at a cell keeps at most MOST moments while it runs and KEPT once it is over, so a sweep of hundreds of cells stays
small. Neighbouring moments become one, by their mean; a time without reports stays a gap.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST = 600
KEPT = 150
NUMBERS = ("tok_s", "in_flight", "power_w", "accept")
UNKNOWN = -1.0
"""None of the numbers is ever negative."""


def _columns() -> dict[str, array[float]]:
    return {name: array("f") for name in NUMBERS}


@dataclass(slots=True)
class LiveSeries:
    """Columns of numbers by name, with the wall time of each moment and what limited the GPUs then ("": not known)."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    columns: dict[str, array[float]] = field(default_factory=_columns)
    bound: list[str] = field(default_factory=list)
    step_s: float = 0.0
    """Moments that fall into one such slot of time are one; 0: all are kept."""
    _weight: int = 1
    """Moments in the newest slot."""

    def add(self, at_s: float, bound: str, **numbers: float | None) -> None:
        """One moment, later than all before."""
        if self.step_s and self.at_s and self._slot(at_s) == self._slot(self.at_s[-1]):
            for name, column in self.columns.items():
                value = numbers.get(name)
                column[-1] = _mean(column[-1], self._weight, UNKNOWN if value is None else value)
            self.at_s[-1], self.bound[-1] = at_s, bound
            self._weight += 1
            return
        self.at_s.append(at_s)
        self.bound.append(bound)
        self._weight = 1
        for name, column in self.columns.items():
            value = numbers.get(name)
            column.append(UNKNOWN if value is None else value)
        if len(self.at_s) > MOST:
            self.thin(MOST // 2)

    def thin(self, most: int = KEPT) -> None:
        """At most `most` moments from now on, evenly over the time so far."""
        if len(self.at_s) <= most:
            return
        old = list(zip(self.at_s, self.bound, *self.columns.values(), strict=True))
        span_s = max(self.at_s) - min(self.at_s)
        self.at_s, self.columns, self.bound = array("d"), _columns(), []
        self.step_s = max(2 * self.step_s, 1e-3, 1.001 * span_s / max(1, most - 1))
        for at_s, bound, *values in old:
            known = {n: None if v == UNKNOWN else v for n, v in zip(NUMBERS, values, strict=True)}
            self.add(at_s, bound, **known)

    def _slot(self, at_s: float) -> int:
        return int(at_s / self.step_s)

    def points(self, name: str) -> Iterator[tuple[float, float | None]]:
        """(wall time, value or None) of one column, the oldest first."""
        for at, value in zip(self.at_s, self.columns[name], strict=True):
            yield at, None if value == UNKNOWN else value

    def last(self, name: str) -> float | None:
        """The newest known value of one column."""
        return next((value for value in reversed(self.columns[name]) if value != UNKNOWN), None)


def _mean(mean: float, weight: int, value: float) -> float:
    if UNKNOWN in (mean, value):
        return max(mean, value)
    return mean + (value - mean) / (weight + 1)
