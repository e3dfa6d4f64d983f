"""How far a staging is: bytes done, their rate, the time left. Told twice a second at most."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any, Callable, Deque, Dict, Optional, Tuple

RATE_WINDOW_S = 30.0
MIB = 1 << 20


class Meter:
    """Bytes done over time, and the rate over the last 30 s: after a cache's end the mean says nothing.

    `clock` values are seconds of any monotonic clock.
    """

    def __init__(self) -> None:
        self._marks: Deque[Tuple[float, int]] = collections.deque()

    def rate(self, now_s: float, done_b: int) -> Optional[float]:
        """MiB/s, or None within the first half second.

        >>> m = Meter(); m.rate(0.0, 0); m.rate(10.0, 100 << 20)
        10.0
        """
        self._marks.append((now_s, done_b))
        while len(self._marks) > 2 and self._marks[1][0] < now_s - RATE_WINDOW_S:
            self._marks.popleft()
        began_s, began_b = self._marks[0]
        return (done_b - began_b) / MIB / (now_s - began_s) if now_s - began_s > 0.5 else None


class Progress:
    """Tells how far it is, twice a second at most; threads add what they have done."""

    def __init__(self, tell: Callable[[Dict[str, Any]], None], target: str) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._meter = Meter()
        self._told = 0.0
        self.base: Dict[str, Any] = {"target": target, "state": "checking"}
        self.done_b = 0
        self.total_b: Optional[int] = None
        self.file: Optional[str] = None

    def add(self, count: int, file: Optional[str] = None) -> None:
        with self._lock:
            self.done_b += count
            self.file = file or self.file
            if time.monotonic() - self._told > 0.5:
                self._say()

    def now(self, **more: Any) -> None:
        with self._lock:
            self.base.update(more)
            self._say()

    def _say(self) -> None:
        self._told = time.monotonic()
        rate = self._meter.rate(self._told, self.done_b)
        item = {**self.base, "bytes_done": self.done_b, "bytes_total": self.total_b, "file": self.file}
        item["rate_mib_s"] = round(rate, 2) if rate is not None else None
        left = None if self.total_b is None else max(0, self.total_b - self.done_b)
        item["eta_s"] = round(left / MIB / rate, 1) if left is not None and rate else None
        self._tell({**item, "at_s": time.time()})
