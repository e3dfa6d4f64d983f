"""The timed window: one event loop that opens connections, sends prebuilt requests and stamps what comes back.

Nothing is parsed while the clock runs beyond finding the end of an answer, unless more bytes pile up than may be
held. Connections stand before the clock starts. Closed loop: `concurrency` streams, each sends its next request the
moment its last ended. Open loop: requests go out at their scheduled times whether or not earlier ones came back; the
scheduled time is kept, so that a client that falls behind shows it.
"""

from __future__ import annotations

import gc
import heapq
import time
from typing import Any

from ..answer.exchange import Exchange
from ..machine.pressure import own_wait_ns
from ..request_builder import arrival_times
from .clock import suspended_ns
from .connection import CONNECTING, HANDSHAKE, IDLE, READING, SENDING, Connection
from .poller import READ, WRITE
from .quality import quality
from .reading import Reading

now = time.monotonic_ns
TICK_NS = 250_000_000
DONE_GRACE_NS = 1_000_000_000  # [DONE] came but the body does not end: take it as ended after this
SETTLE_NS = 50_000_000  # the kernel turns receive stamps on some ms after the first socket asked for them
CONNECT_S = 10.0
LAZY_FROM = 16  # streams
LAZY_S = 0.0002
COLD = ("cold", "cold-start")


class Window(Reading):
    """Runs requests `indices` of a spec once; then `exchanges` and `quality()` say what happened."""

    # ---- the run

    def run(self) -> None:
        """Open, wait for the clock, run, close. OSError from name resolution is the caller's."""
        spec = self.spec
        self._open_ahead()
        frozen = gc.isenabled()
        gc.collect()
        gc.disable()
        slept, cpu = suspended_ns(), time.process_time()
        try:
            if self.start_at_ns:
                while now() < self.start_at_ns:
                    time.sleep(min(0.01, max(0.0, (self.start_at_ns - now()) / 1e9)))
            self.clock.refresh()
            if self.on_start is not None:
                self.on_start()
            waited = own_wait_ns()
            self.zero_ns = now()
            self._loop(self.zero_ns + int(spec.time_limit_s * 1e9))
            self.end_ns = now()
            waited_after = own_wait_ns()
            if waited is not None and waited_after is not None:
                self.wait_ns = waited_after - waited
        finally:
            self.cpu_s = time.process_time() - cpu
            self.suspended_ns = suspended_ns() - slept
            if frozen:
                gc.enable()
            for conn in list(self.conns.values()):
                self._drop(conn)
            self.poller.close()

    def _open_ahead(self) -> None:
        """Connections before the clock; what cannot be opened is tried again by the request that needs it."""
        if self.spec.connections in COLD:
            return
        begun = now()
        for attempt in range(len(self.address.choices)):
            want = min(self.concurrency, self.total) if not self.open_loop else self.spec.streams
            for _ in range(want):
                if self._new_connection() is None:
                    break
            limit = now() + int(CONNECT_S * 1e9)
            while (
                any(conn.state in (CONNECTING, HANDSHAKE) for conn in self.conns.values()) and now() < limit
            ):
                for fd, bits in self.poller.poll(0.1):
                    self._event(self.conns.get(fd), bits)
            if self.idle:
                break
            self.address.best = attempt + 1
        rest = begun + SETTLE_NS - now()
        if rest > 0 and self.idle:
            time.sleep(rest / 1e9)

    def _loop(self, limit_ns: int) -> None:
        spec = self.spec
        if self.open_loop:
            times = arrival_times(spec.requests, spec.rate, spec.arrival, spec.seed)
            self.schedule = [(self.zero_ns + times[index], index) for index in self.queue]
            heapq.heapify(self.schedule)
            self.queue.clear()
        else:
            for _ in range(min(self.concurrency, self.total)):
                self._next()
        tick = self.zero_ns + TICK_NS
        poll, conns, event = self.poller.poll, self.conns, self._event
        recv_fast = self._readable
        while self.in_flight or ((self.schedule or self.waiting or self.queue) and not self.stopping):
            moment = now()
            if moment >= tick:
                self._tick(moment)
                tick = moment + TICK_NS
                if moment >= limit_ns:
                    self._stop("time-limit")
                    break
            due = min(tick, limit_ns)
            if self.schedule:
                due = min(due, self.schedule[0][0])
                if self.schedule[0][0] <= moment:
                    self._due(moment)
                    continue
            wait = due - moment
            # epoll waits in whole milliseconds and rounds up: sleep short of the due time, then look without waiting
            timeout = 0.0 if wait < 1_100_000 and self.schedule else max(0.0, (wait - 600_000) / 1e9)
            self.polls += 1
            ready = poll(timeout)
            if (
                ready
                and self.in_flight >= LAZY_FROM
                and self.stamped == self.reads > 100
                and wait > 5_000_000
            ):
                # The kernel has stamped what arrived, so reading it a little later moves no time; it saves a wake-up for
                # each chunk of a batch that the server sends one by one.
                time.sleep(LAZY_S)
                ready = poll(0.0)
            self.woke_ns = now()
            for fd, bits in ready:
                conn = conns.get(fd)
                if conn is None:
                    continue
                if conn.state == READING and conn.tls is None:
                    recv_fast(conn)
                else:
                    event(conn, bits)
            if self.bytes_held > self.byte_cap:
                self._relieve()

    def _tick(self, moment: int) -> None:
        self.clock.refresh()
        timeout = int(self.spec.request_timeout_s * 1e9)
        for conn in list(self.conns.values()):
            exchange = conn.exchange
            if exchange is None:
                if conn.state in (CONNECTING, HANDSHAKE) and moment - conn.begun_ns > CONNECT_S * 1e9:
                    self._lost(conn, "no connection within %.0f s" % CONNECT_S)
            elif conn.done_ns and moment - conn.done_ns > DONE_GRACE_NS:
                self._end(conn, "complete", conn.done_ns, keep=False)
            elif moment - (exchange.start_ns or conn.begun_ns) > timeout:
                self._end(conn, "timeout", moment, keep=False)
            elif conn.state in (CONNECTING, HANDSHAKE) and moment - conn.begun_ns > CONNECT_S * 1e9:
                self._lost(conn, "no connection within %.0f s" % CONNECT_S)
        if self.progress is not None:
            self.progress(len(self.exchanges) - self.in_flight, self.in_flight, self.reads)

    def _stop(self, why: str) -> None:
        self.stopping = why
        self.queue.clear()
        self.schedule = []
        self.waiting.clear()
        for conn in list(self.conns.values()):
            if conn.exchange is not None:
                self._end(conn, "time-limit", now(), keep=False)

    # ---- starting requests

    def _next(self) -> None:
        """Closed loop: the next request of a stream."""
        if self.queue and not self.stopping:
            self._begin(self.queue.popleft(), 0)

    def _due(self, moment: int) -> None:
        while self.schedule and self.schedule[0][0] <= moment:
            due, index = heapq.heappop(self.schedule)
            if self.in_flight >= self.spec.max_in_flight:
                self.waiting.append((due, index))
            else:
                self._begin(index, due)

    def _begin(self, index: int, sched_ns: int) -> None:
        asked = self.builder.asked(index) if self.spec.exact_tokens else None
        exchange = Exchange(index, asked, sched_ns, self.spec.keep_texts)
        self.exchanges.append(exchange)
        self.in_flight += 1
        self._carry(exchange)

    def _carry(self, exchange: Exchange) -> None:
        """Send the exchange on a standing connection, or on a new one as soon as that stands."""
        while self.idle:
            conn = self.idle.popleft()
            if conn.state == IDLE:
                self._send(conn, exchange)
                return
        if self._new_connection(exchange) is None:
            exchange.error = self.last_error
            self._finish(exchange, "refused", now())

    def _send(self, conn: Connection, exchange: Exchange) -> None:
        conn.exchange = exchange
        conn.done_ns = 0
        if conn.connect_ns and not conn.used:
            exchange.connect_ns = conn.connect_ns
        head, tail = self.builder.build(exchange.index)
        moment = now()
        if not exchange.start_ns:
            exchange.start_ns = moment
            if exchange.sched_ns:
                self.start_lags.append(moment - exchange.sched_ns)
        conn.used += 1
        try:
            if conn.send(head, tail):
                conn.state, exchange.sent_ns = READING, now()
            else:
                conn.state = SENDING
                self.poller.modify(conn.fd, READ | WRITE)
        except OSError as error:
            self._broken(conn, "reset", str(error))
            return
        if self.spec.connections == "fresh" and self.queue and not self.stopping:
            self._new_connection()
        elif self.open_loop and self.schedule and len(self.idle) < min(16, len(self.schedule)):
            self._new_connection()

    def _new_connection(self, exchange: Exchange | None = None) -> Connection | None:
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
            self._send(conn, exchange)
        else:
            self.poller.register(conn.fd, READ if conn.state == HANDSHAKE else WRITE)
        return conn

    def _finish(self, exchange: Exchange, how: str, stamp: int) -> None:
        exchange.ended, exchange.end_ns = how, stamp
        if not exchange.start_ns:
            exchange.start_ns = stamp
        exchange.walker = None
        self.in_flight -= 1
        self.backlog.append(exchange)
        if not self.seen_token and not self.stopping:
            self._look_for_tokens(exchange)
        if self.stopping:
            return
        if self.open_loop:
            if self.waiting:
                due, index = self.waiting.popleft()
                self._begin(index, due)
        elif how == "refused" and self.queue:
            # no hot loop against a dead server: the stream's next try waits a moment
            heapq.heappush(self.schedule, (now() + 50_000_000, self.queue.popleft()))
        else:
            self._next()

    def _look_for_tokens(self, exchange: Exchange) -> None:
        """A server that gives no tokens is found out after the first few requests, not after all of them."""
        exchange.finish()
        self.bytes_held = max(0, self.bytes_held - exchange.raw_bytes)
        if exchange.account.text_chunks or exchange.account.tokens:
            self.seen_token = True
            return
        self.zeros += 1
        if self.zeros >= (self.spec.give_up_after or max(3, self.concurrency)) and self.zeros < self.total:
            self._stop("no-tokens")

    def quality(self) -> dict[str, Any]:
        """How well the client did: clock, stamped share, lag of reads behind their arrival, utilisation."""
        return quality(self)
