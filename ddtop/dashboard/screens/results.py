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
from ddtop.dashboard.widgets.panel import Panel, set_title
from ddtop.errors import UsageError

if TYPE_CHECKING:
    from ddtop.charts.make import Choice
    from ddtop.charts.model import Chart
    from ddtop.dashboard.panels.plots import Part
    from ddtop.events import CellSpec

PANES = 4


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
    ResultsScreen #choice { height: 1; display: none; }
    ResultsScreen #plots.-on, ResultsScreen #choice.-on { display: block; }
    ResultsScreen #plots .pane { height: 1fr; }
    ResultsScreen #plots.-two { layout: grid; grid-size: 2 1; }
    ResultsScreen #plots.-four { layout: grid; grid-size: 2 2; }
    ResultsScreen #choice { padding: 0 1; }
    ResultsScreen #plots PlotPane { display: none; }
    ResultsScreen #plots PlotPane.-on { display: block; }
    ResultsScreen #results.-off { display: none; }
    ResultsScreen.-huge #results { height: 2fr; }
    ResultsScreen.-huge #plots { height: 3fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.sort = Sort()
        self.plotting = False
        self._items: tuple[object, list[Item]] = (None, [])
        """What the rows were made from, and the rows."""
        self._said: tuple[object, list[Line]] = (None, [])
        """The same of the advice."""
        self._choice: Choice | None = None
        self._shown: Chart | None = None
        self._made: tuple[object, dict[Choice, Chart]] = (None, {})
        """What the charts were made from, and the charts."""

    def body(self) -> ComposeResult:
        from ddtop.dashboard.widgets.plot import PlotPane

        with Container(id="results-body"):
            yield ListPanel(id="results", classes="pane")
            yield Panel(self._choice_line, id="choice")
            with Container(id="plots"):
                for number in range(PANES):
                    yield PlotPane(id=f"plot-{number}")

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
        return 1 if not self.both else PANES if self.plotting else 2

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
        set_title(panel, f"Results · sorted by {order} · baseline {self.baseline or 'none'}", "v plots")
        panel.set_class(self.plotting, "-off")
        panel.show(
            [*self._advice(width), *results_head(width, self.sort, self.baseline)],
            self._list(width),
        )
        self._draw_plots()

    def _list(self, width: int) -> list[Item]:
        """The rows, made anew where a cell changed, or what is asked for."""
        here = self.here
        key = (id(here), here.cells_version, self.sort, self.baseline, width)
        if self._items[0] != key:
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
        from ddtop.dashboard.widgets.plot import PlotPane

        on = self.plotting or self.both
        plots, choice = self.query_one("#plots"), self.query_one("#choice", Panel)
        for widget in (plots, choice):
            widget.set_class(on, "-on")
        if not on:
            return
        found = self._charts()
        self._shown = found[0]
        choice.redraw()
        plots.set_class(len(found) == 2, "-two")
        plots.set_class(len(found) > 2, "-four")
        for number, pane in enumerate(plots.query(PlotPane)):
            pane.set_class(number < len(found), "-on")
            if number < len(found):
                set_title(pane, found[number].title)
                pane.show(found[number])

    def _charts(self) -> list[Chart]:
        """The chart chosen, and after it as many of the others as there is room for; one is made in a tick, the others later."""
        from ddtop.charts.kinds import PICTURES
        from ddtop.charts.make import Choice

        names, chosen = list(PICTURES), self.choice
        cell = self.here.selected_cell()
        like = cell.spec if cell is not None else None
        place = (like.tp, like.workload, like.output_tokens, like.context, like.load_name) if like else None
        version = (self.here, self.here.results_version, self.baseline, place)
        if self._made[0] != version:
            self._made = (version, {})
        at = names.index(chosen.what)
        out: list[Chart] = []
        fresh = False
        for choice in (chosen, *(Choice(name) for name in (*names[at + 1 :], *names[:at]))):
            known = choice in self._made[1]
            if out and (len(out) == self.panes or (not known and fresh)):
                break
            chart = self._chart(choice, like)
            fresh = not known
            if chart.series or not out:
                out.append(chart)
        if len(out) < self.panes and len(self._made[1]) < len(names):
            self.dd.touch()
        return out

    def _chart(self, choice: Choice, like: CellSpec | None) -> Chart:
        """A chart, made once for what it is made from."""
        from ddtop.charts.make import chart
        from ddtop.charts.model import Axis, Chart

        made = self._made[1]
        if choice not in made:
            try:
                made[choice] = chart(self.here.state, choice, self.baseline, like)
            except UsageError as error:  # a name that is gone: the replay was turned back
                made[choice] = Chart(choice.what, choice.what, Axis(""), Axis(""), why_empty=str(error))
        return made[choice]

    @property
    def choice(self) -> Choice:
        """What is to be drawn."""
        from ddtop.charts.make import Choice

        self._choice = self._choice or Choice()
        return self._choice

    def _choice_line(self, width: int, _height: int) -> list[Line]:
        from ddtop.dashboard.panels.plots import choice_line

        return [choice_line(self.choice, self._shown, width)]

    # ------------------------------------------------------------------------------------------- hands

    def turn_view(self) -> None:
        """`v` again: from the list to the plots and back."""
        self.plotting = not self.plotting
        self.refresh_view()
        if not self.plotting:
            self.query_one(ListPanel).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of plots where there is one, those of the list where it is in sight."""
        if action in ("turn_plot", "save_plot"):
            return self.plotting or self.both
        if action in ("sort", "reverse"):
            return not self.plotting
        return True

    def action_turn_plot(self, part: Part, step: int) -> None:
        """Another picture, axis or split."""
        from ddtop.charts.names import names_of
        from ddtop.dashboard.panels.plots import turned

        self._choice = turned(self.choice, self._shown, names_of(self.here.state), part, step)
        self.refresh_view()

    def action_save_plot(self) -> None:
        """`e`: the plot as an SVG file in the present folder."""
        from ddtop.charts.model import simulated
        from ddtop.charts.svg import chart_svg

        shown = self._shown
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
        return results_tsv(self.here.state, self.sort, self.baseline)
