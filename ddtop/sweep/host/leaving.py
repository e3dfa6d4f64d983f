"""Leaving the host: a step like others. A cut or a reboot is waited out, and what could not be undone is said.

The wait is that of `[policy] host_lost_wait_min`. A run that ends before its host is put back ends as `host-lost`: the
next `ddtop connect` or `ddtop stop` goes on with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ddtop.errors import AgentError, HostError, HostLostError
from ddtop.events import CellStateSet, HostRebooted
from ddtop.hosts.base import Host
from ddtop.sweep.host.lease import HostLease
from ddtop.sweep.host.link import Link
from ddtop.sweep.recovery.restore import original_states, restore_all, stop_jobs
from ddtop.sweep.shared.context import Outcome, SweepContext
from ddtop.sweep.shared.limits import LEAVE_S
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.tell.lease_words import person


class Leaving:
    """Puts the host back as it was before the run, and gives it back. The link must run beside it."""

    def __init__(self, ctx: SweepContext, link: Link, requests: Requests, lease: HostLease) -> None:
        self.ctx = ctx
        self.link = link
        self.requests = requests
        self.lease = lease
        self.host_goes = False
        """The host is an allocation that is given back: all that runs on it ends with it."""

    async def leave(self, outcome: Outcome, *, by: str = "automatic") -> Outcome:
        """The outcome with what could not be undone. `by`: who put the host back, as its steps name it.

        A host that another run has by now is not touched.
        """
        left = await self._put_back(outcome, by)
        await self.lease.release()
        if left.word != "host-lost":  # else its job may go on, and is waited for by the next runner
            for cell in [c for c in self.ctx.state.plan_cells if c.state == "running"]:
                number, why = (
                    cell.attempts[-1].number if cell.attempts else None,
                    left.reason or "the run ended",
                )
                self.ctx.emit(
                    CellStateSet, cell_id=cell.id, state="interrupted", reason=why, attempt=number, by=by
                )
        return left

    async def _put_back(self, outcome: Outcome, by: str) -> Outcome:
        ctx = self.ctx
        touched = not self.requests.leave_running and bool(original_states(ctx.state))
        if not touched and not any(c.state == "running" for c in ctx.state.plan_cells):
            return outcome
        if self.lease.denied is not None:
            return self._denied(outcome) if touched else outcome
        wait_s = 0.0 if outcome.word == "host-lost" else 60.0 * ctx.policy.host_lost_wait_min
        began = ctx.mono()
        while True:
            if self.host_goes and self.link.host is None:
                return outcome
            host = await self._host(began, wait_s)
            if host is None:
                return self._lost(outcome) if touched else self._load_left(outcome)
            self._say_rebooted(host)
            try:
                if not await self.lease.renew(host):
                    return self._denied(outcome)
                async with asyncio.timeout(LEAVE_S):
                    left = await (restore_all(ctx, host, by=by) if touched else stop_jobs(ctx, host))
                return replace(outcome, left_behind=tuple(left))
            except HostLostError:
                ctx.note(
                    "warn",
                    f"lost while {ctx.host_name} was put back: that is gone on with once it is reached",
                )
                began = ctx.mono()
                await asyncio.sleep(0.05)  # the link notices in the same moment
            except (AgentError, TimeoutError) as error:
                return replace(outcome, left_behind=(self._words(error),))

    def _load_left(self, outcome: Outcome) -> Outcome:
        words = f"a load of this run may go on on {self.ctx.host_name}, which is not reached: it ends by its own limit"
        return replace(outcome, left_behind=(words,))

    def _denied(self, outcome: Outcome) -> Outcome:
        who = person(self.lease.denied or {})
        units = ", ".join(original_states(self.ctx.state))
        words = f"{units} on {self.ctx.host_name} was not put back: {who} has the host now"
        return replace(outcome, left_behind=(words,))

    async def _host(self, began: float, wait_s: float) -> Host | None:
        """The host, waited for; None where it is given up."""
        ctx, link = self.ctx, self.link
        while link.host is None:
            since = link.lost_since if link.lost_since is not None else began
            if ctx.mono() - max(since, began) >= wait_s or link.has_given_up(
                self.requests.attended, ctx.policy.answer_s
            ):
                return None
            await ctx.wait(0.5)
        return link.host

    def _say_rebooted(self, host: Host) -> None:
        if self.link.rebooted is None:
            return
        before, now = self.link.rebooted
        self.link.rebooted = None
        what = ("the overrides of the run are gone", "its units are put back as they were before the run")
        self.ctx.emit(HostRebooted, boot_before=before, boot_now=now, consequences=what)

    def _lost(self, outcome: Outcome) -> Outcome:
        """The host is not as it was found: that is `host-lost`, whatever became of the cells."""
        final = self.link.final
        why = final.what if final is not None else "not reachable"
        if outcome.word == "host-lost":
            return replace(outcome, left_behind=(self._words(final or HostLostError(why)),))
        ended = outcome.reason or {"done": "all cells are measured", "some-failed": "no cell is left"}.get(
            outcome.word, outcome.word
        )
        return Outcome(
            word="host-lost",
            reason=f"{ended}; then {self.ctx.host_name} was lost before it was put back ({why})",
            left_behind=(self._words(final or HostLostError(why)),),
        )

    def _words(self, error: Exception) -> str:
        ctx = self.ctx
        units = ", ".join(original_states(ctx.state))
        what = error.what if isinstance(error, HostError) else f"it took longer than {LEAVE_S:.0f} s"
        return (
            f"{units} on {ctx.host_name} could not be put back ({what}): run `ddtop stop {ctx.run_id}`, or resume the run,"
            " once the host is reached again"
        )
