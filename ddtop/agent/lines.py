"""Cutting a byte stream into lines with a bound, and writing lines to a pipe with back-pressure."""

from __future__ import annotations

import asyncio
import os


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
