"""What a page shows along a recording and the state does not keep: the GPUs' power over the whole run, and each cell's log.

Taken in while the recording is folded, and bounded however long it is.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from ddtop import events as ev
from ddtop.errors import plain

MOST = 600
"""Spans of power that are kept; at twice as many, neighbours become one."""
LINES = 12
"""Last lines of the log that are kept of each try at a cell."""
LINE = 240
"""Characters of a line that are kept."""


@dataclass(slots=True)
class Watts:
    """Power of all GPUs together over a span of wall time."""

    begin_s: float
    end_s: float
    total: float
    n: int
    most: float

    @property
    def mean(self) -> float:
        return self.total / self.n


@dataclass(slots=True)
class Trace:
    """Give every event to `take`, in order."""

    power: list[Watts] = field(default_factory=list)
    limit_w: float | None = None
    """Power limits of all GPUs together, as last read."""
    logs: dict[tuple[str, int], deque[str]] = field(default_factory=dict)
    """(cell id, attempt) → the last lines that came while it ran."""
    _every: int = 1
    """Samples that one span has."""
    _now: tuple[str, int] | None = None

    def take(self, event: ev.Event) -> None:
        if isinstance(event, ev.GpuSampled):
            self._sample(event)
        elif isinstance(event, ev.CellStarted):
            self._now = (event.cell_id, event.attempt)
            self.logs[self._now] = deque(maxlen=LINES)
        elif isinstance(event, ev.CellStateSet):
            if event.state != "running" and self._now is not None and self._now[0] == event.cell_id:
                self._now = None
        elif isinstance(event, ev.LogRead) and self._now is not None:
            self.logs[self._now].extend(plain(line.text)[:LINE] for line in event.lines[-LINES:])

    def _sample(self, event: ev.GpuSampled) -> None:
        watts = [g.power_w for g in event.gpus]
        limits = [g.power_limit_w for g in event.gpus if g.power_limit_w is not None]
        if limits and len(limits) == len(watts):
            self.limit_w = sum(limits)
        known = [w for w in watts if w is not None and math.isfinite(w)]
        if not known or len(known) < len(watts):
            return
        total, power = sum(known), self.power
        if power and power[-1].n < self._every:
            last = power[-1]
            last.end_s, last.total, last.n = max(last.end_s, event.at_s), last.total + total, last.n + 1
            last.most = max(last.most, total)
            return
        if len(power) >= 2 * MOST:
            self._every *= 2
            self.power = power = [_joined(*power[i : i + 2]) for i in range(0, len(power), 2)]
        power.append(Watts(event.at_s, event.at_s, total, 1, total))


def _joined(first: Watts, second: Watts | None = None) -> Watts:
    if second is None:
        return first
    return Watts(
        first.begin_s,
        second.end_s,
        first.total + second.total,
        first.n + second.n,
        max(first.most, second.most),
    )
