"""Keys that become commands: the alert's advice, pause, skip, retry, mark, stop, restart, undo."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ddtop.dashboard.commands import from_action, make
from ddtop.dashboard.draw.text import unit_name
from ddtop.dashboard.interface import Dashboard
from ddtop.dashboard.screens.modals import ConfirmScreen
from ddtop.dashboard.screens.steps import StepsScreen
from ddtop.dashboard.watched import Watched
from ddtop.events import (
    Action,
    Command,
    GoOn,
    MarkBroken,
    Pause,
    Restage,
    RestartService,
    Resume,
    Retry,
    Skip,
    Step,
    StopRun,
    Undo,
    Wait,
)
from ddtop.journal.fold.views import AlertView
from ddtop.journal.read.select import advised_action, advised_alert

_PLAN_ONLY = {"skip", "try_again", "broken", "restage"}
"""Actions that mean nothing on a host that is only watched."""

PROPOSING = (Resume,)
"""Commands that the run answers with steps to be looked at."""

AT_ONCE = ("lost-host",)
"""Verdicts whose advised action touches nothing on the host (reconnect now): no steps to look at."""

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
        """Which of the keys are valid now: in a replay only `space`, which stops its time."""
        here, state, alert = self.app.here, self.app.here.state, self.alert
        if here.replay:
            return action == "pause"
        if action in _PLAN_ONLY:
            return bool(state.plan_cells)
        if action == "pause":
            return state.run.ended is None
        if action == "wait":
            raised = alert.raised if alert is not None else None
            slow = raised is not None and raised.verdict in ("stalled", "slow", "hung-gpu")
            return slow or (raised is not None and any(a.command == "wait" for a in raised.actions))
        if action == "advised":
            offered = alert is not None and bool(alert.raised.actions)
            waiting = state.run.ended is not None and state.run.ended.outcome != "done"
            return (
                offered or here.proposed is not None or state.paused is not None or waiting or here.orphaned
            )
        return True

    @property
    def alert(self) -> AlertView | None:
        """The alert in the bar."""
        return advised_alert(self.app.here.state)

    def _alert_action(self, key: str) -> Action | None:
        """What the alert in the bar offers on a key beside `r`."""
        alert = self.alert
        if alert is None:
            return None
        return next((a for a in alert.raised.actions[1:] if a.key == key), None)

    # ------------------------------------------------------------------------------------- the advice

    def action_advised(self) -> None:
        """`r`: start a runner where it died, look at proposed steps, else the alert's first advised action."""
        here, state = self.app.here, self.app.here.state
        if here.orphaned:
            self.app.no_runner(here, "Nothing is running this sweep. Start a runner to go on.")
            return
        if self.app.here.proposed is not None:
            self.app.push_screen(StepsScreen())
            return
        alert = self.alert
        action = advised_action(alert) if alert is not None else None
        if alert is not None and action is not None:
            self._act(alert, action)
        elif state.run.ended is not None or state.paused is not None:
            self._propose(make(Resume, self.app.viewer, time.time()), "resume")
        else:
            self.app.say("Nothing needs an answer now.")

    def _act(self, alert: AlertView, action: Action) -> None:
        """Do an alert's action: steps where the run proposes them, else shown as a step first."""
        try:
            command = from_action(action, alert.id, self.app.viewer, time.time())
        except msgspec.ValidationError:
            self.app.say(f"This version of ddtop does not know the command `{action.command}`.", "error")
            return
        raised = alert.raised
        if raised.verdict in AT_ONCE:
            self.app.send(command, action.label)
            return
        if isinstance(command, PROPOSING) and not getattr(command, "now", False):
            self._propose(command, action.label)
            return
        step = Step(
            id="own",
            action=STEP_OF.get(action.command, "ask"),
            title=action.label,
            reason=raised.cause_text or raised.cause,
            detail=" · ".join(part for part in (self._where(raised.unit), raised.advice) if part),
        )
        self.app.push_screen(StepsScreen(own=(command, action.label, step)))

    def _propose(self, command: Command, label: str) -> None:
        self.app.send(command, label)
        self.app.push_screen(StepsScreen(asked=command))

    def action_restage(self) -> None:
        """`s`: check the model directory and copy what is missing; shown first."""
        alert = self.alert
        stage = self.app.here.state.stage
        offered = self._alert_action("s")
        if alert is not None and offered is not None:
            self._act(alert, offered)
            return
        target = stage.progress.target if stage is not None else "the plan's model directory"
        reason = "you asked for it: complete files stay, missing or damaged ones are copied again"
        step = Step(
            id="own", action="stage", title=f"re-stage {target}", reason=reason, detail=self._where(None)
        )
        command = make(
            Restage, self.app.viewer, time.time(), alert_id=alert.id if alert is not None else None
        )
        self.app.push_screen(StepsScreen(own=(command, "re-stage the model", step)))

    def action_wait(self) -> None:
        """`w`: give a stalled start more time."""
        alert = self.alert
        if alert is None:
            self.app.say("No start is stalled, so there is nothing to wait for.")
            return
        self.app.command(Wait, "wait longer", alert_id=alert.id)

    # ----------------------------------------------------------------------------------- pause and stop

    def action_pause(self) -> None:
        """`space`: pause after the running cell, or go on; in a replay stop its time, or let it run."""
        if self.app.here.replay:
            self.app.replay.toggle()
        elif self.app.here.state.paused is not None:
            self.app.command(GoOn, "go on")
        else:
            self.app.command(Pause, "pause after the running cell")

    def action_stop_run(self) -> None:
        """`S`: stop the run, after a question that names what will be touched."""
        here = self.app.here
        if here.state.run.ended is not None:
            self.app.say("The run has ended, so there is nothing to stop.")
            return
        unit = self._unit(here)
        facts = [
            ("host", here.name),
            ("run", here.state.run.name or here.state.run.run_id),
            ("unit", unit or "none"),
            ("command", f"ddtop stop {here.state.run.run_id or here.session.path.stem}"),
            (
                "then",
                "the running cell ends as interrupted; results are kept; the unit gets back the state it had before the run",
            ),
        ]
        keep = ("k", "stop the run, leave the server running", self._stop_keeping)
        self.app.push_screen(ConfirmScreen("Stop the run?", facts, "stop the run", other=keep), self._stop)

    def _stop(self, yes: bool | None) -> None:
        if yes:
            self.app.command(StopRun, "stop the run")

    def _stop_keeping(self) -> None:
        self.app.command(StopRun, "stop the run, leave the server", leave_running=True)

    def action_restart_service(self) -> None:
        """`R`: restart the service, after a question that names host, unit and command."""
        here = self.app.here
        unit = self._unit(here)
        if unit is None:
            self.app.say(f"No service is known on {here.name} yet.", "warning")
            return
        status = here.state.services[unit].status if unit in here.state.services else None
        kind = status.kind if status is not None else "systemd"
        command = (
            f"systemctl restart {unit}" if kind == "systemd" else f"restart of the {kind} service {unit}"
        )
        facts = [("host", here.name), ("unit", unit), ("command", command)]
        if here.busy:
            facts.append(("costs", f"the running cell of {here.busy} is measured again"))

        def answered(yes: bool | None) -> None:
            if yes:
                self.app.command(RestartService, f"restart {unit_name(unit)}", unit=unit)

        self.app.push_screen(ConfirmScreen("Restart the service?", facts, "restart the service"), answered)

    def _unit(self, here: Watched) -> str | None:
        restart = here.state.restart
        if restart is not None and restart.unit:
            return restart.unit
        return next(iter(here.state.services), None)

    def _where(self, unit: str | None) -> str:
        unit = unit or self._unit(self.app.here)
        return f"host {self.app.here.name}" + (f" · unit {unit}" if unit else "")

    # --------------------------------------------------------------------------------------- one cell

    def _target(self) -> tuple[str, dict[str, Any]] | None:
        """(what it is called, arguments) of the cell or configuration under the cursor."""
        config, _ = self.app.here.selected()
        if config is None:
            self.app.say("This host has no sweep: no plan was given.", "warning")
            return None
        cell = self.app.here.selected_cell()
        if cell is None:
            return f"{config}, all of its cells", {"config": config}
        spec = cell.spec
        name = f"{spec.config} {spec.workload}@{spec.output_tokens}"
        return name, {"cell_id": cell.id}

    def action_skip(self) -> None:
        """`x`: skip what the alert is about, else what is under the cursor; `u` undoes it."""
        if self.offered("x"):
            return
        target = self._target()
        if target is not None:
            self.app.command(Skip, f"skip {target[0]} (u undoes it)", **target[1])

    def action_try_again(self) -> None:
        """`t`: run it again, whatever its state is."""
        if self.offered("t"):
            return
        target = self._target()
        if target is not None:
            self.app.command(Retry, f"retry {target[0]}", **target[1])

    def action_broken(self) -> None:
        """`b`: mark as broken, or remove the mark."""
        if self.offered("b"):
            return
        target = self._target()
        if target is None:
            return
        cell = self.app.here.selected_cell()
        config, _ = self.app.here.selected()
        if cell is not None:
            marked = cell.state == "broken"
        else:
            cells = [c for c in self.app.here.state.plan_cells if c.spec.config == config]
            marked = bool(cells) and all(c.state == "broken" for c in cells)
        label = f"mark {target[0]} as not broken" if marked else f"mark {target[0]} as broken"
        self.app.command(MarkBroken, label, broken=not marked, **target[1])

    def offered(self, key: str) -> bool:
        """Do what the alert offers on this key, if it does; that is what the bar names."""
        alert, offered = self.alert, self._alert_action(key)
        if alert is None or offered is None:
            return False
        try:
            self.app.send(from_action(offered, alert.id, self.app.viewer, time.time()), offered.label)
        except msgspec.ValidationError:
            self.app.say(f"This version of ddtop does not know the command `{offered.command}`.", "error")
        return True

    def action_undo(self) -> None:
        """`u`: undo this viewer's last skip, mark or retry."""
        self.app.command(Undo, "undo")
