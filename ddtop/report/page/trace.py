"""What a page shows along a recording and the state does not keep: the GPUs' power over the whole run, and each cell's log.

Read beside the state, and bounded however long the recording is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from ddtop import events as ev
from ddtop.errors import plain
from ddtop.journal.read.reader import JournalReader

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
    """Use `read_trace`."""

    power: list[Watts] = field(default_factory=list)
    limit_w: float | None = None
    """Power limits of all GPUs together, as last read."""
    logs: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """(cell id, attempt) → the last lines that came while it ran."""
    _every: int = 1
    """Samples that one span has."""

    def sample(self, at_s: float, total: float) -> None:
        """Power of all GPUs together at one moment, in order."""
        if not math.isfinite(total):
            return
        power = self.power
        if power and power[-1].n < self._every:
            last = power[-1]
            last.end_s, last.total, last.n = max(last.end_s, at_s), last.total + total, last.n + 1
            last.most = max(last.most, total)
            return
        if len(power) >= 2 * MOST:
            self._every *= 2
            self.power = power = [_joined(*power[i : i + 2]) for i in range(0, len(power), 2)]
        power.append(Watts(at_s, at_s, total, 1, total))


def read_trace(reader: JournalReader, events: Iterable[tuple[int, ev.Event]]) -> Trace:
    """The trace of a recording; `events` has at least those of its cells' begins and ends, in order. Raises JournalError."""
    trace = Trace()
    for at_s, total, known, n, limit_w, limited in reader.watts():
        if limited and limited == n:
            trace.limit_w = limit_w
        if known and known == n:
            trace.sample(at_s, total)
    now: tuple[str, int] | None = None
    begun = last = 0
    for seq, event in events:
        last = seq
        if isinstance(event, ev.CellStateSet):
            over = now is not None and event.state != "running" and event.cell_id == now[0]
        else:
            over = isinstance(event, ev.CellStarted)
        if over and now is not None:
            trace.logs[now], now = _lines(reader, begun, seq), None
        if isinstance(event, ev.CellStarted):
            now, begun = (event.cell_id, event.attempt), seq
    if now is not None:
        trace.logs[now] = _lines(reader, begun, last + 1)
    return trace


def _lines(reader: JournalReader, after: int, before: int) -> list[str]:
    return [plain(text)[:LINE] for text in reader.texts(after, before, LINES)]


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
