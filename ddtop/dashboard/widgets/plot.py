"""A plot in a pane. It is drawn in a thread, and only when the chart or the size is another: never in the tick of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ddtop.charts.model import Chart
from ddtop.dashboard.draw.canvas import drawn
from ddtop.dashboard.draw.paint import Line, line
from ddtop.dashboard.guard import TakesFaults
from ddtop.dashboard.widgets.panel import Panel, set_title

Wanted = tuple[Chart, int, int]
"""A chart, and the cells it has."""


class PlotPane(Panel):
    """Shows one chart; until it is drawn, the one before."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(self._rows, id=id, classes="pane")
        self._chart: Chart | None = None
        self._asked: Wanted | None = None
        self._done: Wanted | None = None
        self._picture: Sequence[Line] = ()

    @property
    def drawing(self) -> bool:
        """True while what it shows is not what was asked for last."""
        return self._asked is not self._done

    def show(self, chart: Chart) -> None:
        """Draw `chart`, if it is not drawn already."""
        set_title(self, chart.title)
        self._chart = chart
        self.redraw()

    def _rows(self, width: int, height: int) -> Sequence[Line]:
        if self._chart is None:
            return ()
        wanted = (self._chart, width, height)
        if wanted != self._asked:
            self._asked = wanted
            self.run_worker(self._draw(wanted), exclusive=True, exit_on_error=False)
        return self._picture

    async def _draw(self, wanted: Wanted) -> None:
        try:
            self._picture = await asyncio.to_thread(drawn, *wanted)
        except Exception as error:
            if not isinstance(self.app, TakesFaults):
                raise
            self._picture = [line(("this plot cannot be drawn", "warn"))]
            self.app.fault(error, "PlotPane")
        self._done = wanted
        self.redraw()
