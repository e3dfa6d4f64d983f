"""What is read beside a running measurement: whether tokens still come, and the server's log for the cause if it dies."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from ddtop.agent.loadgen.records import unpack
from ddtop.engines import ENGINES
from ddtop.events import LogLine
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.verdict import CauseReading
from ddtop.sweep.start.log import StartLog
from ddtop.sweep.start.phases import Phases
from ddtop.sweep.start.progress import begin

HUNG_S = 300.0
"""Seconds without one chunk while requests run: the engine's own watchdog has the same limit."""


class ChunkWatch:
    """Whether tokens still come. `take` progress, ask `hung`."""

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
        return self._busy and now - self._since >= HUNG_S


class ServerLog:
    """The server's log while it is measured: for the cause if it dies."""

    def __init__(self, ctx: SweepContext, launch: Launch, generation: str) -> None:
        self._ctx = ctx
        self._log = StartLog(ENGINES[launch.engine], None)
        self._log.generation = generation
        self._progress, self._phases = begin(ctx.mono()), Phases()

    def take(self, line: LogLine) -> None:
        self._progress, self._phases = self._log.feed(line, self._ctx.mono(), self._progress, self._phases)

    def cause(self) -> CauseReading | None:
        return self._log.cause()


async def read_json_file(host: Host, path: str) -> Any:
    """A JSON file of the host that is too large for one answer. Raises AgentError, ValueError."""
    data = b""
    while True:
        part = await host.call("file-read", path=path, offset=len(data), max_b=500_000, b64=True)
        data += base64.b64decode(part["b64"])
        if part["eof"] or not part["b64"]:
            return msgspec.json.decode(data)


CUT_REQUEST_CLASSES = ("refused", "truncated", "aborted")


def has_cut_requests(raw: Mapping[str, Any]) -> bool:
    """Whether a cell's result has requests whose connection was refused, or ended before its answer did."""
    try:
        requests = unpack(dict(raw)).get("requests")
    except ValueError:
        return False
    return any(isinstance(r, Mapping) and r.get("class") in CUT_REQUEST_CLASSES for r in requests or ())
