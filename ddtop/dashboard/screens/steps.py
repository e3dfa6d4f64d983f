"""The proposed steps: see them with their reasons, leave some out, do them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Line, line, wrap_text
from ddtop.dashboard.panels.steps import countdown_line, steps_lines, taken
from ddtop.dashboard.screens.base import DdModal
from ddtop.dashboard.widgets.panel import Panel, set_title
from ddtop.events import Approve, Command, Step, StepsPlanned
from ddtop.journal.read.select import asking
from ddtop.words import many

ASK_S = 15.0
"""How long the box waits for steps that were asked for, before it says that none came."""
OBEYED_S = 3.0
"""The same, once the run accepted the command: a command that needs no steps proposes none."""


class StepsScreen(DdModal):
    """The steps that the run proposes or is doing, or one command of our own shown before it is sent."""

    BINDINGS = [
        keys.bind("enter", "do", "Do them", "steps-do"),
        keys.bind("space", "leave_out", "Leave out, or include", "steps-toggle"),
        keys.bind("down,j", "move(1)", "Down", "steps-down"),
        keys.bind("up,k", "move(-1)", "Up", "steps-up"),
    ]

    def __init__(self, *, own: tuple[Command, str, Step] | None = None, asked: Command | None = None) -> None:
        """`own` is a command with its label and as a step; `asked` is one that was sent to ask for steps."""
        super().__init__()
        self._own = own
        self._asked = asked
        self._since = time.monotonic()
        self._plan_id: str | None = None
        self._left_out: set[str] = set()
        self._cursor = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Panel(self._why, id="why")
            with VerticalScroll(can_focus=False):
                yield Panel(self._steps, id="steps")
            yield Panel(self._hands, id="hands")

    @property
    def plan(self) -> StepsPlanned | None:
        """The proposal on the screen."""
        return None if self._own is not None else self.here.proposed

    @property
    def steps(self) -> Sequence[Step]:
        if self._own is not None:
            return (self._own[2],)
        return self.plan.steps if self.plan is not None else ()

    @property
    def asking(self) -> bool:
        """True where the steps wait for an answer."""
        here = self.here
        return self._own is None and asking(here.state, here.now_s())

    def refresh_view(self) -> None:
        if self.query_one_optional(".box") is None:
            return  # not composed yet: a redraw of the app came first
        plan = self.plan
        if plan is not None and plan.plan_id != self._plan_id:
            self._plan_id = plan.plan_id
            self._left_out.clear()
            self._cursor = 0
            self.query_one("#steps", Panel).refresh(layout=True)
        elif (plan is None and self._plan_id is not None) or (
            plan is None and self._own is None and not self._still_waiting()
        ):
            self.dismiss(False)
            return
        host = self.here.name
        name = self._own[1].capitalize() if self._own is not None else "Proposed steps"
        if plan is not None and not self.asking:
            name = "Steps running"
        set_title(self.query_one(".box"), f"{name} · {host}")
        for panel in self.query(Panel):
            panel.redraw()

    def _still_waiting(self) -> bool:
        """False where steps were asked for and none will come; says so where nobody said it yet."""
        if self._asked is None:
            return False
        said = self.dd.answers.get(self._asked.id)
        waited = time.monotonic() - self._since
        if said is None:
            if waited > ASK_S:
                self.dd.say("The runner proposed no steps. See the alert and the log.", "warning")
            return waited <= ASK_S
        return said.outcome == "obeyed" and waited <= OBEYED_S

    def _why(self, width: int, _height: int) -> Sequence[Line]:
        if self.plan is not None:
            return [line((row, "text")) for row in wrap_text(self.plan.why, width, 3)]
        if self._own is None:
            return [line(("◌ The runner is looking at the host …", "run"))]
        return [line(("This will be done:", "dim"))]

    def _steps(self, width: int, _height: int) -> Sequence[Line]:
        states = None if self._own is not None or self.asking else taken(self.here.state, self.plan)
        cursor = self._cursor if self.asking else None
        return steps_lines(self.steps, self._left_out, cursor, width, states)

    def _hands(self, _width: int, _height: int) -> Sequence[Line]:
        cancel = (("esc ", "key"), ("cancel", "text"))
        if self._own is not None:
            return [(), line(("enter ", "key"), ("do it   ", "text"), *cancel)]
        if self.plan is None:
            return [(), line(*cancel)]
        if not self.asking:
            return [(), line(("enter ", "key"), ("close", "text"))]
        chosen = len(self.steps) - len(self._left_out)
        do = (("enter ", "key"), (f"do {chosen} of {len(self.steps)}   ", "text"))
        toggle = (("space ", "key"), ("leave out or include   ", "text"))
        return [(), countdown_line(self.plan.answer_by_s, self.here.now_s()), line(*do, *toggle, *cancel)]

    # ------------------------------------------------------------------------------------------- hands

    def action_move(self, step: int) -> None:
        if self.steps:
            self._cursor = min(max(0, self._cursor + step), len(self.steps) - 1)
        self.refresh_view()

    def action_leave_out(self) -> None:
        if not self.asking:
            self.dd.say("These steps do not wait for an answer: none can be left out.")
        elif self.steps:
            self._left_out ^= {self.steps[self._cursor].id}
            self.refresh_view()

    def action_do(self) -> None:
        if self._own is not None:
            # Given now, not when the box was opened: whoever reads for longer than a deadline is not too late.
            command: Command = msgspec.structs.replace(self._own[0], at_s=time.time())
            self.dd.send(command, self._own[1])
            self.dismiss(True)
            return
        plan = self.plan
        if plan is None:
            self.dd.say("The steps are not here yet: the runner is looking at the host.")
            return
        if not self.asking:
            self.dismiss(False)
            return
        chosen = len(plan.steps) - len(self._left_out)
        left_out = tuple(step.id for step in plan.steps if step.id in self._left_out)
        self.dd.command(Approve, f"do {many(chosen, 'step')}", plan_id=plan.plan_id, leave_out=left_out)
        self._plan_id = None
        self.dismiss(True)
