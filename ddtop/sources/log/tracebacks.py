"""Follow Python tracebacks through a log, one per process, and say where they happened and how they ended."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from ddtop.engines.log.phases import phase_of_frame

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]{1,400})", line \d+(?:, in (?P<func>\S+))?')
_END = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*\w*?(?:Error|Exception|Interrupt|Exit|Timeout|Expired|OutOfResources|Warning|Refused|Reset|Iteration|NotFound|Failed|Denied|Fault)\w*)(?:: ?(?P<text>.*)|\(.*|)$"
)
_DOTTED_END = re.compile(r"^(?P<name>(?:[a-z_]\w*\.)+(?:[A-Z]\w*|\w{0,12}error|timeout))(?:: (?P<text>.*))?$")
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
START = "Traceback (most recent call last):"
_NEXT = re.compile(
    r"^(?:\[|\(?[A-Z]\w+ pid=|[A-Z]{4,8}:? |\w+@|\$ |\S+\.service|\S+ exited with code|/\S+\.py:\d+: \w*Warning|warnings\.warn|Process \S+:|ERROR|INFO|usage: )"
)
"""Lines that begin something else than the rest of an exception's message."""

FOLLOW_UPS = re.compile(
    r"^(?:asyncio\.)?(?:exceptions\.)?(?:CancelledError|SystemExit|KeyboardInterrupt|BrokenPipeError|ConnectionResetError|"
    r"ConnectionRefusedError|EOFError|ChildProcessError|StopIteration|StopAsyncIteration)|ProcessExitedException|"
    r"ProcessRaisedException|EngineDeadError|zmq\.error|ClientDisconnect|InvalidStateError"
)
"""Exceptions of a process whose peer or parent has ended: consequences, never causes."""


_WRAPPERS = re.compile(
    r"Worker failed with error '(?P<vllm>.{2,2000}?)'(?:, please check|\.?\s*$)|Exception in worker \S{1,80} while processing method \w+: (?P<old>.{2,2000}?)(?:, Traceback|$)"
    r"|(?:Executor worker (?:returned|initialization)|Failed to initialize executor on rank \d+|Error in (?:executor|worker)[\w ]{0,40}): (?P<trt>\S.{2,2000})|RayTaskError\(\w+\): (?P<ray>\S.{2,2000})"
    r"|Scheduler (?:or DataParallelController )?.{0,40}?terminated with (?P<sgl>\w+Error: .{2,2000})"
)
"""Exceptions that only carry the words of another process's: what they quote is the cause."""


def quoted_cause(text: str) -> str:
    """The exception inside a wrapper of another process, in the form of one; empty where a line is no wrapper.

    >>> quoted_cause("RuntimeError: Worker failed with error 'no room', please check the stack trace above")
    'Error: no room'
    """
    found = _WRAPPERS.search(text)
    if found is None:
        return ""
    inner = next(words for words in found.groups() if words).strip()
    if inner[:1] == inner[-1:] == "'":
        return f"KeyError: {inner}"  # that is how Python prints a missing key
    return inner if _END.match(inner) else f"Error: {inner}"


_LINK = ("For further information visit", "See https://", "If this issue persists")
_HEADLINE = re.compile(r"\b\d+ validation errors? for \w")
_REASON = re.compile(r"\[type=|^\s*Value error, |^\s+(?:Input should|Extra inputs|Field required|Unexpected)")
MAX_MORE = 8


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
    more: tuple[tuple[int, str], ...] = ()
    """Lines (number, text) behind the exception's first that belong to its message."""

    @property
    def plainest(self) -> tuple[int, str]:
        """The line (number, text) that says what is wrong: of pydantic's errors the one with the reason, not the headline."""
        headline = (self.exception_line or self.line, self.text)
        if not _HEADLINE.search(self.text):
            return headline
        where = ""
        for number, text in self.more:
            if _REASON.search(text):
                return number, f"{where}: {text.strip()}" if where else text.strip()
            where = text.strip()
        return headline

    @property
    def words(self) -> str:
        """What the exception says, whole: its message with the lines that follow, without advertisements of links."""
        parts = [self.text, *(text.strip() for _, text in self.more)]
        return " ".join(part for part in parts if part and not part.startswith(_LINK))[:1_000]


@dataclass(slots=True)
class Tracebacks:
    """Open and finished tracebacks. Keyed by process; lines without any prefix belong to the one opened
    last."""

    done: list[Raised] = field(default_factory=list)
    open: dict[tuple[int | None, str], Raised] = field(default_factory=dict)
    request_next: bool = False
    _chain_open: set[tuple[int | None, str]] = field(default_factory=set)
    _last: dict[int | None, tuple[int | None, str]] = field(default_factory=dict)
    _ended: tuple[int, int | None, str, bool, str] | None = None
    """The exception whose message may go on: its place in `done`, its process, rank, whether prefixed, its level and
    the place in the engine's source that logs it."""

    def feed(
        self,
        message: str,
        *,
        pid: int | None,
        rank: str,
        prefixed: bool,
        number: int,
        level: str = "",
        source: str = "",
    ) -> Raised | None:
        """Take one record's message. Returns the traceback that this line ended, else None.

        A log may begin in the middle of a traceback: a frame opens one too, and a record of level ERROR that is an
        exception's last line is one by itself.
        """
        key = (pid, rank)
        self._go_on(message, pid, rank, prefixed, number, f"{level} {source}")
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
                self._ended = (len(self.done) - 1, pid, rank, prefixed, f"{level} {source}")
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
        self._ended = (len(self.done) - 1, pid, rank, prefixed, f"{level} {source}")
        del self.open[key]
        return ended

    def _go_on(
        self, message: str, pid: int | None, rank: str, prefixed: bool, number: int, level: str
    ) -> None:
        """Add a line to the message of the exception that ended last, while it is one of its lines."""
        if self._ended is None:
            return
        at, of_pid, of_rank, of_prefixed, of_level = self._ended
        stripped = message.strip()
        same = (prefixed, level) == (of_prefixed, of_level) and pid == of_pid and rank == of_rank
        if not same and prefixed:
            if pid == of_pid or not of_prefixed:
                self._ended = None
            return  # another process's record between two lines of one message
        done = self.done[at]
        if (
            not same
            or not stripped
            or START in message
            or stripped.startswith(_CHAIN)
            or len(done.more) >= MAX_MORE
            or _NEXT.match(stripped)
            or (message[:1].isspace() and _FRAME.match(message))
        ):
            self._ended = None
            return
        self.done[at] = replace(done, more=(*done.more, (number, message.rstrip())))

    def in_code(self, message: str, pid: int | None, rank: str) -> bool:
        """Whether a line that was just fed is source code (or a marker under it) that an open traceback shows."""
        if not message[:1].isspace() or _FRAME.match(message):
            return False
        return (pid, rank) in self.open or self._last.get(pid) in self.open

    def all(self) -> list[Raised]:
        """Every traceback seen, by its first line."""
        return sorted([*self.done, *self.open.values()], key=lambda r: r.line)
