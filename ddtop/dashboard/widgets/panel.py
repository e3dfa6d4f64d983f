"""The widget that shows lines made by a pure function: one for every panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, cast

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ddtop.dashboard.draw.paint import Line, Span, clean
from ddtop.dashboard.widgets.roles import role_styles

Draw = Callable[[int, int], Sequence[Line]]
"""(width, height) of the content area in cells → its lines, top first."""


def set_title(widget: Widget, title: str, subtitle: str = "") -> None:
    """Give a pane its titles, as plain text, and only where they changed."""
    if getattr(widget, "shown_titles", None) != (title, subtitle):
        widget.shown_titles = (title, subtitle)  # type: ignore[attr-defined]
        widget.border_title = cast(str, Content(clean(title)))
        widget.border_subtitle = cast(str, Content(clean(subtitle))) if subtitle else None


class Panel(Widget):
    """A box of lines. `redraw` asks `draw` again and repaints only what changed."""

    DEFAULT_CSS = """
    Panel { height: auto; width: 1fr; }
    """

    class Clicked(Message):
        """A span with a target was clicked."""

        def __init__(self, panel: Panel, target: str, twice: bool) -> None:
            super().__init__()
            self.panel = panel
            self.target = target
            self.twice = twice

        @property
        def control(self) -> Panel:
            return self.panel

    def __init__(self, draw: Draw, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._draw_lines = draw
        self._shown: list[Line] = []
        self._drawn_size = (0, 0)
        self._ink: dict[str, RichStyle] = {}

    @property
    def lines(self) -> list[Line]:
        """The lines shown now."""
        return self._shown

    def redraw(self) -> None:
        """Make the lines anew and repaint where they differ."""
        width, height = self.content_size.width, self.content_size.height
        if not width or not height:
            return
        new = [tuple(spans) for spans in self._draw_lines(width, height)][:height]
        old, size = self._shown, self._drawn_size
        self._shown, self._drawn_size = new, (width, height)
        if size != (width, height):
            self.refresh()
        elif new != old:
            rows = zip_longest(new, old)
            self.refresh(*(Region(0, y, width, 1) for y, (one, other) in enumerate(rows) if one != other))

    def on_resize(self, _event: events.Resize) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        self._ink = {}
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """Strip of content line `y` (Textual's line API)."""
        styles = self._role_styles()
        blank = styles["text"]
        width = self.content_size.width
        if y >= len(self._shown):
            return Strip.blank(width, blank)
        segments = [Segment(clean(span.text), styles.get(span.role, blank)) for span in self._shown[y]]
        return Strip(segments).adjust_cell_length(width, blank)

    def _role_styles(self) -> dict[str, RichStyle]:
        if not self._ink:
            background = self.background_colors[1]
            self._ink = role_styles(self.app.theme_variables, background)
        return self._ink

    def span_at(self, x: int, y: int) -> Span | None:
        """The span under content cell (x, y)."""
        if not 0 <= y < len(self._shown):
            return None
        for span in self._shown[y]:
            x -= cell_len(span.text)
            if x < 0:
                return span
        return None

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        span = self.span_at(offset.x, offset.y)
        if span is not None and span.target:
            event.stop()
            self.post_message(self.Clicked(self, span.target, event.chain > 1))

    def get_content_height(self, container: Any, viewport: Any, width: int) -> int:
        """Height that the lines want when the style says `height: auto`."""
        return max(1, len(self._draw_lines(width, viewport.height)))
