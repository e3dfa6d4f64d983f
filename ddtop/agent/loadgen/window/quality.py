"""What the client says about itself with every cell: clock, lag, utilisation, waiting for a CPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reading import Reading


def clock_kind(stamped_share: float | None) -> str:
    """kernel: (nearly) every read carries the kernel's stamp; read: none does; mixed; none: nothing was read."""
    if stamped_share is None:
        return "none"
    if stamped_share > 0.99:
        return "kernel"
    return "read" if stamped_share < 0.01 else "mixed"


def quality(window: Reading) -> dict[str, Any]:
    """The client's own figures over the window: lists are sorted and thinned, times in ns."""
    wall_s = max(1e-9, (window.end_ns - window.zero_ns) / 1e9)
    share = window.stamped / window.reads if window.reads else None
    return {
        "clock": clock_kind(share),
        "stamped_share": share,
        "reads": window.reads,
        "polls": window.polls,
        "cpu_s": window.cpu_s,
        "wall_s": wall_s,
        "utilisation": window.cpu_s / wall_s,
        "lags_ns": thin(window.lags),
        "start_lags_ns": thin(window.start_lags),
        "connects_ns": thin(window.connects),
        "clock_moved_ns": window.clock.moved_ns,
        "suspended_ns": window.suspended_ns,
        "wait_share": None if window.wait_ns is None else window.wait_ns / 1e9 / wall_s,
        "max_rss_mib": _max_rss_mib(),
    }


def _max_rss_mib() -> float | None:
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
