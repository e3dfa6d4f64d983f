"""The whole log: filter in and out, levels, units, errors, the starts before this one."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from ddtop.dashboard import keys
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.widgets.logpane import LogPane
from ddtop.events import Evidence


class LogScreen(DdScreen):
    """The log on the full screen."""

    BINDINGS = [
        keys.BACK,
        keys.bind("L", "level", "Level: all, info, warnings, errors", "log-level"),
        keys.bind("U", "unit", "One unit, or all", "log-unit"),
    ]
    HINTS = (
        "back",
        "filter",
        "next-hit",
        "next-error",
        "log-level",
        "previous-log",
        "log-unit",
        "follow",
        "copy",
        "help",
        "again",
        "leave",
    )

    FOCUS = "#log"

    def __init__(self, evidence: Sequence[Evidence] = ()) -> None:
        """`evidence`: it opens at the first of these lines that is there."""
        super().__init__()
        self._evidence = evidence

    def body(self) -> ComposeResult:
        yield LogPane(self.here.log, id="log-pane")

    def opened(self) -> None:
        view = self.query_one(LogPane).view
        for cited in self._evidence:
            if cited.source == "log" and view.show_line(cited.cursor, cited.text):
                return

    def draw(self) -> None:
        self.query_one(LogPane).draw(self.here.log, self.here.state)

    def draw_log(self) -> None:
        self.draw()

    def copy_text(self) -> str:
        return self.query_one(LogPane).view.text_in_sight()

    def action_level(self) -> None:
        self.query_one(LogPane).turn_level()
        self.refresh_view()

    def action_unit(self) -> None:
        self.query_one(LogPane).turn_unit()
        self.refresh_view()

    def action_back(self) -> None:
        if not self.query_one(LogPane).back():
            super().action_back()
