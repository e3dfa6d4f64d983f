"""Results: a list to sort, a baseline to choose, and plots."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Container

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Item, Line, line
from ddtop.dashboard.panels.footer import Hint
from ddtop.dashboard.panels.groups import groups_items, groups_tsv
from ddtop.dashboard.panels.results import (
    Sort,
    advice_line,
    front_line,
    results_head,
    results_items,
    results_tsv,
    sort_keys,
    sort_label,
)
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.panel import set_title

if TYPE_CHECKING:
    from ddtop.dashboard.panels.plots import Part
    from ddtop.dashboard.widgets.plots import PlotGrid, Source


class ResultsScreen(DdScreen):
    """List, plots, or both where there is room."""

    BINDINGS = [
        keys.BACK,
        keys.bind("o", "sort", "Sort by the next column", "sort"),
        keys.bind("O", "reverse", "Reverse the order", "sort-reverse"),
        *keys.PLOT,
    ]
    HINTS = (
        "back",
        "results",
        "groups",
        "plot-next",
        "plot-x",
        "plot-y",
        "plot-by",
        "plot-save",
        "sort",
        "sort-reverse",
        "baseline",
        "next-tp",
        "open",
        "copy",
        "help",
        "leave",
    )
    FOCUS = "#results"
    DEFAULT_CSS = """
    ResultsScreen #results-body { height: 1fr; layout: vertical; }
    ResultsScreen #results { height: 1fr; }
    ResultsScreen #plots { height: 1fr; display: none; }
    ResultsScreen #plots.-on { display: block; }
    ResultsScreen #results.-off { display: none; }
    ResultsScreen.-huge #results { height: 2fr; }
    ResultsScreen.-huge #plots { height: 3fr; }
    """

    def __init__(self, *, grouped: bool = False) -> None:
        super().__init__()
        self.sort = Sort()
        self.grouped = grouped
        self.plotting = False
        self._items: tuple[object, list[Item]] = (None, [])
        """What the rows were made from, and the rows."""
        self._said: tuple[object, list[Line]] = (None, [])
        """The same of the advice."""

    def body(self) -> ComposeResult:
        from ddtop.dashboard.widgets.plots import PlotGrid

        with Container(id="results-body"):
            yield ListPanel(id="results", classes="pane")
            yield PlotGrid(self._source, id="plots")

    @property
    def grid(self) -> PlotGrid:
        from ddtop.dashboard.widgets.plots import PlotGrid

        return self.query_one(PlotGrid)

    def opened(self) -> None:
        cell = self.here.selected_cell()
        if cell is not None:
            self.query_one(ListPanel).put_cursor(cell.id)

    @property
    def both(self) -> bool:
        """True where list and plots fit together."""
        return self.size.width >= 160 and self.size.height >= 45

    @property
    def panes(self) -> int:
        """How many plots there is room for: the one chosen, and those after it that have points."""
        return 1 if not self.both else 4 if self.plotting else 2

    @property
    def baseline(self) -> str | None:
        return self.here.baseline or self.here.state.run.baseline

    def hints(self) -> list[Hint]:
        """As everywhere; `v` says where it leads from here."""
        key, label = keys.shown_key("v"), "List" if self.plotting else "Plots"
        return [replace(hint, label=label) if hint.key == key else hint for hint in super().hints()]

    def draw(self) -> None:
        panel = self.query_one(ListPanel)
        width = max(40, panel.size.width - 2)
        order = sort_label(self.sort.by) + (" reversed" if self.sort.reverse else "")
        how = "by group of prompts" if self.grouped else f"sorted by {order}"
        set_title(panel, f"Results · {how} · baseline {self.baseline or 'none'}", "v plots")
        panel.set_class(self.plotting, "-off")
        head = [] if self.grouped else [*self._advice(width), *results_head(width, self.sort, self.baseline)]
        panel.show(head, self._list(width))
        self._draw_plots()

    def _list(self, width: int) -> list[Item]:
        """The rows, made anew where a cell changed, or what is asked for."""
        here = self.here
        key = (id(here), here.cells_version, self.sort, self.baseline, width, self.grouped)
        if self._items[0] != key and self.grouped:
            self._items = (key, groups_items(here.state, self.baseline, width))
        elif self._items[0] != key:
            found = results_items(here.state, self.sort, self.baseline, width)
            self._items = (key, found or [Item(line(("No plan, so no results.", "dim")))])
        return self._items[1]

    def _advice(self, width: int) -> list[Line]:
        """A line of advice where the list keeps most of the room."""
        if self.size.height < 24:
            return []
        here, cell = self.here, self.here.selected_cell()
        load = cell.spec.load[:-2] if cell is not None else None
        key = (id(here), here.cells_version, load, self.baseline, width, self.size.height >= 30)
        if self._said[0] != key:
            front = front_line(here.per_gpu(), width) if self.size.height >= 30 else []
            self._said = (key, [*advice_line(here.state, cell, self.baseline, width), *front])
        return self._said[1]

    def _draw_plots(self) -> None:
        on = self.plotting or self.both
        self.grid.set_class(on, "-on")
        if on:
            self.grid.show(self.panes)

    def _source(self) -> Source:
        """What plots are made from: the state, the baseline, and the load of the cell under the cursor."""
        from ddtop.dashboard.widgets.plots import Source

        cell = self.here.selected_cell()
        like = cell.spec if cell is not None else None
        place = (like.tp, like.workload, like.output_tokens, like.context, like.load_name) if like else None
        version = (self.here.name, self.here.results_version, self.baseline, place)
        return Source(self.here.state, self.baseline, like, version)

    # ------------------------------------------------------------------------------------------- hands

    def turn_view(self) -> None:
        """`v` again: from the list to the plots and back."""
        self.plotting = not self.plotting
        self.refresh_view()
        if not self.plotting:
            self.query_one(ListPanel).focus()

    def turn_groups(self) -> None:
        """`G` again: from the groups to the list and back."""
        self.grouped, self.plotting = not self.grouped or self.plotting, False
        self.refresh_view()
        self.query_one(ListPanel).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of plots where there is one, those of the list where it is in sight."""
        return self.why_not(action) is None

    def why_not(self, action: str, parameters: tuple[object, ...] = ()) -> str | None:
        """Why the key of `action` does nothing now, in a sentence; None where it acts."""
        if action in ("turn_plot", "save_plot") and not (self.plotting or self.both):
            return "This is a key of the plots: v turns to them."
        if action in ("sort", "reverse") and self.plotting:
            return "This is a key of the list: v turns to it."
        if action in ("sort", "reverse") and self.grouped:
            return "This is a key of the list: G turns to it."
        return None

    def action_turn_plot(self, part: Part, step: int) -> None:
        """Another picture, axis or split."""
        self.grid.turn(part, step)

    def action_save_plot(self) -> None:
        """`e`: the plot as an SVG file in the present folder."""
        from ddtop.charts.model import simulated
        from ddtop.charts.svg import chart_svg

        shown = self.grid.shown
        if shown is None or not shown.series:
            self.dd.say("This plot has no points to save.")
            return
        name = re.sub(r"[^\w.-]+", "-", f"{self.here.name}-{shown.key}")
        path = Path(f"ddtop-{name}-{time.strftime('%Y%m%d-%H%M%S')}.svg").absolute()
        marked = simulated(shown) if self.here.state.run.simulated else shown
        try:
            path.write_text(chart_svg(marked, width=900, height=520, file=True), encoding="utf-8")
        except OSError as error:
            self.dd.say(f"The plot cannot be written to {path}: {error.strerror or error}", "error")
            return
        self.dd.say(f"Plot: {path}", timeout=8)

    def action_sort(self) -> None:
        order = sort_keys()
        self.sort = replace(self.sort, by=order[(order.index(self.sort.by) + 1) % len(order)])
        self.refresh_view()

    def action_reverse(self) -> None:
        self.sort = replace(self.sort, reverse=not self.sort.reverse)
        self.refresh_view()

    def on_list_panel_moved(self, event: ListPanel.Moved) -> None:
        self.here.select_cell(event.key)

    def on_list_panel_opened(self, event: ListPanel.Opened) -> None:
        self.here.select_cell(event.key)
        self.dd.view.open_selected()

    def copy_text(self) -> str:
        if self.grouped:
            return groups_tsv(self.here.state)
        return results_tsv(self.here.state, self.sort, self.baseline)
