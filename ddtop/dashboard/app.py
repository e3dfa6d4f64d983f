"""The app itself: the ground, the hands and the first screen put together."""

from __future__ import annotations

from textual.screen import Screen

from ddtop.dashboard import keys
from ddtop.dashboard.actions.view import ViewActions
from ddtop.dashboard.screens.dashboard import DashboardScreen
from ddtop.dashboard.screens.modals import ConfirmScreen
from ddtop.dashboard.watched import Watched
from ddtop.errors import DdtopError


class DashboardApp(ViewActions):
    """ddtop's dashboard on one or more sessions."""

    BINDINGS = [*keys.APP, *keys.REPLAY]

    def get_default_screen(self) -> Screen[None]:
        return DashboardScreen(id="_default")

    def no_runner(self, watched: Watched, text: str) -> None:
        """A command that nobody can obey: say so, and offer to start a runner where that is possible."""
        if self.start_runner is None or watched.session.live or watched.replay:
            super().no_runner(watched, text)
            return
        facts = [
            ("host", watched.name),
            ("recording", str(watched.session.path)),
            ("what", "no runner holds this recording, so nobody could obey"),
            ("command", f"ddtop connect {watched.name}, in the background"),
        ]

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._start_runner(watched), group="runner", exit_on_error=False)

        self.push_screen(ConfirmScreen("Start a runner?", facts, "start it"), answered)

    async def _start_runner(self, watched: Watched) -> None:
        if self.start_runner is None:
            return
        try:
            self.say(await self.start_runner(watched.session))
        except DdtopError as error:
            self.say(str(error), "error", 15)
        except Exception as error:
            self.fault(error, "starting a runner")
