"""Keys that change what is seen: screens, log, hosts, theme, copy, screenshot, help, leaving."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ddtop.dashboard.interface import Dashboard
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.screens.dashboard import DashboardScreen
from ddtop.dashboard.widgets.logpane import LogPane
from ddtop.events import Evidence
from ddtop.journal.act.targets import no_cells
from ddtop.journal.read.select import action_on, tps
from ddtop.words import many

_PLAN_ONLY = {
    *("results", "baseline", "metric", "turn_tp", "plan"),
    *("second", "axis", "swap", "slice", "unfold"),
}
"""Actions that mean nothing on a host that is only watched."""

_OF_MATRIX = {"metric", "second", "axis", "swap", "slice", "unfold"}
"""Actions on the matrix, which only the first screen shows."""

ONE_KEY = "The loads of this plan differ in one key only: all of them are shown."
"""What `c`, `.` and `,` answer where there is nothing to slice."""


class ViewActions:
    """The keys on what is seen; the bindings in `keys.py` name it `view`."""

    def __init__(self, app: Dashboard) -> None:
        self.app = app

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Which of the keys do something now: these are shown."""
        return self.why_not(action) is None

    def why_not(self, action: str, parameters: tuple[object, ...] = ()) -> str | None:
        """Why the key of `action` does nothing now, in a sentence; None where it acts."""
        here = self.app.here
        if action in _PLAN_ONLY and not here.state.plan_cells:
            return no_cells(here.state)
        if action in _OF_MATRIX and not isinstance(self.top, DashboardScreen):
            return "This is a key of the matrix: esc goes back to it."
        if action == "turn_tp" and len(known := tps(here.state)) < 2:
            return f"All cells have TP {known[0]}." if known else "There are no cells."
        if action == "unfold" and not here.shape.unfolded and not here.folded:
            return "Nothing is folded away: no configuration or load is skipped throughout."
        if action == "alert" and here.alert is None:
            replay = self.app.replay.playback
            there = (
                "; } goes to the next one"
                if replay is not None and replay.alerts[0] < replay.alerts[1]
                else ""
            )
            raised = len(here.state.alerts)
            before = f" H shows the {many(raised, 'earlier alert')}." if raised else ""
            return f"No alert is open{' at this moment' if replay is not None else ''}{there}.{before}"
        source = here.state.run.plan_source
        if action == "groups" and (source is None or not source.datasets):
            return "No prompts of this plan have groups: a workload has them by a dataset."
        if action in ("filter", "hit", "previous_log") and self.log_pane is None:
            return "There is no log on this screen: l opens it."
        return None

    @property
    def top(self) -> DdScreen | None:
        """The screen in front, modals aside."""
        for screen in reversed(self.app.screen_stack):
            if isinstance(screen, DdScreen):
                return screen
        return None

    def show(self, screen: DdScreen) -> None:
        """Put a screen over the dashboard, in place of another that is there."""
        if isinstance(self.app.screen, type(screen)):
            self.app.screen.dismiss()
        elif len(self.app.screen_stack) > 1 and isinstance(self.app.screen, DdScreen):
            self.app.switch_screen(screen)
        else:
            self.app.push_screen(screen)

    def action_help(self) -> None:
        from ddtop.dashboard.screens.help import HelpScreen

        top = self.top
        if top is not None:
            self.app.push_screen(HelpScreen(list(top.active_bindings.values())))

    def action_results(self) -> None:
        from ddtop.dashboard.screens.results import ResultsScreen

        if isinstance(self.app.screen, ResultsScreen):
            self.app.screen.turn_view()
        else:
            self.show(ResultsScreen())

    def action_groups(self) -> None:
        """`G`: the results by group of prompts; again: back to the list."""
        from ddtop.dashboard.screens.results import ResultsScreen

        if isinstance(self.app.screen, ResultsScreen):
            self.app.screen.turn_groups()
        else:
            self.show(ResultsScreen(grouped=True))

    def action_plan(self) -> None:
        from ddtop.dashboard.screens.plan import PlanScreen

        self.show(PlanScreen())

    def action_history(self) -> None:
        from ddtop.dashboard.screens.history import HistoryScreen

        self.show(HistoryScreen())

    def action_changes(self) -> None:
        """`W`: what changed since this person last looked; in a replay, since the run began."""
        from ddtop.dashboard.screens.changes import ChangesScreen

        here = self.app.here
        since_s = here.looked_s if here.looked_s is not None else here.state.run.started_at_s
        if since_s is None:
            self.app.say("Nothing is recorded yet.")
        elif not isinstance(self.app.screen, ChangesScreen):
            self.app.push_screen(ChangesScreen([(here, min(since_s, here.now_s()))]))

    def action_hosts(self) -> None:
        from ddtop.dashboard.screens.hosts import HostsScreen

        self.show(HostsScreen())

    def open_selected(self) -> None:
        """`enter`: everything about the cell under the cursor."""
        from ddtop.dashboard.screens.cell import CellScreen

        cell = self.app.here.cell_to_open()
        if cell is None:
            config, _ = self.app.here.selected()
            self.app.say(
                "No cell is selected."
                if config is None
                else f"{config} is a configuration. Choose one of its cells with →."
            )
            return
        self.show(CellScreen(cell.id))

    def action_number(self, number: int) -> None:
        """`1`-`9`: the host with this number, or with one host alone the pane."""
        if len(self.app.watched) > 1:
            self.look_at(number - 1)
        elif not isinstance(self.app.screen, DashboardScreen):
            self.app.say("1 to 4 are the panes of the first screen: esc goes back to it.")
        elif number > len(DashboardScreen.PANES):
            self.app.say(f"There are {len(DashboardScreen.PANES)} panes, and one host.")
        else:
            self.app.screen.focus_pane(number)

    def look_at(self, index: int) -> None:
        """Show another host."""
        if 0 <= index < len(self.app.watched):
            self.app.current = index
            self.app.refresh_screens()
        else:
            self.app.say(f"There are {many(len(self.app.watched), 'host')}.")

    # --------------------------------------------------------------------------------------------- log

    @property
    def log_pane(self) -> LogPane | None:
        """The log in view."""
        return self.app.screen.query_one_optional(LogPane)

    def action_log(self) -> None:
        """`l`: the whole log, at the line that the alert rests on where there is one."""
        alert = self.app.here.alert
        self.open_log(alert.raised.evidence if alert is not None else ())

    def open_log(self, evidence: Sequence[Evidence] = ()) -> None:
        """The log screen, at the first of these lines that is there."""
        from ddtop.dashboard.screens.log import LogScreen

        self.show(LogScreen(evidence))

    def action_alert(self) -> None:
        """`a`: the open alert in full; again: the next one."""
        from ddtop.dashboard.screens.alert import AlertScreen

        here = self.app.here
        if isinstance(self.app.screen, AlertScreen):
            here.turn_alert(1)
            self.app.touch()
        else:
            self.show(AlertScreen())

    def action_previous_log(self) -> None:
        pane = self.log_pane
        if pane is not None:
            pane.turn_start()
            if pane.filter.start == "previous" and not pane.view.index.rows:
                self.app.say("No line of an earlier start is here; p again shows all starts.")
            self.app.touch()

    def action_filter(self) -> None:
        pane = self.log_pane
        if pane is not None:
            pane.ask()

    def action_hit(self, step: int) -> None:
        pane = self.log_pane
        if pane is not None and not pane.view.step_hit(1 if step > 0 else -1):
            self.app.say(
                "No filter is set. Press / to set one."
                if not pane.filter.searching
                else "No line matches the filter."
            )
        self.app.touch()

    # ------------------------------------------------------------------------------------------ matrix

    def action_turn_tp(self, step: int) -> None:
        self.app.here.turn_tp(step)
        self.app.touch()

    def action_metric(self) -> None:
        from ddtop.dashboard.draw.metrics import SHOWN

        here = self.app.here
        at = SHOWN.index(here.metric) if here.metric in SHOWN else 0
        here.metric = SHOWN[(at + 1) % len(SHOWN)]
        self.app.touch()

    def action_second(self) -> None:
        """`M`: the next second line of each row, then none."""
        from ddtop.dashboard.draw.metrics import SECOND

        here = self.app.here
        order = ["", "interval", *(m.key for m in SECOND if m is not here.metric)]
        at = order.index(here.shape.second) if here.shape.second in order else 0
        here.shape = replace(here.shape, second=order[(at + 1) % len(order)])
        self.app.touch()

    def action_axis(self, step: int) -> None:
        """`c`: the loads by one of their keys, the others held at the cursor's; then all of them again."""
        from ddtop.dashboard.draw.grid import axes_of, next_axis

        here = self.app.here
        shown = here.matrix()
        if len(axes_of(shown)) < 2:
            self.app.say(ONE_KEY)
        here.put_cursor(here.cursor(shown))  # from now on it is the cursor that says which slice
        here.shape = next_axis(shown, here.shape, step)
        self.app.touch()

    def action_slice(self, step: int) -> None:
        """`.` and `,`: the next, or previous, of what a slice holds still."""
        from ddtop.dashboard.draw.grid import axes_of, next_slice

        here = self.app.here
        if here.shape.axis == "all":
            one_key = len(axes_of(here.matrix())) < 2
            self.app.say(ONE_KEY if one_key else "All loads are shown. Press c for a slice of them.")
            return
        shown = here.matrix()
        here.put_cursor(next_slice(shown, here.cursor(shown), here.shape, step))
        self.app.touch()

    def action_swap(self) -> None:
        here = self.app.here
        here.shape = replace(here.shape, swapped=not here.shape.swapped)
        self.app.touch()

    def action_unfold(self) -> None:
        here = self.app.here
        here.shape = replace(here.shape, unfolded=not here.shape.unfolded)
        self.app.touch()

    def action_baseline(self) -> None:
        """`B`: compare against the configuration under the cursor; on the plan's own, back to it."""
        here = self.app.here
        config, _ = here.selected()
        if config is None:
            return
        here.baseline = None if config == here.state.run.baseline else config
        self.app.say(f"Baseline: {config}")
        self.app.touch()

    # ------------------------------------------------------------------------------------------- rest

    def action_theme(self) -> None:
        names = self.app.theme_names or sorted(self.app.available_themes)
        at = names.index(self.app.theme) if self.app.theme in names else -1
        self.app.theme = names[(at + 1) % len(names)]
        self.app.say(f"Theme: {self.app.theme}", timeout=2)
        self.app.touch()

    def action_copy(self) -> None:
        top = self.top
        text = top.copy_text() if top is not None else ""
        if not text:
            self.app.say("Nothing here can be copied.")
            return
        self.app.copy_to_clipboard(text)
        self.app.say(f"Copied {many(text.count(chr(10)) + 1, 'line')}", timeout=2)

    def action_screenshot_svg(self) -> None:
        """`f12`: the screen as an SVG file in the present folder."""
        name = re.sub(r"[^\w.-]+", "-", self.app.here.name) or "ddtop"
        path = Path(f"ddtop-{name}-{time.strftime('%Y%m%d-%H%M%S')}.svg").absolute()
        try:
            path.write_text(
                self.app.export_screenshot(title=f"ddtop · {self.app.here.name}"), encoding="utf-8"
            )
        except OSError as error:
            self.app.say(f"The screenshot cannot be written to {path}: {error.strerror or error}", "error")
            return
        self.app.say(f"Screenshot: {path}", timeout=8)

    def action_leave(self) -> None:
        """`q`: leave. The sweep goes on; the words printed then say how to come back and how to stop it."""
        self.app.words = "\n".join(row for watched in self.app.watched for row in watched.leaving_lines())
        self.app.exit(0)

    # ------------------------------------------------------------------------------------------ labels

    def label_of(self, identity: str) -> str | None:
        """What a key is called just now, where that changes; empty where it is not offered."""
        state = self.app.here.state
        if identity == "again":
            alert = self.app.here.alert
            action = action_on(alert, "r") if alert is not None else None
            if self.app.here.orphaned:
                return "Start a runner"
            if state.run.ended is not None:
                return "Connect again" if not state.host.agent else "Go on"
            if self.app.here.proposed is not None:
                return "Steps"
            if action is not None:
                label = action.label.removeprefix("r ")
                return label[:1].upper() + label[1:]
            return "Resume"
        if identity == "pause":
            if (replay := self.app.replay.playback) is not None:
                return "Pause" if replay.playing else "Play"
            return "Go on" if state.paused is not None else "Pause"
        return None
