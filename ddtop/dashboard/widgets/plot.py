"""A plot by plotext that takes its colours from the theme and draws only when its data changed."""

from __future__ import annotations

from typing import cast

from textual.app import RenderResult
from textual.color import Color, ColorParseError
from textual.content import Content
from textual_plotext import PlotextPlot

from ddtop.dashboard.draw.paint import clean
from ddtop.dashboard.panels.results import Plot

INKS = ("dd-accent", "dd-hot", "dd-spark", "dd-ok", "dd-warn", "dd-bad", "dd-label", "dd-run")
MOST = 8
"""Curves in one plot; more cannot be told apart."""


class MetricPlot(PlotextPlot):
    """One plot of results."""

    DEFAULT_CSS = """
    MetricPlot { width: 1fr; height: 1fr; content-align: center middle; text-align: center;
        border-subtitle-align: left; }
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
        inks = [self._ink(INKS[number % len(INKS)]) for number in range(len(shown))]
        for series, ink in zip(shown, inks, strict=True):
            xs, ys = list(series.xs), list(series.ys)
            if series.level:
                plt.plot(xs, ys, color=ink, marker="·")
                continue
            if data.joined and len(xs) > 1:
                plt.plot(xs, ys, color=ink, marker="braille")
            plt.scatter(xs, ys, color=ink, marker="●")
        self._say(data, inks)
        ticks = sorted({x for series in shown for x in series.xs if not series.level})
        ys = [y for series in shown for y in series.ys]
        if data.joined and 0 < len(ticks) <= 12:
            plt.xticks(ticks, [f"{x:g}" for x in ticks])
        if ys:
            plt.ylim(0, max(ys) * 1.08)
        self.refresh()

    def render(self) -> RenderResult:
        """The plot, or why there is nothing to plot yet."""
        if self._data is not None and not self._data[0].series:
            return Content.styled(self._data[0].why_empty, self.app.theme_variables.get("dd-dim", ""))
        return super().render()

    def _say(self, data: Plot, inks: list[tuple[int, int, int]]) -> None:
        """Title, and the names of the curves in their colours below the plot, where they hide nothing."""
        title = data.title if data.y_label in data.title else f"{data.title} · {data.y_label}"
        self.border_title = cast(str, Content(clean(title)))
        parts: list[tuple[str, str]] = []
        for series, (red, green, blue) in zip(data.series, inks, strict=False):
            glyph = "··" if series.level else "●"
            parts.append((f" {glyph} {clean(series.name)} ", f"rgb({red},{green},{blue})"))
        self.border_subtitle = cast(str, Content.assemble(*parts))

    def _ink(self, variable: str) -> tuple[int, int, int]:
        text = self.app.theme_variables.get(variable, "#888888")
        try:
            return Color.parse(text).rgb
        except ColorParseError:
            return (136, 136, 136)
