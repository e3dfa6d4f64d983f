"""From a login shell's noise to the agent's hello: a state machine without I/O.

The client sends nothing before `ready` (rc files may read standard input), then the zip, then waits for `sync`;
the next line is the hello. What comes before it is noise: kept as evidence, up to MAX_NOISE bytes.
"""

from __future__ import annotations

import json

import msgspec

from ddtop.agent.wire import MAX_LINE, PROTOCOL
from ddtop.hosts.base import Hello

MAX_NOISE = 64 << 10


class BootError(Exception):
    """The agent did not start. `reason` is a word: old-python, bad-zip, noise, eof, hello, protocol."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class Handshake:
    """Feed it what comes; it says when to send the zip, and ends with the hello and the bytes after it."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._buffer = b""
        self._noise = bytearray()
        self.stage = "noise"
        """noise → ready → sync → done."""
        self.hello: Hello | None = None
        """Set when `stage` is done."""
        self.rest = b""
        """Bytes after the hello's line: the protocol has begun."""

    @property
    def noise(self) -> str:
        """What the login shell printed before the agent started: the last 4 kB."""
        return bytes(self._noise[-4096:]).decode("utf-8", "replace").strip()

    def feed(self, chunk: bytes) -> bool:
        """True once `ready` was seen in this chunk: the zip is to be sent now. Raises BootError."""
        self._buffer += chunk
        send = False
        while self.stage != "done" and b"\n" in self._buffer:
            line, self._buffer = self._buffer.split(b"\n", 1)
            send = self._line(line.rstrip(b"\r")) or send
        if self.stage == "done":
            self.rest, self._buffer = self._buffer, b""
        elif len(self._buffer) > MAX_LINE:
            raise BootError("noise", "a line without an end")
        elif self.stage == "noise" and len(self._noise) + len(self._buffer) > MAX_NOISE:
            self._noise += self._buffer
            raise BootError(
                "noise", f"more than {MAX_NOISE >> 10} kB of output before the agent's first word"
            )
        return send

    def _line(self, line: bytes) -> bool:
        mark = line.decode("ascii", "replace")
        prefix = f"ddtop-{self._nonce}-"
        if mark == prefix + "old-python":
            raise BootError("old-python", "its python3 is older than 3.8")
        if mark == prefix + "bad-zip":
            raise BootError("bad-zip", "the agent arrived damaged (its hash did not match)")
        if self.stage == "noise":
            if mark == prefix + "ready":
                self.stage = "ready"
                return True
            self._noise += line + b"\n"
        elif self.stage == "ready":
            if mark == prefix + "sync":
                self.stage = "sync"
            elif line:
                self._noise += line + b"\n"
        elif line:
            self._take_hello(line)
        return False

    def _take_hello(self, line: bytes) -> None:
        try:
            hello = json.loads(line)["hello"]
            if hello["protocol"] != PROTOCOL:
                raise BootError("protocol", f"the agent speaks protocol {hello['protocol']}")
            self.hello = msgspec.convert(hello, Hello)
        except (ValueError, KeyError, TypeError):
            raise BootError("hello", f"instead of a hello came {line[:300]!r}") from None
        self.stage = "done"

    def eof(self) -> BootError:
        """The error to raise when the stream ended before the hello."""
        said = (bytes(self._noise) + self._buffer)[-2000:].decode("utf-8", "replace").strip()
        return BootError("eof", said)
