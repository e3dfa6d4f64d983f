"""Keys that become commands: the alert's advice, pause, skip, retry, mark, stop, restart, undo.

What each asks of the run, when and in which words is decided in `journal/act/actions.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ddtop.dashboard.interface import Dashboard
from ddtop.dashboard.screens.modals import ConfirmScreen
from ddtop.dashboard.screens.steps import StepsScreen
from ddtop.events import Action, Command, MarkBroken, Resume, Retry, Skip, Step
from ddtop.journal.act.actions import AT_ONCE, Actions, Ask, choices
from ddtop.journal.act.pending import make
from ddtop.journal.act.seat import nobody, startable
from ddtop.journal.act.targets import NotNow, Target, cell_target, config_target, no_cells
from ddtop.journal.fold.views import AlertView
from ddtop.journal.read.select import action_on, key_of_action

PROPOSING = (Resume,)
"""Commands that the run answers with steps to be looked at."""

STEP_OF: dict[str, str] = {
    "restage": "stage",
    "retry": "restart",
    "skip": "go-on",
    "restart-service": "restart",
}
"""Command tag → step action, for a command that is shown as a step before it is sent."""


class SweepActions:
    """The keys on the sweep; the bindings in `keys.py` name it `sweep`. Each sends a command; none touches a host."""

    def __init__(self, app: Dashboard) -> None:
        self.app = app

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Which of the keys do something now: these are shown."""
        return self.why_not(action) is None

    def why_not(self, action: str, parameters: tuple[object, ...] = ()) -> str | None:
        """Why the key of `action` does nothing now, in a sentence; None where it acts."""
        if action == "pause" and self.app.here.replay:
            return None  # there it stops the replay's time
        if action == "again":
            return self._why_not_again()
        ask = self._wish(action)
        return ask.why if isinstance(ask, NotNow) else None

    def _why_not_again(self) -> str | None:
        here, state, asks = self.app.here, self.app.here.state, self._asks()
        if startable(state, here.seat):
            return None
        if (why := nobody(state, here.seat, "resume")) is not None:
            return why
        if here.proposed is not None or state.paused is not None:
            return None
        alert, action = self.alert, self._alert_action("r")
        if alert is None:
            return "Nothing waits to be retried or resumed."
        if action is not None:
            ask = asks.answer(alert, action)
            return ask.why if isinstance(ask, NotNow) else None
        offered = ", ".join(f"{key_of_action(a)} {a.label}" for a in choices(state, alert, here.seat))
        return f"{alert.raised.title} cannot be retried. " + (
            f"Choices: {offered}" if offered else alert.raised.advice
        )

    def _wish(self, action: str) -> Ask | NotNow | None:
        """What a key asks of the run now, or why it asks nothing."""
        asks = self._asks()
        match action:
            case "skip" | "broken":
                alert, offered = self.alert, self._alert_action("x" if action == "skip" else "b")
                if alert is not None and offered is not None:
                    answer = asks.answer(alert, offered)
                    if isinstance(answer, Ask):
                        return answer
                return self._on_target(asks.skip if action == "skip" else asks.toggle_broken)
            case "try_again":
                return self._on_target(asks.retry)
            case "restage":
                return asks.restage()
            case "wait":
                return asks.wait_longer()
            case "undo":
                return asks.undo(sent=self._changing())
            case "pause":
                return asks.toggle_pause()
            case "stop_run":
                return asks.stop()
            case "restart_service":
                return asks.restart_service()
        return None

    def _on_target(self, make: Callable[[Target], Ask | NotNow]) -> Ask | NotNow:
        """An action on the cell or configuration under the cursor."""
        config, _ = self.app.here.selected()
        if config is None:
            return NotNow(no_cells(self.app.here.state))
        cell = self.app.here.selected_cell()
        return make(config_target(config) if cell is None else cell_target(cell.spec))

    def _changing(self) -> bool:
        """Whether a change of cells is on its way to the runner: `u` may follow `x` at once."""
        return any(
            isinstance(one.command, Skip | Retry | MarkBroken) for one in self.app.pending.sent.values()
        )

    @property
    def alert(self) -> AlertView | None:
        """The alert in the bar."""
        return self.app.here.alert

    def _alert_action(self, key: str) -> Action | None:
        """What the alert in the bar offers on a key."""
        alert = self.alert
        return action_on(alert, key) if alert is not None else None

    # ------------------------------------------------------------------------------------ the question

    def action_again(self) -> None:
        """`r`: start a runner where none is, look at proposed steps, else retry or resume what the alert names."""
        here, state = self.app.here, self.app.here.state
        if startable(state, here.seat):
            ended = state.run.ended is not None
            text = (
                "The run has ended." if ended else "Nothing is running this sweep. Start a runner to go on."
            )
            self.app.no_runner(here, text, again=ended and not state.host.agent)
            return
        if here.proposed is not None:
            self.app.push_screen(StepsScreen())
            return
        alert = self.alert
        action = self._alert_action("r")
        if alert is not None and action is not None:
            self._act(alert, action)
        elif state.paused is not None and state.paused.by != "sweep":  # no steps come: it goes on
            self._send(self._wish("pause"))
        elif state.paused is not None:
            self._propose(make(Resume, self.app.viewer, time.time()), "resume")

    def _asks(self) -> Actions:
        """What can be asked of the run on the screen now."""
        return Actions(self.app.here.state, self.app.viewer, time.time(), self.app.here.seat)

    def _send(self, ask: Ask | NotNow | None, more: str = "") -> None:
        """Send it, or say why there is nothing to send."""
        if ask is None:
            return
        if isinstance(ask, NotNow):
            self.app.say(ask.why, "warning" if ask.unknown else "information")
        else:
            self.app.send(ask.command, ask.label + more)

    def _confirm(
        self,
        question: str,
        verb: str,
        ask: Callable[[], Ask | NotNow],
        other: tuple[str, str, Callable[[], None]] | None = None,
    ) -> None:
        """Ask a question that names what is touched; the command is made when it is answered, so that it is not late."""
        first = ask()
        if isinstance(first, NotNow):
            self._send(first)
            return
        screen = ConfirmScreen(question, first.facts, verb, other=other)
        self.app.push_screen(screen, lambda yes: self._send(ask()) if yes else None)

    def _act(self, alert: AlertView, action: Action) -> None:
        """Do an alert's action: steps where the run proposes them, else shown as a step first."""
        ask = self._asks().answer(alert, action)
        if isinstance(ask, NotNow):
            self.app.say(ask.why, "error")
        elif alert.raised.verdict in AT_ONCE:
            self.app.send(ask.command, ask.label)
        elif isinstance(ask.command, PROPOSING) and not getattr(ask.command, "now", False):
            self._propose(ask.command, ask.label)
        else:
            raised = alert.raised
            self._show(
                ask, STEP_OF.get(action.command, "ask"), raised.cause_text or raised.cause, raised.advice
            )

    def _show(self, ask: Ask, action: str, reason: str, advice: str = "") -> None:
        """Show a command as a step before it is sent."""
        facts = dict(ask.facts)
        unit = facts.get("unit", "none")
        where = f"host {self.app.here.name}" + (f" · unit {unit}" if unit != "none" else "")
        title = facts.get("command", ask.label)
        step = Step(
            id="own",
            action=action,
            title=title,
            reason=reason,
            detail=" · ".join(part for part in (where, advice) if part),
        )
        self.app.push_screen(StepsScreen(own=(ask.command, ask.label, step)))

    def _propose(self, command: Command, label: str) -> None:
        self.app.send(command, label)
        self.app.push_screen(StepsScreen(asked=command))

    def action_restage(self) -> None:
        """`s`: check the model directory and copy what is missing; shown first."""
        alert = self.alert
        offered = self._alert_action("s")
        if alert is not None and offered is not None:
            self._act(alert, offered)
            return
        ask = self._asks().restage()
        if isinstance(ask, NotNow):
            self._send(ask)
        else:
            self._show(ask, "stage", dict(ask.facts).get("why", ask.label))

    def action_wait(self) -> None:
        """`w`: give a stalled start more time."""
        self._send(self._wish("wait"))

    # ----------------------------------------------------------------------------------- pause and stop

    def action_pause(self) -> None:
        """`space`: pause after the running cell, or go on; in a replay stop its time, or let it run."""
        if self.app.here.replay:
            self.app.replay.toggle()
        else:
            self._send(self._wish("pause"))

    def action_stop_run(self) -> None:
        """`S`: stop the run, after a question that names what will be touched."""
        self._confirm(
            "Stop the run?",
            "stop the run",
            lambda: self._asks().stop(),
            other=(
                "k",
                "stop the run, leave the server running",
                lambda: self._send(self._asks().stop(leave_running=True)),
            ),
        )

    def action_restart_service(self) -> None:
        """`R`: restart the service, after a question that names host, unit and command."""
        self._confirm("Restart the service?", "restart the service", lambda: self._asks().restart_service())

    # --------------------------------------------------------------------------------------- one cell

    def action_skip(self) -> None:
        """`x`: skip what the alert is about, else what is under the cursor; `u` undoes it."""
        self._send(self._wish("skip"), " (u undoes it)")

    def action_try_again(self) -> None:
        """`t`: run again what is under the cursor: failed, broken, skipped or interrupted."""
        self._send(self._wish("try_again"))

    def action_broken(self) -> None:
        """`b`: mark as broken, or remove the mark; `u` undoes it."""
        self._send(self._wish("broken"), " (u undoes it)")

    def offered(self, key: str) -> bool:
        """Do what the alert offers on this key, if it does; that is what the bar names."""
        alert, offered = self.alert, self._alert_action(key)
        if alert is None or offered is None:
            return False
        self._send(self._asks().answer(alert, offered))
        return True

    def action_undo(self) -> None:
        """`u`: undo this viewer's last skip, mark or retry."""
        self._send(self._wish("undo"))
