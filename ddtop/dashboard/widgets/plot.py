"""A plot by plotext that takes its colours from the theme and draws only when its data changed."""

from __future__ import annotations

from textual.color import Color, ColorParseError
from textual_plotext import PlotextPlot

from ddtop.dashboard.panels.results import Plot

INKS = ("dd-accent", "dd-hot", "dd-spark", "dd-ok", "dd-warn", "dd-bad", "dd-label", "dd-run")
MOST = 8
"""Curves in one plot; more cannot be told apart."""


class MetricPlot(PlotextPlot):
    """One plot of results."""

    DEFAULT_CSS = """
    MetricPlot { width: 1fr; height: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="pane")
        self._data: tuple[Plot, str] | None = None

    def show(self, data: Plot) -> None:
        """Draw `data`, if it is not drawn already in this theme."""
        if self._data == (data, self.app.theme):
            return
        self._data = (data, self.app.theme)
        plt = self.plt
        plt.clear_data()
        plt.clear_figure()
        plt.xlabel(data.x_label)
        shown = data.series[:MOST]
        for number, series in enumerate(shown):
            ink = self._ink(INKS[number % len(INKS)])
            label = series.name if len(shown) > 1 else None
            if series.level:
                plt.plot(list(series.xs), list(series.ys), label=label, color=ink, marker="·")
            elif data.joined and len(series.xs) > 1:
                plt.plot(list(series.xs), list(series.ys), label=label, color=ink, marker="braille")
                plt.scatter(list(series.xs), list(series.ys), color=ink, marker="●")
            else:
                plt.scatter(list(series.xs), list(series.ys), label=label, color=ink, marker="●")
        xs = sorted({x for series in shown for x in series.xs if not series.level})
        ys = [y for series in shown for y in series.ys]
        if data.joined and 0 < len(xs) <= 12:
            plt.xticks(xs, [f"{x:g}" for x in xs])
        if ys:
            plt.ylim(0, max(ys) * 1.08)
        self.refresh()

    def _ink(self, variable: str) -> tuple[int, int, int]:
        text = self.app.theme_variables.get(variable, "#888888")
        try:
            return Color.parse(text).rgb
        except ColorParseError:
            return (136, 136, 136)
