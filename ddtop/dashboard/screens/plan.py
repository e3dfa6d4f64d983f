"""The plan: what will run, what is left, and why a cell is skipped."""

from __future__ import annotations

from textual.app import ComposeResult

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import plain
from ddtop.dashboard.panels.plan import plan_head, plan_items
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.panel import set_title


class PlanScreen(DdScreen):
    """Every cell in running order."""

    BINDINGS = [keys.BACK]
    HINTS = ("back", "open", "skip", "try-again", "broken", "undo", "copy", "help", "leave")
    FOCUS = "#plan"

    def body(self) -> ComposeResult:
        yield ListPanel(id="plan", classes="pane")

    def opened(self) -> None:
        cell = self.here.selected_cell()
        if cell is not None:
            self.query_one(ListPanel).put_cursor(cell.id)

    def draw(self) -> None:
        here = self.here
        panel = self.query_one(ListPanel)
        set_title(panel, f"Plan · {here.state.run.name or here.name}", here.state.run.plan_path or "")
        panel.show(plan_head(here.state, here.now_s()), plan_items(here.state))

    def on_list_panel_moved(self, event: ListPanel.Moved) -> None:
        self.here.select_cell(event.key)

    def on_list_panel_opened(self, event: ListPanel.Opened) -> None:
        self.here.select_cell(event.key)
        self.dd.view.open_selected()

    def copy_text(self) -> str:
        panel = self.query_one(ListPanel)
        return "\n".join(plain(row).rstrip() for row in (*panel.head, *(item.line for item in panel.items)))
