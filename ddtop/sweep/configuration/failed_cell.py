"""After a server failed under a cell, or gave it an invalid result: a viewer or the policy decides, and it is done."""

from __future__ import annotations

from ddtop import events as ev
from ddtop.hosts.base import Host
from ddtop.journal.fold.views import CellView
from ddtop.services.base import Launch
from ddtop.sweep.cell.alerts import raise_cell_alert
from ddtop.sweep.cell.ending import MeasureEnd
from ddtop.sweep.cell.outcome import settle_cell
from ddtop.sweep.configuration.ask import ask_about_alert
from ddtop.sweep.configuration.waits import HostWaits
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.limits import SHUTDOWN_S
from ddtop.sweep.shared.plan import OPEN_STATES
from ddtop.sweep.shared.policy import Decision, PastFailure, decide
from ddtop.sweep.shared.requests import Requests


class FailedCells:
    """Settles cells whose measurement ended badly. Remembers the failures of each cell in this run."""

    def __init__(self, ctx: SweepContext, requests: Requests, waits: HostWaits) -> None:
        self.ctx = ctx
        self.requests = requests
        self.waits = waits
        self._past: dict[str, list[PastFailure]] = {}

    async def after_server_failure(self, host: Host, end: MeasureEnd, launch: Launch) -> None:
        """Settles the cell in flight as decided; the other cells are measured after a restart. Raises StopSweepError."""
        ctx, j = self.ctx, end.judgement
        assert j is not None and j.verdict is not None
        await self._check_shutdown(launch)
        cell = ctx.state.cells.get(end.cell_id or "") or self._first_open(launch)
        if cell is None:
            return
        past = self._past.setdefault(cell.id, [])
        decision = decide(ctx.policy, j.verdict, j.kind, j.cause, past, cell.spec.label)
        answer_by = self.requests.answer_by_s(ctx.wall(), ctx.policy.answer_s)
        ident = raise_cell_alert(
            ctx, cell, j, decision, fault_seen_s=end.fault_seen_s, unit=launch.unit, answer_by_s=answer_by
        )
        number = cell.attempts[-1].number if cell.attempts else None
        by = "policy"
        if answer_by is not None:
            if cell.state == "running":
                ctx.emit(ev.CellStateSet, cell_id=cell.id, state="interrupted", reason=j.text, attempt=number)
            decision, by = await self._ask(ident, decision, cell)
        ctx.emit(ev.AlertDecided, alert_id=ident, what=decision.words, by=by)
        past.append(PastFailure(kind=j.kind, cause=j.cause, act=decision.act))
        if cell.state in OPEN_STATES:
            settle_cell(ctx, cell, decision, j.cause, number=number, signature_id=j.signature_id, by=by)
        if decision.act == "stop":
            raise StopSweepError("some-failed", j.text)
        if decision.act == "restage":
            await self.waits.stage(host)
        elif decision.act == "wait-clean":
            await self.waits.wait_clean(host)

    async def before_remeasuring(self, host: Host, end: MeasureEnd) -> None:
        """An invalid result for which the server would be restarted: a viewer may decide otherwise."""
        invalid, ctx = end.invalid, self.ctx
        cell = ctx.state.cells.get(end.cell_id or "")
        if invalid is None or invalid.alert_id is None or invalid.decision is None or cell is None:
            return
        decision, by = invalid.decision, "policy"
        alert = ctx.state.alerts.get(invalid.alert_id)
        if alert is None or not alert.open:
            return
        if alert.raised.answer_by_s is not None:
            decision, by = await self._ask(alert.id, decision, cell)
        ctx.emit(ev.AlertDecided, alert_id=invalid.alert_id, what=decision.words, by=by)
        if by != "policy" and cell.state in OPEN_STATES:
            number = cell.attempts[-1].number if cell.attempts else None
            cause = cell.cause or alert.raised.cause
            settle_cell(ctx, cell, decision, cause, number=number, no_tokens=invalid.no_tokens, by=by)
        if decision.act == "restage":
            await self.waits.stage(host)

    def _first_open(self, launch: Launch) -> CellView | None:
        mine = (c for c in self.ctx.state.plan_cells if c.spec.restart_key == launch.key)
        return next((c for c in mine if c.state in OPEN_STATES), None)

    async def _check_shutdown(self, launch: Launch) -> None:
        """Raises HostLostError where the host is being shut down: a server stopped by that is no failure of the cell.

        A shutdown ends all units within a moment, sshd among them.
        """
        ctx = self.ctx
        u = ctx.feed(launch.unit).reading
        if u is None or not u.gone or u.result not in (None, "success"):
            return
        await ctx.wait_until(lambda: not ctx.connected, SHUTDOWN_S)
        ctx.check_link()

    async def _ask(self, ident: str, policy: Decision, cell: CellView) -> tuple[Decision, str]:
        return await ask_about_alert(
            self.ctx,
            self.requests,
            ident,
            policy,
            lambda command: _meaning(command, policy, cell.spec.label),
            lambda: cell.state not in OPEN_STATES or self.requests.restart_by is not None,
        )


def _meaning(command: ev.AnyCommand, policy: Decision, name: str) -> Decision:
    """What a viewer's command decides about a cell; `policy` where it decides nothing."""
    match command:
        case ev.Retry():
            return Decision(act="retry", words=f"start the server and {name} again")
        case ev.Restage():
            return Decision(act="restage", words=f"re-stage the model, then {name} again")
        case ev.MarkBroken():
            return Decision(act="broken", words=f"{name} is marked broken by {command.viewer}")
        case ev.Skip():
            return Decision(act="skip", words=f"{name} is skipped by {command.viewer}")
    return policy
