"""A server that works on one prompt at a time, and then streams its tokens at a fixed pace: bursts queue, as on an engine.

    python -m tests.bench.servers.prefill [--prefill-ms 20] [--step-ms 10] [--slower-pct 0]

SIMULATED: no model runs here. `--slower-pct`: each prompt takes so much longer than the one before, so that the server
never settles. Prints "listening on 127.0.0.1:PORT". Clients get OpenAI chat streams with a running token count, and
counters at /metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%s\r\n\r\n"


class Prefill:
    """The one queue of prompts, the pace of every stream, and what was served."""

    def __init__(self, prefill_s: float, step_s: float, slower: float) -> None:
        self.prefill_s, self.step_s, self.slower = prefill_s, step_s, slower
        self.turn = asyncio.Lock()
        self.requests = self.tokens = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive."""
        try:
            while line := await reader.readline():
                length = 0
                while (header := (await reader.readline()).lower()).strip():
                    if header.startswith(b"content-length:"):
                        length = int(header[15:])
                body = json.loads(await reader.readexactly(length)) if length else {}
                if line.startswith(b"POST"):
                    await self.stream(writer, body)
                else:
                    self.document(writer, line.split()[1])
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def document(self, writer: asyncio.StreamWriter, path: bytes) -> None:
        """/v1/models, or the counters."""
        text = json.dumps({"data": [{"id": "SIMULATED-prefill"}]})
        if path == b"/metrics":
            text = f"vllm:request_success_total {self.requests}\nvllm:generation_tokens_total {self.tokens}\n"
        data = text.encode()
        writer.write(HEAD % (b"text/plain", b"content-length: %d" % len(data)) + data)

    async def stream(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        """Wait for the turn, then one token a chunk."""
        writer.write(HEAD % (b"text/event-stream", b"transfer-encoding: chunked"))
        loop = asyncio.get_running_loop()
        async with self.turn:
            await asyncio.sleep(self.prefill_s)
            self.prefill_s *= 1 + self.slower
        asked, begun = int(body["max_tokens"]), loop.time()
        for count in range(1, asked + 1):
            await asyncio.sleep(begun + (count - 1) * self.step_s - loop.time())
            choice = {"index": 0, "delta": {"content": "a "}, "finish_reason": None}
            choice["finish_reason"] = "length" if count == asked else None
            self.event(
                writer, {"choices": [choice], "usage": {"completion_tokens": count, "prompt_tokens": 20}}
            )
            self.tokens += 1
        self.requests += 1
        self.event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")

    def event(self, writer: asyncio.StreamWriter, value: Any) -> None:
        data = b"data: %s\n\n" % (value if isinstance(value, str) else json.dumps(value)).encode()
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefill-ms", type=float, default=20.0)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--slower-pct", type=float, default=0.0)
    options = parser.parse_args()
    one = Prefill(options.prefill_ms / 1e3, options.step_ms / 1e3, options.slower_pct / 100)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
