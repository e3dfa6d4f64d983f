"""Scan a server's log line by line, live or from a file: phases, percentages, the first cause of each rank.

`LogScanner` is the one fold behind both the live readiness gate and `diagnose_log`. It never looks at a
clock: a line
brings its own time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from ddtop.engines.log.grammar import LogFact, engine_scores, parse_line
from ddtop.engines.log.line_prefix import pieces, seconds_between, split_prefix
from ddtop.engines.log.server_args import MAX_CHARS, find_args, is_complete, parse_server_args
from ddtop.services.causes import load_causes
from ddtop.services.unit.state import BOOT_MARK
from ddtop.sources.log.scan_snapshot import Bar, Hit, LogEntry, PhaseSpan, ScanSnapshot
from ddtop.sources.log.signatures import Match, match_line
from ddtop.sources.log.tracebacks import FOLLOW_UPS, START, Raised, Tracebacks

__all__ = ["Bar", "Hit", "LogEntry", "LogScanner", "PhaseSpan", "ScanSnapshot", "is_ready_mark"]

MAX_HITS = 2_000
RECENT = 64
MAX_PARTS = 2_000
"""Lines of one entry that are read (the journal's own protocol allows newlines in a message)."""
SURE = 8
"""Lines that only one engine writes, after which its name is not looked for any more."""


class LogScanner:
    """Feed lines in order; `snapshot()` at any time. One scanner follows one generation of one unit."""

    def __init__(self, engine: str | None = None) -> None:
        self._given = engine
        self._guess: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._previous: list[str] = []
        self._reset()

    def _reset(self) -> None:
        self._lines = 0
        self._phase = ""
        self._phases: dict[str, PhaseSpan] = {}
        self._bars: dict[str, Bar] = {}
        self._ranks: dict[str, None] = {}
        self._began: dict[str, dict[str, None]] = {}
        self._ready: tuple[float | None, str, int, str | None] | None = None
        self._progress: float | None = None
        self._last: float | None = None
        self._waiting = 0
        self._args: dict[str, Any] = {}
        self._args_open: list[str] | None = None
        self._args_whole = True
        self._hits: list[Hit] = []
        self._causes: dict[str, Hit] = {}
        self._tracebacks = Tracebacks()
        self._alive = 0
        self._run: LogFact | None = None
        self._counts: dict[str, int] = {}
        self._facts: dict[str, LogFact] = {}
        self._fact_numbers: dict[str, int] = {}
        self._loaded: dict[str, Any] = {}
        self._tail: deque[tuple[int, str]] = deque(maxlen=RECENT)
        self._zero: int = 0
        self._markers: list[Hit] = []
        self._glued: LogFact | None = None
        self._http_ok = 0
        self._init_begin: str | None = None
        self._init_gap: float | None = None

    # -- one line
    # ---------------------------------------------------------------------------------------------

    def feed(self, entry: LogEntry, *, times: int = 1) -> tuple[LogFact | Hit, ...]:
        """Take one line. `times` > 1: the same line (numbers aside) came that often in a row.

        Returns what the line told: facts of the grammar and hits of the catalogue. Never raises.
        """
        if "\n" in entry.line:
            parts = entry.line.split("\n")[:MAX_PARTS]
            return tuple(told for part in parts for told in self.feed(replace(entry, line=part), times=times))
        found: list[LogFact | Hit] = []
        line = entry.line
        if line.startswith("-- ") and BOOT_MARK.match(line):
            self._previous = [*self._previous, "rebooted"]
            self._reset()
            return ()
        if self._args_open is not None and self._continue_args(line):
            return ()
        self._lines += times
        if entry.realtime is not None:
            self._last = entry.realtime
        if line.strip():
            self._tail.append((entry.number, line[:400]))
        if self._given is None and self._lines < 5_000 and max(self._guess[0].values(), default=0) < SURE:
            self._learn_engine(line[:2_000])
        parsed = split_prefix(pieces(line[:4_000])[-1])
        pid = entry.pid if entry.pid is not None else parsed.pid
        facts = parse_line(self._given, line)
        if any(f.kind == "args" for f in facts) or _is_start(line, entry):
            self._new_run()
        raised = (
            None
            if entry.from_systemd
            else self._tracebacks.feed(
                parsed.message,
                pid=pid,
                rank=parsed.rank,
                prefixed=parsed.prefixed,
                number=entry.number or self._lines,
                level=parsed.level,
            )
        )
        matches = match_line(line, self.engine)
        for fact in facts:
            self._take_fact(fact, entry, times)
            found.append(fact)
        rank = parsed.rank or next((f.rank for f in facts if f.rank), "")
        if parsed.rank:
            self._ranks.setdefault(parsed.rank)
        if any(f.kind == "args" for f in facts):
            self._begin_args(line)
        for match in matches:
            hit = self._hit(match, entry, rank, pid, raised, line, parsed.level)
            found.append(hit)
            self._take_hit(hit, times)
        if START in line or (raised is not None and not matches and not FOLLOW_UPS.search(raised.name or "")):
            self._alive = 0
        return tuple(found)

    def _new_run(self) -> None:
        failed = any(h.role in ("cause", "consequence", "pointer") for h in self._hits)
        if failed or "stop" in self._phases or self._ready is not None:
            first = next((h.slug for h in self._hits if h.role == "cause" and h.slug), None)
            previous = [*self._previous, first or ("failed" if failed else "stopped")]
            self._previous = previous
            self._reset()

    @property
    def engine(self) -> str | None:
        """The engine given, else the one the lines look like most."""
        if self._given is not None:
            return self._given
        for scores in self._guess:
            if scores and (best := max(scores, key=lambda name: scores[name])) and scores[best]:
                return best
        return None

    def _learn_engine(self, line: str) -> None:
        for total, seen in zip(self._guess, engine_scores(line), strict=True):
            for name, count in seen.items():
                total[name] = total.get(name, 0) + count

    # -- arguments
    # --------------------------------------------------------------------------------------------

    def _begin_args(self, line: str) -> None:
        text = line[:MAX_CHARS]
        if args := parse_server_args(text):
            self._args = args
        self._args_whole = is_complete(text)
        self._args_open = None if self._args_whole else [text]

    def _continue_args(self, line: str) -> bool:
        """Whether `line` is the rest of an argument dump that was wrapped at a fixed width."""
        assert self._args_open is not None
        if split_prefix(line).prefixed or len(self._args_open) > 50 or find_args(line[:500]) is not None:
            self._args_open = None
            return False
        self._args_open.append(line)
        text = "\n".join(self._args_open)[:MAX_CHARS]
        if args := parse_server_args(text):
            self._args = args
        if is_complete(text):
            self._args_open, self._args_whole = None, True
        return True

    # -- facts
    # ------------------------------------------------------------------------------------------------

    def _take_fact(self, fact: LogFact, entry: LogEntry, times: int) -> None:
        if fact.rank:
            self._ranks.setdefault(fact.rank)
        self._counts[fact.kind] = self._counts.get(fact.kind, 0) + times
        key = f"{fact.phase}.{fact.event}{self._draft_mark(fact)}"
        self._facts[key] = fact
        self._fact_numbers[key] = entry.number
        if fact.glued and fact.time and self._glued is None:
            self._glued = fact
        if fact.kind == "note":
            if fact.event == "answered" and not self._http_ok:
                self._http_ok = entry.number or self._lines
            return
        if fact.phase == "init" and fact.time:
            if fact.event == "begin":
                self._init_begin = fact.time
            elif fact.event == "nccl" and self._init_gap is None:
                self._init_gap = seconds_between(self._init_begin, fact.time)
        if fact.kind in ("decode", "stats", "timing", "prefill"):
            self._run = fact
            gen = fact.values.get("gen_tps")
            if fact.kind in ("decode", "stats") and isinstance(gen, int | float):
                hung = gen == 0 and (fact.values.get("running") or 0) > 0
                self._zero = self._zero + times if hung else 0
            moved = fact.kind != "stats" or bool(gen)
            if moved:
                self._alive += times
                self._phase = "run"
                self._mark("run", entry, ended=False, progress=True)
            return
        if fact.kind == "spec":
            return
        if fact.kind == "progress":
            self._take_bar(fact, entry)
            return
        self._phase = fact.phase
        if fact.rank and fact.event in ("begin", "end"):
            self._began.setdefault(f"{fact.phase}-{fact.event}", {}).setdefault(fact.rank)
        ended = fact.event.startswith("end") or fact.event in ("allocated", "ready", "weights")
        self._mark(fact.phase, entry, ended=ended, progress=True)
        if is_ready_mark(self.engine, fact) and self._ready is None:
            self._ready = (entry.realtime, entry.line[:400], entry.number, entry.cursor)

    def _draft_mark(self, fact: LogFact) -> str:
        """`-draft` for the end of a load that is the drafter's: the same rank had loaded another class of model."""
        if fact.phase != "load" or fact.event != "end" or not fact.values.get("type"):
            return ""
        first = self._loaded.setdefault(fact.rank, fact.values["type"])
        return "" if first == fact.values["type"] else "-draft"

    def _take_bar(self, fact: LogFact, entry: LogEntry) -> None:
        values = fact.values
        what = str(values.get("what", ""))
        phase = fact.phase or (self._phase if self._phase in ("capture", "load", "jit", "compile") else "")
        if not fact.phase and not phase and (bars := [b for b in self._bars.values() if b.phase]):
            phase = bars[-1].phase
        if not phase and "capture" in self._phases:
            phase = "capture"
        old = self._bars.get(what)
        pct = int(values["pct"])
        fresh = old is None or pct < old.pct or (old.of != values.get("of") and values.get("of") is not None)
        bar = Bar(
            what,
            phase,
            pct,
            values.get("n"),
            values.get("of"),
            entry.realtime,
            pct if fresh or old is None else old.first_pct,
            entry.realtime if fresh or old is None else old.first_at,
            values.get("eta_s"),
            values.get("elapsed_s"),
            entry.number,
            values.get("segments", 1),
        )
        self._bars.pop(what, None)
        self._bars[what] = bar
        moved = old is None or pct != old.pct or bar.n != old.n
        if phase:
            self._phase = phase
            self._mark(phase, entry, ended=pct == 100, progress=moved)

    def _mark(self, phase: str, entry: LogEntry, *, ended: bool, progress: bool) -> None:
        at = entry.realtime
        old = self._phases.get(phase)
        if old is None:
            self._phases[phase] = PhaseSpan(phase, at, at, 1, ended, entry.number, entry.number)
        else:
            self._phases[phase] = replace(
                old,
                last=at if at is not None else old.last,
                count=old.count + 1,
                ended=ended,
                last_number=entry.number,
            )
        if progress:
            self._waiting = 0
            if at is not None:
                self._progress = at

    # -- hits
    # -------------------------------------------------------------------------------------------------

    def _hit(
        self,
        match: Match,
        entry: LogEntry,
        rank: str,
        pid: int | None,
        raised: Raised | None,
        line: str,
        level: str,
    ) -> Hit:
        signature = match.signature
        calm = level in ("DEBUG", "INFO", "WARNING") and signature.engine not in ("kernel", "host", "systemd")
        # what the engine itself logs as a warning is none of its failures: it was caught
        role = "marker" if calm and signature.role in ("cause", "consequence") else signature.role
        phase = ""
        if "Capture cuda graph failed" in line:
            phase = "capture"
        elif raised is not None and raised.phase:
            phase = raised.phase
        else:
            at = self._tracebacks.open.get((pid, rank))
            phase = at.phase if at is not None and at.phase else ""
        phase = phase or self._phase_of(signature.id, signature.phase)
        slug = load_causes().slug_of(signature.id, phase)
        return Hit(
            signature.id,
            role,
            signature.kind,
            slug,
            signature.engine,
            line.strip()[:1_000],
            match.groups,
            rank or (raised.rank if raised else ""),
            pid,
            phase,
            entry.realtime,
            entry.cursor,
            entry.number,
            signature.advice,
        )

    def _phase_of(self, signature: str, usual: tuple[str, ...]) -> str:
        """Where a signature's process probably was, when neither its line nor a traceback tells."""
        now = _phase_now(self._phase)
        known = [p for p in usual if p not in ("any", "start", "stage")]
        if len(known) != 1:
            return now
        if known[0] == "init":
            return now or (
                "init" if signature.startswith(("nccl", "gloo", "shm", "fabric", "dist")) else "launch"
            )
        return now if known[0] == "run" and now else known[0]

    def _take_hit(self, hit: Hit, times: int) -> None:
        self._counts[f"hit:{hit.signature}"] = self._counts.get(f"hit:{hit.signature}", 0) + times
        if hit.signature == "vllm-shm-wait":
            self._waiting += times
        if hit.role == "marker":
            if not hit.signature.startswith("slow-") and len(self._markers) < 50:
                self._markers.append(hit)
            return
        if len(self._hits) < MAX_HITS:
            self._hits.append(hit)
        if hit.role in ("cause", "consequence", "pointer"):
            self._alive = 0
        if hit.role == "cause":
            self._causes.setdefault(hit.rank, hit)

    # -- result
    # -----------------------------------------------------------------------------------------------

    def snapshot(self) -> ScanSnapshot:
        """A frozen view of everything scanned so far."""
        ready = self._ready or (None, "", 0, None)
        counts = dict(self._counts)
        counts["zero_tps_now"] = self._zero
        return ScanSnapshot(
            engine=self.engine,
            lines=self._lines,
            phase=self._phase,
            phases=dict(self._phases),
            bars=dict(self._bars),
            ranks=tuple(self._ranks),
            began={k: tuple(v) for k, v in self._began.items()},
            ready_at=ready[0],
            ready=self._ready is not None,
            ready_line=ready[1],
            ready_number=ready[2],
            ready_cursor=ready[3],
            last_progress=self._progress,
            last_line=self._last,
            waiting=self._waiting,
            server_args=dict(self._args),
            args_whole=self._args_whole,
            hits=tuple(self._hits),
            causes=dict(self._causes),
            raised=tuple(self._tracebacks.all()),
            run_after_failure=self._alive,
            last_run=self._run,
            counts=counts,
            facts=dict(self._facts),
            fact_numbers=dict(self._fact_numbers),
            previous=tuple(self._previous),
            tail=tuple(self._tail),
            markers=tuple(self._markers),
            first_glued=self._glued,
            http_ok_number=self._http_ok,
            init_gap_s=self._init_gap,
        )


def _phase_now(phase: str) -> str:
    return "run" if phase in ("ready", "http", "sched") else phase


def _is_start(line: str, entry: LogEntry) -> bool:
    """Whether systemd says that it starts the unit (a new generation begins here)."""
    if not entry.from_systemd and "systemd" not in line[:80]:
        return False
    message = split_prefix(line[:400]).message
    return message.startswith(("Started ", "Starting "))


def is_ready_mark(engine: str | None, fact: LogFact) -> bool:
    """Whether a fact is the engine's ready mark: SGLang fired up, vLLM startup complete, llama.cpp model
    loaded."""
    if fact.phase == "ready":
        return True
    return engine == "vllm" and fact.phase == "http" and fact.event == "startup-complete"
