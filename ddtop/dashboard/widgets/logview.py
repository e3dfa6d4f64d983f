"""The log window: a line-API view on a `LogBuffer` through a `LogIndex`.

It renders only the lines in sight, so that its cost does not depend on how fast lines come. It follows the
end until it is scrolled away; then it says how many lines came since.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.cache import LRUCache
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ddtop.dashboard.draw.paint import clean
from ddtop.dashboard.draw.text import clock, unit_name
from ddtop.dashboard.log_window import Entry, Filter, LogBuffer, LogIndex, level_of
from ddtop.dashboard.widgets.roles import role_styles

_LEVEL_MARK = {"error": ("✗", "bad"), "warn": ("!", "warn"), "info": (" ", "text"), "debug": (" ", "dim")}


class LogView(ScrollView, can_focus=True):
    """Lines of a buffer that pass a filter; `sync()` takes in what came."""

    DEFAULT_CSS = """
    LogView { height: 1fr; overflow-x: auto; overflow-y: scroll; scrollbar-size: 0 1; }
    """
    MAX_WIDTH = 1000

    class Moved(Message):
        """What is shown changed: another filter, another hit, followed or let go."""

    def __init__(self, buffer: LogBuffer, wanted: Filter | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.index = LogIndex(buffer, wanted)
        self.following = True
        self.hit: int | None = None
        """Row of the current hit."""
        self._strips: LRUCache[tuple[int, bool], Strip] = LRUCache(4096)
        self._ink: dict[str, RichStyle] = {}
        self._seen_end = 0
        self._widest = 0

    @property
    def buffer(self) -> LogBuffer:
        return self.index.buffer

    @property
    def behind(self) -> int:
        """Rows that came after the window was scrolled away from the end."""
        if self.following:
            return 0
        return max(0, len(self.index.rows) - (round(self.scroll_target_y) + self.size.height))

    def watch_buffer(self, buffer: LogBuffer) -> None:
        """Show another host's lines by the same filter."""
        if buffer is not self.index.buffer:
            self.index = LogIndex(buffer, self.index.filter)
            self._renew()

    def set_filter(self, wanted: Filter) -> None:
        """Show by another filter. Raises FilterError."""
        self.index.set_filter(wanted)
        self._renew()

    def _renew(self) -> None:
        self.hit = None
        self.following = True
        self._strips.clear()
        self._seen_end = 0
        self._widest = 0
        self.sync()
        self.post_message(self.Moved())

    def sync(self) -> None:
        """Take in new lines; cheap where there are none."""
        if self.show_vertical_scrollbar:
            # Textual moves the bar only if it is there when the window scrolls; it comes a frame after the lines.
            self.vertical_scrollbar.position = self.scroll_y
        dropped_before = self.index.rows[0] if self.index.rows else None
        anew = self.index.sync()
        rows = self.index.rows
        if anew:
            self.hit = None
            self._strips.clear()
        elif rows and dropped_before is not None and rows[0] != dropped_before and self.hit is not None:
            self.hit = None
        # A window that shrank (the alert bar came) has its end below the edge, and nothing scrolled.
        off = self.following and round(self.scroll_y) < self.max_scroll_y
        same = self._seen_end == self.buffer.end and self.virtual_size.height == max(1, len(rows))
        if not anew and same and not off:
            return
        self._seen_end = self.buffer.end
        self._widest = max(self._widest, self._widest_in_sight())
        # Set without Textual's layout of the whole screen: the bars have their place whatever the lines are.
        virtual = Size(min(self.MAX_WIDTH, self._widest), max(1, len(rows)))
        self.set_reactive(Widget.virtual_size, virtual)
        self._scroll_update(virtual)
        if self.following:
            self.scroll_end(animate=False, immediate=True, x_axis=False)
        self.refresh()

    def _widest_in_sight(self) -> int:
        tail = self.index.rows[-max(1, self.size.height) :]
        return max((self._width_of(self.buffer[number]) for number in tail), default=0)

    def _width_of(self, entry: Entry) -> int:
        return 13 + len(entry.line.text) + (len(entry.unit) + 1 if self._many_units else 0)

    @property
    def _many_units(self) -> bool:
        return len(self.buffer.latest_start) > 1 and self.index.filter.unit is None

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        at_end = round(new) >= self.max_scroll_y
        if at_end != self.following and self.is_mounted:
            self.following = at_end
            self.post_message(self.Moved())

    def notify_style_update(self) -> None:
        self._ink = {}
        self._strips.clear()
        super().notify_style_update()

    # ------------------------------------------------------------------------------------------- moving

    def step_hit(self, step: Literal[1, -1]) -> bool:
        """Go to the next (or previous) hit and mark it. False where there is none."""
        rows = self.index.rows
        if not self.index.filter.searching or not rows:
            return False
        if self.hit is None:
            first = round(self.scroll_y) + self.size.height
            self.hit = min(len(rows), first) - 1 if step == -1 else min(len(rows) - 1, round(self.scroll_y))
        else:
            self.hit = (self.hit + step) % len(rows)
        self._show_row(self.hit)
        return True

    def step_error(self, step: Literal[1, -1]) -> bool:
        """Go to the next (or previous) error. False where there is none."""
        begin = (
            self.hit
            if self.hit is not None
            else round(self.scroll_y) + (0 if step == 1 else self.size.height)
        )
        row = self.index.next_error(begin, step)
        if row is None:
            return False
        self.hit = row
        self._show_row(row)
        return True

    def show_line(self, cursor: str | None, text: str) -> bool:
        """Go to the line with this journal cursor, else to the last one with this text. False where it is not in the window."""
        wanted, known = text.strip(), None if cursor is None else hash(cursor)
        found = None
        for row, number in enumerate(self.index.rows):
            entry = self.buffer[number]
            if known is not None and entry.cursor_hash == known:
                found = row
                break
            if wanted and entry.line.text.strip() == wanted:
                found = row
        if found is not None:
            self.hit = found
            self._show_row(found)
            return True
        if self.index.filter.start != "all":
            # The line may belong to an earlier start, or be hidden by the filter.
            self.set_filter(Filter(start="all"))
            return self.show_line(cursor, text)
        return False

    def _show_row(self, row: int) -> None:
        self.following = False
        self.scroll_to(y=max(0, row - self.size.height // 2), animate=False, immediate=True)
        self._strips.clear()
        self.refresh()
        self.post_message(self.Moved())

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.following = True
        self.hit = None
        self._strips.clear()
        self.scroll_end(animate=False, immediate=True, x_axis=False)
        self.refresh()
        self.post_message(self.Moved())

    def text_in_sight(self) -> str:
        """The lines on the screen, for copying; the hit alone where there is one."""
        rows = self.index.rows
        if self.hit is not None and self.hit < len(rows):
            return self.buffer[rows[self.hit]].line.text
        top = round(self.scroll_y)
        return "\n".join(self.buffer[number].line.text for number in rows[top : top + self.size.height])

    # ---------------------------------------------------------------------------------------- rendering

    def render_line(self, y: int) -> Strip:
        """Strip of the y-th line in sight (Textual's line API)."""
        scroll_x, scroll_y = self.scroll_offset
        row = scroll_y + y
        styles = self._role_styles()
        width = self.size.width
        rows = self.index.rows
        if row >= len(rows):
            text = self._why_empty() if not rows and y == 0 and self.buffer.entries else ""
            return Strip([Segment(text, styles["dim"])]).adjust_cell_length(width, styles["text"])
        number = rows[row]
        key = (number, row == self.hit)
        strip = self._strips.get(key)
        if strip is None:
            strip = Strip(self._segments(self.buffer[number], row == self.hit))
            self._strips[key] = strip
        return strip.crop_extend(scroll_x, scroll_x + width, styles["text"])

    def _why_empty(self) -> str:
        wanted = self.index.filter
        if wanted.searching or wanted.exclude or wanted.level != "debug":
            return "No line matches the filter."
        if wanted.start == "this":
            return "No line of this start yet. Press p for the previous start."
        return "No line of the previous start is kept here."

    def _role_styles(self) -> dict[str, RichStyle]:
        if not self._ink:
            self._ink = role_styles(self.app.theme_variables, self.background_colors[1])
        return self._ink

    def _segments(self, entry: Entry, is_hit: bool) -> list[Segment]:
        styles = self._role_styles()
        suffix = "+sel" if is_hit else ""
        # A line without a time of its own gets none: when it arrived is not when it was written.
        stamp = clock(entry.line.at_s) if entry.line.at_s is not None else ""
        if entry.gap:
            return [Segment(f"{stamp} ~ {clean(entry.line.text)}", styles["warn" + suffix])]
        mark, role = _LEVEL_MARK[level_of(entry.line)]
        segments = [
            Segment(stamp, styles["dim" + suffix]),
            Segment(
                f" {mark} ", styles[("bad" if mark == "✗" else "warn" if mark == "!" else "dim") + suffix]
            ),
        ]
        if self._many_units:
            segments.append(Segment(clean(unit_name(entry.unit)) + " ", styles["label" + suffix]))
        text = clean(entry.line.text)[: self.MAX_WIDTH]
        ink = "text" if role == "bad" else role
        segments.extend(self._marked(text, styles[ink + suffix], styles["key+sel"]))
        return segments

    def _marked(self, text: str, style: RichStyle, hit: RichStyle) -> Iterator[Segment]:
        pattern = self.index.include
        at = 0
        if pattern is not None:
            for found in pattern.finditer(text):
                if found.end() == found.start():
                    continue
                if found.start() > at:
                    yield Segment(text[at : found.start()], style)
                yield Segment(text[found.start() : found.end()], hit)
                at = found.end()
        if at < len(text):
            yield Segment(text[at:], style)
