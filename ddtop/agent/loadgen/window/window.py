"""The timed window: one event loop that opens connections, sends prebuilt requests and stamps what comes back.

Nothing is parsed while the clock runs beyond finding the end of a response, unless more bytes pile up than may be
held, or a conversation goes on: then its answer is parsed as it ends, because it is sent back. Connections stand before the clock starts. Closed loop: `concurrency` streams, each sends its next request the
moment its last ended. Open loop: requests go out at their scheduled times whether or not earlier ones came back; the
scheduled time is kept, so that a client that falls behind shows it. A stream is a conversation's at a time, and an open
loop's times are those of conversations. With the hand-over warm-up all of that runs before
the clock starts: the window's zero is set under way (`handover`), and its end is the moment at which the first stream finds
nothing more to send.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections import deque
from typing import Any, Callable, Dict, Iterable, Optional

from ..asked.conversation import first_of, place
from ..request_builder import RequestBuilder, window_times
from ..response.exchange import Exchange
from ..spec import LoadSpec
from .connection import CONNECTING, HANDSHAKE, IDLE, READING, SENDING, Connection
from .handover import HandOver
from .live import Live
from .poller import READ, WRITE
from .quality import Meter
from .slo import SloWatch
from .traffic import COLD, Traffic

now = time.monotonic_ns
TICK_NS = 250_000_000
DONE_GRACE_NS = 1_000_000_000  # [DONE] came but the body does not end: take it as ended after this
SETTLE_NS = 50_000_000  # the kernel turns receive stamps on some ms after the first socket asked for them
CONNECT_S = 10.0
LAZY_FROM = 16  # streams
LAZY_S = 0.0002
MOST_MORE = 4000  # requests beyond those asked for, to fill `min_window_s`: a result has to stay below 1 MiB
Progress = Callable[[int, int, int, Optional[Dict[str, Any]]], None]
"""Own requests that have ended, requests in flight, reads; and once a second the figures of `Live`."""


def nobody_listens() -> None:
    """What a window tells of its moments where no other process waits for them."""


class Window:
    """Runs conversations `indices` of a spec once; then `exchanges` and `quality()` say what happened.

    It decides what is sent when; its `traffic` holds the connections and reads from them.
    """

    def __init__(
        self,
        spec: LoadSpec,
        builder: RequestBuilder,
        indices: list[int],
        concurrency: int,
        progress: Progress | None = None,
        start_at_ns: int = 0,
        processes: int = 1,
        control: int = -1,
    ) -> None:
        self.spec, self.builder = spec, builder
        self.turns = builder.turns
        self.queue = deque(indices)
        self.total = self._requests_of(indices)
        self.concurrency = concurrency
        self.open_loop = spec.mode == "open"
        self.progress = progress
        self.start_at_ns = start_at_ns
        self.processes = processes
        self.next_index = indices[-1] + processes
        self.more = MOST_MORE // processes // self.turns if spec.min_window_s else 0
        self.to_arrive = 0  # open loop: conversations of the window that have not begun: not due yet, or over max_in_flight
        self.on_start = self.on_ready = self.on_close = nobody_listens
        self.traffic = Traffic(spec, self)
        self.exchanges: list[Exchange] = []
        self.in_flight = 0
        self.begun_ns = self.zero_ns = self.until_ns = self.close_ns = self.end_ns = self.last_due_ns = 0
        self.schedule: list[tuple[int, int]] = []
        self.waiting: deque[tuple[int, int]] = deque()  # due, but over max_in_flight
        self.stopping = ""
        self.zeros = 0
        self.seen_token = False
        self.meter = Meter(self.traffic)
        self.watch = SloWatch(spec, concurrency) if spec.slo else None
        self.live = Live(self, int(spec.extra_body.get("n") or 1))
        self.before: HandOver | None = None
        if spec.warmup == "handover":
            streams = min(concurrency, len(indices))
            self.before = HandOver(spec, streams, processes, control, self._may_begin)
        self.opening = self.before is not None
        self.zero_at_ns = 0

    # ---- the run

    def run(self) -> None:
        """Open, wait for the clock, run, close. OSError from name resolution is the caller's."""
        spec, traffic = self.spec, self.traffic
        self._open_ahead()
        frozen = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            if self.start_at_ns:
                while now() < self.start_at_ns:
                    time.sleep(min(0.01, max(0.0, (self.start_at_ns - now()) / 1e9)))
            traffic.clock.refresh()
            if self.before is None:
                self._zero()
                self.begun_ns = self.zero_ns
            else:
                self.begun_ns = self.before.begun_ns = now()
            self._loop(self.begun_ns + int(spec.time_limit_s * 1e9))
            self.end_ns = now()
            self.meter.end()
            if self.before is not None and (self.opening or not self.exchanges):
                self._never_began(self.before)
            self.close_ns = self.close_ns or self.end_ns
        finally:
            if frozen:
                gc.enable()
            for conn in list(traffic.conns.values()):
                traffic.drop(conn)
            traffic.poller.close()

    def _open_ahead(self) -> None:
        """Connections before the clock; what cannot be opened is tried again by the request that needs it."""
        traffic = self.traffic
        if self.spec.connections in COLD:
            return
        begun = now()
        for attempt in range(len(traffic.address.choices)):
            want = min(self.concurrency, len(self.queue)) if not self.open_loop else self.spec.streams
            for _ in range(want):
                if traffic.open() is None:
                    break
            limit = now() + int(CONNECT_S * 1e9)
            while (
                any(conn.state in (CONNECTING, HANDSHAKE) for conn in traffic.conns.values())
                and now() < limit
            ):
                for fd, bits in traffic.poller.poll(0.1):
                    traffic.event(traffic.conns.get(fd), bits)
            if traffic.idle:
                break
            traffic.address.best = attempt + 1
        rest = begun + SETTLE_NS - now()
        if rest > 0 and traffic.idle:
            time.sleep(rest / 1e9)

    def _loop(self, limit_ns: int) -> None:
        traffic = self.traffic
        if self.open_loop:
            if self.before is None:
                self._arrivals(self.zero_ns)
            else:
                self.schedule = [(self.begun_ns, self.before.index())]
        else:
            for _ in range(min(self.concurrency, len(self.queue))):
                self._next()
        tick = self.begun_ns + TICK_NS
        poll, conns, event = traffic.poller.poll, traffic.conns, traffic.event
        readable = traffic.readable
        while self.in_flight or ((self.schedule or self.waiting or self.queue) and not self.stopping):
            moment = now()
            if moment >= tick:
                self._tick(moment)
                tick = moment + TICK_NS
                if moment >= limit_ns:
                    self._stop("time-limit")
                    break
            due = min(tick, limit_ns)
            if self.zero_at_ns:
                if moment >= self.zero_at_ns:
                    self._zero()
                else:
                    due = min(due, self.zero_at_ns)
            if self.schedule:
                due = min(due, self.schedule[0][0])
                if self.schedule[0][0] <= moment:
                    self._due(moment)
                    continue
            wait = due - moment
            # epoll waits in whole milliseconds and rounds up: sleep short of the due time, then look without waiting
            timeout = 0.0 if wait < 1_100_000 and self.schedule else max(0.0, (wait - 600_000) / 1e9)
            self.meter.polls += 1
            ready = poll(timeout)
            if (
                ready
                and self.in_flight >= LAZY_FROM
                and traffic.stamped == traffic.reads > 100
                and wait > 5_000_000
            ):
                # The kernel has stamped what arrived, so reading it a little later moves no time; it saves a wake-up for
                # each chunk of a batch that the server sends one by one.
                time.sleep(LAZY_S)
                ready = poll(0.0)
            traffic.woke_ns = now()
            for fd, bits in ready:
                conn = conns.get(fd)
                if conn is None:
                    continue
                if conn.state == READING and conn.tls is None:
                    readable(conn)
                else:
                    event(conn, bits)
            if traffic.bytes_held > traffic.byte_cap:
                traffic.relieve()

    def _tick(self, moment: int) -> None:
        traffic = self.traffic
        traffic.clock.refresh()
        timeout = int(self.spec.request_timeout_s * 1e9)
        for conn in list(traffic.conns.values()):
            exchange = conn.exchange
            if exchange is None:
                if conn.state in (CONNECTING, HANDSHAKE) and moment - conn.begun_ns > CONNECT_S * 1e9:
                    traffic.lost(conn, "no connection within %.0f s" % CONNECT_S)
            elif conn.done_ns and moment - conn.done_ns > DONE_GRACE_NS:
                traffic.end(conn, "complete", conn.done_ns, keep=False)
            elif moment - (exchange.start_ns or conn.begun_ns) > timeout:
                traffic.end(conn, "timeout", moment, keep=False)
            elif conn.state in (CONNECTING, HANDSHAKE) and moment - conn.begun_ns > CONNECT_S * 1e9:
                traffic.lost(conn, "no connection within %.0f s" % CONNECT_S)
        if self.progress is not None:
            self.progress(self.live.done, self.in_flight, traffic.reads, self.live.look(moment))
        if self.opening and self.before is not None:
            told = self.before.tick(moment)
            self.zero_at_ns = told or self.zero_at_ns

    # ---- the window's zero and its close

    def _may_begin(self) -> None:
        """The load has settled, or will not: alone the window begins now (an open loop's as soon as this arrival is sent)."""
        if self.before is not None and self.before.control >= 0:
            self.on_ready()
        elif self.open_loop:
            self.zero_at_ns = now()
        else:
            self._zero()

    def _zero(self) -> None:
        """The clock starts: what has begun before is the burst's."""
        self.zero_at_ns = 0
        self.on_start()
        self.meter.begin()
        self.zero_ns = now()
        self.until_ns = self.zero_ns + int(self.spec.min_window_s * 1e9)
        self.live.begin(self.zero_ns)
        if self.opening and self.open_loop:
            self._arrivals(self.zero_ns)
        self.opening = False

    def _arrivals(self, zero_ns: int) -> None:
        """Open loop: all requests of the window with their times. One that is handed over ends with its last arrival, so it
        begins a gap before its first: as many gaps as requests, and never a window of no length."""
        spec, count = self.spec, self.spec.conversations
        skip = int(self.before is not None and not spec.replays)
        most = count + self.more * self.processes + skip
        times = window_times(spec, most)[skip:]
        while count < len(times) and times[count] < spec.min_window_s * 1e9:
            count += 1
        own = range(self.queue[0] % self.processes, count, self.processes)
        arrivals = [(zero_ns + times[number], first_of(number, self.turns)) for number in own]
        self.total, self.to_arrive, self.last_due_ns = self._requests_of(own), len(arrivals), arrivals[-1][0]
        # what the burst has begun goes on
        self.schedule = arrivals + [one for one in self.schedule if place(one[1], self.turns)[1]]
        heapq.heapify(self.schedule)
        self.queue.clear()

    def _take(self) -> int | None:
        """Closed loop: index of the next conversation's first request; None if there is no more work."""
        if self.queue:
            return first_of(self.queue.popleft(), self.turns)
        if self.more and not self.close_ns and now() < self.until_ns:
            self.more -= 1
            self.next_index += self.processes
            return first_of(self.next_index - self.processes, self.turns)
        if self.before is not None and not self.close_ns and not self.stopping:
            self._close()
        return None

    def _requests_of(self, conversations: Iterable[int]) -> int:
        return sum(self.builder.conversations.length(one) for one in conversations)

    def _close(self) -> None:
        self.close_ns = self.live.close_ns = now()
        self.on_close()

    def _never_began(self, before: HandOver) -> None:
        """The burst was cut (no request gave a token, or none ended in time): it is all there is to judge."""
        self.exchanges, before.burst = before.burst, []
        for exchange in self.exchanges:
            exchange.index = -1 - exchange.index
        self.zero_ns = self.begun_ns

    def _send_no_more(self, why: str) -> None:
        """What is under way may end; nothing new is sent."""
        self.stopping = self.stopping or why
        if self.before is not None and not self.opening and not self.close_ns:
            self._close()
        self.queue.clear()
        self.schedule = []
        self.waiting.clear()

    def _stop(self, why: str) -> None:
        """Cut what is under way, too."""
        traffic = self.traffic
        self._send_no_more(why)
        for conn in list(traffic.conns.values()):
            if conn.exchange is not None:
                traffic.end(conn, "time-limit", now(), keep=False)

    # ---- starting requests

    def _next(self) -> None:
        """Closed loop: the next request of a stream."""
        if self.stopping:
            return
        index = self.before.index() if self.opening and self.before is not None else self._take()
        if index is not None:
            self._begin(index, 0)

    def _due(self, moment: int) -> None:
        while self.schedule and self.schedule[0][0] <= moment:
            due, index = heapq.heappop(self.schedule)
            if (
                self.opening
                and self.before is not None
                and self.open_loop
                and not place(index, self.turns)[1]
            ):
                heapq.heappush(self.schedule, (due + self.before.gap_ns(), self.before.index()))
            if self.in_flight >= self.spec.max_in_flight:
                self.waiting.append((due, index))
            else:
                self._begin(index, due)

    def _begin(self, index: int, sched_ns: int) -> None:
        asked = self.builder.asked(index) if self.spec.exact_tokens else None
        exchange = Exchange(index, asked, sched_ns, self.spec.keep_texts or self.turns > 1)
        self.in_flight += 1
        if index < 0 and self.before is not None:
            self.before.burst.append(exchange)
        else:
            self.exchanges.append(exchange)
        if self.open_loop:
            self._arrived(index)
        self.carry(exchange)

    def _arrived(self, index: int) -> None:
        self.to_arrive -= index >= 0 and not place(index, self.turns)[1]
        if self.watch is not None:
            self.watch.started(self.in_flight)
        if index < 0 and self.before is not None:
            self.before.arrived(self.in_flight)
        elif self.before is not None and not self.to_arrive and not self.close_ns:
            self._close()

    def carry(self, exchange: Exchange, *, anew: bool = False) -> None:
        """Send the exchange on a standing connection, or (also if `anew`) on a new one as soon as that stands."""
        while self.traffic.idle and not anew:
            conn = self.traffic.idle.popleft()
            if conn.state == IDLE:
                self.send(conn, exchange)
                return
        if self.traffic.open(exchange) is None:
            exchange.error = self.traffic.last_error
            self.finish(exchange, "refused", now())

    def send(self, conn: Connection, exchange: Exchange) -> None:
        """Send the request on a connection that is up."""
        traffic = self.traffic
        conn.exchange = exchange
        conn.done_ns = 0
        if conn.connect_ns and not conn.used:
            exchange.connect_ns = conn.connect_ns
        head, tail = self.builder.build(exchange.index)
        moment = now()
        if not exchange.start_ns:
            exchange.start_ns = moment
            if exchange.sched_ns:
                self.meter.start_lags.append(moment - exchange.sched_ns)
        conn.used += 1
        try:
            if conn.send(head, tail):
                conn.state, exchange.sent_ns = READING, now()
            else:
                conn.state = SENDING
                traffic.poller.modify(conn.fd, READ | WRITE)
        except OSError as error:
            traffic.broken(conn, "reset", str(error))
            return
        if self.spec.connections == "fresh" and self.queue and not self.stopping:
            traffic.open()
        elif self.open_loop and self.schedule and len(traffic.idle) < min(16, len(self.schedule)):
            traffic.open()

    def finish(self, exchange: Exchange, how: str, stamp: int) -> None:
        """A response has ended: note it, and start the request that takes its place."""
        exchange.ended, exchange.end_ns = how, stamp
        if not exchange.start_ns:
            exchange.start_ns = stamp
        exchange.walker = None
        self.in_flight -= 1
        self.traffic.backlog.append(exchange)
        self.live.finished(exchange)
        if not self.seen_token and not self.stopping:
            self._look_for_tokens(exchange)
        if self.opening and self.before is not None:
            self.before.ended(exchange, self.parse(exchange) == "ok")
        if not self.stopping:
            self._follow(exchange, how)
        if self.watch is not None:
            self._judge(exchange)

    def _follow(self, exchange: Exchange, how: str) -> None:
        """The request that takes the place of one that ended: its conversation's next turn, or another one's first."""
        onward = self._next_turn(exchange) if self.turns > 1 else None
        if onward is not None:
            heapq.heappush(self.schedule, (exchange.end_ns + int(self.spec.think_ms * 1e6), onward))
        if self.open_loop:
            if self.waiting:
                due, index = self.waiting.popleft()
                self._begin(index, due)
        elif onward is not None:
            pass
        elif how == "refused":
            # no hot loop against a dead server: the stream's next try waits a moment
            again = self.before.index() if self.opening and self.before is not None else self._take()
            if again is not None:
                heapq.heappush(self.schedule, (now() + 50_000_000, again))
        else:
            self._next()

    def _next_turn(self, exchange: Exchange) -> int | None:
        """Index of the turn that follows; None where the conversation is over: it was said to its end, no answer came that
        could be sent back, or the window has closed."""
        index, answer = exchange.index, None
        cut = self.close_ns or (self.before is not None and self.before.ends_with(index))
        if not cut and self.parse(exchange) == "ok":
            answer = exchange.account.answer()
        return self.builder.conversations.goes_on(index, answer)

    def _judge(self, exchange: Exchange) -> None:
        """With service levels: parse the response at once (the next request is out already) and see whether the point is
        decided. A queue that grows without end is cut; else what is under way may end."""
        watch = self.watch
        if watch is None or watch.verdict or self.stopping:
            return
        watch.add(exchange, self.parse(exchange), counts=exchange.index >= 0)
        if now() < self.until_ns:
            return
        verdict = watch.decide()
        if verdict == "over-saturated":
            self._stop("slo")
        elif verdict:
            self._send_no_more("slo")

    def parse(self, exchange: Exchange) -> str:
        """The exchange's class; its bytes are let go."""
        if exchange.datas:
            self.traffic.bytes_held = max(0, self.traffic.bytes_held - exchange.raw_bytes)
        return exchange.finish()[0]

    def _look_for_tokens(self, exchange: Exchange) -> None:
        """A server that gives no tokens is found out after the first few requests, not after all of them."""
        self.parse(exchange)
        if exchange.account.text_chunks or exchange.account.tokens:
            self.seen_token = True
            return
        self.zeros += 1
        if self.zeros >= (self.spec.give_up_after or max(3, self.concurrency)) and self.zeros < self.total:
            self._stop("no-tokens")

    def quality(self) -> dict[str, Any]:
        """How well the client did over the window: see `Meter`."""
        return self.meter.figures(max(1e-9, (self.end_ns - self.zero_ns) / 1e9))
