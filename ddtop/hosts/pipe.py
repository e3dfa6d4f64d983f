"""What a transport gives: a byte stream to a program on the host, in both directions, and its end."""

from __future__ import annotations

from typing import Protocol

STDERR_TAIL = 64 << 10


class Pipe(Protocol):
    """A started program's input and output. `read` never raises HostLostError: a lost link reads as b""."""

    async def read(self) -> bytes:
        """Some bytes, or b"" at the end."""
        ...

    def write(self, data: bytes) -> None:
        """Queues bytes; silently nothing once the other end is gone (the reader learns of it)."""
        ...

    async def drain(self) -> None:
        """Waits until the queue has room; returns at once when the other end is gone."""
        ...

    def stderr_tail(self) -> str:
        """The last 64 kB of standard error."""
        ...

    async def ended(self) -> str:
        """After b"": how it ended, as a sentence. A lost link is named as such, not as an exit."""
        ...

    async def close(self) -> None:
        """Ends the program and the connection. May be called twice."""
        ...


class Tail:
    """Keeps the last `limit` bytes of what it is given."""

    def __init__(self, limit: int = STDERR_TAIL) -> None:
        self._limit = limit
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]

    def text(self) -> str:
        return bytes(self._data[-self._limit :]).decode("utf-8", "replace").strip()
