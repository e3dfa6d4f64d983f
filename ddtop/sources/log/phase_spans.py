"""The phases of one start as its log shows them: when each began, its progress bars, and what counts as progress."""

from __future__ import annotations

from dataclasses import replace

from ddtop.engines.log.grammar import LogFact
from ddtop.sources.log.scan_snapshot import Bar, LogEntry, PhaseSpan

_BARS_WITHOUT_PHASE = ("capture", "load", "jit", "compile")
"""Phases to which a bar that names none belongs while they run."""


class PhaseSpans:
    """Feed facts in order; the attributes are those of `ScanSnapshot` of the same names."""

    def __init__(self) -> None:
        self.phase = ""
        self.phases: dict[str, PhaseSpan] = {}
        self.bars: dict[str, Bar] = {}
        self.began: dict[str, dict[str, None]] = {}
        self.last_progress: float | None = None
        self.waiting = 0

    def mark(self, fact: LogFact, entry: LogEntry) -> None:
        """Take a mark of a phase."""
        if fact.rank and fact.event in ("begin", "end"):
            self.began.setdefault(f"{fact.phase}-{fact.event}", {}).setdefault(fact.rank)
        ended = fact.event.startswith("end") or fact.event in ("allocated", "ready", "weights")
        self.enter(fact.phase, entry, ended=ended)

    def enter(self, phase: str, entry: LogEntry, *, ended: bool = False, progress: bool = True) -> None:
        """`phase` is what goes on now, and `entry` shows it; `ended`: it says that the phase is over."""
        self.phase = phase
        at, number = entry.realtime, entry.number
        old = self.phases.get(phase)
        if old is None:
            self.phases[phase] = PhaseSpan(phase, at, at, 1, ended, number, number)
        else:
            last = at if at is not None else old.last
            self.phases[phase] = replace(old, last=last, count=old.count + 1, ended=ended, last_number=number)
        if progress:
            self.waiting = 0
            if at is not None:
                self.last_progress = at

    def take_bar(self, fact: LogFact, entry: LogEntry) -> bool:
        """Take a state of a progress bar. Only a state that differs from the one before is progress: returns whether."""
        values = fact.values
        what = str(values.get("what", ""))
        phase = fact.phase or self._phase_of_bar()
        old = self.bars.pop(what, None)
        pct = int(values["pct"])
        fresh = old is None or pct < old.pct or (old.of != values.get("of") and values.get("of") is not None)
        bar = Bar(
            what=what,
            phase=phase,
            pct=pct,
            n=values.get("n"),
            of=values.get("of"),
            at=entry.realtime,
            first_pct=pct if fresh or old is None else old.first_pct,
            first_at=entry.realtime if fresh or old is None else old.first_at,
            eta_s=values.get("eta_s"),
            elapsed_s=values.get("elapsed_s"),
            number=entry.number,
            segments=values.get("segments", 1),
        )
        self.bars[what] = bar
        moved = old is None or pct != old.pct or bar.n != old.n
        if phase:
            self.enter(phase, entry, ended=pct == 100, progress=moved)
        return moved

    def _phase_of_bar(self) -> str:
        """The phase of a bar that names none: the present one, else that of the last bar with one."""
        if self.phase in _BARS_WITHOUT_PHASE:
            return self.phase
        last = next((bar.phase for bar in reversed(self.bars.values()) if bar.phase), "")
        return last or ("capture" if "capture" in self.phases else "")
