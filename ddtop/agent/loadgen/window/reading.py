"""What happens on the connections of a window: reads, ends, losses. The base class that `Window` builds on.

The hot path is `_readable`: one recvmsg, one stamp, two appends, and a look at the last bytes for the end.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Callable

from ..answer.exchange import Exchange
from ..http.http1 import HttpError, ResponseReader
from ..request_builder import RequestBuilder
from ..spec import LoadSpec
from .clock import ANCILLARY, STAMP, ClockMap
from .connection import (
    CLOSED,
    CONNECTING,
    HANDSHAKE,
    IDLE,
    READ_SIZE,
    READING,
    SENDING,
    Address,
    Connection,
    tls_context,
)
from .poller import READ, WRITE, Poller

now = time.monotonic_ns
END = b"\r\n0\r\n\r\n"
Progress = Callable[[int, int, int], None]


class Reading:
    """The state of a window and all that its connections bring; `Window` starts requests and keeps the time."""

    def __init__(
        self,
        spec: LoadSpec,
        builder: RequestBuilder,
        indices: list[int],
        concurrency: int,
        progress: Progress | None = None,
        start_at_ns: int = 0,
    ) -> None:
        self.spec, self.builder = spec, builder
        self.queue = deque(indices)
        self.total = len(indices)
        self.concurrency = concurrency
        self.open_loop = spec.mode == "open"
        self.progress = progress
        self.start_at_ns = start_at_ns
        self.exchanges: list[Exchange] = []
        self.clock = ClockMap()
        self.poller = Poller()
        self.conns: dict[int, Connection] = {}
        self.idle: deque[Connection] = deque()
        self.in_flight = 0
        self.zero_ns = self.end_ns = 0
        self.schedule: list[tuple[int, int]] = []
        self.waiting: deque[tuple[int, int]] = deque()  # due, but over max_in_flight
        self.stopping = ""
        self.last_error = ""
        self.on_start: Callable[[], None] | None = None
        self.wait_ns: int | None = None
        self.bytes_held = 0
        self.byte_cap = spec.raw_mib << 20
        self.backlog: deque[Exchange] = deque()
        self.zeros = 0
        self.seen_token = False
        self.reads = self.stamped = self.polls = 0
        self.lags: list[int] = []
        self.cpu_s = 0.0
        self.connects: list[int] = []
        self.start_lags: list[int] = []
        self.suspended_ns = 0
        self.woke_ns = 0
        self.address = Address(spec.host, spec.port, tls_context(spec.tls_verify) if spec.tls else None)

    # ---- what Window does

    def _send(self, conn: Connection, exchange: Exchange) -> None:
        raise NotImplementedError

    def _carry(self, exchange: Exchange) -> None:
        raise NotImplementedError

    def _finish(self, exchange: Exchange, how: str, stamp: int) -> None:
        raise NotImplementedError

    # ---- events of connections

    def _event(self, conn: Connection | None, bits: int) -> None:
        if conn is None or conn.state == CLOSED:
            return
        if conn.state in (CONNECTING, HANDSHAKE):
            if conn.connected():
                self._stands(conn)
            elif conn.why:
                self._lost(conn, conn.why)
            else:
                self.poller.modify(conn.fd, READ)
        elif conn.state == SENDING and bits & WRITE:
            try:
                if conn.flush() and conn.exchange is not None:
                    conn.state, conn.exchange.sent_ns = READING, now()
                    self.poller.modify(conn.fd, READ)
            except OSError as error:
                self._broken(conn, "reset", str(error))
        elif conn.state == IDLE:
            self._idle_readable(conn)
        else:
            self._readable(conn)

    def _stands(self, conn: Connection) -> None:
        self.poller.modify(conn.fd, READ)
        self.connects.append(conn.connect_ns)
        if conn.exchange is not None:
            self._send(conn, conn.exchange)
        else:
            self.idle.append(conn)

    def _idle_readable(self, conn: Connection) -> None:
        """Something on a connection that carries nothing: its end, a TLS ticket, or a server that speaks unasked."""
        try:
            data, _, _ = conn.receive(self.clock.offset)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data is not None:
            self._drop(conn)

    def _lost(self, conn: Connection, why: str) -> None:
        """A connection that never stood."""
        exchange, conn.exchange = conn.exchange, None
        self._drop(conn)
        if exchange is not None:
            exchange.error = why
            self._finish(exchange, "refused", now())

    def _broken(self, conn: Connection, how: str, why: str) -> None:
        """The connection ended under a request. One that was kept alive and died before a byte is sent again once."""
        exchange, conn.exchange = conn.exchange, None
        self._drop(conn)
        if exchange is None:
            return
        if conn.used > 1 and not exchange.reads and not exchange.retried:
            exchange.restart()
            exchange.start_ns = exchange.sent_ns = 0
            self._carry(exchange)
            return
        exchange.error = why
        self._finish(exchange, how, now())

    def _readable(self, conn: Connection) -> None:
        """The hot path: one read, stamped, kept; see whether the answer is over."""
        exchange = conn.exchange
        if exchange is None:
            self._idle_readable(conn)
            return
        try:
            if conn.tls is None:
                data: bytes | None
                data, control, _, _ = conn.recvmsg(READ_SIZE, ANCILLARY)
                if control:
                    seconds, nanos = STAMP.unpack(control[0][2])
                    stamp = seconds * 1_000_000_000 + nanos - self.clock.offset
                    self.stamped += 1
                else:
                    stamp = now()
                    exchange.stampless += 1
            else:
                data, stamp, with_stamp = conn.receive(self.clock.offset)
                self.stamped += with_stamp
                exchange.stampless += not with_stamp
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._over(conn, "reset", str(error))
            return
        if not data:
            if data is not None:
                self._over(conn, "closed", "")
            return
        self.reads += 1
        if (
            not self.reads & 15
        ):  # with a kernel stamp: since it arrived; without: since the loop woke up for it
            self.lags.append(now() - (stamp if not exchange.stampless else self.woke_ns))
        if conn.quick:
            conn.acknowledge()
        exchange.reads += 1
        exchange.raw_bytes += len(data)
        exchange.stamps.append(stamp)
        exchange.datas.append(data)
        self.bytes_held += len(data) + 80
        walker = exchange.walker
        if walker is None or not walker.head_done:
            self._walk(conn, exchange, stamp)
        elif walker.framing == "chunked":
            if data.endswith(END):
                # "\n\n" before it is the end of an event: no doubt. Else the chunks are counted to be sure.
                if data[-9:-7] == b"\n\n":
                    self._end(conn, "complete", stamp, keep=conn.reusable)
                else:
                    self._walk(conn, exchange, stamp)
            elif len(data) < 7 or data.endswith(b"\r\n\r\n"):
                self._walk(conn, exchange, stamp)
            elif b"[DONE]" in data:
                conn.done_ns = stamp
        elif walker.framing == "close":
            if b"[DONE]" in data:
                conn.done_ns = stamp
        else:
            self._walk(conn, exchange, stamp)

    def _walk(self, conn: Connection, exchange: Exchange, stamp: int) -> None:
        """Follow the framing through all bytes not followed yet."""
        if exchange.walker is None:
            exchange.walker = ResponseReader()
        walker = exchange.walker
        try:
            for place in range(exchange.walked, len(exchange.datas)):
                walker.feed(exchange.datas[place])
        except HttpError:
            self._end(conn, "not-http", stamp, keep=False)
            return
        exchange.walked = len(exchange.datas)
        if walker.head_done:
            conn.reusable = walker.keep_alive and self.spec.connections in ("keep-alive", "cold-start")
        if walker.complete:
            self._end(conn, "complete", stamp, keep=conn.reusable and not walker.excess)
        elif exchange.datas and b"[DONE]" in exchange.datas[-1]:
            conn.done_ns = stamp

    # ---- ends

    def _over(self, conn: Connection, how: str, why: str) -> None:
        """EOF or reset under a request: the end of a close-delimited body, or a cut."""
        exchange = conn.exchange
        if exchange is not None and not exchange.reads:
            self._broken(conn, "no-answer", why or "the connection closed before any answer")
            return
        if exchange is not None:
            exchange.error = why
        # EOF has no stamp of its own; the read that found it is the best there is
        self._end(conn, how, now(), keep=False)

    def _end(self, conn: Connection, how: str, stamp: int, keep: bool) -> None:
        exchange, conn.exchange = conn.exchange, None
        conn.done_ns = 0
        if keep and conn.state == READING:
            conn.state = IDLE
            self.idle.appendleft(conn)
        else:
            self._drop(conn)
        if exchange is not None:
            self._finish(exchange, how, stamp)

    def _relieve(self) -> None:
        """Too many bytes held: parse some, oldest first; running answers only when nothing else is left."""
        budget = 20 if self.bytes_held < 2 * self.byte_cap else 400
        while self.backlog and not self.backlog[0].datas:
            self.backlog.popleft()
        if self.backlog:
            victim = self.backlog[0]
        else:
            running = [conn.exchange for conn in self.conns.values() if conn.exchange is not None]
            if not running:
                self.bytes_held = 0
                return
            victim = max(running, key=lambda exchange: len(exchange.datas))
            if victim.walker is not None and victim.walker.head_done:
                try:
                    for place in range(victim.walked, len(victim.datas)):
                        victim.walker.feed(victim.datas[place])
                except HttpError:
                    pass  # the next read meets it again and ends the request
                victim.walked = len(victim.datas)
            budget = 400
        before = len(victim.datas) - victim.taken
        freed = victim.consume(budget)
        self.bytes_held = max(0, self.bytes_held - freed - 80 * min(before, budget))

    def _drop(self, conn: Connection) -> None:
        if conn.state != CLOSED:
            self.conns.pop(conn.fd, None)
            self.poller.forget(conn.fd)
            conn.close()
