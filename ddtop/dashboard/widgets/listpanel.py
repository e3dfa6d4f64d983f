"""A long list of lines with a head that stays, a cursor, and scrolling; rendered line by line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Item, Line, clean, pad, selected, width_of
from ddtop.dashboard.widgets.roles import role_styles


class ListPanel(ScrollView, can_focus=True):
    """Items below a fixed head. The cursor stays on its item when the items change."""

    BINDINGS = [
        *keys.MOVE,
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("home", "ends(-1)", "First", show=False),
        Binding("end", "ends(1)", "Last", show=False),
    ]
    DEFAULT_CSS = """
    ListPanel { height: 1fr; overflow-x: auto; overflow-y: auto; scrollbar-size: 0 1; }
    """

    class Opened(Message):
        """Enter or a double click on an item."""

        def __init__(self, panel: ListPanel, key: str) -> None:
            super().__init__()
            self.panel = panel
            self.key = key

        @property
        def control(self) -> ListPanel:
            return self.panel

    class Moved(Message):
        """The cursor is on another item."""

        def __init__(self, panel: ListPanel, key: str) -> None:
            super().__init__()
            self.panel = panel
            self.key = key

        @property
        def control(self) -> ListPanel:
            return self.panel

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.head: tuple[Line, ...] = ()
        self.items: tuple[Item, ...] = ()
        self.key: str | None = None
        """Key of the item under the cursor."""
        self._ink: dict[str, RichStyle] = {}

    def show(self, head: Sequence[Line], items: Sequence[Item]) -> None:
        """Show these; nothing is repainted where nothing changed."""
        self._place_bar()
        new_head, new_items = tuple(head), tuple(items)
        if (new_head, new_items) == (self.head, self.items):
            return
        self.head, self.items = new_head, new_items
        known = [item.key for item in self.items if item.key is not None]
        if self.key not in known:
            self.key = known[0] if known else None
        widest = max((width_of(item.line) for item in (*self.items,)), default=0)
        widest = max([widest, *(width_of(row) for row in self.head)])
        self.virtual_size = Size(widest, len(self.items) + len(self.head))
        self.refresh()

    @property
    def row(self) -> int | None:
        """Number of the item under the cursor."""
        for number, item in enumerate(self.items):
            if item.key is not None and item.key == self.key:
                return number
        return None

    def put_cursor(self, key: str) -> None:
        """Put the cursor on the item with this key and bring it into sight."""
        self.key = key
        row = self.row
        if row is not None:
            top, room = round(self.scroll_y), max(1, self.size.height - len(self.head))
            if row < top:
                self.scroll_to(y=row, animate=False, immediate=True)
            elif row >= top + room:
                self.scroll_to(y=row - room + 1, animate=False, immediate=True)
        self.refresh()
        self.post_message(self.Moved(self, key))

    def _place_bar(self) -> None:
        """Textual moves the bar only if it is there when the list scrolls; it comes a frame after the items."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = self.scroll_y

    def notify_style_update(self) -> None:
        self._ink = {}
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """Strip of the y-th line in sight (Textual's line API)."""
        if not self._ink:
            self._ink = role_styles(self.app.theme_variables, self.background_colors[1])
        styles = self._ink
        blank = styles["text"]
        scroll_x, scroll_y = self.scroll_offset
        width = self.size.width
        spans: Line = ()
        if y < len(self.head):
            spans = self.head[y]
        else:
            row = scroll_y + y - len(self.head)
            if 0 <= row < len(self.items):
                item = self.items[row]
                here = item.key is not None and item.key == self.key
                spans = selected(pad(item.line, width + scroll_x)) if here else item.line
        segments = [Segment(clean(span.text), styles.get(span.role, blank)) for span in spans]
        return Strip(segments).crop_extend(scroll_x, scroll_x + width, blank)

    # -------------------------------------------------------------------------------------------- hands

    def action_move(self, down: int, right: int) -> None:
        if right:
            self.scroll_relative(x=8 * right, animate=False)
        if down:
            self._step(down)

    def action_page(self, step: int) -> None:
        self._step(step * max(1, self.size.height - len(self.head) - 1))

    def action_ends(self, step: int) -> None:
        self._step(step * len(self.items))

    def action_open(self) -> None:
        if self.key is not None:
            self.post_message(self.Opened(self, self.key))

    def _step(self, step: int) -> None:
        places = [number for number, item in enumerate(self.items) if item.key is not None]
        if not places:
            self.scroll_relative(y=step, animate=False)
            return
        row = self.row
        at = places.index(row) if row in places else 0
        target = places[min(max(0, at + step), len(places) - 1)]
        key = self.items[target].key
        if key is not None:
            self.put_cursor(key)
        if target == places[0]:
            self.scroll_to(y=0, animate=False, immediate=True)

    def on_click(self, event: events.Click) -> None:
        row = round(self.scroll_y) + event.y - len(self.head)
        if event.y >= len(self.head) and 0 <= row < len(self.items):
            key = self.items[row].key
            if key is not None:
                self.put_cursor(key)
                if event.chain > 1:
                    self.post_message(self.Opened(self, key))
