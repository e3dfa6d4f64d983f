"""Wall time on a line of columns, and back. Long absences of the runner are drawn short. Pure."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

ABSENT_SHARE = 0.04
"""A stretch without a runner takes no more of the line than this share of the rest."""
STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3600 * n for n in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720)),
)
"""Distances of two marks of the clock line."""


@dataclass(frozen=True)
class Scale:
    """Columns 0 … width - 1 for the time from `begin_s` to `end_s`. Use `scale`."""

    width: int
    knots: tuple[tuple[float, float], ...]
    """(wall time, place from 0 to 1), both rising; between two the time is even."""

    @property
    def begin_s(self) -> float:
        return self.knots[0][0]

    @property
    def end_s(self) -> float:
        return self.knots[-1][0]

    def place(self, at_s: float) -> float:
        """Where a moment is, 0 at the left and 1 at the right; times outside are at the ends."""
        number = bisect_right(self.knots, (at_s, 2.0))
        if number == 0:
            return 0.0
        if number == len(self.knots):
            return 1.0
        (before, left), (after, right) = self.knots[number - 1], self.knots[number]
        return left + (right - left) * (at_s - before) / (after - before)

    def column(self, at_s: float) -> int:
        """The column that holds a moment."""
        return min(self.width - 1, max(0, int(self.place(at_s) * self.width)))

    def time(self, column: float) -> float:
        """Wall time of the middle of a column; of an end where `column` is outside."""
        wanted = min(1.0, max(0.0, (column + 0.5) / self.width))
        for (before, left), (after, right) in pairwise(self.knots):
            if wanted <= right:
                return before + (after - before) * (wanted - left) / (right - left)
        return self.end_s


def scale(begin_s: float, end_s: float, width: int, absent: Sequence[tuple[float, float]] = ()) -> Scale:
    """The scale of a run. `absent`: from when to when no runner wrote, in the order of time."""
    end_s = max(end_s, begin_s + 1.0)
    cut = [(max(a, begin_s), min(b, end_s)) for a, b in absent]
    cut = [(a, b) for a, b in cut if b - a > 0.001]
    rest = (end_s - begin_s) - sum(b - a for a, b in cut)
    most = max(1.0, ABSENT_SHARE * rest)
    points, at, weight = [(begin_s, 0.0)], begin_s, 0.0
    for a, b in cut:
        if a < at:
            continue
        if a > at:
            weight += a - at
            points.append((a, weight))
        weight += min(b - a, most)
        points.append((b, weight))
        at = b
    if end_s > at:
        weight += end_s - at
        points.append((end_s, weight))
    return Scale(max(1, width), tuple((t, w / weight) for t, w in points))


def horizon(before_s: float | None, wanted_s: float, begin_s: float) -> float:
    """The right end of a line whose true end moves: it stays where it is until it is short, or much too long."""
    if before_s is not None and wanted_s <= before_s and wanted_s - begin_s >= 0.85 * (before_s - begin_s):
        return before_s
    return wanted_s + 0.04 * max(0.0, wanted_s - begin_s)


def clock_marks(line: Scale, least: int = 9) -> list[tuple[int, str]]:
    """(column, `14:30`) of the marks below a line, `least` columns apart; with seconds, or the day, where that tells more."""
    length = line.end_s - line.begin_s
    step = next(
        (s for s in STEPS_S if s * line.width >= least * length), math.ceil(least * length / line.width)
    )
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    offset = time.localtime(line.begin_s).tm_gmtoff
    out: list[tuple[int, str]] = []
    free, day = 0, time.localtime(line.begin_s).tm_yday
    at = (int(line.begin_s + offset) // step + 1) * step - offset
    while at < line.end_s:
        local = time.localtime(at)
        word = time.strftime("%d %b" if local.tm_yday != day else form, local)
        column = line.column(at)
        if column >= free and column + len(word) <= line.width:
            out.append((column, word))
            free, day = column + max(least, len(word) + 2), local.tm_yday
        at += step
    return out
