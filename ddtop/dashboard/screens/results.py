"""Results: a list to sort, a baseline to choose, and four plots."""

from __future__ import annotations

from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Container

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Item, Line, line
from ddtop.dashboard.panels.results import (
    Sort,
    advice_line,
    front_line,
    plots,
    results_head,
    results_items,
    results_tsv,
    sort_keys,
    sort_label,
)
from ddtop.dashboard.screens.base import DdScreen, set_title
from ddtop.dashboard.widgets.listpanel import ListPanel


class ResultsScreen(DdScreen):
    """List, plots, or both where there is room."""

    BINDINGS = [
        keys.BACK,
        keys.bind("o", "sort", "Sort by the next column", "sort"),
        keys.bind("O", "reverse", "Reverse the order", "sort-reverse"),
    ]
    HINTS = (
        "back",
        "results",
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
    ResultsScreen #plots { height: 1fr; layout: grid; grid-size: 2 2; display: none; }
    ResultsScreen #plots .pane { height: 100%; }
    ResultsScreen #plots.-on { display: block; }
    ResultsScreen #results.-off { display: none; }
    ResultsScreen.-huge #results { height: 2fr; }
    ResultsScreen.-huge #plots { height: 3fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.sort = Sort()
        self.plotting = False

    def body(self) -> ComposeResult:
        from ddtop.dashboard.widgets.plot import MetricPlot

        with Container(id="results-body"):
            yield ListPanel(id="results", classes="pane")
            with Container(id="plots"):
                for number in range(4):
                    yield MetricPlot(id=f"plot-{number}")

    def opened(self) -> None:
        cell = self.here.selected_cell()
        if cell is not None:
            self.query_one(ListPanel).put_cursor(cell.id)

    @property
    def both(self) -> bool:
        """True where list and plots fit together."""
        return self.size.width >= 160 and self.size.height >= 45

    @property
    def baseline(self) -> str | None:
        return self.here.baseline or self.here.state.run.baseline

    def draw(self) -> None:
        panel = self.query_one(ListPanel)
        width = max(40, panel.size.width - 2)
        order = sort_label(self.sort.by) + (" reversed" if self.sort.reverse else "")
        set_title(panel, f"Results · sorted by {order} · baseline {self.baseline or 'none'}", "v plots")
        panel.set_class(self.plotting and not self.both, "-off")
        panel.show(
            [*self._advice(width), *results_head(width, self.sort, self.baseline)],
            results_items(self.here.state, self.sort, self.baseline, width)
            or [Item(line(("No plan, so no results.", "dim")))],
        )
        self._draw_plots()

    def _advice(self, width: int) -> list[Line]:
        """A line of advice where the list keeps most of the room."""
        if self.size.height < 24:
            return []
        state = self.here.state
        front = front_line(self.here.per_gpu(), width) if self.size.height >= 30 else []
        return [*advice_line(state, self.here.selected_cell(), self.baseline, width), *front]

    def _draw_plots(self) -> None:
        from ddtop.dashboard.widgets.plot import MetricPlot

        on = self.plotting or self.both
        self.query_one("#plots").set_class(on, "-on")
        if not on:
            return
        tp = self.here.matrix().tp if self.here.state.plan_cells else None
        for number, data in enumerate(plots(self.here.state, tp, self.here.selected_cell())):
            self.query_one(f"#plot-{number}", MetricPlot).show(data)

    # ------------------------------------------------------------------------------------------- hands

    def turn_view(self) -> None:
        """`v` again: from the list to the plots and back."""
        self.plotting = not self.plotting
        self.refresh_view()
        if not self.plotting or self.both:
            self.query_one(ListPanel).focus()

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
        return results_tsv(self.here.state, self.sort, self.baseline)
