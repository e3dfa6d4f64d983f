"""The plot chosen, the line that says which it is, and the plots after it where there is room.

Charts are made and drawn in threads, one after the other, and only when something they are made from has changed: the tick of the event
loop reads what is ready. A chart during whose making a result came is thrown away and made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ddtop.charts.kinds import PICTURES
from ddtop.charts.make import Choice, chart
from ddtop.charts.model import Axis, Chart
from ddtop.charts.names import Names, names_of
from ddtop.dashboard.draw.paint import Line, clean
from ddtop.dashboard.guard import TakesFaults
from ddtop.dashboard.panels.plots import Part, choice_line, turned
from ddtop.dashboard.widgets.panel import Panel
from ddtop.dashboard.widgets.plot import PlotPane
from ddtop.errors import UsageError
from ddtop.events import CellSpec
from ddtop.journal.fold.state import State

PANES = 4


@dataclass(frozen=True)
class Source:
    """What charts are made from. `version` is another where anything of it is."""

    state: State
    baseline: str | None
    like: CellSpec | None
    version: Hashable


class PlotGrid(Vertical):
    """One, two or four plots below the line of choices."""

    DEFAULT_CSS = """
    PlotGrid #choice { height: 1; padding: 0 1; }
    PlotGrid #panes { height: 1fr; }
    PlotGrid #panes.-two { layout: grid; grid-size: 2 1; }
    PlotGrid #panes.-four { layout: grid; grid-size: 2 2; }
    PlotGrid PlotPane { height: 1fr; display: none; }
    PlotGrid PlotPane.-on { display: block; }
    """

    def __init__(self, ask: Callable[[], Source], *, id: str | None = None) -> None:
        """`ask`: what charts are made from now."""
        super().__init__(id=id)
        self._ask = ask
        self.choice = Choice()
        self._source: Source | None = None
        self._room = 1
        self._made: dict[Choice, Chart] = {}
        self._making = False

    def compose(self) -> ComposeResult:
        yield Panel(self._choice_line, id="choice")
        with Container(id="panes"):
            for _ in range(PANES):
                yield PlotPane()

    @property
    def shown(self) -> Chart | None:
        """The chart of the choice; None while it is being made."""
        return self._made.get(self.choice)

    @property
    def drawing(self) -> bool:
        """True while something is being made or drawn."""
        return self._making or any(pane.drawing for pane in self.query(PlotPane))

    def show(self, room: int) -> None:
        """Draw what can be made now, in `room` panes; what is made already is not made again."""
        source = self._ask()
        if self._source is None or self._source.version != source.version:
            self._made = {}
        self._source, self._room = source, room
        self._draw()

    def turn(self, part: Part, step: int) -> None:
        """Another picture, axis or split."""
        if self._source is None:
            return
        names = Names() if part == "what" else names_of(self._source.state)
        self.choice = turned(self.choice, self.shown, names, part, step)
        self._draw()

    def _draw(self) -> None:
        """Show what is made, and make the next that is wanted; what was shown stays until then."""
        names = list(PICTURES)
        at = names.index(self.choice.what)
        found: list[Chart] = []
        for choice in (self.choice, *(Choice(name) for name in (*names[at + 1 :], *names[:at]))):
            if len(found) == self._room:
                break
            one = self._made.get(choice)
            if one is None:
                self._make(choice)
                break
            if one.series or not found:  # the one chosen is shown without points too: it says why
                found.append(one)
        self.query_one("#choice", Panel).redraw()
        if found:
            self._fill(found)

    def _fill(self, found: list[Chart]) -> None:
        panes = self.query_one("#panes")
        panes.set_class(len(found) == 2, "-two")
        panes.set_class(len(found) > 2, "-four")
        for number, pane in enumerate(self.query(PlotPane)):
            pane.set_class(number < len(found), "-on")
            if number < len(found):
                pane.show(found[number])

    def _make(self, choice: Choice) -> None:
        source = self._source
        if not self._making and source is not None:
            self._making = True
            self.run_worker(self._make_chart(choice, source), exit_on_error=False)

    async def _make_chart(self, choice: Choice, source: Source) -> None:
        made: Chart | None = None
        try:
            made = await asyncio.to_thread(_chart, choice, source)
        except Exception as error:
            if self._is_now(source) and isinstance(
                self.app, TakesFaults
            ):  # else it read what changed meanwhile
                made = _empty(choice, "this plot cannot be made: a bug in ddtop")
                self.app.fault(error, "PlotGrid")
        finally:
            self._making = False
        if made is not None and self._is_now(source):
            self._made[choice] = made
        if self.is_attached:
            self.show(self._room)

    def _is_now(self, source: Source) -> bool:
        """Whether nothing has changed since `source` was asked for, also what no tick has drawn yet."""
        return self._ask().version == source.version

    def _choice_line(self, width: int, _height: int) -> list[Line]:
        return [choice_line(self.choice, self.shown, width)]


def _chart(choice: Choice, source: Source) -> Chart:
    try:
        return chart(source.state, choice, source.baseline, source.like)
    except UsageError as error:  # a name that is gone: the replay was turned back
        return _empty(choice, f"{error}; {error.do}" if error.do else str(error))


def _empty(choice: Choice, why: str) -> Chart:
    return Chart(choice.what, choice.what, Axis(""), Axis(""), why_empty=clean(why))
