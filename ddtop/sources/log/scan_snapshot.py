"""The values a log scan takes and gives: lines, hits, phases, bars, and the snapshot of all of them.
Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ddtop.engines.log.grammar import LogFact
from ddtop.sources.log.repeats import Repeated
from ddtop.sources.log.tracebacks import Raised


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line to scan.

    realtime  seconds since 1970 by the host's clock (the journal's stamp), None when unknown
    cursor    the journal's cursor, or any text that finds the line again
    number    1-based line number in its file, 0 when live: the scanner then counts
    """

    line: str
    realtime: float | None = None
    cursor: str | None = None
    pid: int | None = None
    unit: str | None = None
    number: int = 0
    from_systemd: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """A signature found in a line, with what is needed to show it and to judge it.

    slug   cause in the table's words, None for pointers and markers
    phase  where the process was: from the line, its traceback, or what was going on; ``""`` unknown
    """

    signature: str
    role: str
    slug: str | None
    engine: str
    text: str
    groups: Mapping[str, str] = field(default_factory=dict)
    rank: str = ""
    pid: int | None = None
    phase: str = ""
    realtime: float | None = None
    cursor: str | None = None
    number: int = 0
    advice: str = ""
    echo: bool = False
    """The line is source code that a traceback shows, not what was raised."""


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase: first and last mark (host time, None unknown), marks counted, and whether an end was
    said."""

    phase: str
    first: float | None
    last: float | None
    count: int
    ended: bool
    first_number: int = 0
    last_number: int = 0


@dataclass(frozen=True, slots=True)
class Bar:
    """The newest state of one progress bar, and the state it had when it began (for the ETA)."""

    what: str
    phase: str
    pct: int
    n: float | None
    of: float | None
    at: float | None
    first_pct: int
    first_at: float | None
    eta_s: int | None = None
    elapsed_s: int | None = None
    number: int = 0
    segments: int = 1

    def eta_at(self, now: float) -> float | None:
        """Seconds to go, from the pace since the bar began (host time `now`); None while there is no pace."""
        if self.pct >= 100:
            return 0.0
        if self.first_at is None or self.pct <= self.first_pct or now <= self.first_at:
            return float(self.eta_s) if self.eta_s is not None else None
        return (100 - self.pct) * (now - self.first_at) / (self.pct - self.first_pct)


@dataclass(frozen=True, slots=True)
class ScanSnapshot:
    """What the log has shown up to now. All times are host times of the lines, None where lines had none."""

    engine: str | None
    lines: int
    phase: str
    phases: Mapping[str, PhaseSpan]
    bars: Mapping[str, Bar]
    ranks: tuple[str, ...]
    began: Mapping[str, tuple[str, ...]]
    ready_at: float | None
    ready: bool
    ready_line: str
    ready_number: int
    ready_cursor: str | None
    last_progress: float | None
    last_line: float | None
    waiting: int
    server_args: Mapping[str, Any]
    args_whole: bool
    hits: tuple[Hit, ...]
    causes: Mapping[str, Hit]
    raised: tuple[Raised, ...]
    run_after_failure: int
    counts: Mapping[str, int]
    facts: Mapping[str, LogFact]
    previous: tuple[str, ...]
    tail: tuple[tuple[int, str], ...]
    markers: tuple[Hit, ...] = ()
    first_glued: LogFact | None = None
    http_ok_number: int = 0
    init_gap_s: float | None = None
    own: int = 0
    """Lines in an engine's own form, and marks of one: 0 = nothing shows that this is the log of a known engine."""
    repeated: Repeated | None = None
    devices: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """What `device_said` found, with the first line (number, text) of each."""
    stop_line: tuple[int, str] = (0, "")
    """The line with which a stop on request began."""
    mark_line: tuple[int, str] = (0, "")
    """The last line that marked a phase, or moved a bar."""
    bad_line: tuple[int, str, str] = (0, "", "")
    """The last line that is bad news (number, text, what `bad_news` calls it)."""

    @property
    def compile_cache(self) -> Literal["hit", "miss"] | None:
        """What was said of the compile cache: a miss where any graph was compiled. None: nothing."""
        if "compile.graph" in self.facts:
            return "miss"
        return "hit" if "compile.cached" in self.facts else None
