"""The run as one line, by hand: a click or a drag chooses a moment; a tooltip says what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from textual import events
from textual.message import Message

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Line
from ddtop.dashboard.panels.timeline.strip import Run, Strip, target_at, words_at
from ddtop.dashboard.widgets.panel import Panel
from ddtop.journal.fold.state import State

TALL = 34
"""Rows of a screen from which the line has clock times below it."""


class Source(Protocol):
    """The run that a strip shows."""

    @property
    def state(self) -> State: ...
    def run_line(self) -> Run: ...
    def strip(self, width: int, height: int) -> Strip: ...


class TimelineStrip(Panel, can_focus=True):
    """Shows a `Strip`; `fit` decides how much room it has."""

    BINDINGS = [*keys.STRIP]

    class Chosen(Message):
        """A moment was chosen by the mouse (`column` of the line) or by a key (None)."""

        def __init__(self, strip: Strip, at_s: float, column: int | None) -> None:
            super().__init__()
            self.strip = strip
            self.at_s = at_s
            self.column = column

    def __init__(self, here: Callable[[], Source]) -> None:
        """`here`: the host on the screen."""
        super().__init__(self._drawn, id="timeline")
        self._here = here
        self._strip = Strip(())
        self._held: int | None = None
        self._pointed: int | None = None

    def _drawn(self, width: int, height: int) -> Sequence[Line]:
        self._strip = self._here().strip(width, height)
        return self._strip.lines

    def fit(self, screen_rows: int, shown: bool) -> int:
        """Take the room that there is; returns its rows, 0 where there is nothing to show."""
        self.set_class(shown, "-on")
        self.set_class(screen_rows >= TALL, "-tall")
        return 0 if not shown else 2 if screen_rows >= TALL else 1

    # ------------------------------------------------------------------------------------------- hands

    def _column(self, x: int) -> int | None:
        """Column of the line under column `x` of the panel; the nearest end outside of it."""
        scale = self._strip.scale
        return None if scale is None else min(scale.width - 1, max(0, x - self._strip.left))

    def _choose(self, x: int) -> None:
        column = self._column(x)
        if column is not None and self._strip.scale is not None and column != self._held:
            self._held = column
            self.post_message(
                self.Chosen(
                    self._strip, target_at(self._here().run_line(), self._strip.scale, column), column
                )
            )

    def on_mouse_down(self, event: events.MouseDown) -> None:
        event.stop()
        self.capture_mouse()
        self._choose(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._held is not None:
            self._choose(event.x)
        elif (column := self._column(event.x)) != self._pointed and column is not None:
            self._pointed = column
            here = self._here()
            self.tooltip = words_at(here.run_line(), here.state, self._strip, column)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        event.stop()
        self.release_mouse()
        self._held = None

    def on_click(self, event: events.Click) -> None:
        event.stop()

    def action_turn(self, step: int) -> None:
        """`left` and `right`: one column of the line; `home` and `end`: its ends."""
        scale = self._strip.scale
        if scale is not None:
            column = scale.column(self._here().run_line().now_s) + step
            at_s = (
                scale.begin_s if column < 0 else scale.end_s if column >= scale.width else scale.time(column)
            )
            self.post_message(self.Chosen(self._strip, at_s, None))
