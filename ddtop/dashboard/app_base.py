"""The app's ground: sessions followed, state folded, the screen refreshed in beat, commands sent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App

from ddtop.dashboard import themes
from ddtop.dashboard.actions.sender import Pending, Said, Severity, make, viewer_name
from ddtop.dashboard.draw.paint import clean
from ddtop.dashboard.faults import FaultLog
from ddtop.dashboard.guard import Guarded
from ddtop.dashboard.screens.base import DdModal, DdScreen
from ddtop.dashboard.watched import Watched
from ddtop.errors import DdtopError
from ddtop.events import (
    AlertRaised,
    Attend,
    Command,
    CommandSeen,
    Event,
    HostConnected,
    HostLost,
    Note,
    RunEnded,
)

if TYPE_CHECKING:
    from ddtop.journal.read.session import Session

StartRunner = Callable[["Session"], Awaitable[str]]
"""Starts a runner for the recording of a session; answers with a sentence about it."""

TICK_S = 0.1
CALM_TICKS = 5
"""Ticks between two refreshes when no event came: ages and countdowns move twice a second."""

ATTEND_S = 5.0
FRESH_S = 30.0
"""An event older than this is history: no bell, no toast."""

USER_FOLDER = "ddtop"


class AppBase(Guarded, App[int]):
    """Follows sessions and keeps the screen in step with them."""

    CSS_PATH = "app.tcss"
    TITLE = "ddtop"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide"), (160, "-huge")]

    def __init__(
        self,
        sessions: Sequence[Session],
        *,
        theme: str | None = None,
        keymap: Mapping[str, str] | None = None,
        bell: bool = True,
        themes_folder: Path | None = None,
        fault_log: Path | None = None,
        start_runner: StartRunner | None = None,
        viewer: str | None = None,
    ) -> None:
        # The convention says that an empty NO_COLOR is as good as none; Textual takes it for set.
        if os.environ.get("NO_COLOR") == "":
            del os.environ["NO_COLOR"]
        super().__init__()
        many = len(sessions) > 1
        self.watched = [Watched(s, n if many else None) for n, s in enumerate(sessions, 1)]
        self.current = 0
        self.faults = FaultLog(fault_log)
        self.pending = Pending()
        self.answers: dict[str, Said] = {}
        """What became of this viewer's commands, by id."""
        self.viewer = viewer or getattr(sessions[0], "viewer", None) or viewer_name()
        self.start_runner = start_runner
        self.words: str | None = None
        """What to print when the screen is gone."""
        self._wanted_theme = theme
        self._wanted_keys = dict(keymap or {})
        self._rings = bell
        self._themes_folder = themes_folder
        self._dirty = True
        self._ticks = 0
        self._rung: set[tuple[int, str]] = set()
        self._lost: set[int] = set()
        self._bad_themes: tuple[tuple[Path, str], ...] = ()
        self._load_themes()

    # ------------------------------------------------------------------------------------------ themes

    def _load_themes(self) -> None:
        shipped = themes.load_folder(themes.shipped_folder())
        own = themes.load_folder(self._user_themes())
        for theme in (*shipped.themes, *own.themes):
            self.register_theme(theme)
        self._bad_themes = (*shipped.bad, *own.bad)
        self.theme_names = [theme.name for theme in (*shipped.themes, *own.themes)]
        wanted = self._wanted_theme or themes.DEFAULT
        if wanted in self.available_themes:
            self.theme = wanted
        elif themes.DEFAULT in self.available_themes:
            self.theme = themes.DEFAULT

    def _user_themes(self) -> Path:
        if self._themes_folder is not None:
            return self._themes_folder
        import platformdirs

        return platformdirs.user_config_path(USER_FOLDER) / "themes"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        theme = self.current_theme
        return themes.fallbacks(theme, theme.to_color_system().generate())

    def _say_theme_faults(self) -> None:
        if self._bad_themes:
            files = "\n".join(f"{path.name}: {why}" for path, why in self._bad_themes)
            self.say(f"These themes cannot be used:\n{files}", "warning", 12)
        if self._wanted_theme and self._wanted_theme not in self.available_themes:
            known = ", ".join(sorted({*self.theme_names, *self.available_themes}))
            self.say(f"There is no theme `{self._wanted_theme}`. Known: {known}", "warning", 12)

    # ------------------------------------------------------------------------------------------- life

    def on_mount(self) -> None:
        if self._wanted_keys:
            from ddtop.dashboard.actions import (
                key_faults as keyfaults,  # knows every screen, so it is loaded only where keys are moved
            )

            self.set_keymap({name: keyfaults.normal(key) for name, key in self._wanted_keys.items()})
            wrong = keyfaults.key_faults(self._wanted_keys)
            if wrong:
                self.say("\n".join(["These lines of [keys] do not work:", *wrong]), "warning", 12)
        self._say_theme_faults()
        for number in range(len(self.watched)):
            self.run_worker(self._follow(number), group=f"follow-{number}", exit_on_error=False)
        self.set_interval(TICK_S, self._tick)
        self.set_interval(ATTEND_S, self._attend)
        self.call_later(self._attend)

    @property
    def here(self) -> Watched:
        """The host on the screen."""
        return self.watched[self.current]

    async def _follow(self, number: int) -> None:
        """Take the batches of one session until it ends."""
        watched = self.watched[number]
        try:
            async for batch in watched.session.events():
                watched.take(batch)
                self._dirty = True
                for event in batch:
                    self.on_news(number, watched, event)
                await asyncio.sleep(0)
            watched.drained = True
        except DdtopError as error:
            watched.error = str(error)
            self.say(str(error), "error", 20)
        except Exception as error:
            watched.error = f"the recording cannot be read on: {error}"
            self.fault(error, "following the recording")
        self._dirty = True

    def _tick(self) -> None:
        self._ticks += 1
        if self._dirty or self._ticks % CALM_TICKS == 0:
            self._dirty = False
            self.refresh_screens()
        if self._ticks % 10 == 0:
            for said in self.pending.overdue(time.time()):
                self.tell(said)

    def refresh_screens(self) -> None:
        """Draw anew what is in sight: the top screen, and the one behind a modal."""
        if self._exit:
            return
        for screen in reversed(self.screen_stack):
            if isinstance(screen, DdScreen | DdModal) and screen.is_mounted:
                try:
                    screen.refresh_view()
                except Exception as error:
                    self.fault(error, f"drawing {type(screen).__name__}")
            if isinstance(screen, DdScreen):
                break

    def touch(self) -> None:
        """Something on the screen should be drawn anew at the next tick."""
        self._dirty = True

    # ------------------------------------------------------------------------------------------- news

    def on_news(self, number: int, watched: Watched, event: Event) -> None:
        """Bells and toasts for what just happened; never for history."""
        if isinstance(event, CommandSeen):
            said = self.pending.answer(event)
            if said is not None:
                self.answers[event.command_id] = said
                self.tell(said)
            return
        if watched.replay or time.time() - event.at_s > FRESH_S:
            return
        host = watched.name
        if isinstance(event, AlertRaised):
            key = (number, event.alert_id)
            if key not in self._rung and event.verdict != "slow":
                self._rung.add(key)
                if self._rings:
                    self.bell()
            if number != self.current:
                self.say(f"{host}: {event.title} {event.cause_text}", "error", 15)
        elif isinstance(event, HostLost):
            self._lost.add(number)
            self.say(f"{host}: {event.what}", "warning")
        elif isinstance(event, HostConnected) and number in self._lost:
            self._lost.discard(number)
            self.say(f"{host} is back", "information")
        elif isinstance(event, RunEnded):
            self.say(f"The run ended: {event.outcome}. {event.reason}".strip(), "information", 15)
        elif isinstance(event, Note) and event.level != "info":
            self.say(event.text, "warning" if event.level == "warn" else "error")

    def tell(self, said: Said) -> None:
        """Show what became of a command."""
        self.say(said.text, said.severity)

    def say(self, text: str, severity: Severity = "information", timeout: float | None = None) -> None:
        """A toast, with nothing of `text` taken for markup or for the terminal."""
        words = "\n".join(clean(row) for row in text.splitlines())
        self.notify(words, severity=severity, timeout=timeout, markup=False)

    # ---------------------------------------------------------------------------------------- commands

    def command(self, kind: type[Command], label: str, **fields: Any) -> None:
        """Make a command and put it into the journal of the host on the screen."""
        self.send(make(kind, self.viewer, time.time(), **fields), label)

    def send(self, command: Command, label: str) -> None:
        """Put a command into the journal; a refusal is said, an answer is waited for."""
        watched = self.here
        self.pending.add(command, label)
        self.run_worker(self._send(watched, command, label), group="send", exit_on_error=False)

    async def _send(self, watched: Watched, command: Command, label: str) -> None:
        try:
            await watched.session.send(command)
        except DdtopError as error:
            self.pending.sent.pop(command.id, None)
            self.no_runner(watched, f"not sent: {label}. {error}")
        except Exception as error:
            self.pending.sent.pop(command.id, None)
            self.fault(error, f"sending {label}")

    def no_runner(self, watched: Watched, text: str) -> None:
        """A command could not be sent; a form of the app that can start a runner offers it."""
        self.say(text, "error", 12)

    async def _attend(self, leaving: bool = False) -> None:
        """Say to each live run that a person is watching."""
        for watched in self.watched:
            if not watched.session.live or watched.replay:
                continue
            sign = make(Attend, self.viewer, time.time(), leaving=leaving)
            try:
                await watched.session.send(sign)
            except DdtopError:
                continue  # the header and the next real command say that the runner is gone

    async def goodbye(self) -> None:
        """Tell the runs that this dashboard leaves, and let go of their files."""
        try:
            async with asyncio.timeout(1.0):
                await self._attend(leaving=True)
        except TimeoutError:
            pass
        for watched in self.watched:
            watched.session.close()

    # ------------------------------------------------------------------------------------------ faults

    def fault(self, error: Exception, where: str) -> None:
        """An exception in the dashboard itself: a line in the fault log and a toast, never a traceback."""
        sentence = self.faults.record(error, where, time.monotonic())
        if sentence is not None and self._running:
            self.say(sentence, "error", 12)
        if self.faults.storm:
            self._end_broken()

    def _end_broken(self) -> None:
        self.words = (
            "The dashboard ended because it kept failing; the sweep goes on without it.\n"
            f"Details: {self.faults.path}"
        )
        self.exit(1, return_code=1)

    def _handle_exception(self, error: Exception) -> None:
        """What Textual itself could not handle: kept, and the app ends only where it cannot go on."""
        sentence = self.faults.record(error, "the screen", time.monotonic())
        if not self._running or self.faults.storm:
            self._end_broken()
        elif sentence is not None:
            self.say(sentence, "error", 12)
