"""Follow Python tracebacks through a log, one per process, and say where they happened and how they ended."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from ddtop.engines.log.phases import phase_of_frame

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]{1,400})", line \d+(?:, in (?P<func>\S+))?')
_END = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*\w*?(?:Error|Exception|Interrupt|Exit|Timeout|Expired|OutOfResources|Warning|Refused|Reset|Iteration|NotFound|Failed|Denied|Fault)\w*)(?:: ?(?P<text>.*)|\(.*|)$"
)
_DOTTED_END = re.compile(r"^(?P<name>(?:[a-z_]\w*\.)+[A-Z]\w*)(?:: (?P<text>.*))?$")
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
START = "Traceback (most recent call last):"

FOLLOW_UPS = re.compile(
    r"^(?:asyncio\.)?(?:exceptions\.)?(?:CancelledError|SystemExit|KeyboardInterrupt|BrokenPipeError|ConnectionResetError|"
    r"ConnectionRefusedError|EOFError|ChildProcessError|StopIteration|StopAsyncIteration)|ProcessExitedException|"
    r"ProcessRaisedException|zmq\.error|ClientDisconnect|InvalidStateError"
)
"""Exceptions of a process whose peer or parent has ended: consequences, never causes."""


@dataclass(frozen=True, slots=True)
class Raised:
    """One traceback. `name` is None while its last line has not come (or was cut off). Lines are record
    numbers."""

    rank: str
    pid: int | None
    line: int
    last_line: int
    phase: str = ""
    name: str | None = None
    text: str = ""
    exception_line: int | None = None
    frames: int = 0
    entries: int = 1
    chained: bool = False
    request: bool = False
    """It came from handling one request (uvicorn's `Exception in ASGI application`): the server goes on."""
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class Tracebacks:
    """Open and finished tracebacks. Keyed by process; lines without any prefix belong to the one opened
    last."""

    done: list[Raised] = field(default_factory=list)
    open: dict[tuple[int | None, str], Raised] = field(default_factory=dict)
    request_next: bool = False
    _chain_open: set[tuple[int | None, str]] = field(default_factory=set)
    _last: dict[int | None, tuple[int | None, str]] = field(default_factory=dict)

    def feed(
        self, message: str, *, pid: int | None, rank: str, prefixed: bool, number: int, level: str = ""
    ) -> Raised | None:
        """Take one record's message. Returns the traceback that this line ended, else None.

        A log may begin in the middle of a traceback: a frame opens one too, and a record of level ERROR that is an
        exception's last line is one by itself.
        """
        key = (pid, rank)
        if "Exception in ASGI application" in message:
            self.request_next = True
        if START in message:
            if key in self.open:
                self.done.append(self.open.pop(key))
            self.open[key] = Raised(
                rank, pid, number, number, chained=key in self._chain_open, request=self.request_next
            )
            self.request_next = False
            self._chain_open.discard(key)
            self._last[pid] = key
            return None
        if not prefixed or key not in self.open:
            key = self._last.get(pid, key) if not rank else key
        current = self.open.get(key)
        stripped = message.strip()
        if current is None:
            if stripped.startswith(_CHAIN):
                self._chain_open.add(key)
            elif message[:1].isspace() and _FRAME.match(message):
                self.open[key] = current = Raised(rank, pid, number, number)
                self._last[pid] = key
            elif (
                level in ("ERROR", "CRITICAL", "E")
                and (end := _END.match(stripped))
                and end["text"] is not None
            ):
                alone = Raised(
                    rank, pid, number, number, name=end["name"], text=stripped, exception_line=number
                )
                self.done.append(alone)
                return alone
        if current is None:
            return None
        if prefixed and (pid, rank) != key and not (rank == "" and pid == key[0] and pid is not None):
            return None
        current = replace(current, last_line=number, entries=current.entries + 1)
        self.open[key] = current
        if not stripped:
            return None
        indented = message[:1].isspace() or message[:1] in "|+"
        if indented or stripped[0] in "^~":
            frame = _FRAME.match(message)
            where = f"{frame['file']} {frame['func'] or ''}" if frame else stripped
            phase = phase_of_frame(where)
            # the deepest place decides; "serving" is only believed when nothing more exact was seen
            keep = (
                phase and not (phase == "run" and current.phase) and not (phase == "launch" and current.phase)
            )
            self.open[key] = replace(
                current,
                phase=phase if keep else current.phase,
                frames=current.frames + (1 if frame else 0),
                files=(*current.files, frame["file"])[-12:] if frame else current.files,
            )
            return None
        end = _END.match(stripped) or _DOTTED_END.match(stripped)
        if end is None:
            if current.frames and prefixed and not rank and not pid:
                self.done.append(self.open.pop(key))  # an ordinary record: the traceback was cut
            return None
        ended = replace(current, name=end["name"], text=stripped, exception_line=number)
        self.done.append(ended)
        del self.open[key]
        return ended

    def all(self) -> list[Raised]:
        """Every traceback seen, by its first line."""
        return sorted([*self.done, *self.open.values()], key=lambda r: r.line)
