"""Scan a server's log line by line, live or from a file: phases, percentages, the first cause of each rank.

`LogScanner` is the one fold behind both the live readiness gate and `diagnose_log`. It never looks at a clock: a line
brings its own time. It is also the one that numbers lines: a line without a number gets the next one.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace

from ddtop.engines import is_ready_mark
from ddtop.engines.log.devices import device_said, may_say
from ddtop.engines.log.grammar import LogFact, engine_scores, likeliest, parse_line
from ddtop.engines.log.last_words import bad_news
from ddtop.engines.log.line_prefix import Line, pieces, seconds_between, split_prefix
from ddtop.engines.log.own_lines import is_own
from ddtop.engines.log.phases import phase_of_error
from ddtop.engines.log.structured import plain
from ddtop.services.causes import load_causes
from ddtop.services.unit.failed import BOOT_MARK
from ddtop.sources.log.args_dump import ArgsDump
from ddtop.sources.log.phase_spans import PhaseSpans
from ddtop.sources.log.repeats import Repeats
from ddtop.sources.log.scan_snapshot import Hit, LogEntry, ScanSnapshot
from ddtop.sources.log.signatures import Match, load_catalogue, match_line
from ddtop.sources.log.tracebacks import FOLLOW_UPS, START, Raised, Tracebacks, quoted_cause

MAX_HITS = 2_000
MAX_MARKERS = 50
RECENT = 64
MAX_PARTS = 2_000
"""Lines of one entry that are read (the journal's own protocol allows newlines in a message)."""
SURE = 8
"""Lines that only one engine writes, after which its name is not looked for any more."""

_RUNS = ("decode", "prefill", "stats", "spec", "timing")
_MAY_BE_BAD = re.compile(
    r"rror|RROR|ERR\b|[Ff]atal|FATAL|[Pp]anic|PANIC|CRIT|xception|[Tt]imed|TIMED|imeout|IMEOUT|[Ff]ail|FAIL|efused|[Kk]illed|[Aa]bort|"
    r"egmentation|SIG[A-Z]|dump|[Ee]xit|died|crash|signal|annot|an't|ould n|ouldn|nable to|enied|o such|ot found|nvalid|reset by|issing|"
    r"corrupt|ut of memory| 5\d\d |gave up|giving up|nreachable|terminate|level=e|\[E\]|: E|ssertion|ASSERT"
)
_ARGPARSE = re.compile(r"^(?P<prog>[\w./\-]{1,80}(?: [\w\-]{1,30}){0,3}): error: (?P<words>\S.*)")
_ARGPARSE_WORDS = re.compile(
    r"argument -|argument [\w/\-]+: |unrecognized arguments|the following arguments are required|ambiguous option|one of the arguments|too few arguments"
)


class LogScanner:
    """Feed lines in order; `snapshot()` at any time. One scanner follows one generation of one unit."""

    def __init__(self, engine: str | None = None) -> None:
        self._given = engine
        self._guess: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._number = 0
        self._previous: list[str] = []
        self._reset()

    def _reset(self) -> None:
        """Forget the run that has ended: another one begins in the same log."""
        self._lines = 0
        self._spans = PhaseSpans()
        self._args = ArgsDump()
        self._tracebacks = Tracebacks()
        self._ranks: dict[str, None] = {}
        self._ready: tuple[float | None, str, int, str | None] | None = None
        self._may_be_ready: tuple[LogFact, tuple[float | None, str, int, str | None]] | None = None
        """A mark that only some engines mean, seen before the lines showed which engine it is."""
        self._last: float | None = None
        self._hits: list[Hit] = []
        self._markers: list[Hit] = []
        self._causes: dict[str, Hit] = {}
        self._alive = 0
        self._zero = 0
        self._counts: dict[str, int] = {}
        self._facts: dict[str, LogFact] = {}
        self._loaded: dict[str, object] = {}
        self._tail: deque[tuple[int, str]] = deque(maxlen=RECENT)
        self._glued: LogFact | None = None
        self._http_ok = 0
        self._init_begin: str | None = None
        self._init_gap: float | None = None
        self._own = 0
        self._repeats = Repeats()
        self._devices: dict[str, tuple[int, str]] = {}
        self._stop_line = (0, "")
        self._mark_line = (0, "")
        self._bad_line = (0, "", "")
        self._usage = False

    def feed(self, entry: LogEntry, *, times: int = 1) -> tuple[LogFact | Hit, ...]:
        """Take one line. `times` > 1: the same line (numbers aside) came that often in a row.

        Returns what the line says: facts of the grammar and hits of the catalogue. Never raises.
        """
        if not entry.number:
            entry = LogEntry(
                *(entry.line, entry.realtime, entry.cursor, entry.pid, entry.unit),
                *(self._number + 1, entry.from_systemd),
            )
        self._number = entry.number
        if "{" in entry.line[:200] and (told := plain(entry.line)) is not None:
            entry = replace(entry, line=told)
        if "\n" not in entry.line:
            return self._line(entry, times)
        parts = entry.line.split("\n")[:MAX_PARTS]
        return tuple(told for part in parts for told in self._line(replace(entry, line=part), times))

    def _line(self, entry: LogEntry, times: int) -> tuple[LogFact | Hit, ...]:
        line = entry.line
        if line.startswith("-- ") and BOOT_MARK.match(line):
            self._previous = [*self._previous, "rebooted"]
            self._reset()
            return ()
        if self._args.continues(line):
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
        begins_args = bool(facts) and any(f.kind == "args" for f in facts)
        if (begins_args and not (self._ready and _is_child(parsed))) or _is_start(line, entry):
            self._new_run()
        self._weigh(entry, parsed, facts)
        raised = None
        echo = False
        if not entry.from_systemd:
            raised = self._tracebacks.feed(
                parsed.message,
                pid=pid,
                rank=parsed.rank,
                prefixed=parsed.prefixed,
                number=entry.number,
                level=parsed.level,
                source=parsed.source,
            )
            echo = raised is None and self._tracebacks.in_code(parsed.message, pid, parsed.rank)
        matches = match_line(line, self.engine) or self._usage_error(parsed)
        if all(m.signature.role == "pointer" for m in matches):
            inner = quoted_cause(line)
            if not inner and parsed.level in ("ERROR", "CRITICAL") and not parsed.message[:1].isspace():
                inner = f"Error: {parsed.message}"  # its level says what an exception's name says
            matches = (*match_line(inner, self.engine), *matches) if inner else matches
        moved = False
        for fact in facts:
            moved = self._take_fact(fact, entry, times) or moved
        if moved or (facts and any(f.kind == "phase" for f in facts)):
            self._mark_line = (entry.number, line.strip()[:400])
        bar = next((str(f.values.get("what")) for f in facts if f.kind == "progress"), "") if facts else ""
        said = f"bar {bar}" if bar else parsed.message
        self._repeats.feed(said, line, entry.number, parsed.time, times, moved)
        rank = parsed.rank or (next((f.rank for f in facts if f.rank), "") if facts else "")
        if parsed.rank:
            self._ranks.setdefault(parsed.rank)
        if begins_args:
            self._args.begin(line)
        hits: list[Hit] = []
        traces = (raised, self._tracebacks.open.get((pid, parsed.rank)))
        # a ready server that failed one request goes on: what its front end says of it ends nothing
        asked = self._ready is not None and (
            parsed.source.startswith("serving") or any(t is not None and t.request for t in traces)
        )
        for match in matches:
            hit = self._hit(match, entry, rank, pid, raised, parsed.level)
            ends = not asked or hit.role not in ("cause", "consequence") or "EngineDead" in line
            hits.append(replace(hit, echo=echo) if ends else replace(hit, echo=echo, role="marker"))
            self._take_hit(hits[-1], times)
        if START in line or (raised is not None and not matches and not FOLLOW_UPS.search(raised.name or "")):
            self._alive = 0
        return (*facts, *hits)

    def _weigh(self, entry: LogEntry, parsed: Line, facts: tuple[LogFact, ...]) -> None:
        """Keep what the form of a line shows: an engine's own, a device, bad news."""
        line = entry.line
        ours = bool(facts) and any(
            f.kind in _RUNS or (f.leads and f.engine != "any" and f.kind in ("phase", "args")) for f in facts
        )
        if ours or is_own(parsed):
            self._own += 1
        if may_say(line) and (word := device_said(line)):
            self._devices.setdefault(word, (entry.number, line.strip()[:400]))
        bad = bad_news(line) if _MAY_BE_BAD.search(line, 0, 2_000) else ""
        if bad and (bad != "suspect" or self._bad_line[2] in ("", "suspect")):
            self._bad_line = (entry.number, line.strip()[:400], bad)
        if line.startswith("usage: ") or parsed.message.startswith("usage: "):
            self._usage = True
        elif facts:
            self._usage = False

    def _usage_error(self, parsed: Line) -> tuple[Match, ...]:
        """`prog: error: …` behind a usage text, or in argparse's own words: whatever it says, an argument is wrong."""
        found = _ARGPARSE.match(parsed.message)
        if found is None or not (self._usage or _ARGPARSE_WORDS.match(found["words"])):
            return ()
        row = next(s for s in load_catalogue() if s.id == "bad-argument")
        return (Match(row, {"words": found["words"]}),)

    def _new_run(self) -> None:
        failed = any(h.role in ("cause", "consequence", "pointer") for h in self._hits)
        if failed or "stop" in self._spans.phases or self._ready is not None:
            first = next((h.slug for h in self._hits if h.role == "cause" and h.slug), None)
            previous = [*self._previous, first or ("failed" if failed else "stopped")]
            self._previous = previous
            # what was said before anything started was said of this run
            devices = {} if self._spans.phases or self._args.args else self._devices
            self._reset()
            self._devices = devices

    @property
    def engine(self) -> str | None:
        """The engine given, else the one the lines look like most."""
        if self._given is not None:
            return self._given
        return likeliest(self._guess)

    def _learn_engine(self, line: str) -> None:
        for total, seen in zip(self._guess, engine_scores(line), strict=True):
            for name, count in seen.items():
                total[name] = total.get(name, 0) + count

    def _take_fact(self, fact: LogFact, entry: LogEntry, times: int) -> bool:
        """Take a fact. Returns whether it is progress by itself: a bar that moved, work done, the arguments."""
        if fact.rank:
            self._ranks.setdefault(fact.rank)
        self._counts[fact.kind] = self._counts.get(fact.kind, 0) + times
        key = f"{fact.phase}.{fact.event}{self._draft_mark(fact)}"
        self._facts[key] = fact
        if fact.glued and fact.time and self._glued is None:
            self._glued = fact
        if fact.kind == "note":
            if fact.event == "answered" and not self._http_ok:
                self._http_ok = entry.number
        elif fact.kind in ("decode", "stats", "timing", "prefill"):
            self._take_run(fact, entry, times)
            return fact.kind != "stats" or bool(fact.values.get("gen_tps"))
        elif fact.kind == "progress":
            return self._spans.take_bar(fact, entry)
        elif fact.kind == "spec":
            if fact.values.get("accepted") and fact.engine == "vllm" and self._ready is None:
                if not self._counts.get("stats"):
                    self._alive += times
                self._spans.enter("run", entry)
        else:
            if fact.phase == "init" and fact.time:
                self._take_init(fact)
            self._spans.mark(fact, entry)
            if fact.phase == "stop" and not self._stop_line[0]:
                self._stop_line = (entry.number, entry.line.strip()[:400])
            if self._ready is None and (fact.phase == "ready" or fact.event == "startup-complete"):
                mark = (entry.realtime, entry.line[:400], entry.number, entry.cursor)
                if is_ready_mark(self.engine, fact):
                    self._ready = mark
                elif self._given is None:
                    self._may_be_ready = (fact, mark)
        return fact.kind == "args"

    def _take_run(self, fact: LogFact, entry: LogEntry, times: int) -> None:
        """A line of a running server: it works, unless its throughput is 0 while requests run."""
        gen = fact.values.get("gen_tps")
        if fact.kind in ("decode", "stats") and isinstance(gen, int | float):
            hung = gen == 0 and (fact.values.get("running") or 0) > 0
            self._zero = self._zero + times if hung else 0
        if fact.kind != "stats" or gen:
            self._alive += times
            self._spans.enter("run", entry)

    def _take_init(self, fact: LogFact) -> None:
        """Keep the time between the begin of the distributed initialisation and NCCL's first line."""
        if fact.event == "begin":
            self._init_begin = fact.time
        elif fact.event == "nccl" and self._init_gap is None:
            self._init_gap = seconds_between(self._init_begin, fact.time)

    def _draft_mark(self, fact: LogFact) -> str:
        """`-draft` for the end of a load that is the drafter's: the same rank had loaded another class of model."""
        if fact.phase != "load" or fact.event != "end" or not fact.values.get("type"):
            return ""
        first = self._loaded.setdefault(fact.rank, fact.values["type"])
        return "" if first == fact.values["type"] else "-draft"

    def _hit(
        self, match: Match, entry: LogEntry, rank: str, pid: int | None, raised: Raised | None, level: str
    ) -> Hit:
        signature = match.signature
        calm = level in ("DEBUG", "INFO", "WARNING") and signature.engine not in ("kernel", "host", "systemd")
        # what the engine itself logs as a warning is none of its failures: it was caught
        role = "marker" if calm and signature.role in ("cause", "consequence") else signature.role
        traces = (raised, self._tracebacks.open.get((pid, rank)))
        phase = (
            phase_of_error(entry.line)
            or next((trace.phase for trace in traces if trace is not None and trace.phase), "")
            or self._phase_of(signature.id, signature.phase)
        )
        return Hit(
            signature=signature.id,
            role=role,
            slug=load_causes().slug_of(signature.id, phase),
            engine=signature.engine,
            text=entry.line.strip()[:1_000],
            groups=match.groups,
            rank=rank or (raised.rank if raised else ""),
            pid=pid,
            phase=phase,
            realtime=entry.realtime,
            cursor=entry.cursor,
            number=entry.number,
            advice=signature.advice,
        )

    def _phase_of(self, signature: str, usual: tuple[str, ...]) -> str:
        """Where a signature's process probably was, when neither its line nor a traceback shows it."""
        now = "run" if self._spans.phase in ("ready", "http", "sched") else self._spans.phase
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
            self._spans.waiting += times
        if hit.role == "marker":
            if not hit.signature.startswith("slow-") and len(self._markers) < MAX_MARKERS:
                self._markers.append(hit)
            return
        if len(self._hits) < MAX_HITS:
            self._hits.append(hit)
        if hit.role in ("cause", "consequence", "pointer"):
            self._alive = 0
        if hit.role == "cause":
            self._causes.setdefault(hit.rank, hit)

    def snapshot(self) -> ScanSnapshot:
        """A frozen view of everything scanned so far."""
        if (
            self._ready is None
            and self._may_be_ready is not None
            and is_ready_mark(self.engine, self._may_be_ready[0])
        ):
            self._ready = self._may_be_ready[1]
        ready_at, ready_line, ready_number, ready_cursor = self._ready or (None, "", 0, None)
        spans = self._spans
        return ScanSnapshot(
            engine=self.engine,
            lines=self._lines,
            phase=spans.phase,
            phases=dict(spans.phases),
            bars=dict(spans.bars),
            ranks=tuple(self._ranks),
            began={k: tuple(v) for k, v in spans.began.items()},
            ready_at=ready_at,
            ready=self._ready is not None,
            ready_line=ready_line,
            ready_number=ready_number,
            ready_cursor=ready_cursor,
            last_progress=spans.last_progress,
            last_line=self._last,
            waiting=spans.waiting,
            server_args=dict(self._args.args),
            args_whole=self._args.whole,
            hits=tuple(self._hits),
            causes=dict(self._causes),
            raised=tuple(self._tracebacks.all()),
            run_after_failure=self._alive,
            counts={**self._counts, "zero_tps_now": self._zero},
            facts=dict(self._facts),
            previous=tuple(self._previous),
            tail=tuple(self._tail),
            markers=tuple(self._markers),
            first_glued=self._glued,
            http_ok_number=self._http_ok,
            init_gap_s=self._init_gap,
            own=self._own,
            repeated=self._repeats.now(),
            devices=dict(self._devices),
            stop_line=self._stop_line,
            mark_line=self._mark_line,
            bad_line=self._bad_line,
        )


def _is_child(line: Line) -> bool:
    """Whether a record is of a process that the server itself started: its arguments begin no other run."""
    return bool(line.rank) or line.proc.startswith(("EngineCore", "Worker", "Vllm", "Ray", "DP"))


def _is_start(line: str, entry: LogEntry) -> bool:
    """Whether systemd says that it starts the unit (a new generation begins here)."""
    if not entry.from_systemd and "systemd" not in line[:80]:
        return False
    message = split_prefix(line[:400]).message
    return message.startswith(("Started ", "Starting "))
