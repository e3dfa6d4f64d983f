"""A little room on the recording's disk, kept so that a full disk can still be written down."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO

RESERVE_B = 512 << 10


class Reserve:
    """A nameless file beside the recording: it is gone with its process, however that dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self.take()

    def take(self) -> None:
        """Takes the room, where there is some."""
        if self._file is not None:
            return
        with contextlib.suppress(OSError):
            file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  kept open on purpose
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, RESERVE_B)
                else:
                    os.write(file.fileno(), bytes(RESERVE_B))
            except BaseException:
                file.close()
                raise
            self._file = file

    def release(self) -> None:
        """Gives the room to whoever writes next."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def free_b(self) -> int | None:
        """Free bytes on the disk; None where that cannot be read."""
        try:
            info = os.statvfs(self._folder)
        except OSError:
            return None
        return info.f_bavail * info.f_frsize
