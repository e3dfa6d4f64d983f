"""Lines that only say again what was said: how often, and how long by the log's own stamps nothing else came."""

from __future__ import annotations

import re
from typing import NamedTuple

from ddtop.engines.log.line_time import stamp

_WAITS = re.compile(
    r"\bwait(?:ing|ed|s)?\b|\bretry|\bretries\b|\battempt|\bstill\b|\bnot (?:yet )?(?:ready|up|available|responding|reachable|running)\b|\bno available\b"
    r"|\bheartbeat\b|\bpoll|\bkeep-?alive\b|connection refused|HTTP/[\d.]+\" [1-5]\d\d|\bpending\b|\bwarn|\bsleep|\belapsed\b|\bhealth",
    re.IGNORECASE,
)
"""Words of lines that wait: their numbers (a time waited, a count of tries) are no news."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SPAN = re.compile(r"(?<![\w.])(\d{1,6}(?:\.\d{1,6})?) ?(s|secs?|seconds|m|mins?|minutes)\b(?! ?/)")
MAX_KEYS = 5_000


class Repeated(NamedTuple):
    """Lines since the last other one.

    times    of the line that came most often since
    quiet_s  seconds between the last other line and the end by the log's own stamps, or by what the lines say that they
             have waited; None where nothing shows it
    line     (number, text) of the last repeated line
    since    (number, text) of the last other line
    """

    times: int
    quiet_s: float | None
    line: tuple[int, str]
    since: tuple[int, str]


class Repeats:
    """Feed every line that is no progress by itself; `now` at any time."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._fresh((0, ""), None)

    def _fresh(self, line: tuple[int, str], at: tuple[str, float] | None) -> None:
        self._since = line
        self._base: dict[str, float] = dict([at]) if at else {}
        self._last: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._spans: dict[str, tuple[float, float]] = {}
        self._line: tuple[int, str] | None = None

    def feed(
        self, message: str, text: str, number: int, written: str | None, times: int, moved: bool
    ) -> None:
        """message: without its prefixes; text: the whole line; written: the time of its prefix; moved: it is progress."""
        if not message.strip():
            return
        at = stamp(written, text)
        waits = _WAITS.search(message) is not None
        key = _NUMBER.sub("#", message[:500]) if waits else message[:500]
        key = key.strip()
        if moved or key not in self._seen:
            if len(self._seen) < MAX_KEYS:
                self._seen.add(key)
            self._fresh((number, text[:400]), at)
            self._span(key, message, times)
            return
        if at is not None:
            self._base.setdefault(*at)
            self._last[at[0]] = at[1]
        self._counts[key] = self._counts.get(key, 0) + times
        self._line = (number, text[:400])
        if waits:
            self._span(key, message, times)

    def _span(self, key: str, message: str, times: int) -> None:
        """Seconds that the line itself says: grown since the first, or each time the same again."""
        if (found := _SPAN.search(message)) is None:
            return
        said = float(found[1]) * (60 if found[2].startswith("m") else 1)
        last, total = self._spans.get(key, (0.0, 0.0))
        self._spans[key] = (said, said if said > last else total + said * times)

    def now(self) -> Repeated | None:
        """What has been repeated since the last other line; None while nothing is."""
        if self._line is None:
            return None
        stamped = [self._last[form] - self._base[form] for form in self._last]
        said = [total for key, (_, total) in self._spans.items() if key in self._counts]
        quiet = max(stamped) if stamped else max(said, default=None)
        return Repeated(max(self._counts.values()), quiet, self._line, self._since)
