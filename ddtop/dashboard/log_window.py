"""The window on a host's logs: the last lines, which start they belong to, and which of them match.

Pure but for its own growing lists: no clock, no I/O. Lines are numbered from the first ever seen, so that a
number stays true while old lines fall out. The journal keeps everything; this keeps what can be scrolled.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from ddtop.events import Event, KernelFault, LogGap, LogLine, LogRead, RestartStarted

CAPACITY = 100_000
"""Lines: a quarter of an hour of a server that logs 100 a second, 40 MiB."""
LINE_LIMIT = 4000
"""Characters of a line that are kept for showing; the journal has the rest."""

Level = Literal["debug", "info", "warn", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warn", "error")

_ERROR = re.compile(
    r"\b(ERROR|CRITICAL|FATAL|Traceback|Exception|[A-Za-z.]*Error|panic|segfault|core dumped|Failed to|"
    r"Main process exited|SIGQUIT|SIGKILL|out of memory|OOM|Xid)\b"
)
_WARN = re.compile(r"\b(WARN|WARNING|Warning|deprecated)\b")
_DEBUG = re.compile(r"\b(DEBUG|TRACE)\b")


def level_of(line: LogLine) -> Level:
    """Level of a line: its syslog priority where that says more than `info`, else by its words."""
    if line.priority is not None and line.priority <= 3:
        return "error"
    if _ERROR.search(line.text):
        return "error"
    if line.priority == 4 or _WARN.search(line.text):
        return "warn"
    if line.priority == 7 or _DEBUG.search(line.text):
        return "debug"
    return "info"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line in the window. `start` counts the starts of its unit: 0 is the first one seen."""

    unit: str
    line: LogLine
    start: int
    arrived_s: float | None = None
    """When the runner had it: good enough to find the lines of a cell, never shown as the line's own time."""
    gap: bool = False
    """True where lines are missing here; the text says why."""
    cursor_hash: int | None = None
    """Of the line's journal cursor, by which an alert's evidence is found. The cursor itself is longer than most lines."""


@dataclass(frozen=True)
class Filter:
    """What to show. `include` and `exclude` are plain text (any case) or, with `regex`, expressions."""

    include: str = ""
    exclude: str = ""
    regex: bool = False
    level: Level = "debug"
    start: Literal["this", "previous", "all"] = "this"
    unit: str | None = None

    @property
    def searching(self) -> bool:
        """True where a text is looked for, so that there are hits."""
        return bool(self.include)


class FilterError(ValueError):
    """An invalid regular expression; the message says where it breaks."""


def parse_filter(text: str, base: Filter) -> Filter:
    """`text` as typed after `/`: `words` to see, ` !words` to hide, `~` in front for regular expressions.

    Raises FilterError for an expression that does not compile. Level, start and unit stay `base`'s.
    """
    text = text.strip()
    regex = text.startswith("~")
    body = text[1:] if regex else text
    if body.startswith("!"):
        include, exclude = "", body[1:]
    else:
        include, _, exclude = body.partition(" !")
    result = Filter(include.strip(), exclude.strip(), regex, base.level, base.start, base.unit)
    compile_filter(result)
    return result


def compile_filter(wanted: Filter) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """(include, exclude) as compiled expressions. Raises FilterError."""

    def compiled(text: str) -> re.Pattern[str] | None:
        if not text:
            return None
        try:
            return re.compile(text if wanted.regex else re.escape(text), re.IGNORECASE)
        except re.error as error:
            raise FilterError(f"`{text}` is not a regular expression: {error}") from error

    return compiled(wanted.include), compiled(wanted.exclude)


class LogBuffer:
    """The last lines of all units of one host, in order of arrival."""

    def __init__(self, capacity: int = CAPACITY, *, whole: bool = False) -> None:
        """`whole`: lines keep their cursor, invocation and pid, which no screen shows and which take as much as the rest."""
        self.capacity = capacity
        self._whole = whole
        self.epoch = 0
        """Grows when the buffer was cleared, so that an index knows to begin anew."""
        self._begin()

    def _begin(self) -> None:
        self.entries: list[Entry] = []
        self.first = 0
        """Number of `entries[0]`."""
        self.latest_start: dict[str, int] = {}
        self._invocation: dict[str, str] = {}
        self._starts: dict[tuple[str, str], int] = {}

    @property
    def end(self) -> int:
        """Number after the last line."""
        return self.first + len(self.entries)

    def __getitem__(self, number: int) -> Entry:
        return self.entries[number - self.first]

    @property
    def units(self) -> list[str]:
        """Units that have lines, in the order in which they were first heard."""
        return list(self.latest_start)

    def clear(self) -> None:
        """Forget all lines (a replay jumped to another time)."""
        self.epoch += 1
        self._begin()

    def extend(self, unit: str, lines: Sequence[LogLine], arrived_s: float | None = None) -> None:
        """Add lines of a unit. A line without an invocation belongs to the start last heard of."""
        add = self.entries.append
        for line in lines:
            start = self._start_of(unit, line.invocation)
            if self._whole:
                add(Entry(unit, line, start, arrived_s))
                continue
            text, cursor = line.text, line.cursor
            if len(text) > LINE_LIMIT:
                text = text[:LINE_LIMIT] + "…"
            kept = LogLine(text=text, at_s=line.at_s, priority=line.priority)
            add(Entry(unit, kept, start, arrived_s, False, None if cursor is None else hash(cursor)))
        self._trim()

    def gap(self, unit: str, reason: str, at_s: float) -> None:
        """Mark that lines of a unit are missing here."""
        text = f"lines are missing here: {reason}"
        self.entries.append(Entry(unit, LogLine(text=text, at_s=at_s), self._start_of(unit, None), gap=True))
        self._trim()

    def mark_start(self, unit: str) -> None:
        """A restart of the unit began: what comes without an invocation belongs to a new start."""
        if not self._invocation.get(unit):
            self.latest_start[unit] = self.latest_start.get(unit, -1) + 1

    def take(self, event: Event) -> None:
        """Add what an event says of logs, if it says anything."""
        if isinstance(event, LogRead):
            self.extend(event.unit, event.lines, event.at_s)
        elif isinstance(event, LogGap):
            self.gap(event.unit, event.reason, event.at_s)
        elif isinstance(event, KernelFault):
            said = LogLine(text=event.text, at_s=event.at_s, priority=3 if event.severity == "error" else 4)
            self.extend("kernel", [said])
        elif isinstance(event, RestartStarted):
            self.mark_start(event.unit)

    def _start_of(self, unit: str, invocation: str | None) -> int:
        if invocation is None:
            return self.latest_start.setdefault(unit, 0)
        key = (unit, invocation)
        known = self._starts.get(key)
        if known is not None:
            return known
        latest = self.latest_start.get(unit, 0)
        number = latest + 1 if self._invocation.get(unit) else latest
        self._invocation[unit] = invocation
        self._starts[key] = number
        self.latest_start[unit] = number
        return number

    def _trim(self) -> None:
        surplus = len(self.entries) - self.capacity
        if surplus > self.capacity // 10:
            del self.entries[:surplus]
            self.first += surplus


class LogIndex:
    """The lines of a buffer that a filter lets through, kept up as the buffer grows."""

    def __init__(self, buffer: LogBuffer, wanted: Filter | None = None) -> None:
        self.buffer = buffer
        self.filter = wanted or Filter()
        self.rows: list[int] = []
        """Numbers of the lines to show."""
        self._seen = 0
        self._epoch = -1
        self._starts: dict[str, int] = {}
        self._include: re.Pattern[str] | None = None
        self._exclude: re.Pattern[str] | None = None
        self.set_filter(self.filter)

    def set_filter(self, wanted: Filter) -> None:
        """Show by another filter from now on. Raises FilterError."""
        self._include, self._exclude = compile_filter(wanted)
        self.filter = wanted
        self._begin()

    @property
    def include(self) -> re.Pattern[str] | None:
        """The compiled expression of what is looked for."""
        return self._include

    def _begin(self) -> None:
        self.rows = []
        self._seen = self.buffer.first
        self._epoch = self.buffer.epoch
        self._starts = dict(self.buffer.latest_start)

    def sync(self) -> bool:
        """Take in what came since the last call. True where the rows begin anew (another start, cleared)."""
        buffer = self.buffer
        restarted = self.filter.start != "all" and any(
            buffer.latest_start.get(unit) != start for unit, start in self._starts.items()
        )
        anew = restarted or self._epoch != buffer.epoch
        if anew:
            self._begin()
        self._starts = dict(buffer.latest_start)
        if self.rows and self.rows[0] < buffer.first:
            del self.rows[: bisect_left(self.rows, buffer.first)]
        begin = max(self._seen, buffer.first)
        accepts = self._accepts
        self.rows.extend(
            number
            for number, entry in enumerate(buffer.entries[begin - buffer.first :], begin)
            if accepts(entry)
        )
        self._seen = buffer.end
        return anew

    def _accepts(self, entry: Entry) -> bool:
        wanted = self.filter
        if wanted.unit is not None and entry.unit != wanted.unit:
            return False
        if wanted.start != "all":
            behind = self.buffer.latest_start.get(entry.unit, 0) - entry.start
            if behind != (0 if wanted.start == "this" else 1):
                return False
        if entry.gap:
            return True
        text = entry.line.text
        if self._include is not None and not self._include.search(text):
            return False
        if self._exclude is not None and self._exclude.search(text):
            return False
        return wanted.level == "debug" or LEVELS.index(level_of(entry.line)) >= LEVELS.index(wanted.level)

    def next_error(self, row: int, step: Literal[1, -1]) -> int | None:
        """The nearest row after (or before) `row` whose line is an error, or None."""
        stop = len(self.rows) if step == 1 else -1
        for at in range(min(row, len(self.rows)) + step, stop, step):  # a filter may have left fewer
            if level_of(self.buffer[self.rows[at]].line) == "error":
                return at
        return None
