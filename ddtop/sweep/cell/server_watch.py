"""What is read beside a running measurement: whether tokens still come, and the server's log, for the cause if it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtop.engines import ENGINES
from ddtop.events import LogLine
from ddtop.services.base import Launch
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.limits import NO_TOKEN_S
from ddtop.sweep.shared.verdict import CauseReading
from ddtop.sweep.start.evidence.log import StartLog
from ddtop.sweep.start.evidence.phases import Phases
from ddtop.sweep.start.evidence.progress import begin


class ChunkWatch:
    """Whether tokens still come: `take` each progress item of the job, ask `quiet_s` or `hung`."""

    def __init__(self, at: float) -> None:
        self._last: tuple[Any, ...] = ()
        self._since = at
        self._busy = False

    def take(self, item: Mapping[str, Any], at: float) -> None:
        now = (item.get("cell"), item.get("phase"), item.get("chunks"), item.get("done"))
        if now != self._last:
            self._last, self._since = now, at
        self._busy = item.get("phase") == "running" and bool(item.get("in_flight"))

    def quiet_s(self, now: float) -> float | None:
        """Seconds without a chunk while requests run; None while none do."""
        return now - self._since if self._busy else None

    def hung(self, now: float) -> bool:
        return self._busy and now - self._since >= NO_TOKEN_S


class ServerLog:
    """The log of one start while its server is measured."""

    def __init__(self, ctx: SweepContext, launch: Launch, generation: str) -> None:
        self._ctx = ctx
        self._log = StartLog(ENGINES[launch.engine], None)
        self._log.generation = generation
        self._progress, self._phases = begin(ctx.mono()), Phases()

    def take(self, line: LogLine) -> None:
        self._progress, self._phases = self._log.feed(line, self._ctx.mono(), self._progress, self._phases)

    def cause(self) -> CauseReading | None:
        """The first cause of a failure that the log names."""
        return self._log.cause()
