"""A file descriptor that becomes readable when a process ends (Linux 5.3), on Python 3.8 too."""

from __future__ import annotations

import errno
import os
from typing import Optional

_SYS_PIDFD_OPEN = 434  # the same on every architecture


def open_pidfd(pid: int) -> Optional[int]:
    """The descriptor (close it), or None: no such process, an old kernel, or no way to ask."""
    native = getattr(os, "pidfd_open", None)  # Python 3.9
    if native is not None:
        try:
            return int(native(pid))
        except OSError:
            return None
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        handle = int(libc.syscall(_SYS_PIDFD_OPEN, pid, 0))
    except (ImportError, OSError, AttributeError):
        return None
    if handle >= 0:
        os.set_inheritable(handle, False)
        return handle
    return None


def alive(pid: int) -> bool:
    """Whether a process with this number exists (zombies count)."""
    try:
        os.kill(pid, 0)
        return True
    except OSError as error:
        return error.errno == errno.EPERM
