"""Keys that change what is seen: screens, log, hosts, theme, copy, screenshot, help, leaving."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.screen import Screen

from ddtop.dashboard import keys
from ddtop.dashboard.actions.replay import ReplayActions
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.screens.dashboard import DashboardScreen
from ddtop.dashboard.screens.logpane import LogPane
from ddtop.journal.read.select import advised_action

if TYPE_CHECKING:
    from textual.binding import Binding


class ViewActions(ReplayActions):
    """The hands on the screen."""

    # ----------------------------------------------------------------------------------------- screens

    @property
    def top(self) -> DdScreen | None:
        """The screen in front, modals aside."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, DdScreen):
                return screen
        return None

    def show(self, screen: DdScreen) -> None:
        """Put a screen over the dashboard, in place of another that is there."""
        if isinstance(self.screen, type(screen)):
            self.screen.dismiss()
        elif len(self.screen_stack) > 1 and isinstance(self.screen, DdScreen):
            self.switch_screen(screen)
        else:
            self.push_screen(screen)

    def action_help(self) -> None:
        from ddtop.dashboard.screens.help import HelpScreen

        top = self.top
        if top is not None:
            self.push_screen(HelpScreen(list(top.active_bindings.values())))

    def action_results(self) -> None:
        from ddtop.dashboard.screens.results import ResultsScreen

        if isinstance(self.screen, ResultsScreen):
            self.screen.turn_view()
        else:
            self.show(ResultsScreen())

    def action_plan(self) -> None:
        from ddtop.dashboard.screens.plan import PlanScreen

        self.show(PlanScreen())

    def action_history(self) -> None:
        from ddtop.dashboard.screens.history import HistoryScreen

        self.show(HistoryScreen())

    def action_hosts(self) -> None:
        from ddtop.dashboard.screens.hosts import HostsScreen

        self.show(HostsScreen())

    def open_selected(self) -> None:
        """`enter`: everything about the cell under the cursor."""
        from ddtop.dashboard.screens.cell import CellScreen

        cell = self.here.selected_cell()
        if cell is None:
            config, _ = self.here.selected()
            self.say(
                "There is no cell here." if config is None else f"{config}: choose one of its cells (→)."
            )
            return
        self.show(CellScreen(cell.id))

    def action_number(self, number: int) -> None:
        """`1`-`9`: the host with this number, or with one host alone the pane."""
        if len(self.watched) > 1:
            self.look_at(number - 1)
        elif isinstance(self.screen, DashboardScreen):
            self.screen.focus_pane(number)

    def look_at(self, index: int) -> None:
        """Show another host."""
        if 0 <= index < len(self.watched):
            self.current = index
            self.refresh_screens()
        else:
            self.say(f"There are {len(self.watched)} hosts.")

    # --------------------------------------------------------------------------------------------- log

    @property
    def log_pane(self) -> LogPane | None:
        """The log in view."""
        return self.screen.query_one_optional(LogPane)

    def action_log(self) -> None:
        """`l`: the whole log, at the line that the alert rests on where there is one."""
        alert = self.alert
        cursors = [e.cursor for e in alert.raised.evidence if e.cursor] if alert is not None else []
        self.open_log(cursors[0] if cursors else None)

    def open_log(self, cursor: str | None) -> None:
        """The log screen, at the line with this journal cursor where there is one."""
        from ddtop.dashboard.screens.log import LogScreen

        self.show(LogScreen(cursor))

    def action_previous_log(self) -> None:
        pane = self.log_pane
        if pane is not None:
            pane.turn_start()
            self.touch()

    def action_filter(self) -> None:
        pane = self.log_pane
        if pane is not None:
            pane.ask()

    def action_hit(self, step: int) -> None:
        pane = self.log_pane
        if pane is not None and not pane.view.step_hit(1 if step > 0 else -1):
            self.say(
                "Nothing is looked for: / sets a filter." if not pane.filter.searching else "No line matches."
            )
        self.touch()

    # ------------------------------------------------------------------------------------------ matrix

    def action_turn_tp(self, step: int) -> None:
        self.here.turn_tp(step)
        self.touch()

    def action_metric(self) -> None:
        from ddtop.dashboard.draw.metrics import SHOWN

        here = self.here
        at = SHOWN.index(here.metric) if here.metric in SHOWN else 0
        here.metric = SHOWN[(at + 1) % len(SHOWN)]
        self.touch()

    def action_baseline(self) -> None:
        """`B`: compare against the configuration under the cursor; on the plan's own, back to it."""
        here = self.here
        config, _ = here.selected()
        if config is None:
            return
        here.baseline = None if config == here.state.run.baseline else config
        self.say(f"compared against {config}")
        self.touch()

    # ------------------------------------------------------------------------------------------- rest

    def action_theme(self) -> None:
        names = self.theme_names or sorted(self.available_themes)
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]
        self.say(f"theme {self.theme}", timeout=2)
        self.touch()

    def action_copy(self) -> None:
        top = self.top
        text = top.copy_text() if top is not None else ""
        if not text:
            self.say("There is nothing to copy here.")
            return
        self.copy_to_clipboard(text)
        lines = text.count("\n") + 1
        self.say(f"copied {lines} line{'s' if lines != 1 else ''}", timeout=2)

    def action_screenshot_svg(self) -> None:
        """`f12`: the screen as an SVG file in the present folder."""
        name = re.sub(r"[^\w.-]+", "-", self.here.name) or "ddtop"
        path = Path(f"ddtop-{name}-{time.strftime('%Y%m%d-%H%M%S')}.svg").absolute()
        try:
            path.write_text(self.export_screenshot(title=f"ddtop · {self.here.name}"), encoding="utf-8")
        except OSError as error:
            self.say(f"The screenshot cannot be written to {path}: {error.strerror or error}", "error")
            return
        self.say(f"screenshot: {path}", timeout=8)

    def action_leave(self) -> None:
        """`q`: leave. The sweep goes on; the words printed then say how to come back and how to stop it."""
        self.words = self.leaving_words()
        self.exit(0)

    async def action_quit(self) -> None:
        self.action_leave()

    def action_help_quit(self) -> None:
        """`ctrl+c`: leaving costs nothing, so it leaves."""
        self.action_leave()

    def leaving_words(self) -> str:
        """What to print once the screen is gone."""
        out: list[str] = []
        for watched in self.watched:
            run = watched.state.run
            if watched.replay:
                continue
            name = run.run_id or watched.session.path.stem
            if run.ended is not None or not watched.session.live:
                how = run.ended.outcome if run.ended is not None else "no runner holds it"
                out.append(f"{watched.name}: the run {name} has ended ({how}).")
                out.append(f"  results:   ddtop report {watched.session.path}")
                continue
            out.append(f"{watched.name}: the run {name} goes on without this dashboard.")
            out.append(f"  come back: ddtop connect {watched.name}")
            out.append(f"  stop it:   ddtop stop {name}")
        return "\n".join(out)

    # -------------------------------------------------------------------------------- keys and palette

    def label_of(self, identity: str) -> str | None:
        """What a key is called just now, where that changes; empty where it is not offered."""
        state = self.here.state
        if identity == "advised":
            alert = self.alert
            action = advised_action(alert) if alert is not None else None
            if self.here.orphaned:
                return "Start a runner"
            if self.here.plan is not None:
                return "Steps"
            if action is not None:
                label = action.label.removeprefix("r ")
                return label[:1].upper() + label[1:]
            return "Resume"
        if identity == "pause":
            if self.playback is not None:
                return "Stand still" if self.playback.playing else "Play"
            return "Go on" if state.paused is not None else "Pause"
        return None

    def press(self, key: str) -> None:
        """Do what a key would do, for a click on it."""
        for name, active in self.screen.active_bindings.items():
            if key in (name, keys.shown_key(name)) and active.enabled:
                self.call_later(self.run_action, active.binding.action, active.node)
                return

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Which keys are valid now."""
        if action in _NEVER:
            return False
        replay = bool(self.watched) and self.here.replay
        if action.startswith("replay_"):
            return replay
        if replay and action in _COMMANDS:
            return False
        state = self.here.state if self.watched else None
        if action in _PLAN_ONLY and (state is None or not state.plan_cells):
            return False
        if action == "pause" and not replay and state is not None and state.run.ended is not None:
            return False
        if action in ("filter", "hit", "previous_log"):
            return self.log_pane is not None
        if action == "wait":
            raised = self.alert.raised if self.alert is not None else None
            slow = raised is not None and raised.verdict in ("stalled", "slow", "hung-gpu")
            return slow or (raised is not None and any(a.command == "wait" for a in raised.actions))
        if action == "advised":
            if state is None:
                return False
            waiting = state.run.ended is not None and state.run.ended.outcome != "done"
            alert = self.alert
            offered = alert is not None and bool(alert.raised.actions)
            asked = self.here.plan is not None or state.paused is not None
            return offered or asked or waiting or self.here.orphaned
        return True

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every action of the app that is valid now, by its description."""
        top = self.top or screen
        seen: set[str] = set()
        for active in top.active_bindings.values():
            binding: Binding = active.binding
            if not active.enabled or not binding.description or binding.id in seen or not binding.show:
                continue
            seen.add(binding.id or "")
            node = active.node

            def call(action: str = binding.action, where: object = node) -> None:
                self.call_later(self.run_action, action, where)

            title = binding.description
            yield SystemCommand(title, f"key {keys.shown_key(binding.key)}", call)
        for name in self.theme_names:

            def choose(theme: str = name) -> None:
                self.theme = theme

            yield SystemCommand(f"Theme {name}", "Use this theme", choose)


_COMMANDS = {
    "advised",
    "restage",
    "restart_service",
    "skip",
    "try_again",
    "broken",
    "wait",
    "undo",
    "stop_run",
}
"""Actions that send a command: none of them is there in a replay."""

_PLAN_ONLY = {"skip", "try_again", "broken", "restage", "results", "baseline", "metric", "turn_tp", "plan"}
"""Actions that mean nothing on a host that is only watched."""

_NEVER: set[str] = {"suspend_process"}
"""It would stop this process alone: under `make` or a script the shell never comes back, and the screen stands still."""
