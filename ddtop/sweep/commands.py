"""Commands become wishes and events: obeyed, refused with the reason, or too late. Each id counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ddtop import events as ev
from ddtop.journal.fold.views import CellView
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.requests import Requests

ATTEND_S = 15.0
EXPECTED = "(starting)"
"""Stands for the dashboard that is about to open, until its first sign of life."""


@dataclass(frozen=True, slots=True)
class Undoable:
    """What a viewer's last change was, to be taken back."""

    viewer: str
    what: str
    before: tuple[tuple[str, ev.CellState, str, str | None, str], ...]
    """(cell id, state, reason, cause, by)."""
    after: ev.CellState


class CommandHandler:
    """See the module. `reconnect_now` makes a lost link try again at once."""

    def __init__(self, ctx: SweepContext, requests: Requests, reconnect_now: Callable[[], None]) -> None:
        self.ctx = ctx
        self.requests = requests
        self._reconnect_now = reconnect_now
        self._done: set[str] = {c.command_id for c in ctx.state.commands}
        self._undo: list[Undoable] = []
        self._viewers_emitted = 0

    def take(self, commands: Iterable[ev.AnyCommand]) -> None:
        """Handles what viewers have asked since the last call, and forgets viewers gone silent."""
        woke = False
        for command in commands:
            if isinstance(command, ev.Attend):
                self._attend(command)
                continue
            if command.id in self._done:
                continue
            self._done.add(command.id)
            woke = True
            self._one(command)
        self._count_viewers()
        if woke:
            self.ctx.wake()

    def _attend(self, command: ev.Attend) -> None:
        if abs(self.ctx.wall() - command.at_s) > ATTEND_S:
            return
        self.requests.viewers.pop(EXPECTED, None)  # whoever was expected is here
        if command.leaving:
            self.requests.viewers.pop(command.viewer, None)
        else:
            self.requests.viewers[command.viewer] = self.ctx.mono()

    def _count_viewers(self) -> None:
        now = self.ctx.mono()
        for viewer in [v for v, at in self.requests.viewers.items() if now - at > ATTEND_S]:
            del self.requests.viewers[viewer]
        if len(self.requests.viewers) != self._viewers_emitted:
            self._viewers_emitted = len(self.requests.viewers)
            self.ctx.emit(ev.ViewersSeen, count=self._viewers_emitted)
            self.ctx.wake()

    def _one(self, command: ev.AnyCommand) -> None:
        ctx = self.ctx
        age = ctx.wall() - command.at_s
        if abs(age) > command.deadline_s:
            why = f"it was {age:.0f} s old" if age > 0 else f"the clock was set back by {-age:.0f} s since"
            self._answer(command, "late", f"{why}; given again, it counts")
            return
        refusal = self._obey(command)
        self._answer(command, "refused" if refusal else "obeyed", refusal or "")

    def _answer(self, command: ev.AnyCommand, outcome: str, reason: str) -> None:
        args = {
            name: getattr(command, name)
            for name in command.__struct_fields__
            if name not in ("id", "viewer", "at_s", "deadline_s") and getattr(command, name)
        }
        tag = str(type(command).__struct_config__.tag)
        self.ctx.emit(
            ev.CommandSeen,
            command_id=command.id,
            viewer=command.viewer,
            command=tag,
            outcome=outcome,
            reason=reason,
            args=args,
        )

    # ---- each kind: returns why it is refused, or None

    def _obey(self, c: ev.AnyCommand) -> str | None:
        requests, ctx = self.requests, self.ctx
        if ctx.state.run.ended is not None:
            return "the run has ended"
        match c:
            case ev.StopRun():
                requests.stop, requests.leave_running = c.viewer, c.leave_running
                return None
            case ev.Pause():
                if requests.paused_by is not None:
                    return "it is paused already"
                requests.paused_by = c.viewer
                ctx.emit(ev.SweepPaused, by=c.viewer, reason="after the cell in flight")
                return None
            case ev.GoOn():
                if requests.paused_by is None:
                    return "it is not paused"
                requests.paused_by = None
                ctx.emit(ev.SweepResumed, by=c.viewer)
                return None
            case ev.Approve():
                if c.plan_id not in requests.asking:
                    return "these steps are no longer asked about"
                requests.approvals[c.plan_id] = (c.leave_out, c.viewer)
                return None
            case ev.Resume():
                return self._resume(c)
            case ev.Wait():
                return self._wait(c)
            case ev.Restage():
                if self._answers_alert(c, c.alert_id):
                    return None
                if ctx.sweep is None or ctx.sweep.model is None:
                    return "the plan names no model to stage"
                requests.restage = True
                return None
            case ev.RestartService():
                if ctx.sweep is None:
                    return "there is no plan: ddtop only watches"
                requests.restart = c.viewer
                return None
            case ev.Retry() | ev.Skip() | ev.MarkBroken():
                return self._cells(c)
            case ev.Undo():
                return self._take_back(c.viewer)
        return "this version does not know it"

    def _resume(self, c: ev.Resume) -> str | None:
        requests, state = self.requests, self.ctx.state
        if state.host.link in ("lost", "connecting"):
            self._reconnect_now()
            return None
        if self._answers_alert(c, c.alert_id):
            return None
        if state.proposed is not None and state.proposed.plan_id in requests.asking:
            if c.now:
                requests.approvals[state.proposed.plan_id] = ((), c.viewer)
            return None
        if requests.paused_by is not None:
            requests.paused_by = None
            self.ctx.emit(ev.SweepResumed, by=c.viewer)
            return None
        if requests.waiting:
            requests.resume = True
            return None
        return "nothing waits to be resumed"

    def _answers_alert(self, c: ev.AnyCommand, alert_id: str | None) -> bool:
        if alert_id is not None and alert_id in self.requests.asking:
            self.requests.answers[alert_id] = c
            return True
        return False

    def _wait(self, c: ev.Wait) -> str | None:
        if self._answers_alert(c, c.alert_id):
            return None
        return "nothing waits on this alert"

    def _cells(self, c: ev.Retry | ev.Skip | ev.MarkBroken) -> str | None:
        if self._answers_alert(c, c.alert_id):
            return None
        alert = self.ctx.state.alerts.get(c.alert_id or "")
        chosen = self._chosen(c.cell_id, c.config, alert.raised.cell_ids if alert else ())
        if not chosen:
            return "no such cell or configuration"
        state: ev.CellState
        states: tuple[ev.CellState, ...]
        if isinstance(c, ev.Retry):
            what, states, state, reason = (
                "retry",
                ("failed", "broken", "skipped", "interrupted"),
                "planned",
                "to be tried again",
            )
        elif isinstance(c, ev.Skip):
            what, states, state = "skip", ("planned", "running", "interrupted", "failed"), "skipped"
            reason = f"skipped by {c.viewer}"
        elif not c.broken:
            what, states, state, reason = "unmark", ("broken",), "planned", "no longer marked broken"
        else:
            what, states, state = "mark", ("planned", "running", "interrupted", "failed", "skipped"), "broken"
            reason = f"marked broken by {c.viewer}"
        good = [x for x in chosen if x.state in states]
        if not good:
            return _why_not(chosen)
        self._set(c.viewer, what, good, state, reason)
        return None

    def _chosen(self, cell_id: str | None, config: str | None, ids: tuple[str, ...]) -> list[CellView]:
        cells = self.ctx.state.plan_cells
        if cell_id is not None:
            return [c for c in cells if c.id == cell_id]
        if config is not None:
            return [c for c in cells if c.spec.config == config]
        return [c for c in cells if c.id in ids]

    def _set(self, viewer: str, what: str, cells: list[CellView], state: ev.CellState, reason: str) -> None:
        before = tuple((c.id, c.state, c.reason, c.cause, c.by) for c in cells)
        self._undo.append(Undoable(viewer, what, before, state))
        for cell in cells:
            self.requests.touched.add(cell.id)
            self.ctx.emit(ev.CellStateSet, cell_id=cell.id, state=state, reason=reason, by=viewer)

    def _take_back(self, viewer: str) -> str | None:
        last = next((u for u in reversed(self._undo) if u.viewer == viewer), None)
        if last is None:
            return "there is nothing of yours to take back"
        self._undo.remove(last)
        back = [row for row in last.before if self.ctx.state.cells[row[0]].state == last.after]
        if not back:
            return "its cells have moved on since"
        for cell_id, state, reason, cause, _ in back:
            was: ev.CellState = "planned" if state == "running" else state
            self.requests.touched.add(cell_id)
            self.ctx.emit(
                ev.CellStateSet,
                cell_id=cell_id,
                state=was,
                reason=reason or f"{last.what} taken back",
                cause=cause,
                by=viewer,
            )
        return None


def _why_not(cells: list[CellView]) -> str:
    return f"it is {', '.join(sorted({c.state for c in cells}))} already"
