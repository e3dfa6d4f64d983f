"""When this user last looked at a run: one empty file for each, whose time is the answer."""

from __future__ import annotations

import contextlib
import hashlib
import time
from pathlib import Path

KEPT_S = 90 * 86400.0
"""A run that was not looked at for so long is forgotten."""
AWAY_S = 600.0
"""So long must nobody have looked, before what changed is shown unasked."""


class Looks:
    """The folder of these files. Without one nothing is kept; a folder that cannot be written keeps nothing either."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def _file(self, run_id: str) -> Path | None:
        if self._folder is None or not run_id:
            return None
        return self._folder / hashlib.sha256(run_id.encode()).hexdigest()[:24]

    def last(self, run_id: str) -> float | None:
        """Wall time of the last look; None where there was none."""
        file = self._file(run_id)
        try:
            return None if file is None else file.stat().st_mtime
        except OSError:
            return None

    def note(self, run_id: str) -> None:
        """It is being looked at now."""
        file = self._file(run_id)
        if file is None:
            return
        with contextlib.suppress(OSError):
            fresh = not file.exists()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            if fresh:
                self._forget()

    def _forget(self) -> None:
        assert self._folder is not None
        for file in self._folder.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - file.stat().st_mtime > KEPT_S:
                    file.unlink()
