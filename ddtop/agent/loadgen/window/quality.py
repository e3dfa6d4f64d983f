"""What the client says about itself with every cell: clock, lags, CPU time and waiting between the window's zero and its
end, memory."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..machine.pressure import own_wait_ns
from .clock import suspended_ns
from .traffic import Traffic


class Meter:
    """Reads the client's own use from `begin` to `end`; `figures` says it."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.polls = 0
        self.start_lags: list[int] = []
        self.begin()

    def begin(self) -> None:
        """The window's zero: what came before does not count."""
        traffic = self.traffic
        self._from = (self.polls, traffic.reads, traffic.stamped, len(traffic.lags), len(self.start_lags))
        self._slept, self._waited, self._cpu = suspended_ns(), own_wait_ns(), time.process_time()
        self.cpu_s = 0.0
        self.wait_ns: int | None = None
        self.suspended_ns = 0

    def end(self) -> None:
        """The last response is in."""
        waited = own_wait_ns()
        if self._waited is not None and waited is not None:
            self.wait_ns = waited - self._waited
        self.cpu_s = time.process_time() - self._cpu
        self.suspended_ns = suspended_ns() - self._slept

    def figures(self, wall_s: float) -> dict[str, Any]:
        """Clock, share of reads with a kernel stamp, lag of reads, utilisation, waiting.

        Lists are sorted and thinned, in ns; `utilisation` and `wait_share` are shares of `wall_s`.
        """
        traffic = self.traffic
        polls, reads, stamped, lags, start_lags = self._from
        count = traffic.reads - reads
        share = (traffic.stamped - stamped) / count if count else None
        return {
            "clock": clock_kind(share),
            "stamped_share": share,
            "reads": count,
            "polls": self.polls - polls,
            "cpu_s": self.cpu_s,
            "wall_s": wall_s,
            "utilisation": self.cpu_s / wall_s,
            "lags_ns": thin(traffic.lags[lags:]),
            "start_lags_ns": thin(self.start_lags[start_lags:]),
            "connects_ns": thin(traffic.connects),
            "clock_moved_ns": traffic.clock.moved_ns,
            "suspended_ns": self.suspended_ns,
            "wait_share": None if self.wait_ns is None else self.wait_ns / 1e9 / wall_s,
            "max_rss_mib": max_rss_mib(),
        }


def clock_kind(stamped_share: float | None) -> str:
    """kernel: (nearly) every read carries the kernel's stamp; read: none does; mixed; none: nothing was read."""
    if stamped_share is None:
        return "none"
    if stamped_share > 0.99:
        return "kernel"
    return "read" if stamped_share < 0.01 else "mixed"


def max_rss_mib() -> float | None:
    """This process's peak of resident memory in MiB; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / (1 << 20)


def thin(values: list[int], most: int = 400) -> list[int]:
    """A sorted list of at most about `most` of the values, with the largest kept: enough for percentiles."""
    ordered = sorted(values)
    if len(ordered) <= most:
        return ordered
    step = len(ordered) / most
    return [ordered[int(i * step)] for i in range(most)] + [ordered[-1]]
