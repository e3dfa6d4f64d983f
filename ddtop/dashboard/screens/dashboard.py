"""The first screen: GPUs, sweep, restart, log and the alert, all at once."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Input

from ddtop.dashboard import keys
from ddtop.dashboard.draw import layout as arrange
from ddtop.dashboard.draw.paint import Line
from ddtop.dashboard.draw.text import duration
from ddtop.dashboard.panels.alert import alert_lines, trouble_lines
from ddtop.dashboard.panels.found import found_lines
from ddtop.dashboard.panels.gpus import gpu_lines, gpu_title
from ddtop.dashboard.panels.restart import restart_lines, restart_title
from ddtop.dashboard.panels.sweep import matrix_lines, sweep_title
from ddtop.dashboard.panels.timeline.strip import cell_at_column
from ddtop.dashboard.screens.base import DdScreen, set_title
from ddtop.dashboard.screens.logpane import LogPane
from ddtop.dashboard.widgets.logview import LogView
from ddtop.dashboard.widgets.panel import Panel
from ddtop.dashboard.widgets.sweeppanel import SweepPanel
from ddtop.dashboard.widgets.timelinestrip import TimelineStrip
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import tps

RESTART_SHORT, RESTART_TALL = 4, 9


def stale_words(state: State, now_s: float) -> str:
    """` · stale 1m14s` while the host is out of reach, for the title of every pane; else nothing."""
    host = state.host
    if host.state not in ("lost", "connecting") or not host.agent or host.since_at_s is None:
        return ""
    return f" · stale {duration(now_s - host.since_at_s)}"


class DashboardScreen(DdScreen):
    """Everything about one host on one screen."""

    BINDINGS = [keys.BACK]
    HINTS = (
        "advised",
        "replay-step",
        "replay-next-alert",
        "replay-last-alert",
        "replay-faster",
        "pause",
        "filter",
        "help",
        "restage",
        "results",
        "log",
        "skip",
        "try-again",
        "broken",
        "plan",
        "history",
        "hosts",
        "previous-log",
        "undo",
        "next-tp",
        "metric",
        "theme",
        "leave",
    )
    FOCUS = "#sweep"
    PANES = ("#gpus", "#sweep", "#restart", "#log")

    def body(self) -> ComposeResult:
        gpus = Panel(self._gpus, id="gpus", classes="pane")
        restart = Panel(self._restart, id="restart", classes="pane")
        gpus.can_focus = restart.can_focus = True
        with Container(id="body"):
            yield gpus
            yield SweepPanel(self._sweep, id="sweep", classes="pane")
            yield restart
            yield LogPane(self.here.log, id="log-pane")
        yield TimelineStrip(lambda: self.here)
        yield Panel(self._alert, id="alert")

    def on_resize(self, _event: events.Resize) -> None:
        self.call_after_refresh(self.refresh_view)

    # ----------------------------------------------------------------------------------------- drawing

    def draw(self) -> None:
        here = self.here
        now = here.now_s()
        alert = self.query_one("#alert", Panel)
        lines = self._alert(max(1, self.size.width), 6)
        alert.set_class(bool(lines), "-on")
        if (lines and alert.styles.height is not None and alert.styles.height.value != len(lines)) or (
            lines and alert.styles.height is None
        ):
            alert.styles.height = len(lines)
        timeline = self.query_one(TimelineStrip)
        self._arrange(len(lines) + timeline.fit(self.size.height, here.has_line))
        shown = here.matrix()
        gpus = self.query_one("#gpus", Panel)
        sweep = self.query_one("#sweep", SweepPanel)
        restart = self.query_one("#restart", Panel)
        stale = stale_words(here.state, now)
        self.query_one("#body").set_class(bool(stale), "-stale")
        set_title(gpus, gpu_title(here.state, now))
        set_title(sweep, sweep_title(here.state, shown, here.metric.label, tps(here.state)) + stale)
        set_title(restart, restart_title(here.state) + stale)
        for panel in (alert, gpus, sweep, restart, timeline):
            panel.redraw()
        self.query_one(LogPane).draw(here.log, here.state, stale)

    def _arrange(self, alert_height: int) -> None:
        width, height = self.size.width, self.size.height
        state = self.here.state
        shown = self.here.matrix()
        narrow = width < arrange.NARROW
        most = RESTART_SHORT if narrow or height < 34 else RESTART_TALL
        inner = width - 2 if narrow else width * 9 // 20 - 4
        wanted = len(restart_lines(state, self.here.now_s(), inner, most))
        room, matrix = height - 2 - alert_height, len(shown.rows) + 3 if shown.rows else 8
        body = self.query_one("#body", Container)
        body.set_class(width < arrange.SLIM, "-slim")
        if width < arrange.SLIM:
            first, second, third = arrange.slim_rows(room, matrix)
            setting = f"{first} {second} {third} 1fr"
        else:
            rows = arrange.rows(width, room, len(state.gpus), wanted, matrix, state.bound is not None)
            setting = f"{rows.gpus} {rows.restart} 1fr"
        if getattr(body, "row_setting", None) != setting:
            body.row_setting = setting  # type: ignore[attr-defined]
            body.styles.grid_rows = setting

    def _gpus(self, width: int, height: int) -> Sequence[Line]:
        return gpu_lines(self.here.state, self.here.now_s(), width, height)

    def _sweep(self, width: int, height: int) -> Sequence[Line]:
        here = self.here
        shown = here.matrix()
        if not shown.rows:
            return found_lines(here.state, here.now_s(), width, height)
        return matrix_lines(shown, here.cursor(shown), width, height, here.now_s(), here.busy)

    def _restart(self, width: int, height: int) -> Sequence[Line]:
        return restart_lines(self.here.state, self.here.now_s(), width, height)

    def _alert(self, width: int, _height: int) -> Sequence[Line]:
        narrow = self.size.width < arrange.NARROW or self.size.height < 30
        lines = alert_lines(self.here.state, self.here.now_s(), width, narrow, self.here.proposed)
        return [*trouble_lines(self.here.error, width), *lines]

    # ------------------------------------------------------------------------------------------- hands

    def on_sweep_panel_moved(self, event: SweepPanel.Moved) -> None:
        shown = self.here.matrix()
        self.here.put_cursor(self.here.cursor(shown).moved(shown, event.down, event.right))
        self.refresh_view()

    def on_timeline_strip_chosen(self, event: TimelineStrip.Chosen) -> None:
        """In a replay the moment is shown; else the cell that was at work then is chosen in the matrix."""
        here = self.here
        if here.replay:
            self.dd.replay.seek(event.at_s)
        elif event.column is not None and (
            cell_id := cell_at_column(here.run_line(), event.strip, event.column)
        ):
            here.select_cell(cell_id)
        self.refresh_view()

    def on_sweep_panel_opened(self, _event: SweepPanel.Opened) -> None:
        self.dd.view.open_selected()

    def clicked(self, panel: Panel, target: str, twice: bool) -> None:
        if panel.id == "sweep":
            self.here.put_cursor(SweepPanel.cursor_of(target))
            self.refresh_view()
            if twice:
                self.dd.view.open_selected()

    def on_key(self, event: events.Key) -> None:
        """A key that only the alert in the bar names."""
        if event.character is not None and self.dd.sweep.offered(event.character):
            event.stop()

    def focus_pane(self, number: int) -> None:
        """Focus the pane with this number, from 1."""
        if 1 <= number <= len(self.PANES):
            self.query_one(self.PANES[number - 1]).focus()

    def action_back(self) -> None:
        """Escape on the first screen ends a filter or goes back to the log's end; it never leaves."""
        self.query_one(LogPane).back()
        self.query_one("#sweep").focus()

    def copy_text(self) -> str:
        """The log's lines where the log has the focus, else the matrix as tab-separated values."""
        if isinstance(self.focused, LogView | Input):
            return self.query_one(LogView).text_in_sight()
        shown = self.here.matrix()
        head = ["config", *(column.label(shown.columns) for column in shown.columns)]
        table = ["\t".join(head)]
        for row in shown.rows:
            fields = [
                "" if cell is None else f"{cell.value:.1f}" if cell.value is not None else cell.state
                for cell in row.cells
            ]
            table.append("\t".join([row.config, *fields]))
        return "\n".join(table)
