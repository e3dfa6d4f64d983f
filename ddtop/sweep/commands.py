"""Viewers' commands become requests and events: obeyed, refused with the reason, or too late. Each id counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ddtop import events as ev
from ddtop.journal.act.targets import APPLIES
from ddtop.journal.fold.views import CellView
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.requests import ATTEND_S, Requests


@dataclass(frozen=True, slots=True)
class Undoable:
    """A change of cells that its viewer can take back."""

    viewer: str
    what: str
    before: tuple[tuple[str, ev.CellState, str, str | None, str], ...]
    """(cell id, state, reason, cause, by)."""
    after: ev.CellState


class CommandHandler:
    """Judges each command and keeps what it asks in `requests`. `reconnect_now` makes a lost link try at once."""

    def __init__(self, ctx: SweepContext, requests: Requests, reconnect_now: Callable[[], None]) -> None:
        self.ctx = ctx
        self.requests = requests
        self._reconnect_now = reconnect_now
        self._done: set[str] = {c.command_id for c in ctx.state.commands}
        self._undo: list[Undoable] = []
        self._viewers_emitted = 0

    @property
    def last_change(self) -> Undoable | None:
        """The last change of cells that its viewer can take back."""
        return self._undo[-1] if self._undo else None

    def take(self, commands: Iterable[ev.AnyCommand]) -> None:
        """Handles the commands that came since the last call, and forgets viewers that went silent."""
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
        if abs(self.ctx.wall() - command.at_s) <= ATTEND_S:
            self.requests.viewers.attend(command.viewer, self.ctx.mono(), leaving=command.leaving)

    def _count_viewers(self) -> None:
        viewers = self.requests.viewers
        viewers.forget_silent(self.ctx.mono())
        if len(viewers) != self._viewers_emitted:
            self._viewers_emitted = len(viewers)
            self.ctx.emit(ev.ViewersSeen, count=self._viewers_emitted)
            self.ctx.wake()

    def _one(self, command: ev.AnyCommand) -> None:
        ctx = self.ctx
        age = ctx.wall() - command.at_s
        if abs(age) > command.deadline_s:
            why = f"it was {age:.0f} s old" if age > 0 else f"the clock was set back by {-age:.0f} s since"
            self._report(command, "late", f"{why}; send it again")
            return
        refusal = self._obey(command)
        self._report(command, "refused" if refusal else "obeyed", refusal or "")

    def _report(self, command: ev.AnyCommand, outcome: str, reason: str) -> None:
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
                requests.stopped_by, requests.leave_running = c.viewer, c.leave_running
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
                return (
                    None
                    if requests.questions.decide(c.plan_id, c)
                    else "these steps no longer wait for approval"
                )
            case ev.Resume():
                return self._resume(c)
            case ev.Wait():
                return None if requests.questions.decide(c.alert_id, c) else "nothing waits on this alert"
            case ev.Restage():
                if requests.questions.decide(c.alert_id, c):
                    return None
                if ctx.sweep is None or ctx.sweep.model is None:
                    return "the plan names no model to stage"
                requests.restage = True
                return None
            case ev.RestartService():
                if ctx.sweep is None:
                    return "there is no plan: ddtop only watches"
                at_work = ctx.state.restart.unit if ctx.state.restart is not None else None
                if c.unit is not None and at_work is not None and c.unit != at_work:
                    return f"{c.unit} is not the server at work: {at_work} is, and no other is restarted"
                requests.restart_by = c.viewer
                return None
            case ev.Retry() | ev.Skip() | ev.MarkBroken():
                return self._cells(c)
            case ev.Undo():
                return self._undo_last(c.viewer)
        return "this version of ddtop does not know this command"

    def _resume(self, c: ev.Resume) -> str | None:
        requests, state = self.requests, self.ctx.state
        if not self.ctx.connected:
            self._reconnect_now()
            return None
        if requests.questions.decide(c.alert_id, c):
            return None
        if state.proposed is not None and state.proposed.plan_id in requests.questions:
            if c.now:
                requests.questions.decide(state.proposed.plan_id, c)
            return None
        if requests.paused_by is not None:
            requests.paused_by = None
            self.ctx.emit(ev.SweepResumed, by=c.viewer)
            return None
        if requests.host_wait is not None:
            requests.host_wait.resumed = True
            return None
        return "nothing waits to be resumed"

    def _cells(self, c: ev.Retry | ev.Skip | ev.MarkBroken) -> str | None:
        alert = self.ctx.state.alerts.get(c.alert_id or "")
        if self.requests.questions.decide(c.alert_id, c):
            if alert is not None and not isinstance(c, ev.Retry):
                self._remember_answer(c, alert.raised.cell_ids)
            return None
        chosen = self._chosen(c.cell_id, c.config, alert.raised.cell_ids if alert else ())
        if not chosen:
            return "no such cell or configuration"
        what, states, state, reason = _change(c)
        good = [x for x in chosen if x.state in states]
        if not good:
            return _why_not(chosen)
        self._set(c.viewer, what, good, state, reason)
        return None

    def _chosen(self, cell_id: str | None, config: str | None, ids: tuple[str, ...]) -> list[CellView]:
        cells = self.ctx.state.plan_cells
        if (
            cell_id is not None
        ):  # with those of the other rounds: what a person says of a cell holds for all its starts
            named = {(c.spec.server, c.spec.load) for c in cells if c.id == cell_id}
            return [c for c in cells if (c.spec.server, c.spec.load) in named]
        if config is not None:
            return [c for c in cells if c.spec.config == config]
        return [c for c in cells if c.id in ids]

    def _remember_answer(self, c: ev.Skip | ev.MarkBroken, ids: tuple[str, ...]) -> None:
        """The part that asked will set these cells; their viewer can take that back as any skip or mark."""
        cells = {cell.id: cell for one in ids for cell in self._chosen(one, None, ())}
        what, states, after, _ = _change(c)
        before = tuple((x.id, x.state, x.reason, x.cause, x.by) for x in cells.values() if x.state in states)
        self._undo.append(Undoable(c.viewer, what, before, after))

    def _set(self, viewer: str, what: str, cells: list[CellView], state: ev.CellState, reason: str) -> None:
        before = tuple((c.id, c.state, c.reason, c.cause, c.by) for c in cells)
        self._undo.append(Undoable(viewer, what, before, state))
        for cell in cells:
            self.requests.changed_cells.add(cell.id)
            self.ctx.emit(ev.CellStateSet, cell_id=cell.id, state=state, reason=reason, by=viewer)

    def _undo_last(self, viewer: str) -> str | None:
        last = next((u for u in reversed(self._undo) if u.viewer == viewer), None)
        if last is None:
            return "you changed nothing that can be undone"
        self._undo.remove(last)
        back = [row for row in last.before if self.ctx.state.cells[row[0]].state == last.after]
        if not back:
            return "its cells have changed since"
        for cell_id, state, reason, cause, _ in back:
            was: ev.CellState = "planned" if state == "running" else state
            self.requests.changed_cells.add(cell_id)
            self.ctx.emit(
                ev.CellStateSet,
                cell_id=cell_id,
                state=was,
                reason=reason or f"{last.what} undone",
                cause=cause,
                by=viewer,
            )
        return None


def _change(
    c: ev.Retry | ev.Skip | ev.MarkBroken,
) -> tuple[str, tuple[ev.CellState, ...], ev.CellState, str]:
    """(name of the change, states it applies to, new state, reason)."""
    if isinstance(c, ev.Retry):
        return "retry", APPLIES["retry"], "planned", "to be tried again"
    if isinstance(c, ev.Skip):
        return "skip", APPLIES["skip"], "skipped", f"skipped by {c.viewer}"
    if not c.broken:
        return "unmark", APPLIES["unmark"], "planned", "no longer marked broken"
    return "mark", APPLIES["mark-broken"], "broken", f"marked broken by {c.viewer}"


def _why_not(cells: list[CellView]) -> str:
    return f"it is {', '.join(sorted({c.state for c in cells}))} already"
