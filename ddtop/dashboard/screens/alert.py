"""One open alert in full: cause, evidence in its context, advice, and what each choice does."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Line, plain
from ddtop.dashboard.panels.moment.failed import card_lines, failed_title
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.widgets.panel import Panel, set_title
from ddtop.journal.act.actions import Actions
from ddtop.journal.act.targets import NotNow
from ddtop.journal.read.select import key_of_action, questions


class AlertScreen(DdScreen):
    """The alert of the bar. Its choices have the keys they have everywhere; `enter` takes the advised one."""

    BINDINGS = [
        keys.BACK,
        keys.bind("enter", "advised", "Do what is advised", "do-advised"),
        keys.bind("right", "turn(1)", "Next alert", "next-alert"),
        keys.bind("left", "turn(-1)", "Previous alert", "previous-alert"),
    ]
    HINTS = ("back", "do-advised", "again", "next-alert", "log", "copy", "help", "leave")
    FOCUS = "#card-scroll"
    BAR_LINES = 0

    def body(self) -> ComposeResult:
        with VerticalScroll(id="card-scroll", classes="pane"):
            yield Panel(self._card, id="card")

    def draw(self) -> None:
        here = self.here
        alert = here.alert
        known = questions(here.state)
        number = f"{known.index(alert) + 1} of {len(known)}" if alert in known and len(known) > 1 else ""
        title = failed_title(here.state, alert) if alert is not None else "No alert is open"
        set_title(self.query_one("#card-scroll"), title, f"{number} · ← → the others" if number else "")
        card = self.query_one("#card", Panel)
        height = len(self._card(max(1, card.size.width), 0))
        if card.styles.height is None or card.styles.height.value != height:
            card.styles.height = height
        card.redraw()

    def _card(self, width: int, _height: int) -> Sequence[Line]:
        return card_lines(self.here.state, self.here.alert, self.here.now_s(), width, self.here.seat)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.why_not(action) is None

    def why_not(self, action: str, parameters: tuple[object, ...] = ()) -> str | None:
        """Why the key of `action` does nothing now, in a sentence; None where it acts."""
        here = self.here
        alert = here.alert
        if action == "turn" and len(questions(here.state)) < 2:
            return "No other alert is open."
        if action != "advised":
            return None
        if alert is None:
            return "No alert is open."
        if not alert.raised.actions:
            return "This alert offers no choice: see its advice."
        ask = Actions(here.state, self.dd.viewer, here.now_s(), here.seat).answer(
            alert, alert.raised.actions[0]
        )
        return ask.why if isinstance(ask, NotNow) else None

    def action_turn(self, step: int) -> None:
        self.here.turn_alert(step)
        self.query_one("#card-scroll").scroll_home(animate=False)
        self.refresh_view()

    def action_advised(self) -> None:
        """`enter`: the first choice, by its own key."""
        alert = self.here.alert
        if alert is not None and alert.raised.actions:
            self.dd.press(key_of_action(alert.raised.actions[0]))

    def copy_text(self) -> str:
        """The whole alert as text, for an issue or a chat."""
        return "\n".join(plain(row).rstrip() for row in self._card(200, 0))
