"""A stamping server: streams of SSE chunks whose send times are known exactly, for testing a load generator on this machine.

Standard library only. Every stream's events are stamped with CLOCK_MONOTONIC just before send(); `GET /dump` gives
them back as JSON lines, with the kernel's arrival time of the request. SIMULATED: there is no model.

    python -m …loadgen.stampserver --ttft-us 100000 --dt-us 20000 --k 1 --step 1     # prints "listening on …"
"""

from __future__ import annotations

import argparse
import heapq
import json
import socket
import sys
import time
from typing import Any

from .window.clock import ANCILLARY, STAMP, ClockMap, ask_for_stamps
from .window.poller import READ, WRITE, Poller

now = time.monotonic_ns
TEXT = " tok"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Stream:
    """One connection and the request it serves."""

    __slots__ = ("arrive", "buffer", "count", "due", "id", "n", "out", "prompt", "sock", "stamps", "usage")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""
        self.out = b""
        self.stamps: list[int] = []
        self.arrive = self.count = self.n = self.due = self.prompt = 0
        self.id = ""
        self.usage = False


class StampServer:
    """`ttft_ns` from a request's arrival to its first chunk, `dt_ns` between chunks of `k` tokens; `step`: all streams
    emit at one common tick, as an engine's batch does."""

    def __init__(self, port: int, ttft_ns: int, dt_ns: int, k: int, step: bool) -> None:
        self.ttft_ns, self.dt_ns, self.k, self.step = ttft_ns, dt_ns, k, step
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ask_for_stamps(self.listener)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(4096)
        self.listener.setblocking(False)
        self.poller = Poller()
        self.poller.register(self.listener.fileno(), READ)
        self.streams: dict[int, Stream] = {}
        self.timers: list[tuple[int, int]] = []
        self.records: list[dict[str, Any]] = []
        self.clock = ClockMap()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.listener.getsockname()[1])

    def run(self) -> None:
        """Serve until the process ends."""
        while True:
            timeout = 1.0
            if self.timers:
                wait = self.timers[0][0] - now()
                timeout = 0.0 if wait < 1_100_000 else (wait - 600_000) / 1e9
            for fd, bits in self.poller.poll(timeout):
                if fd == self.listener.fileno():
                    self._accept()
                elif fd in self.streams:
                    if bits & WRITE:
                        self._write(self.streams[fd])
                    if bits & ~WRITE:
                        self._read(self.streams[fd])
            moment = now()
            while self.timers and self.timers[0][0] <= moment:
                _, fd = heapq.heappop(self.timers)
                stream = self.streams.get(fd)
                if stream is not None and stream.n:
                    self._emit(stream)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask_for_stamps(sock)
            self.streams[sock.fileno()] = Stream(sock)
            self.poller.register(sock.fileno(), READ)

    def _close(self, stream: Stream) -> None:
        fd = stream.sock.fileno()
        self.poller.forget(fd)
        self.streams.pop(fd, None)
        stream.sock.close()

    def _read(self, stream: Stream) -> None:
        try:
            data, control, _, _ = stream.sock.recvmsg(1 << 20, ANCILLARY)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(stream)
            return
        moment = now()
        if control and len(control[0][2]) >= 16:
            seconds, nanos = STAMP.unpack(control[0][2][:16])
            moment = seconds * 1_000_000_000 + nanos - self.clock.offset
        stream.buffer += data
        head, blank, rest = stream.buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        length = int(headers.get("content-length") or 0)
        if len(rest) < length:
            return
        stream.buffer = rest[length:]
        if lines[0].startswith("GET"):
            self._get(stream, lines[0].split(" ")[1])
        else:
            self._start(stream, headers, json.loads(rest[:length]), moment)

    def _get(self, stream: Stream, path: str) -> None:
        text = "{}"
        if path == "/dump":
            self.clock.refresh()
            text = "\n".join(json.dumps(one) for one in self.records) + "\n"
            self.records = []
        elif path == "/v1/models":
            text = '{"data": [{"id": "SIMULATED"}]}'
        data = text.encode()
        stream.out += b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        self._write(stream)

    def _start(self, stream: Stream, headers: dict[str, str], body: dict[str, Any], arrive: int) -> None:
        stream.id = headers.get("x-request-id", "")
        stream.arrive, stream.count, stream.stamps = arrive, 0, []
        stream.n = int(body.get("max_tokens") or 16)
        stream.usage = bool((body.get("stream_options") or {}).get("continuous_usage_stats"))
        stream.prompt = len(str(body)) // 4
        stream.out += HEAD
        self._write(stream)
        due = arrive + self.ttft_ns
        if self.step:
            due = -(-due // self.dt_ns) * self.dt_ns
        stream.due = due
        heapq.heappush(self.timers, (due, stream.sock.fileno()))

    def _emit(self, stream: Stream) -> None:
        k = min(self.k if stream.count else 1, stream.n - stream.count)
        stream.count += k
        last = stream.count >= stream.n
        usage = ""
        if stream.usage:
            usage = ',"usage":{"prompt_tokens":%d,"completion_tokens":%d}' % (stream.prompt, stream.count)
        event = 'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]%s}\n\n' % (
            TEXT * k,
            '"length"' if last else "null",
            usage,
        )
        data = event.encode()
        out = b"%x\r\n%s\r\n" % (len(data), data)
        if last:
            out += b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
        stream.stamps.append(now())
        stream.out += out
        self._write(stream)
        if last:
            record = {
                "id": stream.id,
                "arrive_ns": stream.arrive,
                "tokens": stream.count,
                "stamps": stream.stamps,
            }
            self.records.append(record)
            stream.n = 0
            return
        stream.due += self.dt_ns
        moment = now()
        if stream.due <= moment:
            stream.due = (moment // self.dt_ns + 1) * self.dt_ns if self.step else moment + self.dt_ns
        heapq.heappush(self.timers, (stream.due, stream.sock.fileno()))

    def _write(self, stream: Stream) -> None:
        try:
            sent = stream.sock.send(stream.out)
            stream.out = stream.out[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._close(stream)
            return
        self.poller.modify(stream.sock.fileno(), READ | WRITE if stream.out else READ)


def main() -> None:
    """Parse arguments, print the address, serve."""
    parser = argparse.ArgumentParser(description="a stamping server (SIMULATED)")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-us", type=int, default=50_000)
    parser.add_argument("--dt-us", type=int, default=20_000)
    parser.add_argument("--k", type=int, default=1)
    parser.add_argument("--step", type=int, default=0)
    options = parser.parse_args()
    server = StampServer(
        options.port, options.ttft_us * 1000, options.dt_us * 1000, options.k, bool(options.step)
    )
    sys.stdout.write("listening on 127.0.0.1:%d\n" % server.port)
    sys.stdout.flush()
    server.run()


if __name__ == "__main__":
    main()
