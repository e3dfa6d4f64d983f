"""Server-sent events from bytes that arrive in any pieces (WHATWG HTML, section 9.2).

Pure and incremental: no clock, no I/O. Line ends may be LF, CRLF or CR; a byte order mark is skipped; comments are
counted, because a comment proves that the connection lives although it is never a token.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One dispatched event: the bytes of its data lines joined by LF, and its `event:` name ("" if none)."""

    data: bytes
    name: str


class SseParser:
    """Splits a byte stream into events; `feed` any number of times, then `close` once."""

    def __init__(self) -> None:
        self.comments = 0
        self.tail = b""  # after close(): bytes of an unfinished event, dropped
        self._parts: list[bytes] = []  # an unfinished line, in pieces
        self._data: list[bytes] = []
        self._name = ""
        self._started = False
        self._seen_cr = False  # bare CR line ends only cost time where a CR was ever seen

    @property
    def idle(self) -> bool:
        """True where the next byte begins an event."""
        return self._started and not self._parts and not self._data and not self._name

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes; return the events they complete (often none, sometimes several)."""
        if not data:
            return []
        if not self._seen_cr and b"\r" in data:
            self._seen_cr = True
        if b"\n" not in data and not (self._seen_cr and b"\r" in data):
            # A line longer than a read: collected in pieces, so that 1 MB in one event stays linear.
            # (A CR that ended the piece before still has to be resolved below.)
            if not (self._parts and self._parts[-1].endswith(b"\r")):
                self._parts.append(data)
                return []
        text = b"".join(self._parts) + data if self._parts else data
        if not self._started:
            if len(text) < 3 and _BOM.startswith(text):
                self._parts = [text]
                return []
            self._started = True
            if text.startswith(_BOM):
                text = text[3:]
        if self._seen_cr:
            held = b""
            if text.endswith(b"\r"):  # may be half of a CRLF
                text, held = text[:-1], b"\r"
            lines = _LINE_END.split(text)
            rest = lines.pop() + held
        else:
            lines = text.split(b"\n")
            rest = lines.pop()
        self._parts = [rest] if rest else []
        events: list[SseEvent] = []
        for line in lines:
            self._line(line, events)
        return events

    def close(self) -> list[SseEvent]:
        """End of input. A last event that only lacks its blank line is whole if it is JSON or [DONE]; a half is not."""
        events: list[SseEvent] = []
        rest = b"".join(self._parts)
        self._parts = []
        if rest.endswith(b"\r"):
            self._line(rest[:-1], events)
            rest = b""
        if rest and not self._data and rest.startswith(b"data:") and is_whole(_value(rest[5:])):
            self._line(rest, events)
            rest = b""
        if self._data:
            joined = b"\n".join(self._data)
            if not rest and is_whole(joined):
                self._dispatch(events)
            else:
                self.tail = b"data: " + joined + (b"\n" + rest if rest else b"")
                self._data = []
                return events
        self.tail = rest
        return events

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            if self._data:
                self._dispatch(events)
            self._name = ""
        elif line.startswith(b"data:"):
            self._data.append(_value(line[5:]))
        elif line.startswith(b":"):
            self.comments += 1
        else:
            field, _, value = line.partition(b":")
            if field == b"event":
                self._name = _value(value).decode("utf-8", "replace")
            elif field == b"error" and is_whole(_value(value)):
                # llama.cpp before 2025-08 wrote `error: {…}` in place of a data line
                self._data.append(_value(value))
                self._name = "error"
            elif field == b"data":
                self._data.append(b"")

    def _dispatch(self, events: list[SseEvent]) -> None:
        lines, self._data = self._data, []
        if len(lines) > 1:
            joined = b"\n".join(lines)
            # Servers exist that leave out the blank line between events; each line is then JSON by itself.
            if not is_whole(joined) and all(is_whole(line) for line in lines):
                events.extend(SseEvent(line, self._name) for line in lines)
                return
            events.append(SseEvent(joined, self._name))
        else:
            events.append(SseEvent(lines[0], self._name))


def _value(raw: bytes) -> bytes:
    return raw[1:] if raw.startswith(b" ") else raw


def is_whole(data: bytes) -> bool:
    """True if `data` is [DONE] or complete JSON, that is, no half of an event."""
    text = data.strip()
    if text == b"[DONE]":
        return True
    try:
        json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return True
