"""One request and the raw bytes of its response, and how they become a record.

While the clock runs only `stamps` and `datas` grow; `consume` turns them into the account of the response afterwards
(or in slices, when a cell brings more bytes than may be held).
"""

from __future__ import annotations

from array import array
from typing import Any

from ..http.http1 import HttpError, ResponseReader
from ..http.sse import SseParser
from .account import Account
from .fast_path import take
from .messages import take_body, take_event
from .request_class import request_class


class Exchange:
    """Request `index` and its response. Times are CLOCK_MONOTONIC nanoseconds; 0 = has not happened."""

    __slots__ = (
        "account",
        "asked",
        "bad_http",
        "body",
        "connect_ns",
        "datas",
        "end_ns",
        "ended",
        "error",
        "index",
        "is_sse",
        "parser",
        "raw_bytes",
        "reader",
        "reads",
        "retried",
        "sched_ns",
        "sent_ns",
        "shared",
        "shared_at",
        "stampless",
        "stamps",
        "start_ns",
        "taken",
        "walked",
        "walker",
    )

    def __init__(self, index: int, asked: int | None, sched_ns: int = 0, keep_text: bool = True) -> None:
        self.index = index
        self.asked = asked
        self.sched_ns = sched_ns
        self.start_ns = self.sent_ns = self.end_ns = 0
        self.connect_ns: int | None = None
        self.ended = ""
        self.error = ""
        self.retried = False
        self.stamps = array("q")
        self.datas: list[bytes] = []
        self.reads = self.stampless = self.raw_bytes = 0
        self.walker: ResponseReader | None = None  # finds the end of the response while the clock runs
        self.walked = 0
        self.reader = ResponseReader()  # decodes it
        self.parser = SseParser()
        self.account = Account(keep_text)
        self.is_sse: bool | None = None
        self.body: list[bytes] = []  # a body that is not an event stream
        self.taken = 0
        self.shared = 0
        self.shared_at: list[int] = []
        self.bad_http = ""

    def restart(self) -> None:
        """Drop what has arrived: the request is sent again on another connection."""
        self.stamps = array("q")
        self.datas = []
        self.walker, self.walked = None, 0
        self.retried = True

    def consume(self, limit: int = 1 << 30) -> int:
        """Parse up to `limit` reads that have not been parsed; returns how many bytes were let go."""
        freed = 0
        upto = min(len(self.datas), self.taken + limit)
        for place in range(self.taken, upto):
            data = self.datas[place]
            self.datas[place] = b""
            freed += len(data)
            self._take(data, self.stamps[place])
        self.taken = upto
        if self.taken == len(self.datas) and self.taken:
            self.datas.clear()
            del self.stamps[:]
            self.taken = self.walked = 0
        return freed

    def _take(self, data: bytes, stamp: int) -> None:
        if self.bad_http:
            return
        if self.is_sse and take(data, stamp, self.reader, self.parser, self.account):
            return
        try:
            body = self.reader.feed(data)
        except HttpError as error:
            self.bad_http = str(error)
            return
        if body:
            self._body(body, stamp)

    def _body(self, body: bytes, stamp: int) -> None:
        if self.is_sse is None:
            kind = self.reader.headers.get("content-type", "")
            begins = body.lstrip()[:1]
            self.is_sse = "event-stream" in kind or (self.reader.status == 200 and begins not in (b"{", b"["))
        if not self.is_sse:
            if sum(map(len, self.body)) < 1 << 22:
                self.body.append(body)
            return
        account = self.account
        before = len(account.chunk_ns)
        for event in self.parser.feed(body):
            take_event(account, event, stamp)
        came = len(account.chunk_ns) - before
        if came > 1:  # one stamp for several chunks: their gaps are an artefact of the read
            self.shared += came - 1
            if len(self.shared_at) < 1000:
                self.shared_at.extend(range(before, before + came))

    def finish(self) -> tuple[str, str]:
        """Parse all that is left; the request's class and why."""
        self.consume()
        account = self.account
        last = self.end_ns or self.start_ns
        if not self.bad_http:
            try:
                rest = self.reader.eof()
                if rest:
                    self._body(rest, last)
            except HttpError as error:
                self.bad_http = str(error)
        if self.is_sse:
            for event in self.parser.close():
                take_event(account, event, last)
        elif self.body:
            raw = b"".join(self.body)
            self.body = []
            take_body(account, raw, last)
            if account.error is None and self.reader.status not in (0, 200):
                account.error = raw.decode("utf-8", "replace").strip()[:500]
        ended = self.ended
        if self.bad_http:
            ended, account.error = "not-http", account.error or self.bad_http
        elif ended in ("refused", "reset") and self.error and account.error is None and not account.events:
            account.error = self.error
        status = self.reader.status if self.reader.head_done else None
        return request_class(account, status=status, ended=ended, asked=self.asked)

    def record(self, zero_ns: int) -> dict[str, Any]:
        """The request's record; times in ns relative to `zero_ns`, chunk times as gaps. Absent = not known.

        `t`: arrival of the first chunk, then the gaps between chunks. `k`: tokens of each chunk (one number if all
        are equal); absent where the server gave no trustworthy running count.
        """
        name, why = self.finish()
        account = self.account
        record: dict[str, Any] = {"i": self.index, "class": name, "start": self.start_ns - zero_ns}
        if name != "ok":
            record["why"] = why[:500]
        optional: dict[str, Any] = {
            "sched": self.sched_ns - zero_ns if self.sched_ns else None,
            "sent": self.sent_ns - zero_ns if self.sent_ns else None,
            "end": self.end_ns - zero_ns if self.end_ns else None,
            "connect_ns": self.connect_ns,
            "http": self.reader.status or None,
            "asked": self.asked,
            "tokens": account.tokens,
            "source": account.source if account.source != "none" else None,
            "prompt_tokens": account.prompt_tokens,
            "cached_tokens": account.cached_tokens,
            "reasoning_tokens": account.reasoning_tokens,
            "finish": account.finish,
            "retry_after": self.reader.headers.get("retry-after"),
            "coding": self.reader.headers.get("content-encoding"),
            "last_event": account.last_event_ns - zero_ns if account.last_event_ns else None,
            "first_content": account.first_content_ns - zero_ns if account.first_content_ns else None,
            "spec": account.spec or None,
            "timings": account.timings or None,
        }
        record.update({key: value for key, value in optional.items() if value is not None})
        for key, count in (
            ("bad_events", account.bad_events),
            ("comments", self.parser.comments),
            ("shared", self.shared),
            ("tool_calls", account.tool_calls),
            ("stampless", self.stampless),
        ):
            if count:
                record[key] = count
        if self.retried:
            record["retried"] = True
        if account.not_streamed:
            record["not_streamed"] = True
        if len(account.choices) > 1:
            record["choices"] = len(account.choices)
        record["reads"] = self.reads
        record["bytes"] = self.raw_bytes
        times = account.chunk_ns
        if times and not account.not_streamed:
            record["t"] = [times[0] - zero_ns] + [times[i] - times[i - 1] for i in range(1, len(times))]
            if account.trusted_chunks():
                counts = [count or 0 for count in account.chunk_tokens]
                record["k"] = counts[0] if min(counts) == max(counts) else counts
            record["chunks"] = len(times)
            if self.shared_at:
                record["shared_at"] = self.shared_at
        return record
