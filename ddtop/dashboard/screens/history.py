"""What happened so far: alerts, restarts, steps, commands and notes, the newest first."""

from __future__ import annotations

from textual.app import ComposeResult

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Item, line, plain
from ddtop.dashboard.panels.history import history_items
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.panel import set_title


class HistoryScreen(DdScreen):
    """The record in words; enter on an alert or on a line of its evidence opens the log there."""

    BINDINGS = [keys.BACK]
    HINTS = ("back", "open", "again", "copy", "help", "leave")
    FOCUS = "#history"

    def body(self) -> ComposeResult:
        yield ListPanel(id="history", classes="pane")

    def draw(self) -> None:
        panel = self.query_one(ListPanel)
        set_title(panel, f"History · {self.here.name}", "newest first")
        items = history_items(self.here.state, max(40, panel.size.width - 4))
        panel.show((), items or [Item(line(("Nothing has happened yet.", "dim")))])

    def on_list_panel_opened(self, event: ListPanel.Opened) -> None:
        kind, _, rest = event.key.partition(" ")
        identity, _, number = rest.partition(" ")
        alert = self.here.state.alerts.get(identity) if kind in ("alert", "evidence") else None
        if alert is None:
            self.dd.say("Only alerts and their evidence open in the log.")
            return
        proof = alert.raised.evidence
        chosen = proof[int(number) : int(number) + 1] if kind == "evidence" and number.isdigit() else proof
        self.dd.view.open_log(chosen)

    def copy_text(self) -> str:
        return "\n".join(plain(item.line).rstrip() for item in self.query_one(ListPanel).items)
