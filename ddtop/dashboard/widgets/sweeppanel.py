"""The sweep matrix with a cursor."""

from __future__ import annotations

from textual.message import Message

from ddtop.dashboard import keys
from ddtop.dashboard.draw.grid import Cursor
from ddtop.dashboard.widgets.panel import Panel


class SweepPanel(Panel, can_focus=True):
    """A panel whose cursor moves over configurations and fields."""

    BINDINGS = [*keys.MOVE]

    class Moved(Message):
        """The person asks the cursor to move."""

        def __init__(self, down: int, right: int) -> None:
            super().__init__()
            self.down = down
            self.right = right

    class Opened(Message):
        """The person opens what is under the cursor."""

    def action_move(self, down: int, right: int) -> None:
        self.post_message(self.Moved(down, right))

    def action_open(self) -> None:
        self.post_message(self.Opened())

    @staticmethod
    def cursor_of(target: str) -> Cursor:
        """The place that a click's target names."""
        row, _, column = target.partition(",")
        return Cursor(int(row), int(column), max(0, int(column)))
