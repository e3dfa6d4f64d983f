"""A server with one behaviour for each path: POST /b/NAME/v1/chat/completions (or /completions, /generate under it).

    python -m tests.bench.servers.lying [--port N] [--step S]      # prints "listening on 127.0.0.1:PORT"

SIMULATED: no model runs here. Every behaviour is written out byte by byte over asyncio streams, so that framing, splits
and ends are exactly the ones named. `BEHAVIOURS` lists them with the truth a client should report.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import socket
import struct
from typing import Any, NamedTuple


class Truth(NamedTuple):
    """What a right client says of one request for 64 tokens with ignore_eos: class, tokens (None: not to be known)."""

    cls: str
    tokens: int | None
    note: str


BEHAVIOURS: dict[str, Truth] = {
    "normal": Truth("ok", 64, "4 tokens a chunk, running count"),
    "final-usage": Truth("ok", 64, "the count comes once, at the end"),
    "no-usage": Truth("ok", None, "usage asked for and not given"),
    "empty": Truth("empty", None, "200, [DONE], no token"),
    "empty-finish": Truth("empty", 0, "finish_reason stop, usage 0, no token"),
    "cut": Truth("truncated", 21, "the connection closes after 21 tokens, chunked body open"),
    "cut-close": Truth("truncated", 21, "the same with a close-delimited body: framing cannot tell"),
    "reset": Truth("truncated", 21, "TCP reset after 21 tokens"),
    "err": Truth("in-band error", 5, "error object after 5 tokens, then [DONE]"),
    "err-first": Truth("in-band error", None, "error object before any token"),
    "err-old": Truth("in-band error", 5, '{"object": "error"} without a wrapper'),
    "early": Truth("short", 16, "stops at 16 though ignore_eos was asked"),
    "abort": Truth("aborted", 9, "finish_reason abort after 9 tokens"),
    "reasoning": Truth("ok", 64, "reasoning deltas, then content"),
    "reasoning-only": Truth("ok", 64, "reasoning_content alone"),
    "comments": Truth("ok", 64, "comment lines before and between"),
    "keepalive-events": Truth("ok", 64, "data events without choices or text"),
    "crlf": Truth("ok", 64, "CRLF line ends, data: without blank"),
    "split-1": Truth("ok", 64, "TCP writes of one byte"),
    "split-7": Truth("ok", 64, "TCP writes of seven bytes, UTF-8 cut inside"),
    "one-write": Truth("ok", 64, "the whole answer in one write"),
    "utf8": Truth("ok", 64, "multi-byte text, chunk boundaries inside a character"),
    "n2": Truth("ok", 128, "two choices, interleaved"),
    "tools": Truth("ok", 64, "tool-call deltas only"),
    "gzip": Truth("ok", 64, "gzip although identity was asked"),
    "http10": Truth("ok", 64, "HTTP/1.0, close-delimited"),
    "length": Truth("ok", 64, "event stream with Content-Length"),
    "trailer": Truth("ok", 64, "chunk extensions and a trailer"),
    "continue": Truth("ok", 64, "an interim 102 before the answer"),
    "done-open": Truth("ok", 64, "[DONE], then the connection stays open"),
    "no-done": Truth("ok", 64, "no [DONE]"),
    "503": Truth("http 503", None, "Retry-After: 2"),
    "429-json": Truth("http 429", None, "error document"),
    "500-chunked": Truth("http 500", None, "chunked text"),
    "silent": Truth("timeout", None, "accepts and never answers"),
    "stall-50": Truth("timeout", 50, "stops after 50 tokens and holds the connection"),
    "no-answer": Truth("aborted", None, "closes without one byte"),
    "not-http": Truth("aborted", None, "answers in another protocol"),
    "big": Truth("ok", 64, "1 MB of text in one event"),
    "plain-json": Truth("ok", 64, "stream ignored: one JSON document"),
    "html-200": Truth("empty", None, "an HTML page with status 200"),
    "generate": Truth("ok", 64, "SGLang form, cumulative text"),
    "generate-inc": Truth("ok", 64, "SGLang form, incremental text"),
    "generate-abort": Truth("aborted", 8, "SGLang form, finish_reason {type: abort}"),
    "llamacpp": Truth("ok", 64, "timings with every chunk"),
    "completions": Truth("ok", 64, "text instead of delta"),
    "no-stream-options": Truth("ok", None, "400 on stream_options: the client has to ask for less"),
}
STEP_S = 0.004
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


class Answer:
    """Writes one answer in the behaviour's framing."""

    def __init__(self, writer: asyncio.StreamWriter, name: str, body: dict[str, Any]) -> None:
        self.writer, self.name, self.body = writer, name, body
        self.chunked = name not in ("http10", "cut-close", "length")
        self.split = {"split-1": 1, "split-7": 7, "utf8": 5}.get(name, 0)
        self.held = b""
        self.end = "\r\n" if name == "crlf" else "\n"

    async def raw(self, data: bytes) -> None:
        if self.split:
            for at in range(0, len(data), self.split):
                self.writer.write(data[at : at + self.split])
                await self.writer.drain()
                if at % 70 == 0:
                    await asyncio.sleep(0)
        else:
            self.writer.write(data)
            await self.writer.drain()

    async def head(self) -> None:
        if self.name == "http10":
            await self.raw(HEAD.replace("1.1", "1.0").encode() + b"\r\n")
        elif self.name == "cut-close":
            await self.raw(HEAD.encode() + b"Connection: close\r\n\r\n")
        elif self.name == "continue":
            await self.raw(
                b"HTTP/1.1 102 Processing\r\n\r\n" + HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
            )
        elif self.name == "gzip":
            await self.raw(HEAD.encode() + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        elif self.name not in ("length", "one-write"):
            await self.raw(HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n")

    async def send(self, text: str) -> None:
        data = text.encode()
        if self.name in ("length", "one-write", "gzip"):
            self.held += data
        elif self.chunked:
            extension = ";x=1" if self.name == "trailer" else ""
            await self.raw(f"{len(data):x}{extension}\r\n".encode() + data + b"\r\n")
        else:
            await self.raw(data)

    async def event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=self.name != "utf8")
        blank = "" if self.name == "crlf" else " "
        await self.send(f"data:{blank}{text}{self.end}{self.end}")

    async def finish(self) -> None:
        if self.name == "length":
            await self.raw(HEAD.encode() + f"Content-Length: {len(self.held)}\r\n\r\n".encode() + self.held)
        elif self.name == "one-write":
            data = f"{len(self.held):x}\r\n".encode() + self.held + b"\r\n0\r\n\r\n"
            await self.raw(HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + data)
        elif self.name == "gzip":
            packed = gzip.compress(self.held)
            for at in range(0, len(packed), 50):
                piece = packed[at : at + 50]
                await self.raw(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await self.raw(b"0\r\n\r\n")
        elif self.name == "trailer":
            await self.raw(b"0\r\nX-Took: 5\r\n\r\n")
        elif self.chunked:
            await self.raw(b"0\r\n\r\n")


def limit_of(body: dict[str, Any]) -> int:
    sampling = body.get("sampling_params") or {}
    return int(body.get("max_tokens") or sampling.get("max_new_tokens") or 64)


async def whole(writer: asyncio.StreamWriter, status: str, headers: str, data: bytes) -> None:
    writer.write(f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()


async def special(name: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
    """Behaviours that are no event stream; True if this was one. The connection is closed where it says so."""
    if name == "503":
        await whole(writer, "503 Service Unavailable", "Retry-After: 2\r\n", b"loading model")
    elif name == "429-json":
        data = json.dumps({"error": {"message": "too many requests", "code": 429}}).encode()
        await whole(writer, "429 Too Many Requests", "Content-Type: application/json\r\n", data)
    elif name == "500-chunked":
        writer.write(b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nboom\r\n0\r\n\r\n")
    elif name == "no-stream-options" and "stream_options" in body:
        data = json.dumps({"error": {"message": "unknown field stream_options"}}).encode()
        await whole(writer, "400 Bad Request", "Content-Type: application/json\r\n", data)
    elif name == "silent":
        await asyncio.sleep(3600)
    elif name == "no-answer":
        writer.close()
    elif name == "not-http":
        writer.write(b"-ERR unknown command 'POST'\r\n")
        writer.close()
    elif name == "plain-json":
        usage = {"prompt_tokens": 10, "completion_tokens": limit_of(body), "total_tokens": 74}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "all at once"},
            "finish_reason": "length",
        }
        data = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        await whole(writer, "200 OK", "Content-Type: application/json\r\n", data)
    elif name == "html-200":
        await whole(
            writer, "200 OK", "Content-Type: text/html\r\n", b"<html><body>Welcome to nginx!</body></html>"
        )
    else:
        return False
    await writer.drain()
    return True


class Story:
    """The events of one streamed answer."""

    def __init__(self, name: str, body: dict[str, Any], answer: Answer) -> None:
        self.name, self.answer = name, answer
        self.n = limit_of(body)
        self.count = 0
        options = body.get("stream_options") or {}
        self.each = bool(options.get("continuous_usage_stats"))
        self.last = bool(options.get("include_usage"))
        if name in ("final-usage", "no-usage", "no-stream-options", "llamacpp"):
            self.each = False
        if name in ("no-usage", "no-stream-options"):
            self.last = False

    def usage(self, count: int) -> dict[str, int]:
        return {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count}

    async def chunk(
        self, k: int, finish: str | None = None, index: int = 0, counted: int | None = None
    ) -> None:
        name = self.name
        self.count += k
        text = ("é漢" if name == "utf8" else " tok") * k
        if name == "big" and self.count == k:
            text = " x" * 500_000
        if name.startswith("generate"):
            shown = " tok" * (k if name == "generate-inc" else self.count)
            reason: Any = {"type": finish} if finish else None
            if finish == "abort":
                reason["message"] = "out of memory"
            meta = {"prompt_tokens": 10, "completion_tokens": self.count, "finish_reason": reason}
            await self.answer.event({"text": shown, "meta_info": meta})
            return
        choice: dict[str, Any] = {"index": index, "finish_reason": finish}
        if name == "completions":
            choice["text"] = text
        elif name == "tools":
            choice["delta"] = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        elif name == "reasoning-only" or (name == "reasoning" and self.count < 40):
            choice["delta"] = {
                "reasoning" if name == "reasoning" else "reasoning_content": text,
                "content": None,
            }
        else:
            choice["delta"] = {"content": text}
        event: dict[str, Any] = {"id": "x", "object": "chat.completion.chunk", "choices": [choice]}
        if self.each:
            event["usage"] = self.usage(self.count if counted is None else counted)
        if name == "llamacpp":
            event["timings"] = {"predicted_n": self.count, "predicted_ms": self.count * 5.0, "prompt_n": 10}
        await self.answer.event(event)

    async def tell(self) -> str:
        """All of it; returns how the connection goes on: "keep", "close", "reset", "hang"."""
        name, answer = self.name, self.answer
        await answer.head()
        if name == "comments":
            await answer.send(": ping\n\n:\n\n: still prefilling\n")
        if name == "keepalive-events":
            for ping in ({"type": "ping"}, {}, {"choices": []}):
                await answer.event(ping)
        if name not in ("completions", "empty", "err-first") and not name.startswith("generate"):
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            await answer.event({"choices": [role]})
        if name == "n2":
            await self.two()
        elif name == "err-first":
            await answer.event({"error": {"message": "TimeoutError", "code": 504}})
        elif name == "empty-finish":
            await answer.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        elif name != "empty":
            how = await self.tokens()
            if how:
                return how
        if self.last and not name.startswith(("generate", "empty", "err")):
            await answer.event({"choices": [], "usage": self.usage(self.count)})
        if name == "empty-finish":
            await answer.event({"choices": [], "usage": self.usage(0)})
        if name != "no-done":
            await answer.event("[DONE]")
        if name == "done-open":
            return "hang"
        await answer.finish()
        return "keep" if answer.chunked or name == "length" else "close"

    async def tokens(self) -> str:
        name = self.name
        stop = {"early": 16, "abort": 9, "generate-abort": 8}.get(name, self.n)
        end = {"early": "stop", "abort": "abort", "generate-abort": "abort"}.get(name, "length")
        while self.count < stop:
            k = min(4 if self.count else 1, stop - self.count)
            await self.chunk(k, end if self.count + k >= stop else None)
            if name == "comments":
                await self.answer.send(": keepalive\n")
            if name in ("cut", "cut-close") and self.count >= 21:
                return "close"
            if name == "reset" and self.count >= 21:
                return "reset"
            if name in ("err", "err-old") and self.count >= 5:
                error = {"message": "boom", "code": 500}
                await self.answer.event({"error": error} if name == "err" else {"object": "error", **error})
                return ""
            if name == "stall-50" and self.count >= 49:
                await self.chunk(1)
                return "hang"
            await asyncio.sleep(STEP_S)
        return ""

    async def two(self) -> None:
        counts = [0, 0]
        while counts[0] < self.n:
            for index in (0, 1):
                k = min(4 if counts[index] else 1, self.n - counts[index])
                counts[index] += k
                await self.chunk(k, "length" if counts[index] >= self.n else None, index, counts[index])
            await asyncio.sleep(STEP_S)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await one(reader, writer):
            pass
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, path, _ = head.split("\r\n")[0].split(" ", 2)
    length = next(
        (int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0
    )
    body = json.loads(await reader.readexactly(length) or b"{}")
    if method == "GET":  # clients look at /health and /v1/models, some at others, before they begin
        models = {"object": "list", "data": [{"id": "SIMULATED", "object": "model"}]}
        await whole(writer, "200 OK", "Content-Type: application/json\r\n", json.dumps(models).encode())
        return True
    parts = path.split("/")
    name = parts[2] if len(parts) > 2 and parts[1] == "b" else "normal"
    if name not in BEHAVIOURS:
        await whole(writer, "404 Not Found", "", b"no such behaviour")
        return True
    if await special(name, body, writer):
        return not writer.is_closing()
    how = await Story(name, body, Answer(writer, name, body)).tell()
    if how == "hang":
        await asyncio.sleep(3600)
    if how == "reset":
        sock = writer.get_extra_info("socket")
        await asyncio.sleep(0.05)  # the client shall have read what was sent: a reset throws it away
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return how == "keep" and "connection: close" not in head.lower()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--step", type=float, default=STEP_S)
    options = parser.parse_args()
    globals()["STEP_S"] = options.step
    server = await asyncio.start_server(serve, "127.0.0.1", options.port, backlog=1024)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
