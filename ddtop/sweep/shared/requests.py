"""What people have asked for: the wishes that commands leave behind, read by the sweep at its points of decision.

Plain values; the command_handler writes them, the controller and its parts read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ddtop.events import AnyCommand


@dataclass
class Requests:
    """See the module."""

    stop: str | None = None
    """Why the run is to end (who said so); None: it goes on."""
    leave_running: bool = False
    paused_by: str | None = None
    answers: dict[str, AnyCommand] = field(default_factory=dict)
    """Alert id → what a person decided about it."""
    approvals: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """Plan id of proposed steps → (steps left out, who said so)."""
    waits: dict[str, float] = field(default_factory=dict)
    """Attempt id → moment (monotonic) from which its limit counts again."""
    asking: set[str] = field(default_factory=set)
    """Alerts and plan ids that wait for an answer now."""
    restage: bool = False
    restart: str | None = None
    """Who wants the service restarted."""
    resume: bool = False
    """A person said: go on, whatever is waited for."""
    waiting: bool = False
    """The sweep waits for the host to become clean, or for somebody to leave it."""
    touched: set[str] = field(default_factory=set)
    """Cells whose state a person changed since the measurer last looked."""
    viewers: dict[str, float] = field(default_factory=dict)
    """Viewer → when (monotonic) it last said that it is there."""

    @property
    def attended(self) -> bool:
        return bool(self.viewers)

    def answer_by_s(self, now_s: float, answer_s: float) -> float | None:
        """Until when a question waits for a person; None where nobody is there to be asked."""
        return now_s + answer_s if self.attended else None
