"""What screens and actions may ask of the app. `app.py` implements it; this file knows neither of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from textual.app import App

from ddtop.dashboard.guard import Guarded
from ddtop.dashboard.sessions import Replay
from ddtop.dashboard.watched import Watched
from ddtop.events import Command, Evidence
from ddtop.journal.act.pending import Pending, Said, Severity


class SweepKeys(Protocol):
    """The keys that become commands, as far as screens use them (`actions/sweep.py`)."""

    def offered(self, key: str) -> bool:
        """Do what the alert in the bar offers on `key`; False where it offers nothing."""


class ViewKeys(Protocol):
    """The keys that change what is seen, as far as screens use them (`actions/view.py`)."""

    def open_selected(self) -> None:
        """Open the cell under the cursor."""

    def open_log(self, evidence: Sequence[Evidence] = ()) -> None:
        """Open the log at the first of these lines that is there, else at its end."""

    def look_at(self, index: int) -> None:
        """Show the host with this index, from 0."""

    def label_of(self, identity: str) -> str | None:
        """Label that the binding `identity` has now, where it changes; None where it does not."""


class ReplayKeys(Protocol):
    """The keys of a replay, as far as other actions use them (`actions/replay.py`)."""

    @property
    def playback(self) -> Replay | None:
        """The replay on the screen, if it is one."""

    def toggle(self) -> None:
        """Stop the replay's time, or let it run."""

    def seek(self, at_s: float) -> None:
        """Go to a moment of the recording, in wall time."""


class Dashboard(Guarded, App[int]):
    """The app as its screens and actions see it."""

    watched: list[Watched]
    """One for each host."""
    current: int
    """Index of the host on the screen."""
    viewer: str
    """Name under which commands are given."""
    pending: Pending
    """This viewer's commands that were not answered yet."""
    answers: dict[str, Said]
    """What became of this viewer's commands, by id."""
    words: str | None
    """What to print when the screen is gone."""
    theme_names: list[str]
    """ddtop's themes and the user's, in the order of the key `T`."""

    @property
    def sweep(self) -> SweepKeys:
        raise NotImplementedError

    @property
    def view(self) -> ViewKeys:
        raise NotImplementedError

    @property
    def replay(self) -> ReplayKeys:
        raise NotImplementedError

    @property
    def here(self) -> Watched:
        """The host on the screen."""
        return self.watched[self.current]

    def touch(self) -> None:
        """Draw the screen anew, as soon as what is being done is done."""
        raise NotImplementedError

    def refresh_screens(self) -> None:
        """Draw anew what is in sight, now."""
        raise NotImplementedError

    def say(self, text: str, severity: Severity = "information", timeout: float | None = None) -> None:
        """Show a toast, for `timeout` seconds."""
        raise NotImplementedError

    def press(self, key: str) -> None:
        """Do what a key would do, for a click on it."""
        raise NotImplementedError

    def command(self, kind: type[Command], label: str, **fields: Any) -> None:
        """Make a command and send it; `label` names it in toasts."""
        raise NotImplementedError

    def send(self, command: Command, label: str) -> None:
        """Send a command to the run on the screen."""
        raise NotImplementedError

    def no_runner(self, watched: Watched, text: str, *, again: bool = False) -> None:
        """Say that no runner can take commands, and offer to start one where that is possible. `again`: it never
        connected, so nothing is touched and nothing need be asked."""
        raise NotImplementedError
