"""A little room on the recording's disk, kept so that a full disk can still be written down."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO

PIECES = 3
PIECE_B = 256 << 10
RESERVE_B = PIECES * PIECE_B
"""In pieces: what still fills the disk may take the first one before it is used."""


class Reserve:
    """Nameless files beside the recording: they are gone with their process, however that dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[IO[bytes]] = []
        self.take()

    def take(self) -> None:
        """Takes the room, as far as there is some."""
        with contextlib.suppress(OSError):
            while len(self._files) < PIECES:
                self._files.append(self._piece())

    def _piece(self) -> IO[bytes]:
        file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  kept open on purpose
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, PIECE_B)
            else:
                os.write(file.fileno(), bytes(PIECE_B))
        except BaseException:
            file.close()
            raise
        return file

    def release(self) -> None:
        """Gives one piece to whoever writes next; nothing where none is left."""
        if self._files:
            self._files.pop().close()

    def release_all(self) -> None:
        """Gives all of it back."""
        while self._files:
            self.release()

    def free_b(self) -> int | None:
        """Free bytes on the disk; None where that cannot be read."""
        try:
            info = os.statvfs(self._folder)
        except OSError:
            return None
        return info.f_bavail * info.f_frsize
