"""One HTTP/1.x response from bytes that arrive in any pieces (RFC 9112): head, framing, body.

Pure and incremental. Chunked (with extensions and trailers), Content-Length and close-delimited bodies; interim 1xx
responses are skipped; gzip and deflate are undone (zlib is imported only when a server sends them unasked).
"""

from __future__ import annotations

from typing import Any

MAX_HEAD = 1 << 20  # a longer head is not HTTP


class HttpError(Exception):
    """The bytes are not an HTTP/1.x response; the text says where they went wrong."""


class ResponseReader:
    """Feed it the bytes of one response; it gives back the decoded body.

    After the head: `status`, `reason`, `version` ("1.0"/"1.1"), `headers` (lower-case names, repeated ones joined by
    ", "), `framing` ("chunked", "length", "close", "none"). `complete` turns true at the end of the body.
    """

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.version = ""
        self.headers: dict[str, str] = {}
        self.framing = ""
        self.complete = False
        self.excess = 0  # bytes after the end: a server that does not know what it sent
        self._buffer = b""
        self._left = 0
        self._state = "head"
        self._unzip: Any = None

    @property
    def head_done(self) -> bool:
        """True once status and headers are known."""
        return self._state != "head"

    @property
    def between_chunks(self) -> bool:
        """True in a plain (not compressed) chunked body where the next byte begins a chunk."""
        return (
            self._state == "body" and self.framing == "chunked" and not self._buffer and self._unzip is None
        )

    @property
    def keep_alive(self) -> bool:
        """True if the connection may carry another request after this response."""
        connection = self.headers.get("connection", "").lower()
        if self.framing == "close":
            return False
        if self.version == "1.0":
            return "keep-alive" in connection
        return "close" not in connection

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return the body bytes they yield. Raises HttpError on bytes that are not HTTP."""
        if self.complete:
            self.excess += len(data)
            return b""
        body = self._raw(data)
        return self._decode(body) if body and self._unzip is not None else body

    def eof(self) -> bytes:
        """The connection closed: ends a close-delimited body (others stay incomplete). Returns what was held back."""
        if self._state == "body" and self.framing == "close":
            self._end()
        if self._unzip is not None and hasattr(self._unzip, "flush"):
            rest: bytes = self._unzip.flush()
            self._unzip = None
            return rest
        return b""

    def _raw(self, data: bytes) -> bytes:
        if self._state == "head":
            self._buffer += data
            while self._state == "head" and self._head():
                pass
            if self._state == "head" or self.complete:
                return b""
            data, self._buffer = self._buffer, b""
        if self.framing == "close":
            return data
        if self.framing == "length":
            body = data[: self._left]
            self._left -= len(body)
            if not self._left:
                self.excess += len(data) - len(body)
                self._end()
            return body
        return self._chunks(data)

    def _head(self) -> bool:
        """Parse a head from the buffer; True if another one (after a 1xx) may follow."""
        end, gap = self._buffer.find(b"\r\n\r\n"), 4
        bare = self._buffer.find(b"\n\n")  # captures edited by hand, and very old servers
        if bare >= 0 and (end < 0 or bare < end):
            end, gap = bare, 2
        if end < 0:
            if len(self._buffer) > MAX_HEAD or (
                len(self._buffer) >= 5 and not self._buffer.startswith(b"HTTP/")
            ):
                raise HttpError("the response is not HTTP: it begins with %r" % self._buffer[:40])
            return False
        lines = self._buffer[:end].decode("latin-1").splitlines()
        self._buffer = self._buffer[end + gap :]
        parts = lines[0].split(" ", 2) if lines else []
        if len(parts) < 2 or not parts[0].startswith("HTTP/") or not parts[1].isdigit():
            raise HttpError(
                "the response is not HTTP: its first line is %r" % (lines[0][:80] if lines else "")
            )
        self.version, self.status = parts[0][5:], int(parts[1])
        self.reason = parts[2] if len(parts) > 2 else ""
        self.headers = parse_headers(lines[1:])
        if 100 <= self.status < 200 and self.status != 101:
            return True
        self._framing()
        return False

    def _framing(self) -> None:
        self._state = "body"
        length = self.headers.get("content-length", "").split(",")[0].strip()
        if self.status in (101, 204, 304):
            self.framing = "none"
            self._end()
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self.framing = "chunked"
        elif length.isdigit():
            self.framing, self._left = "length", int(length)
            if not self._left:
                self._end()
        else:
            self.framing = "close"
        coding = self.headers.get("content-encoding", "").lower().strip()
        if coding in ("gzip", "x-gzip", "deflate"):
            import zlib

            self._unzip = zlib.decompressobj(47 if coding != "deflate" else 15)

    def _decode(self, body: bytes) -> bytes:
        try:
            out: bytes = self._unzip.decompress(body)
        except Exception as error:
            raise HttpError(
                "the %s body is damaged: %s" % (self.headers.get("content-encoding"), error)
            ) from None
        return out

    def _chunks(self, data: bytes) -> bytes:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        out: list[bytes] = []
        at, size = 0, len(data)
        while at < size and not self.complete:
            if self._state == "data":
                piece = data[at : at + self._left]
                out.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = "data-end"
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._buffer = data[at:]
                if len(self._buffer) > MAX_HEAD:
                    raise HttpError("a chunk header without end")
                break
            line, at = data[at:end].strip(), end + 1
            if self._state == "trailer":
                if not line:
                    self._end()
            elif self._state == "data-end":
                if line:
                    raise HttpError("bytes after a chunk's data: %r" % line[:20])
                self._state = "body"
            else:
                self._chunk_size(line)
        if self.complete:
            self.excess += size - at
        return b"".join(out)

    def _chunk_size(self, line: bytes) -> None:
        try:
            self._left = int(line.split(b";")[0].strip(), 16)
        except ValueError:
            raise HttpError("not a chunk size: %r" % line[:20]) from None
        if self._left < 0:
            raise HttpError("a negative chunk size")
        self._state = "data" if self._left else "trailer"

    def _end(self) -> None:
        self.complete = True
        self._state = "end"


def parse_headers(lines: list[str]) -> dict[str, str]:
    """Header lines → {lower-case name: value}; repeated names are joined by ", "."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            name = name.strip().lower()
            headers[name] = headers[name] + ", " + value.strip() if name in headers else value.strip()
    return headers
