"""A server that died, hung or gave nothing under a cell: told, asked about where somebody is there, and settled.

The configuration builds on this: what it asks of a start that failed, it asks in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from ddtop import events as ev
from ddtop.hosts.base import Host
from ddtop.journal.fold.views import CellView
from ddtop.services.base import Launch
from ddtop.sweep.cell.ending import MeasureEnd
from ddtop.sweep.cell.outcome import raise_cell_alert, settle_cell
from ddtop.sweep.configuration.waits import Waits
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES
from ddtop.sweep.shared.policy import Decision, PastFailure, decide
from ddtop.sweep.shared.requests import Requests

GOING_DOWN_S = 1.5
"""The units of a host that is shut down end at once, its sshd and sessions among them, but not in the same moment."""


class CellTrouble(Waits):
    """See the module."""

    def __init__(self, ctx: SweepContext, requests: Requests) -> None:
        super().__init__(ctx, requests)
        self._cell_past: dict[str, list[PastFailure]] = {}

    def _open(self, launch: Launch) -> list[ev.CellSpec]:
        return [
            c.spec
            for c in self.ctx.state.plan_cells
            if c.spec.restart_key == launch.key and c.state in OPEN_STATES
        ]

    async def _answer(
        self,
        ident: str,
        policy: Decision,
        meaning: Callable[[ev.AnyCommand], Decision],
        moot: Callable[[], bool],
    ) -> tuple[Decision, str]:
        """What a person decides about an alert, and who; the policy where nobody answers, nobody is there any more, or
        the question is `moot`."""
        ctx, requests = self.ctx, self.requests
        assert ctx.sweep is not None
        until = ctx.mono() + ctx.sweep.policy.answer_s
        requests.asking.add(ident)
        try:
            while True:  # an answer first: whoever gave it may have left in the same moment
                command = requests.answers.pop(ident, None)
                if command is not None:
                    return meaning(command), command.viewer
                if requests.stop is not None:
                    raise StopSweepError("stopped", f"stopped by {requests.stop}")
                if ctx.mono() >= until or not requests.attended or moot():
                    break
                ctx.check_link()
                await ctx.wait(1.0)
        finally:
            requests.asking.discard(ident)
        return policy, "policy"

    async def after_server_failure(self, host: Host, end: MeasureEnd, launch: Launch) -> None:
        """The cell in flight pays for it by policy; the others are measured after a restart."""
        ctx, j = self.ctx, end.judgement
        assert ctx.sweep is not None and j is not None and j.verdict is not None
        await self._unless_host_goes_down(launch)
        cell = ctx.state.cells.get(end.cell_id or "")
        if cell is None:
            open_ids = [c.id for c in self._open(launch)]
            cell = ctx.state.cells.get(open_ids[0]) if open_ids else None
        if cell is None:
            return
        past = self._cell_past.setdefault(cell.id, [])
        decision = decide(ctx.sweep.policy, j.verdict, j.kind, j.cause, past, cell.spec.label)
        answer_by = self.requests.answer_by_s(ctx.wall(), ctx.sweep.policy.answer_s)
        ident = raise_cell_alert(
            ctx,
            cell,
            j.verdict,
            j.cause,
            j.kind,
            j.text,
            j.evidence,
            decision,
            advice=j.advice,
            signature_id=j.signature_id,
            fault_seen_s=end.fault_seen_s,
            unit=launch.unit,
            answer_by_s=answer_by,
        )
        number = cell.attempts[-1].number if cell.attempts else None
        by = "policy"
        if answer_by is not None:
            if cell.state == "running":
                ctx.emit(ev.CellStateSet, cell_id=cell.id, state="interrupted", reason=j.text, attempt=number)
            decision, by = await self._ask_about(ident, decision, cell)
        ctx.emit(ev.AlertDecided, alert_id=ident, what=decision.words, by=by)
        past.append(PastFailure(kind=j.kind, cause=j.cause, act=decision.act))
        if cell.state in OPEN_STATES:
            settle_cell(ctx, cell, decision, j.cause, number=number, signature_id=j.signature_id, by=by)
        if decision.act == "stop":
            raise StopSweepError("some-failed", j.text)
        if decision.act == "restage":
            await self.stage(host)
        elif decision.act == "wait-clean":
            await self.wait_clean(host)

    async def _unless_host_goes_down(self, launch: Launch) -> None:
        """A server that was told to stop, and then the connection goes too: that is a reboot, and no fault of the cell.
        Raises HostLostError."""
        ctx = self.ctx
        u = ctx.feed(launch.unit).reading
        if u is None or not u.gone or u.result not in (None, "success"):
            return
        await ctx.wait_until(lambda: not ctx.linked, GOING_DOWN_S)
        ctx.check_link()

    async def _ask_about(self, ident: str, policy: Decision, cell: CellView) -> tuple[Decision, str]:
        return await self._answer(
            ident,
            policy,
            lambda command: _cell_meaning(command, policy, cell),
            lambda: cell.state not in OPEN_STATES or self.requests.restart is not None,
        )

    async def before_remeasuring(self, host: Host, end: MeasureEnd) -> None:
        """A result that cannot count, for which the server would be restarted: whoever is there may say otherwise."""
        useless, ctx = end.useless, self.ctx
        cell = ctx.state.cells.get(end.cell_id or "")
        if useless is None or useless.alert_id is None or useless.decision is None or cell is None:
            return
        decision, by = useless.decision, "policy"
        alert = ctx.state.alerts.get(useless.alert_id)
        if alert is None or not alert.open:
            return
        if alert.raised.answer_by_s is not None:
            decision, by = await self._ask_about(alert.id, decision, cell)
        ctx.emit(ev.AlertDecided, alert_id=useless.alert_id, what=decision.words, by=by)
        if by != "policy" and cell.state in OPEN_STATES:
            number = cell.attempts[-1].number if cell.attempts else None
            settle_cell(
                ctx,
                cell,
                decision,
                cell.cause or alert.raised.cause,
                number=number,
                no_tokens=useless.no_tokens,
                by=by,
            )
        if decision.act == "restage":
            await self.stage(host)


def _cell_meaning(command: ev.AnyCommand, policy: Decision, cell: CellView) -> Decision:
    name = cell.spec.label
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
