"""The first screen: GPUs, matrix, the moment, log and the alert, all at once."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.widgets import Input

from ddtop.dashboard import keys
from ddtop.dashboard.draw import layout as arrange
from ddtop.dashboard.draw.columns import width_wanted
from ddtop.dashboard.draw.grid import moved
from ddtop.dashboard.draw.paint import Line, plain
from ddtop.dashboard.draw.text import duration
from ddtop.dashboard.panels.gpus import gpu_lines, gpu_title, gpu_wants
from ddtop.dashboard.panels.moment.face import Face, face_of, failure_of
from ddtop.dashboard.panels.moment.panel import WANTS, moment_lines, moment_title
from ddtop.dashboard.panels.sweep import height_wanted, matrix_lines, progress_line, sweep_title
from ddtop.dashboard.panels.timeline.strip import cell_at_column
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.widgets.logpane import LogPane
from ddtop.dashboard.widgets.logview import LogView
from ddtop.dashboard.widgets.panel import Panel, set_title
from ddtop.dashboard.widgets.places import PlacedContainer
from ddtop.dashboard.widgets.sweeppanel import SweepPanel
from ddtop.dashboard.widgets.timelinestrip import TimelineStrip
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import KEY_OF, advised_alert, tps


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
        "again",
        "alert",
        "replay-step",
        "replay-next-alert",
        "replay-last-alert",
        "replay-faster",
        "pause",
        "results",
        "skip",
        "log",
        "filter",
        "help",
        "try-again",
        "restage",
        "broken",
        "plan",
        "history",
        "hosts",
        "previous-log",
        "undo",
        "next-tp",
        "metric",
        "second-line",
        "axis",
        "next-slice",
        "swap",
        "theme",
        "leave",
    )
    FOCUS = "#sweep"
    PANES = ("#gpus", "#sweep", "#moment", "#log")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._face: Face = "connecting"

    def body(self) -> ComposeResult:
        gpus = Panel(self._gpus, id="gpus", classes="pane")
        moment = Panel(self._moment, id="moment", classes="pane")
        gpus.can_focus = moment.can_focus = True
        with PlacedContainer(id="body"):
            yield gpus
            yield SweepPanel(self._sweep, id="sweep", classes="pane")
            yield moment
            yield LogPane(self.here.log, id="log-pane")
        yield TimelineStrip(lambda: self.here)

    def on_resize(self, _event: events.Resize) -> None:
        self.call_after_refresh(self.refresh_view)

    # ----------------------------------------------------------------------------------------- drawing

    def draw(self) -> None:
        here = self.here
        now = here.now_s()
        self._face = face_of(here.state, now, orphaned=here.orphaned)
        shown = here.matrix()
        timeline = self.query_one(TimelineStrip)
        self._arrange(self.bar_height + timeline.fit(self.size.height, here.has_line))
        gpus = self.query_one("#gpus", Panel)
        sweep = self.query_one("#sweep", SweepPanel)
        moment = self.query_one("#moment", Panel)
        stale = stale_words(here.state, now)
        self.query_one("#body").set_class(bool(stale), "-stale")
        set_title(gpus, gpu_title(here.state, now))
        cursor = here.cursor(shown)
        room = sweep.size.width - 4 - len(stale)
        title = sweep_title(shown, here.state, tps(here.state), cursor, here.shape, room)
        boxed = self.size.width >= arrange.NARROW
        set_title(sweep, title + stale, plain(progress_line(here.state, shown, cursor)) if boxed else "")
        set_title(moment, moment_title(self._face, here.state))
        for panel in (gpus, sweep, moment, timeline):
            panel.redraw()
        self.query_one(LogPane).draw(here.log, here.state, stale)

    def draw_log(self) -> None:
        stale = stale_words(self.here.state, self.here.now_s())
        self.query_one(LogPane).draw(self.here.log, self.here.state, stale)

    def _arrange(self, alert_height: int) -> None:
        width, height = self.size.width, self.size.height - 2 - alert_height
        here, shown = self.here, self.here.matrix()
        cursor, shape = here.cursor(shown), here.shape
        wants = arrange.Wants(
            gpus=gpu_wants(here.state, height),
            moment=WANTS[self._face],
            sweep=height_wanted(shown, cursor, shape) if shown.rows else 0,
            sweep_width=width_wanted(shown, cursor, shape),
            text=self._face == "failed",
        )
        self.query_one("#body", PlacedContainer).put(arrange.places(width, height, wants))

    def _gpus(self, width: int, height: int) -> Sequence[Line]:
        return gpu_lines(self.here.state, self.here.now_s(), width, height)

    def _sweep(self, width: int, height: int) -> Sequence[Line]:
        here = self.here
        shown = here.matrix()
        cursor, shape = here.cursor(shown), here.shape
        boxed = self.size.width >= arrange.NARROW  # then its lower border has this line
        tail = () if boxed else progress_line(here.state, shown, cursor)
        now, busy = here.now_s(), here.busy
        second, progress = here.second(), here.progress
        return matrix_lines(shown, cursor, width, height, now, busy, shape, second, tail, progress)

    def _moment(self, width: int, height: int) -> Sequence[Line]:
        return moment_lines(self._face, self.here.state, self.here.now_s(), width, height, self.here.seat)

    def bar_lines(self) -> int:
        if self.size.height < 24:
            return 3
        if self.size.height >= 30:
            if self.size.width >= arrange.NARROW and self._in_full():
                return 2
            return 5 if self.size.width < arrange.SLIM else 6
        return 5 if self.size.width < arrange.SLIM else 4 if self.size.width < arrange.NARROW else 3

    def _in_full(self) -> bool:
        """Whether the moment shows the bar's alert already: its cause, the advice and what each choice does."""
        here = self.here
        if face_of(here.state, here.now_s(), orphaned=here.orphaned) != "failed":
            return False
        chosen = here.alert if here.alert is not None and here.alert.open else advised_alert(here.state)
        return chosen is not None and chosen is failure_of(here.state)

    # ------------------------------------------------------------------------------------------- hands

    def on_sweep_panel_moved(self, event: SweepPanel.Moved) -> None:
        shown = self.here.matrix()
        here = self.here
        here.put_cursor(moved(shown, here.cursor(shown), here.shape, event.down, event.right))
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
        """A key that only the alert in the bar names: one of a later version; those known here are bindings."""
        key = event.character
        if key is not None and key not in KEY_OF.values() and self.dd.sweep.offered(key):
            event.stop()

    def focus_pane(self, number: int) -> None:
        """Focus the pane with this number, from 1; one that has nothing to show is not in sight."""
        pane = self.query_one(self.PANES[number - 1])
        if not pane.focusable or not pane.size.height:
            self.dd.say(f"Pane {number} is not in sight: it has nothing to show now.")
        elif pane.has_focus:
            self.dd.say(f"Pane {number} has the keys already.")
        pane.focus()

    def action_back(self) -> None:
        """Escape on the first screen ends a filter or goes back to the log's end; it never leaves."""
        panel = self.query_one("#sweep")
        if not self.query_one(LogPane).back() and panel.has_focus:
            self.dd.say("This is the first screen: q leaves it, and the sweep goes on without it.")
        panel.focus()

    def copy_text(self) -> str:
        """The log's lines where the log has the focus, else the matrix as tab-separated values."""
        if isinstance(self.focused, LogView | Input):
            return self.query_one(LogView).text_in_sight()
        shown = self.here.matrix()
        head = ["config", *(column.label(shown.columns) for column in shown.columns)]
        table = ["\t".join(head)]
        for row in shown.rows:
            fields = [
                "" if c is None else self.here.metric.text(c.value) if c.value is not None else c.state
                for c in row.cells
            ]
            table.append("\t".join([row.config, *fields]))
        return "\n".join(table)
