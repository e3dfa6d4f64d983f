"""Which action becomes which command, when it means something, and in which words. Pure.

The dashboard's keys and `ddtop do` both ask here, so that both do the same and call it the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ddtop import events as ev
from ddtop.journal.act.pending import from_action, make
from ddtop.journal.act.seat import LIVE, Seat, nobody
from ddtop.journal.act.targets import APPLIES, NotNow, Target, cells_of, no_cells, nothing_to, undoable
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView, CellView
from ddtop.journal.read.select import advised_alert, asking, busy, key_of_action

AT_ONCE = ("lost-host",)
"""Verdicts whose advised action touches nothing on the host (reconnect now): nothing to look at first."""

CONFIRMED: tuple[type[ev.Command], ...] = (
    ev.StopRun,
    ev.RestartService,
    ev.Restage,
    ev.Resume,
    ev.Approve,
)
"""Commands that stop or start a server, or write to the host's disks: looked at before they are sent."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A command ready to be sent, with what a person is told of it."""

    command: ev.Command
    label: str
    """What it does, in a few words: `retry b16`."""
    facts: tuple[tuple[str, str], ...] = ()
    """(name, value) lines: host, unit, the exact command, what it costs."""

    def confirmed_first(self, state: State) -> bool:
        """Whether it is looked at before it is sent."""
        alert = state.alerts.get(getattr(self.command, "alert_id", None) or "")
        if alert is not None and alert.raised.verdict in AT_ONCE:
            return False
        return isinstance(self.command, CONFIRMED)


SLOW: tuple[ev.Verdict, ...] = ("stalled", "slow", "hung-gpu")
"""Verdicts of starts that may be given more time."""


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions on one run, as it is now. Each returns what is to be sent, or why nothing is."""

    state: State
    viewer: str
    now_s: float
    seat: Seat = LIVE
    """Whether a runner would read it."""

    def _nobody(self, action: str) -> NotNow | None:
        """Why no run would do this at all; None where one would."""
        why = nobody(self.state, self.seat, action)
        return NotNow(why, nobody=True) if why is not None else None

    def _make(self, kind: type[ev.Command], **fields: Any) -> ev.Command:
        return make(kind, self.viewer, self.now_s, **fields)

    @property
    def host(self) -> str:
        return self.state.host.name

    @property
    def unit(self) -> str | None:
        """The unit at work, else the first that is known."""
        restart = self.state.restart
        return restart.unit if restart is not None and restart.unit else next(iter(self.state.services), None)

    @property
    def alert(self) -> AlertView | None:
        """The alert that is answered first."""
        return advised_alert(self.state)

    def _where(self, unit: str | None = None) -> tuple[tuple[str, str], ...]:
        return (("host", self.host), ("unit", unit or self.unit or "none"))

    def stop(self, *, leave_running: bool = False) -> Ask | NotNow:
        """Stop the run. The server gets back its former state, or is left running."""
        run = self.state.run
        if (no := self._nobody("stop")) is not None:
            return no
        after = "the server is left as it is" if leave_running else "the unit gets back the state it had"
        facts = (
            ("host", self.host),
            ("run", run.name or run.run_id),
            ("unit", self.unit or "none"),
            ("command", f"ddtop stop {run.run_id}{' --leave-running' if leave_running else ''}"),
            (
                "then",
                f"the running cell ends as interrupted; results are kept; {after}"
                + ("" if leave_running else " before the run"),
            ),
        )
        label = "stop the run, leave the server" if leave_running else "stop the run"
        return Ask(self._make(ev.StopRun, leave_running=leave_running), label, facts)

    def restart_service(self, unit: str | None = None) -> Ask | NotNow:
        """Restart the service of the present configuration."""
        services = self.state.services
        if unit is not None and unit not in services and f"{unit}.service" in services:
            unit = f"{unit}.service"
        if unit is not None and services and unit not in services:
            return NotNow(
                f"no service `{unit}` is known on {self.host}; known: {', '.join(services)}", unknown=True
            )
        unit = unit or self.unit
        if (no := self._nobody("restart")) is not None:
            return no
        if unit is None:
            return NotNow(f"No service is known on {self.host} yet.", unknown=True)
        if not self.state.plan_cells:
            return NotNow(no_cells(self.state))
        status = services[unit].status if unit in services else None
        kind = status.kind if status is not None else "systemd"
        command = (
            f"systemctl restart {unit}" if kind == "systemd" else f"restart of the {kind} service {unit}"
        )
        facts = [*self._where(unit), ("command", command)]
        if (config := busy(self.state)) is not None:
            facts.append(("costs", f"the running cell of {config} is measured again"))
        label = f"restart {unit.removesuffix('.service')}"
        return Ask(self._make(ev.RestartService, unit=unit), label, tuple(facts))

    def pause(self) -> Ask | NotNow:
        if (no := self._nobody("pause")) is not None:
            return no
        if not self.state.plan_cells and self.state.run.mode != "sweep":
            return NotNow(no_cells(self.state))  # a sweep can be paused before its cells are planned
        if self.state.paused is not None:
            return NotNow("The sweep is paused already.")
        return Ask(self._make(ev.Pause), "pause after the running cell")

    def go_on(self) -> Ask | NotNow:
        if self.state.paused is None and self._nobody("go-on") is None:
            return NotNow("The sweep is not paused.")
        return self._nobody("go-on") or Ask(self._make(ev.GoOn), "go on")

    def toggle_pause(self) -> Ask | NotNow:
        """Pause, or go on where it is paused."""
        return self.go_on() if self.state.paused is not None else self.pause()

    def skip(self, target: Target) -> Ask | NotNow:
        """Leave it out. Refused where nothing of it is left to run."""
        return (
            self._nobody("skip")
            or nothing_to(self.state, "skip", target)
            or Ask(self._make(ev.Skip, **target.args), f"skip {target.label}")
        )

    def retry(self, target: Target) -> Ask | NotNow:
        """Run again what failed, is broken, skipped or was interrupted."""
        return (
            self._nobody("retry")
            or nothing_to(self.state, "retry", target)
            or Ask(self._make(ev.Retry, **target.args), f"retry {target.label}")
        )

    def mark_broken(self, target: Target, *, broken: bool) -> Ask | NotNow:
        """Mark as broken, or take the mark away."""
        how = "broken" if broken else "not broken"
        action = "mark-broken" if broken else "unmark"
        return (
            self._nobody(action)
            or nothing_to(self.state, action, target)
            or Ask(self._make(ev.MarkBroken, broken=broken, **target.args), f"mark {target.label} as {how}")
        )

    def toggle_broken(self, target: Target) -> Ask | NotNow:
        """Mark as broken, or take the mark away where all of it has one."""
        chosen = cells_of(self.state, target)
        marked = bool(chosen) and all(c.state == "broken" for c in chosen)
        return self.mark_broken(target, broken=not marked)

    def restage(self) -> Ask | NotNow:
        """Check the model directory and copy what is missing."""
        alert, stage = self.alert, self.state.stage
        offered = self.offered(alert, "restage") if alert is not None else None
        if offered is not None and alert is not None:
            return self.answer(alert, offered)
        if (no := self._nobody("restage")) is not None:
            return no
        if not self.state.plan_cells:
            return NotNow(no_cells(self.state))
        path = stage.progress.target if stage is not None else "the plan's model directory"
        facts = (
            *self._where(),
            ("command", f"re-stage {path}"),
            ("why", "you asked for it: complete files stay, missing or damaged ones are copied again"),
        )
        command = self._make(ev.Restage, alert_id=alert.id if alert is not None else None)
        return Ask(command, "re-stage the model", facts)

    def wait_longer(self) -> Ask | NotNow:
        """Give a stalled start more time."""
        if (no := self._nobody("wait")) is not None:
            return no
        alert = self.alert
        if alert is None or alert.decided is not None or not self._may_wait(alert):
            return NotNow("No start is stalled, so there is nothing to wait for.")
        return Ask(self._make(ev.Wait, alert_id=alert.id), "wait longer")

    @staticmethod
    def _may_wait(alert: AlertView) -> bool:
        return alert.raised.verdict in SLOW or any(a.command == "wait" for a in alert.raised.actions)

    def undo(self, *, sent: bool = False) -> Ask | NotNow:
        """Take back this sender's last skip, mark or retry. `sent`: one is on its way."""
        if (no := self._nobody("undo")) is not None:
            return no
        if not sent and not undoable(self.state, self.viewer):
            return NotNow(
                "You have skipped, marked and retried nothing in this run, so there is nothing to undo."
            )
        return Ask(self._make(ev.Undo), "undo")

    def resume(self, leave_out: Sequence[str] = ()) -> Ask | NotNow:
        """Do the proposed steps, less those left out; else resume after the alert, or from a pause."""
        if (no := self._nobody("resume")) is not None and not leave_out:
            return no
        proposed = self.state.proposed
        if proposed is not None and asking(self.state, self.now_s):
            if wrong := set(leave_out) - {s.id for s in proposed.steps}:
                known = ", ".join(s.id for s in proposed.steps)
                return NotNow(f"no step {', '.join(sorted(wrong))} is proposed; steps: {known}", unknown=True)
            steps = [s for s in proposed.steps if s.id not in leave_out]
            lines = [("step", f"{s.title}: {s.reason}{f' ({s.detail})' if s.detail else ''}") for s in steps]
            command = self._make(ev.Approve, plan_id=proposed.plan_id, leave_out=tuple(leave_out))
            label = f"do {len(steps)} of {len(proposed.steps)} proposed steps"
            return Ask(command, label, (*self._where(), *lines))
        if leave_out:
            return NotNow("no steps wait for approval now, so none can be left out", unknown=True)
        if (no := self._nobody("resume")) is not None:
            return no
        alert = self.alert
        named = alert.id if alert is not None and self.offered(alert, "resume") is not None else None
        if named is None and self.state.paused is not None:
            return self.go_on()
        facts = (
            *self._where(),
            ("command", "do the steps that the run finds necessary, without asking again"),
        )
        return Ask(self._make(ev.Resume, alert_id=named, now=True), "resume", facts)

    def offered(self, alert: AlertView, choice: str) -> ev.Action | None:
        """What an alert offers by this key, command or label."""
        return next(
            (a for a in alert.raised.actions if choice in (key_of_action(a), a.command, a.label)), None
        )

    def _no_answer(self, alert: AlertView, command: ev.Command) -> NotNow | None:
        """Why this answer to an alert would be refused. A question that is open takes any; else it is a command of its own."""
        if (no := self._nobody("answer")) is not None:
            return no
        if not alert.open:
            return NotNow("This alert is closed.")
        if alert.decided is None:
            return None
        told = f"{alert.raised.title} is decided already: {alert.decided.what}."
        match command:
            case ev.Wait():
                return NotNow(told)
            case ev.Retry() | ev.Skip() | ev.MarkBroken():
                kind = str(type(command).__struct_config__.tag)
                states = APPLIES["unmark" if kind == "mark-broken" and not command.broken else kind]  # type: ignore[union-attr]
                cells = self._about(command, alert)
                return None if not cells or any(c.state in states for c in cells) else NotNow(told)
        return None

    def _about(self, command: ev.Retry | ev.Skip | ev.MarkBroken, alert: AlertView) -> list[CellView]:
        """The cells that an answer is about, as the runner takes it."""
        if command.cell_id is not None:
            return cells_of(self.state, Target("", {"cell_id": command.cell_id}))
        if command.config is not None:
            return cells_of(self.state, Target("", {"config": command.config}))
        return [c for c in self.state.plan_cells if c.id in alert.raised.cell_ids]

    def answer(self, alert: AlertView, action: ev.Action, *, now: bool = False) -> Ask | NotNow:
        """One of an alert's actions. `now`: steps that it proposes are done without asking again."""
        raised = alert.raised
        try:
            command = from_action(action, alert.id, self.viewer, self.now_s)
        except msgspec.ValidationError:
            return NotNow(
                f"This version of ddtop does not know the command `{action.command}`.", unknown=True
            )
        if (no := self._no_answer(alert, command)) is not None:
            return no
        if now and isinstance(command, ev.Resume):
            command = msgspec.structs.replace(command, now=True)
        facts = (
            *self._where(raised.unit),
            ("command", action.label),
            ("why", raised.cause_text or raised.cause),
            ("advice", raised.advice),
        )
        return Ask(command, action.label, facts)


def choices(state: State, alert: AlertView, seat: Seat = LIVE) -> tuple[ev.Action, ...]:
    """What an alert offers, as far as it can be carried out now: what a screen shows, and what its keys do."""
    asks = Actions(state, "", 0.0, seat)
    return tuple(a for a in alert.raised.actions if isinstance(asks.answer(alert, a), Ask))
