"""Kernel receive stamps on the monotonic clock.

SO_TIMESTAMPNS gives the wall-clock time at which the kernel took in the last segment that a recvmsg() returned. It is
mapped to CLOCK_MONOTONIC by an offset that is measured again every tick; how far it moved is kept, because a cell
during which the clock was set is SUSPECT (docs/measuring.md).
"""

from __future__ import annotations

import socket
import struct
import sys
import time

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
STAMP = struct.Struct("qq")
# struct timespec has two 8-byte members only on 64-bit machines; elsewhere the read itself is stamped.
HAS_STAMPS = sys.platform.startswith("linux") and struct.calcsize("P") == 8
ANCILLARY = 64


def wall_minus_mono(pairs: int = 50) -> int:
    """CLOCK_REALTIME − CLOCK_MONOTONIC in ns, from the tightest of `pairs` paired readings."""
    best = -1
    offset = 0
    mono, wall = time.monotonic_ns, time.time_ns
    for _ in range(pairs):
        before = mono()
        between = wall()
        after = mono()
        if best < 0 or after - before < best:
            best, offset = after - before, between - (before + after) // 2
    return offset


def ask_for_stamps(sock: socket.socket) -> bool:
    """Turn receive stamps on; False where the platform has none."""
    if not HAS_STAMPS:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


class ClockMap:
    """The offset between the wall clock and the monotonic clock, and how far it moved since the start."""

    def __init__(self) -> None:
        self.first = self.offset = wall_minus_mono()
        self.moved_ns = 0

    def refresh(self) -> None:
        """Measure the offset again (about 10 µs)."""
        self.offset = wall_minus_mono(9)
        self.moved_ns = max(self.moved_ns, abs(self.offset - self.first))


def suspended_ns() -> int:
    """Time this machine has spent suspended since boot (CLOCK_BOOTTIME − CLOCK_MONOTONIC); 0 where unknown."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return 0
    return int(time.clock_gettime_ns(boottime) - time.clock_gettime_ns(time.CLOCK_MONOTONIC))
