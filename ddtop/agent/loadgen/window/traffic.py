"""The connections of a window and all that arrives on them: reads, ends, losses.

The hot path is `readable`: one recvmsg, one stamp, two appends, and a look at the last bytes for the end.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from ..http.http1 import HttpError, ResponseReader
from ..response.exchange import Exchange
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
COLD = ("cold", "cold-start")


class Requests(Protocol):
    """What `Traffic` calls: the `Window`, which decides what is sent when."""

    def send(self, conn: Connection, exchange: Exchange) -> None:
        """`conn` is up: send the request it was opened for."""

    def carry(self, exchange: Exchange, *, anew: bool = False) -> None:
        """Send a request again, on another connection; `anew`: on a new one."""

    def finish(self, exchange: Exchange, how: str, stamp: int) -> None:
        """A response has ended, at `stamp`; `how` is a word of `request_class`."""


class Traffic:
    """All connections of one window: opens them, reads from them, closes them, and counts what it reads."""

    def __init__(self, spec: LoadSpec, requests: Requests) -> None:
        self.spec, self.requests = spec, requests
        self.address = Address(spec.host, spec.port, tls_context(spec.tls_verify) if spec.tls else None)
        self.clock = ClockMap()
        self.poller = Poller()
        self.conns: dict[int, Connection] = {}
        self.idle: deque[Connection] = deque()
        self.backlog: deque[Exchange] = deque()  # ended, not parsed yet
        self.bytes_held = 0
        self.byte_cap = spec.raw_mib << 20
        self.last_error = ""
        self.reads = self.stamped = 0
        self.woke_ns = 0
        self.lags: list[int] = []
        self.connects: list[int] = []

    def open(self, exchange: Exchange | None = None) -> Connection | None:
        """A new connection, for `exchange` if one is given; None (see `last_error`) where none can be opened."""
        try:
            conn = Connection(self.address, not self.spec.loopback)
        except OSError as error:  # no more file descriptors
            self.last_error = str(error)
            return None
        conn.exchange = exchange
        if exchange is not None and self.spec.connections in COLD:
            exchange.start_ns = conn.begun_ns  # connecting is part of TTFT, because it was asked to be
        self.conns[conn.fd] = conn
        if exchange is not None and conn.is_up() and conn.connected():
            # Over loopback a connection stands at once: send now, not after all others have connected.
            self.poller.register(conn.fd, READ)
            self.connects.append(conn.connect_ns)
            self.requests.send(conn, exchange)
        else:
            self.poller.register(conn.fd, READ if conn.state == HANDSHAKE else WRITE)
        return conn

    def event(self, conn: Connection | None, bits: int) -> None:
        if conn is None or conn.state == CLOSED:
            return
        if conn.state in (CONNECTING, HANDSHAKE):
            if conn.connected():
                self._stands(conn)
            elif conn.why:
                self.lost(conn, conn.why)
            else:
                self.poller.modify(conn.fd, READ)
        elif conn.state == SENDING and bits & WRITE:
            try:
                if conn.flush() and conn.exchange is not None:
                    conn.state, conn.exchange.sent_ns = READING, now()
                    self.poller.modify(conn.fd, READ)
            except OSError as error:
                self.broken(conn, "reset", str(error))
        elif conn.state == IDLE:
            self._idle_readable(conn)
        else:
            self.readable(conn)

    def _stands(self, conn: Connection) -> None:
        self.poller.modify(conn.fd, READ)
        self.connects.append(conn.connect_ns)
        if conn.exchange is not None:
            self.requests.send(conn, conn.exchange)
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
            self.drop(conn)

    def lost(self, conn: Connection, why: str) -> None:
        """A connection that never stood."""
        exchange, conn.exchange = conn.exchange, None
        self.drop(conn)
        if exchange is not None:
            exchange.error = why
            self.requests.finish(exchange, "refused", now())

    def broken(self, conn: Connection, how: str, why: str) -> None:
        """The connection ended under a request. One that was kept alive and died before a byte is sent again once, on a new
        connection: others that were idle may have been ended with it."""
        exchange, conn.exchange = conn.exchange, None
        self.drop(conn)
        if exchange is None:
            return
        if conn.used > 1 and not exchange.reads and not exchange.retried:
            exchange.restart()
            exchange.start_ns = exchange.sent_ns = 0
            self.requests.carry(exchange, anew=True)
            return
        exchange.error = why
        self.requests.finish(exchange, how, now())

    def readable(self, conn: Connection) -> None:
        """The hot path: one read, stamped, kept; see whether the response is over."""
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
                    self.end(conn, "complete", stamp, keep=conn.reusable)
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
            self.end(conn, "not-http", stamp, keep=False)
            return
        exchange.walked = len(exchange.datas)
        if walker.head_done:
            conn.reusable = walker.keep_alive and self.spec.connections in ("keep-alive", "cold-start")
        if walker.complete:
            self.end(conn, "complete", stamp, keep=conn.reusable and not walker.excess)
        elif exchange.datas and b"[DONE]" in exchange.datas[-1]:
            conn.done_ns = stamp

    # ---- ends

    def _over(self, conn: Connection, how: str, why: str) -> None:
        """EOF or reset under a request: the end of a close-delimited body, or a cut."""
        exchange = conn.exchange
        if exchange is not None and not exchange.reads:
            self.broken(conn, "no-answer", why or "the connection closed before any response")
            return
        if exchange is not None:
            exchange.error = why
        # EOF has no stamp of its own; the read that found it is the best there is
        self.end(conn, how, now(), keep=False)

    def end(self, conn: Connection, how: str, stamp: int, keep: bool) -> None:
        exchange, conn.exchange = conn.exchange, None
        conn.done_ns = 0
        if keep and conn.state == READING:
            conn.state = IDLE
            self.idle.appendleft(conn)
        else:
            self.drop(conn)
        if exchange is not None:
            self.requests.finish(exchange, how, stamp)

    def relieve(self) -> None:
        """Too many bytes held: parse some, oldest first; running responses only when nothing else is left."""
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

    def drop(self, conn: Connection) -> None:
        if conn.state != CLOSED:
            self.conns.pop(conn.fd, None)
            self.poller.forget(conn.fd)
            conn.close()
