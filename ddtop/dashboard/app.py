"""The app: sessions followed, state folded, the screen drawn ten times a second, keys and commands sent on."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import SystemCommand
from textual.screen import Screen

from ddtop.dashboard import keys, themes
from ddtop.dashboard.actions.replay import ReplayActions
from ddtop.dashboard.actions.sweep import SweepActions
from ddtop.dashboard.actions.view import ViewActions
from ddtop.dashboard.actions.why import why_not
from ddtop.dashboard.draw.paint import clean
from ddtop.dashboard.faults import FaultLog
from ddtop.dashboard.interface import Dashboard
from ddtop.dashboard.key_queue import KeyQueue
from ddtop.dashboard.looked import AWAY_S, Looks
from ddtop.dashboard.news import FRESH_S, News
from ddtop.dashboard.screens.base import DdModal, DdScreen
from ddtop.dashboard.screens.dashboard import DashboardScreen
from ddtop.dashboard.screens.modals import ConfirmScreen
from ddtop.dashboard.watched import Watched
from ddtop.errors import DdtopError
from ddtop.events import Attend, Command, CommandSeen, Event, LogRead
from ddtop.journal.act.changes import changes, looked_since
from ddtop.journal.act.pending import Pending, Said, Severity, make, viewer_name

if TYPE_CHECKING:
    from ddtop.journal.read.session import Session

StartRunner = Callable[["Session"], Awaitable[str]]
"""Starts a runner for the recording of a session; answers with a sentence about it."""

TICK_S = 0.1
CALM_TICKS = 5
"""Ticks between two refreshes when no event came: ages and countdowns move twice a second."""
LOG_TICKS = 2
"""Ticks between two refreshes of a log alone: lines that come all the time are drawn five times a second."""

ATTEND_S = 5.0
WHY_S = 4.0
"""How long it stands why a key does nothing, and how long it is not said again."""


class DashboardApp(Dashboard):
    """ddtop's dashboard on one or more sessions.

    The key actions are three objects beside the app (`sweep`, `view`, `replay`), which Textual finds by the
    first part of an action's name.
    """

    CSS_PATH = "app.tcss"
    TITLE = "ddtop"
    BINDINGS = [*keys.APP, *keys.REPLAY]
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
        looks: Path | None = None,
    ) -> None:
        """`looks`: the folder in which it is kept when each run was last looked at; None: it is not kept."""
        # The convention says that an empty NO_COLOR is as good as none; Textual takes it for set.
        if os.environ.get("NO_COLOR") == "":
            del os.environ["NO_COLOR"]
        super().__init__()
        self._action_targets |= {"sweep", "view", "replay"}
        self._sweep, self._view, self._replay = SweepActions(self), ViewActions(self), ReplayActions(self)
        many = len(sessions) > 1
        self.watched = [
            Watched(s, n if many else None, starts=start_runner is not None)
            for n, s in enumerate(sessions, 1)
        ]
        self.current = 0
        self.faults = FaultLog(fault_log)
        self.pending = Pending()
        self.answers: dict[str, Said] = {}
        self.viewer = viewer or getattr(sessions[0], "viewer", None) or viewer_name()
        self.start_runner = start_runner
        self.words: str | None = None
        self.key_queue = KeyQueue(self, self._hand_on)
        self._said_why = ("", 0.0)
        """The last sentence on a key that does nothing, and when it was said (monotonic)."""
        self._wanted_theme = theme
        self._wanted_keys = dict(keymap or {})
        self._rings = bell
        self._dirty = True
        self._drawing = False
        """True while a drawing that a key asked for is on its way."""
        self._log_dirty = False
        self._ticks = 0
        self._looks = Looks(looks)
        self._opened_s = time.time()
        self._away: list[tuple[Watched, float]] = []
        """Hosts with changes to tell, until all are here."""
        self._arriving: set[int] = set()
        """Hosts of which a full batch came since the last tick: there is more of them."""
        self._news = [News() for _ in sessions]
        self._themes = themes.load_all(themes_folder)
        self.theme_names = [loaded.name for loaded in self._themes.themes]
        for loaded in self._themes.themes:
            self.register_theme(loaded)
        for name in (theme, themes.DEFAULT):
            if name in self.available_themes:
                self.theme = name
                break

    @property
    def sweep(self) -> SweepActions:
        return self._sweep

    @property
    def view(self) -> ViewActions:
        return self._view

    @property
    def replay(self) -> ReplayActions:
        return self._replay

    def get_default_screen(self) -> Screen[None]:
        return DashboardScreen(id="_default")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        theme = self.current_theme
        return themes.fallbacks(theme, theme.to_color_system().generate())

    # ------------------------------------------------------------------------------------------- life

    def on_mount(self) -> None:
        self._use_keymap()
        self._say_theme_faults()
        for number in range(len(self.watched)):
            self.run_worker(self._follow(number), group=f"follow-{number}", exit_on_error=False)
        self.run_worker(self.key_queue.run(), group="keys", exit_on_error=False)
        self.set_interval(TICK_S, self._tick)
        self.set_interval(ATTEND_S, self._attend)
        self.call_later(self._attend)

    def _use_keymap(self) -> None:
        if not self._wanted_keys:
            return
        from ddtop.dashboard.actions import key_faults  # loads every screen: only where keys are moved

        self.set_keymap({name: key_faults.normal(key) for name, key in self._wanted_keys.items()})
        wrong = key_faults.key_faults(self._wanted_keys)
        if wrong:
            self.say("\n".join(["These lines of [keys] in the settings do not work:", *wrong]), "warning", 12)

    def _say_theme_faults(self) -> None:
        if self._themes.bad:
            files = "\n".join(f"{path.name}: {why}" for path, why in self._themes.bad)
            self.say(f"These themes cannot be used:\n{files}", "warning", 12)
        if self._wanted_theme and self._wanted_theme not in self.available_themes:
            known = ", ".join(sorted({*self.theme_names, *self.available_themes}))
            self.say(f"There is no theme `{self._wanted_theme}`. Known: {known}", "warning", 12)

    async def _follow(self, number: int) -> None:
        """Take the batches of one session until it ends."""
        from ddtop.journal.read.session import BATCH  # with sqlite3: whoever has a session has it loaded

        watched = self.watched[number]
        try:
            async for batch in watched.session.events():
                watched.take(batch)
                self._log_dirty = True
                self._dirty = self._dirty or not all(isinstance(event, LogRead) for event in batch)
                for event in batch:
                    self._on_news(number, watched, event)
                if len(batch) < BATCH:
                    self._caught_up(watched)
                else:
                    self._arriving.add(number)
                await asyncio.sleep(0)
            watched.drained = True
        except DdtopError as error:
            watched.error = str(error)
            self.say(str(error), "error", 20)
        except Exception as error:
            watched.error = f"the rest of the recording cannot be read: {error}"
            self.fault(error, "following the recording")
        self._dirty = True

    def _caught_up(self, watched: Watched) -> None:
        """All that was recorded before is here. Where nobody looked for a while, tell what changed; never in a replay."""
        state = watched.state
        if watched.caught_up or not state.run.run_id:
            return
        watched.caught_up = True
        if not watched.replay:
            alone = state.track.unwatched
            watched.looked_s = looked_since(
                self._looks.last(state.run.run_id),
                (alone.begin_s, alone.end_s) if alone is not None else None,
                self._opened_s,
            )
            self._looks.note(state.run.run_id)
            since_s, now_s = watched.looked_s, watched.now_s()
            if since_s is not None and now_s - since_s >= AWAY_S and changes(state, since_s, now_s).any:
                self._away.append((watched, since_s))
        if self._away and all(one.caught_up for one in self.watched):
            from ddtop.dashboard.screens.changes import ChangesScreen

            self.push_screen(ChangesScreen(self._away))

    def _on_news(self, number: int, watched: Watched, event: Event) -> None:
        """Bells and toasts for what just happened; never for history."""
        if isinstance(event, CommandSeen):
            said = self.pending.answer(event)
            if said is not None:
                self.answers[event.command_id] = said
                self.say(said.text, said.severity)
            return
        if watched.replay or time.time() - event.at_s > FRESH_S:
            return
        news = self._news[number]
        if news.rings(event) and self._rings:
            self.bell()
        if toast := news.toast(event, watched.name, number == self.current):
            self.say(toast.text, toast.severity, toast.timeout_s)

    # ---------------------------------------------------------------------------------------- drawing

    def _tick(self) -> None:
        self._ticks += 1
        if self._dirty or self._ticks % CALM_TICKS == 0:
            self.refresh_screens()
        elif self._log_dirty and self._ticks % LOG_TICKS == 0:
            self._draw(lambda screen: screen.draw_log())
        for number, watched in enumerate(self.watched):
            if not watched.caught_up and number not in self._arriving:
                self._caught_up(watched)
        self._arriving.clear()
        if self._ticks % 10 == 0:
            for said in self.pending.overdue(time.time()):
                self.say(said.text, said.severity)

    def refresh_screens(self) -> None:
        """Draw anew what is in sight: the top screen, and the one behind a modal."""
        self._dirty = False
        self._draw(lambda screen: screen.refresh_view())

    def _draw(self, draw: Callable[[Any], None]) -> None:
        self._log_dirty = self._drawing = False
        if self._exit:
            return
        for screen in reversed(self.screen_stack):
            if isinstance(screen, DdScreen | DdModal) and screen.is_mounted:
                try:
                    draw(screen)
                except Exception as error:
                    self.fault(error, f"drawing {type(screen).__name__}")
            if isinstance(screen, DdScreen):
                break

    def touch(self) -> None:
        self._dirty = True
        if not self._drawing:
            self._drawing = True
            self.call_later(self.refresh_screens)

    def say(self, text: str, severity: Severity = "information", timeout: float | None = None) -> None:
        """A toast, with nothing of `text` taken for markup or for the terminal."""
        words = "\n".join(clean(row) for row in text.splitlines())
        self.notify(words, severity=severity, timeout=timeout, markup=False)

    # ------------------------------------------------------------------------------------------- keys

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            self.key_queue.put(event)
        else:
            await super().on_event(event)

    async def _hand_on(self, key: events.Key) -> None:
        """Give a key to the focused widget; one that does nothing there is answered in a sentence."""
        if (why := why_not(self, key.key, key.character)) is not None:
            self.say_why(why)
        await super().on_event(key)

    def say_why(self, why: str) -> None:
        """Say why a key does nothing; a key that is held down says it once."""
        now = time.monotonic()
        if self._said_why[0] != why or now - self._said_why[1] > WHY_S:
            self._said_why = (why, now)
            self.say(why, timeout=WHY_S)

    def press(self, key: str) -> None:
        for name, active in self.screen.active_bindings.items():
            if key in (name, keys.shown_key(name)) and active.enabled:
                self.call_later(self.run_action, active.binding.action, active.node)
                return
        named = next((name for name, shown in keys.GLYPHS.items() if shown == key), key)
        if (why := why_not(self, named, key)) is not None:
            self.say_why(why)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Never Textual's own `suspend_process`: under `make` or a script the shell never comes back."""
        return action != "suspend_process"

    async def action_quit(self) -> None:
        """Textual's `ctrl+q`."""
        self.view.action_leave()

    def action_help_quit(self) -> None:
        """Textual's `ctrl+c`: leaving costs nothing, so it leaves."""
        self.view.action_leave()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every action that is valid now by its description, then the themes."""
        seen: set[str] = set()
        for active in (self.view.top or screen).active_bindings.values():
            binding, node = active.binding, active.node
            if not active.enabled or not binding.description or binding.id in seen or not binding.show:
                continue
            seen.add(binding.id or "")

            def call(action: str = binding.action, where: object = node) -> None:
                self.call_later(self.run_action, action, where)

            yield SystemCommand(binding.description, f"key {keys.shown_key(binding.key)}", call)
        for name in self.theme_names:
            yield SystemCommand(
                f"Theme {name}", "Use this theme", lambda theme=name: setattr(self, "theme", theme)
            )

    # ---------------------------------------------------------------------------------------- commands

    def command(self, kind: type[Command], label: str, **fields: Any) -> None:
        self.send(make(kind, self.viewer, time.time(), **fields), label)

    def send(self, command: Command, label: str) -> None:
        """Put a command into the journal of the host on the screen; a refusal is said, an answer is waited for."""
        self.pending.add(command, label)
        self.run_worker(self._send(self.here, command, label), group="send", exit_on_error=False)

    async def _send(self, watched: Watched, command: Command, label: str) -> None:
        try:
            await watched.session.send(command)
        except DdtopError as error:
            self.pending.sent.pop(command.id, None)
            self.no_runner(watched, f"Not sent: {label}. {error}")
        except Exception as error:
            self.pending.sent.pop(command.id, None)
            self.fault(error, f"sending {label}")

    def no_runner(self, watched: Watched, text: str, *, again: bool = False) -> None:
        if self.start_runner is None or watched.session.live or watched.replay:
            self.say(text, "error", 12)
            return
        if again:
            self.say(f"Connecting to {watched.name} again …")
            self.run_worker(self._start_runner(watched), group="runner", exit_on_error=False)
            return
        facts = [
            ("host", watched.name),
            ("recording", str(watched.session.path)),
            ("why", "nothing is running this sweep"),
            ("command", f"ddtop connect {watched.name}, in the background"),
        ]

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._start_runner(watched), group="runner", exit_on_error=False)

        self.push_screen(ConfirmScreen("Start a runner?", facts, "start a runner"), answered)

    async def _start_runner(self, watched: Watched) -> None:
        if self.start_runner is None:
            return
        try:
            self.say(await self.start_runner(watched.session))
        except DdtopError as error:
            self.say(str(error), "error", 15)
        except Exception as error:
            self.fault(error, "starting a runner")

    async def _attend(self, leaving: bool = False) -> None:
        """Tell each live run that a person is watching."""
        for watched in self.watched:
            if not watched.session.live or watched.replay:
                continue
            self._looks.note(watched.state.run.run_id if watched.caught_up else "")
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
