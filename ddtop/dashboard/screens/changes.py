"""What changed since the person last looked: a card over the screen, closed by any key."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Line, line, wrap_text
from ddtop.dashboard.panels.timeline.typed import GO_TO_HINT, parse_time
from ddtop.dashboard.screens.base import DdModal
from ddtop.dashboard.screens.modals import AskScreen
from ddtop.dashboard.watched import Watched
from ddtop.dashboard.widgets.panel import Panel, set_title
from ddtop.report.conclusion.changes import change_rows

ROLE = {"good": "ok", "bad": "bad", "warn": "warn", "text": "value", "detail": "label"}
SCROLLS = ("up", "down", "pageup", "pagedown", "home", "end", "j", "k")


class ChangesScreen(DdModal):
    """The same words as on a terminal, of each host that has news."""

    BINDINGS = [keys.bind("g", "since", "Since another time", "changes-since")]

    def __init__(self, hosts: Sequence[tuple[Watched, float]]) -> None:
        """`hosts`: each with the wall time since which its changes are told."""
        super().__init__()
        self._hosts = list(hosts)
        self._told: tuple[object, ...] = ()

    def refresh_view(self) -> None:
        """Tell it anew where something came or half a minute went: it takes the results of the whole run."""
        told = tuple(
            (since_s, here.cells_version, here.state.track.version, int(here.now_s() / 30))
            for here, since_s in self._hosts
        )
        if told != self._told:
            self._told = told
            panel = self.query_one("#changes", Panel)
            panel.redraw()
            panel.refresh(layout=True)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            set_title(box, "What changed")
            with VerticalScroll():
                yield Panel(self._lines, id="changes")
            yield Panel(
                lambda _width, _height: [
                    line(("g ", "key"), "since another time   ", ("any other key ", "key"), "close")
                ]
            )

    def _lines(self, width: int, _height: int) -> Sequence[Line]:
        out: list[Line] = []
        for here, since_s in self._hosts:
            if len(self._hosts) > 1:
                out.append(line((here.name, "title")))
            for row in change_rows(here.state, since_s, here.now_s(), live=here.session.live or here.replay):
                indent = 4 if row.role == "detail" else 0
                wrapped = wrap_text(row.text.strip(), max(10, width - indent - 2), 3)
                for number, text in enumerate(wrapped):
                    out.append(line(" " * (indent + (2 if number else 0)), (text, ROLE[row.role])))
            out.append(())
        return out[:-1]

    def on_key(self, event: events.Key) -> None:
        if event.key in SCROLLS:
            scroll = self.query_one(VerticalScroll)
            {
                "up": scroll.scroll_up,
                "k": scroll.scroll_up,
                "pageup": scroll.scroll_page_up,
                "home": scroll.scroll_home,
            }.get(
                event.key,
                {
                    "down": scroll.scroll_down,
                    "j": scroll.scroll_down,
                    "pagedown": scroll.scroll_page_down,
                }.get(event.key, scroll.scroll_end),
            )()
        elif event.key != "g":
            self.dismiss(False)
        else:
            return
        event.stop()

    def action_since(self) -> None:
        """`g`: tell what changed since a time that is asked for."""
        here = self.here

        def take(text: str) -> str | None:
            at_s = parse_time(text, here.now_s(), here.state.run.started_at_s)
            if at_s is None or at_s >= here.now_s():
                return f"`{text}` is no time in the past. Examples: {GO_TO_HINT}"
            self._hosts = [(here, at_s)]
            self.dd.touch()
            return None

        self.app.push_screen(AskScreen("Since when?", GO_TO_HINT, take))
