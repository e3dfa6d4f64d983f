"""A server with a limited number of slots: it refuses a request (HTTP 503) that finds none free, so its knee is known.

    python -m tests.bench.servers.slots --slots N [--hold S] [--forgets]      # prints "listening on 127.0.0.1:PORT"

With --forgets a connection ends without a word when a second request comes on it, as kept connections do whose server gave
them up a moment before.

SIMULATED: no model runs here. A slot is free again before the last chunk is sent, so a client that sends its next request
the moment its last one ended finds it. No time decides: with as many streams as slots nothing is ever refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json


class Slots:
    """The slots, and how long a response takes (seconds)."""

    def __init__(self, slots: int, hold_s: float, forgets: bool = False) -> None:
        self.free = slots
        self.hold_s = hold_s
        self.forgets = forgets

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: requests until it is closed."""
        served = 0
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                size = next(
                    (
                        int(h.split(":")[1])
                        for h in head.splitlines()
                        if h.lower().startswith("content-length")
                    ),
                    0,
                )
                body = await reader.readexactly(size)
                if self.forgets and served:
                    return
                served += 1
                if head.startswith("GET"):
                    await self._whole(writer, 200, {"data": [{"id": "tiny"}]} if "/models" in head else {})
                elif not self.free:
                    await self._whole(writer, 503, {"error": {"message": "no free slot"}})
                else:
                    await self._stream(writer, json.loads(body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _whole(self, writer: asyncio.StreamWriter, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter, asked: dict[str, object]) -> None:
        self.free -= 1
        tokens = int(str(asked.get("max_tokens") or asked.get("max_completion_tokens") or 4))
        try:
            head = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(f"HTTP/1.1 200 OK\r\n{head}".encode())
            for number in range(1, tokens + 1):
                self._event(writer, " tok", number)
                await writer.drain()
                await asyncio.sleep(self.hold_s / tokens)
        finally:
            self.free += 1
        self._event(writer, "", tokens, "length")
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()

    def _event(self, writer: asyncio.StreamWriter, text: str, number: int, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        usage = {"prompt_tokens": 9, "completion_tokens": number}
        event = b"data: " + json.dumps({"choices": [choice], "usage": usage}).encode() + b"\n\n"
        writer.write(b"%x\r\n" % len(event) + event + b"\r\n")


async def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--hold", type=float, default=0.02)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--forgets", action="store_true")
    args = parser.parse_args()
    slots = Slots(args.slots, args.hold, args.forgets)
    server = await asyncio.start_server(slots.serve, "127.0.0.1", args.port)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
