"""One cell: all metrics, latency distribution, power over the cell, its log excerpt."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Item, line
from ddtop.dashboard.draw.text import clock
from ddtop.dashboard.log_window import level_of
from ddtop.dashboard.panels.cell.page import cell_lines, metrics_rows
from ddtop.dashboard.panels.cell.title import cell_title, excerpt_bounds
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.panel import set_title
from ddtop.journal.fold.views import CellView
from ddtop.words import many

EXCERPT = 400
"""Lines of the log excerpt at most."""


class CellScreen(DdScreen):
    """Everything about one cell; `[` and `]` are the replay's, `n` and `N` go to the next cell."""

    BINDINGS = [
        keys.BACK,
        keys.bind("n", "neighbour(1)", "Next cell", "next-cell"),
        keys.bind("N", "neighbour(-1)", "Previous cell", "previous-cell"),
    ]
    HINTS = (
        "back",
        "next-cell",
        "previous-cell",
        "try-again",
        "skip",
        "broken",
        "undo",
        "copy",
        "log",
        "help",
        "leave",
    )
    FOCUS = "#facts"
    DEFAULT_CSS = """
    CellScreen #facts { width: 1fr; height: 1fr; }
    CellScreen #excerpt { width: 1fr; height: 1fr; }
    CellScreen #cell-body { height: 1fr; layout: horizontal; }
    CellScreen.-narrow #cell-body { layout: vertical; }
    CellScreen.-narrow #facts { height: 3fr; }
    CellScreen.-narrow #excerpt { height: 2fr; }
    """

    def __init__(self, cell_id: str) -> None:
        super().__init__()
        self.cell_id = cell_id

    @property
    def cell(self) -> CellView | None:
        return self.here.state.cells.get(self.cell_id)

    def body(self) -> ComposeResult:
        with Container(id="cell-body"):
            yield ListPanel(id="facts", classes="pane")
            yield ListPanel(id="excerpt", classes="pane")

    def draw(self) -> None:
        facts, excerpt = self.query_one("#facts", ListPanel), self.query_one("#excerpt", ListPanel)
        cell = self.cell
        if cell is None:
            facts.show((), [Item(line(("This cell is not in the recording.", "dim")))])
            return
        here = self.here
        set_title(facts, cell_title(cell))
        width = max(20, facts.size.width - 4)
        rows = cell_lines(here.state, cell, here.matrix(), width, here.per_gpu(), here.now_s())
        facts.show((), [Item(row) for row in rows])
        items = self._excerpt(cell)
        set_title(excerpt, "Log of the cell", many(len(items), "line") if items else "")
        excerpt.show((), items or [Item(line(("No log line falls into the time of this cell.", "dim")))])

    def _excerpt(self, cell: CellView) -> list[Item]:
        bounds = excerpt_bounds(cell)
        if bounds is None:
            return []
        first, last = bounds
        out: list[Item] = []
        for entry in reversed(self.here.log.entries):
            at = entry.line.at_s if entry.line.at_s is not None else entry.arrived_s
            if at is None or at > last:
                continue
            if at < first or len(out) >= EXCERPT:
                break
            level = level_of(entry.line)
            role = {"error": "bad", "warn": "warn", "debug": "dim"}.get(level, "text")
            mark = {"error": "✗", "warn": "!"}.get(level, " ")
            out.append(
                Item(
                    line(
                        (f"{clock(entry.line.at_s)} " if entry.line.at_s else "", "dim"),
                        (f"{mark} ", role),
                        (entry.line.text[:500], role),
                    )
                )
            )
        out.reverse()
        return out

    def copy_text(self) -> str:
        return "\n".join(metrics_rows(self.cell)) if self.cell is not None else ""

    def action_neighbour(self, step: int) -> None:
        cells = [c.id for c in self.here.state.plan_cells]
        if len(cells) < 2:
            self.dd.say("This is the only cell.")
        elif self.cell_id in cells:
            self.cell_id = cells[(cells.index(self.cell_id) + step) % len(cells)]
            self.here.select_cell(self.cell_id)
            self.refresh_view()
