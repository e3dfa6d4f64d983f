"""All hosts of this dashboard on one screen."""

from __future__ import annotations

from textual.app import ComposeResult

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Item, crop, plain
from ddtop.dashboard.panels.hosts import host_lines
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.panel import set_title


class HostsScreen(DdScreen):
    """One block a host; enter looks at it."""

    BINDINGS = [keys.BACK]
    HINTS = ("back", "open", "again", "copy", "help", "leave")
    FOCUS = "#hosts"

    def body(self) -> ComposeResult:
        yield ListPanel(id="hosts", classes="pane")

    def opened(self) -> None:
        self.query_one(ListPanel).put_cursor(str(self.dd.current))

    def draw(self) -> None:
        panel = self.query_one(ListPanel)
        width = max(20, panel.size.width - 4)
        items: list[Item] = []
        for index, watched in enumerate(self.dd.watched):
            block = host_lines(watched.state, watched.now_s(), index + 1, watched.error, width)
            items.append(Item(crop(block[0], width), str(index)))
            items.extend(Item(crop(row, width)) for row in block[1:])
        number = len(self.dd.watched)
        set_title(panel, f"Hosts · {number}" if number > 1 else "Host")
        panel.show((), items)

    def on_list_panel_opened(self, event: ListPanel.Opened) -> None:
        self.dd.view.look_at(int(event.key))
        self.action_back()

    def copy_text(self) -> str:
        return "\n".join(plain(item.line).rstrip() for item in self.query_one(ListPanel).items)
