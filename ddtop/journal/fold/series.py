"""What a cell's measurement looked like, second by second: a few numbers for each moment, bounded however long it takes.

What the load generator says: a try at a cell keeps at most MOST moments while it runs and KEPT once it is over, so a sweep
of hundreds of cells stays small. Neighbouring moments become one, by their mean; a time without reports stays a gap. What
the server says: each reading of the last hour, as columns of numbers, a sixth of what they take as objects.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from typing import NamedTuple, overload

from ddtop.events import CellSeries, LatencySeen

GPU_HISTORY = 3600
"""Readings kept of each GPU, and of a server during one try at a cell: an hour at one a second."""

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


class FigurePoint(NamedTuple):
    """One reading of the measured server's own figures, with the power of the GPUs at that time."""

    at_s: float
    running: float | None
    queued: float | None
    kv_pct: float | None
    prefix_hit_pct: float | None
    prompt_tokens: float | None
    power_w: float | None
    """Of the GPUs that the server holds, together (of all where that is not known); None where one of them says nothing,
    or their last reading is old."""
    host_mono_s: float | None
    spec_tokens: float | None = None
    spec_steps: float | None = None


class FigureSeries(Sequence[FigurePoint]):
    """The last GPU_HISTORY readings, the oldest first. A figure that was never known has no column."""

    __slots__ = ("_begin", "_columns", "_end")

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {"at_s": array("d")}
        self._begin = self._end = 0
        """Places in the columns; what is before the first has fallen out, and is deleted now and then."""

    def append(self, point: FigurePoint) -> None:
        for name, value in zip(FigurePoint._fields, point, strict=True):
            column = self._columns.get(name)
            if column is None:
                if value is None:
                    continue
                column = self._columns[name] = array("d", [math.nan]) * self._end
            column.append(math.nan if value is None else value)  # JSON has no NaN: it is no reading
        self._end += 1
        if self._end - self._begin > GPU_HISTORY:
            self._begin += 1
            if self._begin > GPU_HISTORY // 10:
                for column in self._columns.values():
                    del column[: self._begin]
                self._end -= self._begin
                self._begin = 0

    @classmethod
    def of(cls, columns: Mapping[str, array[float]]) -> FigureSeries:
        """From its columns. Raises ValueError where they are not those of a series."""
        out = cls()
        if columns:
            (size,) = {len(column) for column in columns.values()}
            if size > GPU_HISTORY or not set(columns) <= set(FigurePoint._fields):
                raise ValueError("no columns of a series")
            if not all(map(math.isfinite, columns.get("at_s", [math.nan]))):
                raise ValueError("no times")
            out._columns, out._end = dict(columns), size
        return out

    def columns(self) -> dict[str, array[float]]:
        """The columns of fields that were ever known."""
        return {name: column[self._begin :] for name, column in self._columns.items()}

    def column(self, name: str) -> list[float | None]:
        """The values of one field of FigurePoint, the oldest first."""
        column = self._columns.get(name)
        if column is None:
            return [None] * len(self)
        values = column[self._begin :].tolist()
        if math.isnan(sum(values)):  # one NaN makes the sum one
            return [None if math.isnan(value) else value for value in values]
        return list(values)

    def points(self, name: str) -> list[tuple[float, float | None]]:
        """(wall time, value or None) of one field, the oldest first."""
        return list(zip(self._columns["at_s"][self._begin :], self.column(name), strict=True))

    def __len__(self) -> int:
        return self._end - self._begin

    def __iter__(self) -> Iterator[FigurePoint]:
        return map(FigurePoint._make, zip(*(self.column(name) for name in FigurePoint._fields), strict=True))

    @overload
    def __getitem__(self, at: int) -> FigurePoint: ...
    @overload
    def __getitem__(self, at: slice) -> list[FigurePoint]: ...
    def __getitem__(self, at: int | slice) -> FigurePoint | list[FigurePoint]:
        if isinstance(at, slice):
            return list(self)[at]
        place = range(self._begin, self._end)[at]
        found = (self._columns[n][place] if n in self._columns else math.nan for n in FigurePoint._fields)
        return FigurePoint._make(None if math.isnan(value) else value for value in found)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, FigureSeries) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


FORM = 1
"""Of CellSeries as it is written and read here. Another number where the columns, or how moments become one, change."""


def pack(
    cell_id: str,
    attempt: int,
    figures: FigureSeries,
    live: LiveSeries,
    ttft: LatencySeen | None,
    tpot: LatencySeen | None,
) -> dict[str, object]:
    """The fields of the CellSeries of a try at a cell."""
    return {
        "cell_id": cell_id,
        "attempt": attempt,
        "form": FORM,
        "figures": {name: _bytes(column) for name, column in figures.columns().items()} if figures else {},
        "live": {"at_s": _bytes(live.at_s), **{name: _bytes(c) for name, c in live.columns.items()}}
        if live.at_s
        else {},
        "bound": tuple((len(list(run)), word) for word, run in groupby(live.bound)),
        "step_s": live.step_s,
        "weight": live._weight,
        "ttft": ttft,
        "tpot": tpot,
    }


def unpack(event: CellSeries) -> tuple[FigureSeries, LiveSeries] | None:
    """The series of an event; None where it has another form, or is not what ddtop writes: a recording may be anybody's."""
    if event.form != FORM:
        return None
    try:
        figures = FigureSeries.of({name: _array("d", data) for name, data in event.figures.items()})
        live = LiveSeries(step_s=event.step_s, _weight=event.weight)
        if event.live:
            columns = {name: _array("d" if name == "at_s" else "f", event.live[name]) for name in event.live}
            live.at_s, live.columns = columns.pop("at_s"), columns
        if sum(n for n, _ in event.bound) > MOST:
            return None
        live.bound = list(chain.from_iterable(repeat(word, n) for n, word in event.bound))
    except (ValueError, KeyError):
        return None
    sizes = {len(live.at_s), len(live.bound), *map(len, live.columns.values())}
    right = len(sizes) == 1 and len(live.at_s) <= MOST and set(live.columns) == set(NUMBERS)
    sound = event.step_s >= 0 and event.weight >= 1 and all(map(math.isfinite, live.at_s))
    return (figures, live) if right and sound else None


def _bytes(column: array[float]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _array(typecode: str, data: bytes) -> array[float]:
    """Raises ValueError where the bytes are no numbers of that size."""
    column: array[float] = array(typecode)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
