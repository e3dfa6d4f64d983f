"""What an event that just came is worth: a bell, a toast, or nothing. Pure but for what it remembers."""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.events import AlertRaised, Event, HostConnected, HostLost, Note, RunEnded
from ddtop.journal.act.pending import Severity

FRESH_S = 30.0
"""An event older than this is history: no bell, no toast."""


@dataclass(frozen=True)
class Toast:
    """A text for the corner of the screen."""

    text: str
    severity: Severity = "information"
    timeout_s: float | None = None


class News:
    """The news of one host: an alert rings once, and a host is only back where it was lost."""

    def __init__(self) -> None:
        self._rung: set[str] = set()
        self._lost = False

    def rings(self, event: Event) -> bool:
        """True for an alert that did not ring yet; a slow start never rings."""
        if not isinstance(event, AlertRaised) or event.verdict == "slow" or event.alert_id in self._rung:
            return False
        self._rung.add(event.alert_id)
        return True

    def toast(self, event: Event, host: str, on_screen: bool) -> Toast | None:
        """What to say about an event of `host`. The alert of the host that is on the screen is in the bar."""
        if isinstance(event, AlertRaised):
            return None if on_screen else Toast(f"{host}: {event.title} {event.cause_text}", "error", 15)
        if isinstance(event, HostLost):
            self._lost = True
            return Toast(f"{host}: {event.what}", "warning")
        if isinstance(event, HostConnected) and self._lost:
            self._lost = False
            return Toast(f"{host} is back")
        if isinstance(event, RunEnded):
            return Toast(
                f"The run ended: {event.outcome}. {event.reason.partition(chr(10))[0]}".strip(), timeout_s=15
            )
        if isinstance(event, Note) and event.level != "info":
            return Toast(event.text, "warning" if event.level == "warn" else "error")
        return None
