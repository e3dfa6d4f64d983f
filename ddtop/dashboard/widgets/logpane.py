"""A log with its filter line: as a pane of the dashboard and as the whole log screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Input

from ddtop.dashboard import keys
from ddtop.dashboard.draw.text import unit_name
from ddtop.dashboard.guard import Guarded
from ddtop.dashboard.log_window import LEVELS, Filter, FilterError, LogBuffer, parse_filter
from ddtop.dashboard.widgets.logview import LogView
from ddtop.dashboard.widgets.panel import set_title
from ddtop.journal.fold.state import State
from ddtop.words import many

START_WORD = {"this": "this start", "previous": "previous start", "all": "all starts"}
HELP_LINE = "text to find · !text to hide · ~regex · enter applies, esc clears"


class KeyedLogView(Guarded, LogView):
    """The log window with the keys of the log."""

    BINDINGS = [*keys.LOG]

    def action_error(self, step: Literal[1, -1]) -> None:
        if not self.step_error(step):
            self.app.notify("No error above." if step == -1 else "No error below.", markup=False)

    def action_follow(self) -> None:
        if self.following and self.hit is None:
            self.app.notify("The log follows its end already.", markup=False)
        self.follow()


class LogPane(Guarded, Container):
    """Title, filter line and log window."""

    DEFAULT_CSS = """
    LogPane { layout: vertical; }
    """

    def __init__(self, buffer: LogBuffer, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="pane")
        self._buffer = buffer

    def compose(self) -> ComposeResult:
        yield Input(placeholder=HELP_LINE, id="log-filter")
        yield KeyedLogView(self._buffer, id="log")

    @property
    def view(self) -> LogView:
        return self.query_one(LogView)

    @property
    def filter(self) -> Filter:
        return self.view.index.filter

    def draw(self, buffer: LogBuffer, state: State, stale: str = "") -> None:
        """Take in new lines and tell in the title what is shown."""
        view = self.view
        view.watch_buffer(buffer)
        view.sync()
        set_title(self, log_title(view, state) + stale, log_subtitle(view))
        self.set_class(view.has_focus or self.query_one(Input).has_focus, "-focus")

    # ------------------------------------------------------------------------------------------ filter

    def ask(self) -> None:
        """Show the filter line and put the cursor there."""
        box = self.query_one(Input)
        box.set_class(True, "-on")
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._apply(event.value, quiet=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._apply(event.value, quiet=False):
            if not event.value:
                event.input.set_class(False, "-on")
            self.view.focus()

    def _apply(self, text: str, *, quiet: bool) -> bool:
        try:
            self.view.set_filter(parse_filter(text, self.filter))
        except FilterError as error:
            if not quiet:
                self.app.notify(str(error), severity="warning", markup=False)
            return False
        return True

    def back(self) -> bool:
        """One step back: out of the filter, then out of the previous start, then to the end."""
        box = self.query_one(Input)
        if box.has_class("-on"):
            box.value = ""
            box.set_class(False, "-on")
            self._apply("", quiet=True)
            self.view.focus()
            return True
        if self.filter.start != "this":
            self.view.set_filter(replace(self.filter, start="this"))
            return True
        if not self.view.following:
            self.view.follow()
            return True
        return False

    def turn_start(self) -> None:
        """This start, the previous one, all of them, and round again."""
        order: tuple[Literal["this", "previous", "all"], ...] = ("this", "previous", "all")
        following = order[(order.index(self.filter.start) + 1) % len(order)]
        self.view.set_filter(replace(self.filter, start=following))

    def turn_level(self) -> None:
        """Everything, then from info on, from warnings on, errors alone, and round again."""
        following = LEVELS[(LEVELS.index(self.filter.level) + 1) % len(LEVELS)]
        self.view.set_filter(replace(self.filter, level=following))

    def turn_unit(self) -> None:
        """All units, then each alone, and round again."""
        units: list[str | None] = [None, *self.view.buffer.units]
        if len(units) < 3:
            self.app.notify(
                f"All lines are of {unit_name(units[1])}."
                if units[1:] and units[1]
                else "No line is here yet.",
                markup=False,
            )
        at = units.index(self.filter.unit) if self.filter.unit in units else 0
        self.view.set_filter(replace(self.filter, unit=units[(at + 1) % len(units)]))


def log_title(view: LogView, state: State) -> str:
    """`Log · sglang-bench · this start`, and what the filter lets through."""
    wanted = view.index.filter
    units = [wanted.unit] if wanted.unit else view.buffer.units
    restart = state.restart
    if not units and restart is not None:
        units = [restart.unit]
    name = ", ".join(unit_name(unit) for unit in units[:2]) + (" …" if len(units) > 2 else "")
    parts = ["Log", *([name] if name else []), START_WORD[wanted.start]]
    if wanted.level != "debug":
        parts.append(f"{wanted.level} and worse" if wanted.level != "error" else "errors")
    if wanted.include or wanted.exclude:
        found = f"{len(view.index.rows)} of {len(view.buffer.entries)} lines"
        parts.append(found)
    return " · ".join(parts)


def log_subtitle(view: LogView) -> str:
    """Where the window stands: at the end, or how many lines came since."""
    if view.hit is not None and view.index.rows:
        return f"line {view.hit + 1} of {len(view.index.rows)}"
    if view.following:
        return ""
    behind = view.behind
    return f"▼ {many(behind, 'line')} below · f follows" if behind else ""
