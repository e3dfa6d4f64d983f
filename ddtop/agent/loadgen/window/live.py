"""What a window under way looks like, once a second: requests, tokens, latencies, acceptance, settled or not, time left.

The hot path knows nothing of it: `Window.finish` puts each ended request aside, and `look` goes over a bounded number of
them, and of those under way, between two reads (4 times a second). Responses are not parsed for it: it glances at their
raw bytes (`response/glance.py`); only what is not plainly ok is parsed, in slices. The result of a cell never rests on it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Iterable, Protocol

from ..response.exchange import Exchange
from ..response.glance import ended_well, first_count, last_text, spec_counts, spec_said, tokens_until
from ..spec import LoadSpec
from .handover import HandOver
from .slo import SloWatch, figures_ms
from .traffic import Traffic

PER_DECADE = 128  # bins of latencies in ms: 1.8 % wide
MOST_ENDED = 256  # requests that one look takes: 1,024 a second
MOST_OPEN = 1024  # requests under way whose tokens are counted in one look
PARSE_READS = 400  # of doubtful responses, in one look
LOOKS = 4  # a report after so many
STALE_S = 3.0  # a process that said nothing for so long lags
FIRST_LOOKS = 2  # the first one after the start, or after the window's zero


def bin_of(ms: float) -> int:
    """The bin of a latency; bin b holds 10^(b/PER_DECADE) to 10^((b+1)/PER_DECADE) ms."""
    return math.floor(math.log10(max(ms, 1e-3)) * PER_DECADE)


class Watched(Protocol):
    """The `Window`, as far as it is looked at."""

    spec: LoadSpec
    traffic: Traffic
    exchanges: list[Exchange]
    before: HandOver | None
    watch: SloWatch | None
    open_loop: bool
    in_flight: int
    total: int
    begun_ns: int
    until_ns: int
    last_due_ns: int

    def parse(self, exchange: Exchange) -> str:
        """The exchange's class; its bytes are let go."""


class Live:
    """The counts of one window. `report` is None until a second has passed since the last one."""

    def __init__(self, window: Watched, choices: int = 1) -> None:
        self.window = window
        self.single = choices == 1  # with several, a running count is of one choice only
        self.ended: deque[Exchange] = deque()
        self.done = self.gone = (
            0  # ended, looked at or not: of the window's own requests, and of all since the zero
        )
        self._looks = LOOKS - FIRST_LOOKS
        self._at_ns = self._tokens_then = 0
        self._reads = self._known = (
            0  # of ended requests: tokens for each read, where there is no running count
        )
        self._forget(0)

    def _forget(self, zero_ns: int) -> None:
        self.zero_ns = zero_ns
        self.close_ns = 0
        self.ok = self.failed = self.tokens = 0
        self._spec = [0, 0]
        self.about = self.silent = False
        self.ttft: dict[int, int] = {}
        self.tpot: dict[int, int] = {}
        self._open: dict[int, int] = {}

    # ---- what the window tells

    def begin(self, zero_ns: int) -> None:
        """The window's zero: what came before is not counted."""
        self._forget(zero_ns)
        self.gone = 0
        self._tokens_then, self._at_ns, self._looks = 0, zero_ns, LOOKS - FIRST_LOOKS

    def finished(self, exchange: Exchange) -> None:
        """A request has ended: it is looked at later."""
        self.ended.append(exchange)
        self.done += exchange.index >= 0
        self.gone += 1

    def look(self, moment: int) -> dict[str, Any] | None:
        """Called 4 times a second; every fourth time the figures, each a plain number, string or dict of bins."""
        for _ in range(min(MOST_ENDED, len(self.ended))):
            exchange = self.ended.popleft()
            if not self._take(exchange):
                self.ended.appendleft(exchange)
                break
        self._looks += 1
        if self._looks < LOOKS:
            return None
        self._looks = 0
        self._count_open()
        return self._figures(moment)

    def final(self, moment: int) -> dict[str, Any]:
        """The figures once the window is over: all that has ended is looked at."""
        while self.ended:
            exchange = self.ended.popleft()
            while not self._take(exchange):
                pass
        self._open.clear()
        return self._figures(moment)

    # ---- one request

    def _take(self, exchange: Exchange) -> bool:
        """Count an ended request; False where parsing it needs another look."""
        window, plain = self.window, ended_well(exchange)
        self._open.pop(exchange.index, None)
        if plain is not None:
            self._add_plain(exchange, plain[0], plain[1])
            return True
        if len(exchange.datas) - exchange.taken > PARSE_READS:
            exchange.consume(PARSE_READS)
            return False
        name, account = window.parse(exchange), exchange.account
        if name == "unfinished":
            return True
        if exchange.index >= 0 or not self.zero_ns:
            self.ok += name == "ok"
            self.failed += name != "ok"
        if name != "ok":
            return True
        said = dict(account.spec)
        said.update(account.timings)
        self._add(exchange, account.tokens, said, len(account.chunk_ns))
        if exchange.index >= 0 or not self.zero_ns:
            figures = figures_ms(exchange)
            _bin(self.ttft, figures.get("ttft_ms"))
            _bin(self.tpot, figures.get("tpot_ms"))
        return True

    def _add_plain(self, exchange: Exchange, first: int, tokens: int | None) -> None:
        datas, stamps = exchange.datas, exchange.stamps
        self._add(exchange, tokens, spec_said(datas), exchange.reads)
        if exchange.index < 0 and self.zero_ns:
            return
        self.ok += 1
        _bin(self.ttft, (stamps[first] - exchange.start_ns) / 1e6)
        last = last_text(datas, tokens)
        if tokens is None or last is None or stamps[last] <= stamps[first]:
            return
        begun = first_count(datas, first)
        if begun is None:  # one token a chunk is plain too
            begun = 1 if last - first + 1 in (tokens, tokens - 1) else None
        if begun is not None and tokens > begun:
            _bin(self.tpot, (stamps[last] - stamps[first]) / 1e6 / (tokens - begun))

    def _add(self, exchange: Exchange, tokens: int | None, said: dict[str, Any], reads: int) -> None:
        """Tokens between the zero and the close, and what is said of speculation."""
        if tokens is None:
            self.silent = True
            return
        self._reads += reads
        self._known += tokens
        self.tokens += self._within(exchange, tokens)
        if exchange.index >= 0 or not self.zero_ns:
            more = spec_counts(tokens, {k: v for k, v in said.items() if isinstance(v, int)})
            self._spec = [self._spec[0] + more[0], self._spec[1] + more[1]]

    def _within(self, exchange: Exchange, tokens: int) -> int:
        """How many of a request's tokens came after the zero and before the close."""
        if self.zero_ns and exchange.start_ns < self.zero_ns:
            tokens -= min(tokens, self._until(exchange, self.zero_ns, tokens))
        if self.close_ns and exchange.end_ns > self.close_ns:
            late = tokens - self._until(exchange, self.close_ns, tokens)
            tokens -= max(0, min(tokens, late))
        return tokens

    def _until(self, exchange: Exchange, at_ns: int, tokens: int) -> int:
        """Tokens of an ended request that had come at a moment: by the running count, else spread over its reads."""
        if self.single:
            count = tokens_until(exchange, at_ns)
            if count is not None:
                return count
        times: Any = exchange.stamps or exchange.account.chunk_ns
        if not len(times):
            return tokens if exchange.end_ns <= at_ns else 0
        self.about = True
        return round(tokens * sum(1 for one in times if one <= at_ns) / len(times))

    def _count_open(self) -> None:
        """Tokens of the requests under way."""
        now_ns = self.close_ns or (1 << 62)
        for number, conn in enumerate(list(self.window.traffic.conns.values())):
            exchange = conn.exchange
            if exchange is None or number >= MOST_OPEN:
                continue
            count = tokens_until(exchange, now_ns) if self.single else None
            if count is None:
                self.about = True
                count = self._guess(exchange)
            elif self.zero_ns and 0 < exchange.start_ns < self.zero_ns:
                count -= tokens_until(exchange, self.zero_ns) or 0
            self._open[exchange.index] = max(0, count)

    def _guess(self, exchange: Exchange) -> int:
        """Tokens of a request under way where the server gives no running count: by the reads of those that ended."""
        if not self._known:
            return 0
        since = exchange.reads
        if self.zero_ns and exchange.start_ns < self.zero_ns:
            since = sum(1 for one in exchange.stamps if one > self.zero_ns)
        count = round(since * self._known / self._reads)
        return min(count, exchange.asked) if exchange.asked is not None and self.single else count

    # ---- the report

    @property
    def total(self) -> int:
        """The window's own requests, as many as are known of."""
        return max(self.window.total, len(self.window.exchanges))

    def _figures(self, moment: int) -> dict[str, Any]:
        window = self.window
        since = self.zero_ns or window.begun_ns
        upto = min(moment, self.close_ns) if self.close_ns else moment
        span = max(1e-3, (upto - since) / 1e9)
        tokens = self.tokens + sum(self._open.values())
        out: dict[str, Any] = {
            "phase": "settling" if not self.zero_ns else "draining" if self.close_ns else "window",
            "s": span,
            "ok": self.ok,
            "failed": self.failed,
            "total": self.total,
            "ttft": self.ttft,
            "tpot": self.tpot,
            "spec": self._spec,
        }
        if tokens or not self.silent:
            if not (self.about and not self._known):
                out["tokens"], out["rate"] = tokens, tokens / span
                if not self.close_ns and self._at_ns and moment > self._at_ns:
                    out["now"] = max(0, tokens - self._tokens_then) * 1e9 / (moment - self._at_ns)
            out["about"] = self.about
        self._tokens_then, self._at_ns = tokens, moment
        left = self._left_s(moment, out.get("tokens"))
        if left is not None:
            out["left"] = left
        if window.before is not None:
            out["by"] = window.before.by
            if not window.open_loop:
                out["burst"] = [window.before.closed.ended, window.before.closed.limit]
        return out

    def _left_s(self, moment: int, tokens: int | None) -> float | None:
        """Seconds until the last response, by the pace so far; None while there is none, where service levels decide, and after
        the close."""
        window = self.window
        if not self.zero_ns or self.close_ns or window.watch is not None:
            return None
        span = (moment - self.zero_ns) / 1e9
        limit = window.begun_ns / 1e9 + window.spec.time_limit_s - moment / 1e9
        took = span * window.in_flight / self.gone if self.gone else None
        if window.open_loop:
            # what is under way after the last arrival takes as long as a request does (Little's law)
            left = max(0.0, (window.last_due_ns - moment) / 1e9) + (took or 0.0)
        else:
            until = (window.until_ns - moment) / 1e9 + (took or 0.0)
            if window.spec.exact_tokens and tokens:
                begun = sum(count for index, count in self._open.items() if index >= 0)
                to_come = (self.total - self.done) * window.spec.output_tokens - begun
                left = max(to_come * span / tokens, until)
            elif self.gone:
                left = max((self.total - self.done) * span / self.gone, until)
            else:
                return None
        return max(0.0, min(left, limit))


def _bin(bins: dict[int, int], ms: float | None) -> None:
    if ms is not None and ms > 0:
        place = bin_of(ms)
        bins[place] = bins.get(place, 0) + 1


def joined(parts: Iterable[dict[str, Any]], missing: int = 0) -> dict[str, Any]:
    """The figures of all processes of a load as one; bins as flat lists (bin, count, bin, count, …), for JSON.

    `missing` processes have said nothing so far: what would be too small without them is left out, the rest is shown.
    """
    all_parts = list(parts)
    going = [part for part in all_parts if part["phase"] != "draining"]
    out: dict[str, Any] = {
        "phase": next(
            (name for name in ("settling", "window") if any(p["phase"] == name for p in all_parts)),
            "draining",
        ),
        "s": round(max(p["s"] for p in all_parts), 2),
        "spec": [sum(p["spec"][n] for p in all_parts) for n in (0, 1)],
        "about": any(p.get("about") for p in all_parts),
    }
    for key in ("ok", "failed", "total") if not missing else ():
        out[key] = sum(p[key] for p in all_parts)
    # Of a part of the processes they would be too small. One whose window is over adds nothing to the rate now.
    for key, of in (("tokens", all_parts), ("rate", all_parts), ("now", going)):
        if of and not missing and all(key in p for p in of):
            total = sum(p[key] for p in of)
            out[key] = float("%.5g" % total) if key != "tokens" else total
    for key in ("ttft", "tpot"):
        bins: dict[int, int] = {}
        for part in all_parts:
            for place, count in part[key].items():
                bins[place] = bins.get(place, 0) + count
        out[key] = [number for place in sorted(bins) for number in (place, bins[place])]
    if going and not missing and all("left" in p for p in going):
        out["left"] = round(max(p["left"] for p in going), 1)
    if not missing and all("by" in p for p in all_parts):
        ends = [p["by"] for p in all_parts]
        out["by"] = next((by for by in ("", "time", "requests") if by in ends), "settled")
    if not missing and all("burst" in p for p in all_parts):
        out["burst"] = [sum(p["burst"][n] for p in all_parts) for n in (0, 1)]
    return out


def as_heard(part: dict[str, Any], age_s: float, over: bool) -> dict[str, Any]:
    """What a process said last, as it may be used now: one that lags (`age_s`, seconds) or is `over` has no rate now."""
    if over:
        return {**part, "phase": "draining"}
    if age_s <= STALE_S:
        return part
    return {key: value for key, value in part.items() if key not in ("now", "left")}
