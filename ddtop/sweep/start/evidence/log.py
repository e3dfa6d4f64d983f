"""The log of one start, read line by line: phases, percentages, the ready mark, and the first cause of a failure.

One scanner for each generation: lines of the old process never count for the new one. No I/O here.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from ddtop.engines.base import Engine
from ddtop.engines.log.grammar import LogFact
from ddtop.engines.log.phases import START_PHASE
from ddtop.events import CauseKind, Evidence, LogLine
from ddtop.services.causes import cause as cause_row
from ddtop.sources.log.first_cause import comes_again, first_cause, going_down
from ddtop.sources.log.scan_snapshot import LogEntry, ScanSnapshot
from ddtop.sources.log.scanner import LogScanner
from ddtop.sources.log.verdict import OWN_WORDS_ADVICE
from ddtop.sweep.shared.verdict import CauseReading
from ddtop.sweep.start.evidence.phases import Phases, bar, enter
from ddtop.sweep.start.evidence.progress import Progress, evidence, log_line, reset_gap
from ddtop.sweep.start.gate import MarkReading

KINDS: dict[str, CauseKind] = {
    "transient": "transient",
    "config": "config",
    "bug": "bug",
    "host": "host",
    "slow": "slow",
}
LIMIT_WORDS = ("Start request repeated too quickly",)
SKIP_WORDS = ("skipped because of an unmet condition", "Condition check resulted in", "Assertion failed for")
"""Only the journal shows that systemd skipped a start: the unit is unloaded at once, and its properties with it."""
MANAGER_WORDS = re.compile("|".join(map(re.escape, (*LIMIT_WORDS, *SKIP_WORDS))))
NCCL_WORDS = (
    "NCCL version",
    "is using nccl",
    "NCCL INFO",
    "Init torch distributed begin",
    "Init parallel begin",
)


class StartLog:
    """What the log has shown of one start. `at`: the runner's monotonic clock when a line arrived."""

    def __init__(self, engine: Engine, before: str | None) -> None:
        self.engine = engine
        self.before = before
        self.generation: str | None = None
        """The new start's, once it is known."""
        self.begun = before is None
        """Whether lines that name no start (of a file) are the new start's: not before the old process is gone."""
        self.lines = 0
        """Lines of the new start so far, those of its manager (pid 1) among them."""
        self.own_lines = 0
        """Those of its own processes."""
        self.mark: MarkReading | None = None
        self.start_limit_hit = False
        self.skipped = ""
        """systemd's line that a condition of the unit was not met."""
        self.jit = False
        self.compile = False
        self.tail: deque[str] = deque(maxlen=20)
        self._scanners: dict[str, LogScanner] = {}
        self._order: list[str] = []

    def feed(self, line: LogLine, at: float, progress: Progress, phases: Phases) -> tuple[Progress, Phases]:
        """Takes a line; returns progress and phases after it."""
        text = line.text
        if MANAGER_WORDS.search(text) is not None:
            if any(words in text for words in LIMIT_WORDS):
                self.start_limit_hit = True
            else:
                self.skipped = text
        name = line.invocation or self.invocation() or ""
        nameless_old = line.invocation is None and not self.begun
        if nameless_old or (name and self.before and self.before.startswith(name)):
            if phases.current == "stopping":  # a drain says how many requests are left
                progress = evidence(progress, at, f"log: {text.strip()[:80]}")
            return progress, phases  # a line of the old process says nothing of the new one
        self.tail.append(text)
        self.lines += 1
        self.own_lines += line.pid != 1
        if name not in self._scanners:
            self._scanners[name] = LogScanner(self.engine.name)
            self._order.append(name)
        progress = log_line(progress, text, at)
        facts = self._scanners[name].feed(
            LogEntry(
                line=text, realtime=line.at_s, cursor=line.cursor, pid=line.pid, from_systemd=line.pid == 1
            )
        )
        for fact in facts:
            if isinstance(fact, LogFact):
                progress, phases = self._fact(fact, line, name, at, progress, phases)
        return progress, phases

    def begin_new(self) -> None:
        """From here on a line that names no start is the new one's: the old process's last words were all read."""
        self.begun = True

    def invocation(self) -> str | None:
        return self.generation.partition("/")[0] if self.generation else None

    def _fact(
        self, fact: LogFact, line: LogLine, name: str, at: float, progress: Progress, phases: Phases
    ) -> tuple[Progress, Phases]:
        if self.engine.ready_mark(fact):
            self.mark = MarkReading(generation=name or None, text=line.text, at=at, cursor=line.cursor)
        self.jit = self.jit or fact.phase == "jit"
        self.compile = self.compile or fact.phase == "compile"
        phase = START_PHASE.get(fact.phase)
        if phase is None or phase in ("ready", "stopping"):
            return progress, phases
        if fact.kind == "progress":
            pct = float(fact.values.get("pct", 0))
            one = phases.of.get(phase)
            if one is None or one.pct is None or pct > one.pct:
                progress = evidence(progress, at, f"{phase} {pct:.0f}%")
            eta = fact.values.get("eta_s")
            detail = f"{fact.values['n']}/{fact.values['of']}" if "n" in fact.values else None
            return self._entered(phases, bar(phases, phase, pct, at, eta_s=eta, detail=detail), progress)
        if fact.kind in ("phase", "args"):
            progress = evidence(progress, at, f"log: {fact.phase} {fact.event}")
            return self._entered(phases, enter(phases, phase, at, gap_s=progress.gap_s), progress)
        return progress, phases

    def _entered(self, before: Phases, after: Phases, progress: Progress) -> tuple[Progress, Phases]:
        return (reset_gap(progress) if before.current != after.current else progress), after

    def mark_of(self, generation: str | None) -> MarkReading | None:
        """The ready mark for the gate, with the full id of the generation that gave it."""
        if self.mark is None or generation is None:
            return self.mark
        part = generation.partition("/")[0]
        if self.mark.generation is None or self.mark.generation == part:
            return MarkReading(
                generation=generation,
                text=self.mark.text,
                at=self.mark.at,
                source=self.mark.source,
                cursor=self.mark.cursor,
            )
        return self.mark

    def snapshot(self) -> ScanSnapshot | None:
        """Of the first start after the call: a crash loop's first failure shows the cause."""
        names = [n for n in self._order if n] or self._order
        return self._scanners[names[0]].snapshot() if names else None

    def server_args(self, generation: str) -> dict[str, Any]:
        """What the start `generation` logged of its arguments: the owner may have restarted the one before it."""
        name = generation.partition("/")[0]
        scanner = self._scanners.get(name) or self._scanners.get("")
        return dict(scanner.snapshot().server_args) if scanner is not None else {}

    def cause(self) -> CauseReading | None:
        """The first cause any start since the call has named."""
        for name in self._order:
            found = cause_of(self._scanners[name].snapshot())
            if found is not None:
                return found
        return None

    @property
    def last_is_nccl(self) -> bool:
        return bool(self.tail) and any(words in self.tail[-1] for words in NCCL_WORDS)


def cause_of(scan: ScanSnapshot) -> CauseReading | None:
    """The cause that a scanned log names, in the words of the table of causes; None without one."""
    hit, raised = first_cause(scan)
    if hit is not None and hit.slug:
        row = cause_row(hit.slug)
        if row.kind == "info":
            return None
        lines = [Evidence(source="log", text=hit.text[:400], at_s=hit.realtime, cursor=hit.cursor)]
        if raised is not None and raised.exception_line == hit.number and raised.more:
            lines.insert(
                0, Evidence(source="log", text=raised.words[:400])
            )  # its message goes on behind the hit's line
        elif raised is not None and raised.text and raised.text not in hit.text:
            lines.append(Evidence(source="log", text=raised.words[:400]))
        return CauseReading(
            slug=hit.slug,
            kind=KINDS.get(row.kind, "unknown"),
            text=row.means,
            advice=hit.advice or row.advice_for(scan.engine),
            signature_id=hit.signature,
            evidence=tuple(lines),
            fatal=hit.role in ("cause", "consequence"),
            final=going_down(scan),
        )
    if raised is not None:
        row = cause_row("unhandled-exception")
        again = comes_again(scan, raised)
        return CauseReading(
            slug=row.slug,
            kind="config" if again else "bug",
            text=f"{row.means} {raised.words}".strip(),
            advice=OWN_WORDS_ADVICE if again else row.advice,
            evidence=(Evidence(source="log", text=raised.words[:400]),),
            final=going_down(scan),
        )
    return None
