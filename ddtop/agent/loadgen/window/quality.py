"""Parts of what the client says about itself with every cell (`Window.quality`): clock, percentiles, memory."""

from __future__ import annotations

import sys


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
