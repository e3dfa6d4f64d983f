"""What all screens share: the header, the bottom line, and being drawn when the app says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.app import ComposeResult
from textual.screen import ModalScreen, Screen

from ddtop.dashboard import keys
from ddtop.dashboard.draw.layout import SLIM
from ddtop.dashboard.draw.paint import Line
from ddtop.dashboard.guard import Guarded
from ddtop.dashboard.interface import Dashboard
from ddtop.dashboard.panels.alert import alert_lines, trouble_lines
from ddtop.dashboard.panels.footer import Hint, footer_line
from ddtop.dashboard.panels.header import header_line
from ddtop.dashboard.watched import Watched
from ddtop.dashboard.widgets.panel import Panel

if TYPE_CHECKING:
    _Screen = Screen[Any]
else:
    _Screen = object


class Opening(Guarded, _Screen):
    """Mixin of screens and boxes; stands before Textual's class. Opens them: focus, first drawing, ready for keys."""

    FOCUS: str | None = None
    """Selector of the widget that has the focus first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ready = asyncio.Event()
        """Set once the screen is drawn: keys wait for it (`key_queue.py`)."""

    @property
    def dd(self) -> Dashboard:
        """The app, as what it is."""
        return cast(Dashboard, self.app)

    @property
    def here(self) -> Watched:
        """The host on the screen."""
        return self.dd.here

    def on_mount(self) -> None:
        if self.FOCUS is not None:
            self.query_one(self.FOCUS).focus()
        self.call_after_refresh(self._open)

    def _open(self) -> None:
        try:
            if self in self.app.screen_stack:  # a box may be closed before it is drawn once
                self.refresh_view()
                self.opened()
        finally:
            self.ready.set()

    def opened(self) -> None:
        """Once, after the first drawing: put the cursor where it belongs."""

    def refresh_view(self) -> None:
        """Draw what changed; most boxes do not move."""

    def draw_log(self) -> None:
        """Draw what new lines of a log change: nothing, where no log is in sight."""


class DdScreen(Opening, Screen[None]):
    """A screen with header and bottom line around its own body."""

    HINTS: tuple[str, ...] = ("help", "leave")
    """Ids of the bindings of the bottom line, the most useful first."""
    BAR_LINES = 3
    """Most lines of the alert bar; 0: none, for a screen that shows the alert itself."""

    def compose(self) -> ComposeResult:
        yield Panel(self._header, id="header")
        yield from self.body()
        yield Panel(self._alert, id="alert")
        yield Panel(self._footer, id="footer")

    def body(self) -> ComposeResult:
        """The widgets between header and bottom line."""
        raise NotImplementedError

    def refresh_view(self) -> None:
        """Draw what changed. Not yet composed, or already on its way out: nothing."""
        header, footer = self.query_one_optional("#header", Panel), self.query_one_optional("#footer", Panel)
        if header is None or footer is None or not self.is_running:
            return
        header.redraw()
        self.bar_height = self._fit_bar()
        self.draw()
        footer.redraw()

    bar_height = 0
    """Lines of the alert bar now."""

    def bar_lines(self) -> int:
        """Most lines that the alert bar may have in this size."""
        return self.BAR_LINES + (
            2 if self.BAR_LINES and self.size.width < SLIM and self.size.height >= 24 else 0
        )

    def _fit_bar(self) -> int:
        """Draw the alert bar at the height of its lines."""
        alert = self.query_one("#alert", Panel)
        lines = self._alert(max(1, self.size.width), 0)
        alert.set_class(bool(lines), "-on")
        height = alert.styles.height
        if lines and (height is None or height.value != len(lines)):
            alert.styles.height = len(lines)
        alert.redraw()
        return len(lines)

    def _alert(self, width: int, _height: int) -> Sequence[Line]:
        here, most = self.here, self.bar_lines()
        if not most:
            return []
        lines = alert_lines(here.state, here.now_s(), width, most, here.proposed, here.alert, here.seat)
        return [*trouble_lines(here.error, width), *lines]

    def draw(self) -> None:
        """Draw the body."""
        raise NotImplementedError

    def copy_text(self) -> str:
        """What `y` copies."""
        return ""

    def _header(self, width: int, _height: int) -> Sequence[Line]:
        here = self.here
        return [header_line(here.state, here.now_s(), width, here.recording(), here.eta())]

    def _footer(self, width: int, _height: int) -> Sequence[Line]:
        return [footer_line(self.hints(), width)]

    def hints(self) -> list[Hint]:
        """The keys to show, with the labels they have now; those that are not valid now are left out."""
        out: list[Hint] = []
        named = {span.target for row in self.query_one("#alert", Panel).lines for span in row}
        active = {active.binding.id: active for active in self.active_bindings.values() if active.enabled}
        for identity in self.HINTS:
            entry = active.get(identity)
            if entry is None or (self.bar_height and f"key:{keys.shown_key(entry.binding.key)}" in named):
                continue  # the bar above names it already
            label = self.dd.view.label_of(identity) or keys.SHORT.get(identity, entry.binding.description)
            out.append(Hint(keys.shown_key(entry.binding.key), label, identity in ("help", "back")))
        return out

    def on_screen_resume(self) -> None:
        self.dd.touch()

    def on_panel_clicked(self, event: Panel.Clicked) -> None:
        """A click on a key in the bottom line or in the alert bar is that key; others are the screen's."""
        event.stop()
        if event.target.startswith("key:"):
            self.dd.press(event.target.removeprefix("key:"))
        else:
            self.clicked(event.panel, event.target, event.twice)

    def clicked(self, panel: Panel, target: str, twice: bool) -> None:
        """A click on something of the body."""

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.dismiss()


class DdModal(Opening, ModalScreen[bool]):
    """A box over a screen. Escape closes it without doing anything."""

    BINDINGS = [keys.BACK]

    def action_back(self) -> None:
        self.dismiss(False)
