"""The proposed steps: see them with their reasons, leave some out, do them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll

from ddtop.dashboard import keys
from ddtop.dashboard.paint import Line, line, wrap_text
from ddtop.dashboard.panels.steps import countdown_line, steps_lines
from ddtop.dashboard.screens.base import DdModal, set_title
from ddtop.dashboard.widgets.panel import Panel
from ddtop.events import Approve, Command, Step, StepsPlanned

ASK_S = 15.0
"""How long the box waits for steps that were asked for, before it says that none came."""


class StepsScreen(DdModal):
    """Either the steps that the run proposes, or one command of our own shown as a step before it is sent."""

    BINDINGS = [
        keys.bind("enter", "do", "Do them", "steps-do"),
        keys.bind("space", "leave_out", "Leave out, or take in", "steps-toggle"),
        keys.bind("down,j", "move(1)", "Down", "steps-down"),
        keys.bind("up,k", "move(-1)", "Up", "steps-up"),
    ]

    def __init__(self, *, own: tuple[Command, str, Step] | None = None, asked: bool = False) -> None:
        """`own` is a command with its label and as a step; `asked` says that steps were just asked for."""
        super().__init__()
        self._own = own
        self._asked_at = time.monotonic() if asked else None
        self._plan_id: str | None = None
        self._left_out: set[str] = set()
        self._cursor = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Panel(self._why, id="why")
            with VerticalScroll(can_focus=False):
                yield Panel(self._steps, id="steps")
            yield Panel(self._hands, id="hands")

    def on_mount(self) -> None:
        self.refresh_view()

    @property
    def plan(self) -> StepsPlanned | None:
        """The proposal on the screen."""
        return None if self._own is not None else self.dd.here.state.proposed

    @property
    def steps(self) -> Sequence[Step]:
        if self._own is not None:
            return (self._own[2],)
        return self.plan.steps if self.plan is not None else ()

    def refresh_view(self) -> None:
        plan = self.plan
        if plan is not None and plan.plan_id != self._plan_id:
            self._plan_id = plan.plan_id
            self._left_out.clear()
            self._cursor = 0
            self.query_one("#steps", Panel).refresh(layout=True)
        elif plan is None and self._plan_id is not None:
            self.dd.say("The steps were answered meanwhile.")
            self.dismiss(False)
            return
        elif plan is None and self._waited_in_vain():
            self.dd.say("No steps were proposed; the log and the alert say how things stand.", "warning")
            self.dismiss(False)
            return
        host = self.dd.here.name
        name = "Proposed steps" if self._own is None else self._own[1].capitalize()
        set_title(self.query_one(".box"), f"{name} · {host}")
        for panel in self.query(Panel):
            panel.redraw()

    def _waited_in_vain(self) -> bool:
        """True where steps were asked for and none came."""
        asked_at = self._asked_at if self._own is None else None
        return asked_at is not None and time.monotonic() - asked_at > ASK_S

    def _why(self, width: int, _height: int) -> Sequence[Line]:
        if self.plan is not None:
            return [line((row, "text")) for row in wrap_text(self.plan.why, width, 3)]
        if self._own is None:
            return [line(("◌ asking the runner to look at the host …", "run"))]
        return [line(("This will be done:", "dim"))]

    def _steps(self, width: int, _height: int) -> Sequence[Line]:
        return steps_lines(self.steps, self._left_out, self._cursor, width)

    def _hands(self, _width: int, _height: int) -> Sequence[Line]:
        out: list[Line] = [()]
        if self.plan is not None:
            out.append(countdown_line(self.plan.answer_by_s, self.dd.here.now_s()))
        chosen = len(self.steps) - len(self._left_out)
        if self._own is None and self.plan is None:
            out.append(line(("esc ", "key"), "leave it"))
            return out
        verb = "do it" if self._own is not None else f"do {chosen} of {len(self.steps)}"
        toggle = [] if self._own is not None else [("space ", "key"), ("leave out / take in   ", "text")]
        out.append(line(("enter ", "key"), (f"{verb}   ", "text"), *toggle, ("esc ", "key"), "leave it"))
        return out

    # ------------------------------------------------------------------------------------------- hands

    def action_move(self, step: int) -> None:
        if self.steps:
            self._cursor = min(max(0, self._cursor + step), len(self.steps) - 1)
        self.refresh_view()

    def action_leave_out(self) -> None:
        if self._own is None and self.steps:
            self._left_out ^= {self.steps[self._cursor].id}
            self.refresh_view()

    def action_do(self) -> None:
        if self._own is not None:
            self.dd.send(self._own[0], self._own[1])
            self.dismiss(True)
            return
        plan = self.plan
        if plan is None:
            return
        chosen = len(plan.steps) - len(self._left_out)
        left_out = tuple(step.id for step in plan.steps if step.id in self._left_out)
        self.dd.command(Approve, f"do {chosen} steps", plan_id=plan.plan_id, leave_out=left_out)
        self._plan_id = None
        self.dismiss(True)
