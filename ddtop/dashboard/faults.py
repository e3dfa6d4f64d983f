"""What went wrong inside the dashboard itself: one line in a file, one sentence for the person.

A traceback on a user's screen is a bug; the place for it is the fault log under the state folder.
"""

from __future__ import annotations

import time
import traceback
from pathlib import Path

import platformdirs


def default_log() -> Path:
    """`$XDG_STATE_HOME/ddtop/dashboard.log`."""
    return platformdirs.user_state_path("ddtop") / "dashboard.log"


class FaultLog:
    """Appends faults to a file and remembers how many came lately, so that a storm can be told."""

    STORM = 30
    """So many faults within `WINDOW_S` mean that going on is of no use."""
    WINDOW_S = 10.0

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_log()
        self.faults: list[str] = []
        self._times: list[float] = []
        self._last = ""

    def record(self, error: BaseException, where: str, now_s: float) -> str | None:
        """Write `error` down. Returns the sentence to show, or None where it repeats the last one.

        `now_s` is a monotonic time, for telling a storm.
        """
        self._times = [at for at in self._times if now_s - at < self.WINDOW_S] + [now_s]
        short = f"{type(error).__name__}: {error}"
        self.faults.append(f"{where}: {short}")
        text = "".join(traceback.format_exception(error)).rstrip()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S%z")
        kept = self._write(f"{stamp} {where}: {short}\n{text}\n")
        sentence = f"Something in the dashboard failed ({where}: {short})."
        sentence += f" Details: {self.path}" if kept else f" ({self.path} cannot be written.)"
        if sentence == self._last:
            return None
        self._last = sentence
        return sentence

    @property
    def storm(self) -> bool:
        """True where faults come so fast that the dashboard should end."""
        return len(self._times) >= self.STORM

    def _write(self, text: str) -> bool:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            return False
        return True
