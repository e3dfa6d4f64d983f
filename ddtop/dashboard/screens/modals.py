"""Boxes over a screen: to confirm what cannot be undone, and to ask for one line of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Line, line, wrap_text
from ddtop.dashboard.screens.base import DdModal
from ddtop.dashboard.widgets.panel import Panel, set_title


class ConfirmScreen(DdModal):
    """Says what will be done, to which host and unit, by which command; `enter` does it."""

    BINDINGS = [
        keys.bind("enter,y", "yes", "Do it", "confirm-yes"),
        Binding("n", "back", "No", show=False, id="confirm-no"),
    ]

    def __init__(
        self,
        question: str,
        facts: Sequence[tuple[str, str]],
        verb: str,
        *,
        other: tuple[str, str, Callable[[], None]] | None = None,
    ) -> None:
        """`facts` are (name, value) lines; `other` is (key, what it does, call) for a second way."""
        super().__init__()
        self.question = question
        self.facts = list(facts)
        self.verb = verb
        self.other = other

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            set_title(box, self.question)
            yield Panel(self._lines)

    def _lines(self, width: int, _height: int) -> Sequence[Line]:
        label = max((len(name) for name, _ in self.facts), default=0)
        out: list[Line] = []
        for name, value in self.facts:
            for number, row in enumerate(wrap_text(value, max(10, width - label - 2), 4) or [""]):
                out.append(line((f"{name if number == 0 else '':<{label}}  ", "dim"), (row, "value")))
        out.append(())
        hands = [("enter ", "key"), (f"{self.verb}   ", "text")]
        if self.other is not None:
            hands += [(f"{self.other[0]} ", "key"), (f"{self.other[1]}   ", "text")]
        out.append(line(*hands, ("esc ", "key"), ("cancel", "text")))
        return out

    def on_mount(self) -> None:
        if self.other is not None:
            self._bindings.bind(self.other[0], "other", self.other[1])

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_other(self) -> None:
        if self.other is not None:
            call = self.other[2]
            self.dismiss(False)
            call()


class AskScreen(DdModal):
    """Asks for one line of text; what is wrong with it is said below the line."""

    FOCUS = "Input"

    def __init__(self, question: str, hint: str, take: Callable[[str], str | None]) -> None:
        """`take` gets the text and answers with what is wrong with it, or None where it was taken."""
        super().__init__()
        self.question = question
        self.hint = hint
        self._take = take
        self._wrong = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            set_title(box, self.question)
            yield Input()
            yield Panel(self._lines)

    def _lines(self, width: int, _height: int) -> Sequence[Line]:
        text, role = (self._wrong, "bad") if self._wrong else (self.hint, "dim")
        below = [line((row, role)) for row in wrap_text(text, width, 4)]
        return [*below, line(("enter ", "key"), "OK   ", ("esc ", "key"), "cancel")]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        wrong = self._take(event.value.strip())
        if wrong is None:
            self.dismiss(True)
            return
        self._wrong = wrong
        self.query_one(Panel).refresh(layout=True)
