"""What is read beside a running measurement: whether tokens still come, and the server's log, for the cause if it fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ddtop.engines import ENGINES
from ddtop.events import LogLine
from ddtop.services.base import Launch
from ddtop.sweep.cell.life.silence import Life, Silence, Silences, kind_of_life
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.limits import MOVING_WITHIN_S
from ddtop.sweep.shared.verdict import CauseReading
from ddtop.sweep.start.evidence.log import StartLog
from ddtop.sweep.start.evidence.phases import Phases
from ddtop.sweep.start.evidence.progress import begin

WATCHED = ("running", "warming up", "context", "asking again")
"""Phases of a cell in which requests are open."""
ITEM_EVERY_S = 5.0
"""The generator tells of itself each second; what is silent for longer is not only the server."""

PID = re.compile(r"\((?:\w+[-\w]* )?pid=(\d+)\)")
"""vLLM's prefix: (EngineCore_DP0 pid=812)."""
STOPPING = re.compile(r"Stopping \S")
"""systemd begins to stop a unit because it was asked to: not what it says of one that ended by itself."""
WOE = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|Traceback|Fatal Python error|Error: ")

Size = Callable[[str], float]
"""Cell id → tokens of one of its prompts, as planned."""


class ChunkWatch:
    """Whether bytes still come: `take` each progress item of the job, ask `quiet_s` or `silence`.

    A byte is progress, and nothing else is: a request that timed out and made room for the next one shows no life.
    """

    def __init__(self, at: float, silences: Silences | None = None, size: Size | None = None) -> None:
        self._silences = silences if silences is not None else Silences()
        self._size = size or (lambda _cell: 0.0)
        self._key: tuple[Any, ...] = ()
        self._chunks: Any = None
        self._open = 0
        self._since = self._item_at = at
        self._first = True
        self._busy = False
        self.alive = False
        """The server was seen to work in this silence."""

    def take(self, item: Mapping[str, Any], at: float) -> None:
        key, chunks = (item.get("cell"), item.get("phase")), item.get("chunks")
        open_now = item.get("in_flight") or 0
        busy = item.get("phase") in WATCHED and bool(open_now)
        if key != self._key:
            self._begin(at)
            self._first = True
        elif chunks != self._chunks:
            if self._busy and self._chunks is not None:
                self._learn(at - self._since)
            self._first = self._first and not chunks
            self._begin(at)
        elif busy and not self._busy:
            self._begin(at)
        self._key, self._chunks, self._open, self._busy, self._item_at = key, chunks, open_now, busy, at

    def _begin(self, at: float) -> None:
        self._since, self.alive = at, False

    def _learn(self, silence_s: float) -> None:
        self._silences.learn(
            silence_s,
            warm=self._key[1] != "running",
            prompt_tokens=self._tokens,
            streams=self._open,
            alive=self.alive,
        )

    @property
    def _tokens(self) -> float:
        return self._size(str(self._key[0])) if self._key else 0.0

    def quiet_s(self, now: float) -> float | None:
        """Seconds without a byte while requests run; None while none do."""
        return max(0.0, min(now, self._item_at + ITEM_EVERY_S) - self._since) if self._busy else None

    @property
    def open(self) -> int:
        """Requests under way."""
        return self._open

    def silence(self, life: Life, now: float) -> Silence | None:
        """The silence under way; None while no request is open."""
        quiet_s = self.quiet_s(now)
        if quiet_s is None:
            return None
        expected, known = self._silences.expected(
            first=self._first, prompt_tokens=self._tokens, streams=self._open
        )
        self.alive = self.alive or (
            quiet_s > MOVING_WITHIN_S and kind_of_life(life) in ("works", "cpu-alone")
        )
        return Silence(
            quiet_s=quiet_s,
            expected_s=expected,
            known=known,
            prompt_tokens=self._tokens * self._open,
            life=life,
        )


class ServerLog:
    """The log of one start while its server is measured."""

    def __init__(self, ctx: SweepContext, launch: Launch, generation: str) -> None:
        self._ctx = ctx
        self._log = StartLog(ENGINES[launch.engine], None)
        self._log.generation = generation
        self._progress, self._phases = begin(ctx.mono()), Phases()
        self._names_pids = False
        self._spoke: set[int] = set()
        self.stop_line = ""
        """systemd's word that it was asked to stop the unit; empty where the log had named a fatal cause before it."""

    def take(self, line: LogLine) -> None:
        if line.pid == 1 and STOPPING.match(line.text):
            cause = self.cause()
            self.stop_line = "" if cause is not None and cause.fatal else line.text
        said = PID.search(line.text[:200])
        if said is not None:
            self._names_pids = True
            if WOE.search(line.text):
                self._spoke.add(int(said.group(1)))
        self._progress, self._phases = self._log.feed(line, self._ctx.mono(), self._progress, self._phases)

    def spoke(self, pid: int) -> bool:
        """Whether a process logged an error of its own; True also where lines of this log do not name processes."""
        return pid in self._spoke or not self._names_pids

    def cause(self) -> CauseReading | None:
        """The first cause of a failure that the log names."""
        return self._log.cause()

    def names_its_end(self) -> bool:
        """Whether it names a fatal cause, and shows no tokens since: an error that the server outlived ends nothing."""
        cause, scan = self.cause(), self._log.snapshot()
        return cause is not None and cause.fatal and (scan is None or not scan.run_after_failure)
