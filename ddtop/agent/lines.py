"""Cutting a byte stream into lines with a bound, and writing lines to a pipe with back-pressure."""

from __future__ import annotations

import asyncio
import collections
import os
from typing import Deque, Optional, Tuple

from .wire import STREAM_CREDIT, WINDOW_LEAST_B


class LineTooLongError(Exception):
    """A line without an end within the bound."""


class LineSplitter:
    """Feeds on chunks, gives whole lines (without their newline). A line over `limit` bytes raises."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes."""
        *lines, rest = (self._rest + chunk).split(b"\n") if self._rest else chunk.split(b"\n")
        self._rest = rest
        if len(rest) > self._limit or any(len(line) > self._limit for line in lines):
            raise LineTooLongError(f"a line of more than {self._limit} bytes")
        return lines

    @property
    def rest(self) -> bytes:
        """What came after the last newline."""
        return self._rest


class ClippingSplitter:
    """Like LineSplitter, for text of foreign programs: a line over `limit` bytes is clipped, never an error.

    A clipped line ends in `mark`, so that nobody takes its beginning for the whole.
    """

    def __init__(self, limit: int, mark: bytes = b"") -> None:
        self._limit = limit
        self._mark = mark
        self._rest = b""
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, each at most `limit` bytes."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        if lines and self._skipping:  # its beginning was given already
            lines = lines[1:]
            self._skipping = False
        out = [self._clip(line) for line in lines]
        if self._skipping:
            rest = b""
        elif len(rest) > self._limit:
            out.append(self._clip(rest))
            self._skipping = True
            rest = b""
        self._rest = rest
        return out

    def _clip(self, line: bytes) -> bytes:
        return line if len(line) <= self._limit else line[: self._limit - len(self._mark)] + self._mark

    def flush(self) -> list[bytes]:
        """The last line, if it had no newline."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def after_cr(text: str) -> str:
    """What a line shows that redraws itself with CR, as a progress bar does: its last piece with text."""
    if "\r" not in text:
        return text
    pieces = [piece for piece in text.split("\r") if piece.strip()]
    return pieces[-1] if pieces else ""


class Window:
    """How much of a stream may be on its way: what the way and the reader take in WAIT_S. Pure: time is an argument.

    All streams and answers share one way, in order, so an answer waits behind what is on it. How long that is shows in the
    time until a batch is acknowledged, beyond the least that this took.
    """

    FIRST_B, MOST_B = 16 << 10, 2 << 20
    WAIT_S = 0.15

    def __init__(self) -> None:
        self.size_b = self.FIRST_B
        self._open: Deque[Tuple[int, float, int]] = collections.deque()
        """(bytes, when it was sent, the size that was used up by then) of each batch that is not acknowledged."""
        self._open_b = 0
        self._least_s: Optional[float] = None
        """Until a batch is acknowledged that nothing of ours is ahead of."""
        self._sizes = 0
        """Sizes so far: a batch speaks of the present one only if it was used up when the batch was sent."""
        self._used_up = False

    @property
    def is_full(self) -> bool:
        """Whether the next batch has to wait."""
        return self._open_b >= self.size_b or len(self._open) >= STREAM_CREDIT

    def sent(self, size_b: int, now: float) -> None:
        """A batch goes out."""
        self._open_b += size_b
        self._open.append((size_b, now, self._sizes if self._used_up or self._open_b >= self.size_b else -1))
        self._used_up = self._used_up or self._open_b >= self.size_b

    def acked(self, batches: int, now: float) -> None:
        """The client has taken so many batches."""
        took_s, of = None, -1
        for _ in range(min(batches, len(self._open))):
            size_b, at, of = self._open.popleft()
            self._open_b -= size_b
            took_s = now - at
        if took_s is None:
            return
        if self._least_s is None or took_s < self._least_s:
            self._least_s = took_s
        if of != self._sizes:
            return
        if self.size_b <= WINDOW_LEAST_B:
            self._least_s = took_s  # the way itself has become longer: nothing of ours is ahead
        late_s = took_s - self._least_s
        if late_s > self.WAIT_S:
            self.size_b = max(WINDOW_LEAST_B, int(self.size_b * max(0.1, self.WAIT_S / late_s / 2)))
        elif late_s < self.WAIT_S / 2:
            self.size_b = min(self.MOST_B, self.size_b * 3 // 2)
        else:
            return
        self._sizes, self._used_up = self._sizes + 1, False


class PipeWriter:
    """Writes to a file descriptor from the event loop, whatever its other end does.

    asyncio's own write transport is not used: sshd may give one socket as both standard input and output, and
    that transport takes incoming requests for "the other end has closed".
    """

    HIGH_B = 4 << 20

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._chunks: list[bytes] = []
        self._size = 0
        self._waiting = False
        self._room = asyncio.Event()
        self._room.set()
        self.broken = asyncio.Event()
        os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        """Queues `data`; what the pipe takes at once goes out at once."""
        if self.broken.is_set():
            return
        self._chunks.append(data)
        self._size += len(data)
        if not self._waiting:
            self._flush()
        if self._size > self.HIGH_B:
            self._room.clear()

    async def drain(self) -> None:
        """Waits until there is room again."""
        await self._room.wait()

    def _flush(self) -> None:
        while self._chunks:
            data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._break()
                return
            rest = data[sent:]
            self._chunks = [rest] if rest else []
            self._size = len(rest)
            if rest:
                break
        if self._chunks and not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._fd, self._flush)
        elif not self._chunks and self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._fd)
        if self._size <= self.HIGH_B:
            self._room.set()

    def _break(self) -> None:
        if self._waiting:
            self._loop.remove_writer(self._fd)
            self._waiting = False
        self._chunks = []
        self._size = 0
        self._room.set()
        self.broken.set()
