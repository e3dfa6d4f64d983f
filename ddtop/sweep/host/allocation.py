"""The Slurm allocation of a sweep: what is said of it, what may begin in what is left of it, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ddtop.errors import HostLostError
from ddtop.events import AllocationSeen, CellSpec, CellStateSet
from ddtop.hosts.allocation import Allocation, ended_words
from ddtop.journal.act.allocation import rest
from ddtop.plan.model import SlurmSettings
from ddtop.sweep.host.walltime import fit
from ddtop.sweep.shared.context import Outcome, StopSweepError, SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES

LOOK_S = 15.0
"""Between two looks at an allocation that runs."""
SHIFT_S = 45.0
"""An end or an estimate that moves by less is not recorded again."""
GONE_S = 60.0
"""For the connection to end after the allocation was given back."""


class Allocating(Protocol):
    """What hosts/slurm.py gives."""

    wanted: SlurmSettings
    seen: Callable[[Allocation], None]
    last: Allocation | None
    may_ask: bool
    requeue: bool

    async def look(self) -> Allocation | None: ...

    async def give_up(self) -> None: ...

    async def release(self, *, forget: bool = False) -> str: ...


class AllocationKeeper:
    """One run's allocation. `waits`: it is queued."""

    def __init__(self, ctx: SweepContext, connector: Allocating) -> None:
        self.ctx = ctx
        self.connector = connector
        connector.seen = self._seen
        connector.requeue = ctx.policy.allocation != "stop"
        self._given_back: set[str] = set()
        before = ctx.state.allocation
        if before is not None:  # of an earlier runner
            connector.last = Allocation(job=before.seen.job, state=before.seen.state)

    @property
    def waits(self) -> bool:
        now = self.ctx.state.allocation
        return now is not None and now.waits

    def no_more(self) -> None:
        """From now on none is asked for: the run ends."""
        self.connector.may_ask = False

    async def keep(self) -> None:
        """Follows the allocation while it runs: its end may be moved, and preemption announced."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.connector.look()

    def _seen(self, found: Allocation) -> None:
        ctx, before = self.ctx, self.ctx.state.allocation
        now = ctx.wall()
        start = now + found.start_in_s if found.start_in_s is not None else None
        end = now + found.left_s if found.left_s is not None else None
        if before is not None and before.seen.job == found.job:
            old = before.seen
            same = (old.state, old.nodes) == (found.state, found.nodes) and (
                not found.live or old.reason == found.reason
            )
            if same and not _moved(old.start_estimate, start) and not _moved(old.ends_at, end):
                return
        ctx.emit(
            AllocationSeen,
            job=found.job,
            state=found.state,
            reason=found.reason if found.live else self._ended_words(found),
            start_estimate=start,
            nodes=found.nodes,
            ends_at=end,
            account=found.account,
            partition=found.partition,
            gpus=self.connector.wanted.gpus_in_all or None,
        )
        ctx.wake()

    def _ended_words(self, found: Allocation) -> str:
        if found.state.startswith("CANCELLED") and found.job in self._given_back:
            return f"allocation {found.job} was given back"
        return ended_words(found)

    # ---- what may begin

    async def fitting(self, cells: Sequence[CellSpec], *, ready: bool) -> list[CellSpec]:
        """Those of `cells` that can end before the allocation does; empty where the first was failed instead.

        Raises HostLostError once the allocation was given back for another one, StopSweepError where there may be none.
        """
        ctx, now = self.ctx, self.ctx.state.allocation
        if now is None or now.ended:
            return list(cells)
        left_s = now.seen.ends_at - ctx.wall() if now.seen.ends_at is not None else None
        began = now.began_at_s or 0.0
        fresh = not any(
            a.measured_at_s is not None and a.measured_at_s > began
            for c in ctx.state.cells.values()
            for a in c.attempts
        )
        found = fit(ctx.state, cells, ready=ready, left_s=left_s, fresh=fresh)
        if found.act == "begin":
            return list(found.cells)
        words = f"the next cell may take {rest(found.need_s)} with its start, and allocation {now.seen.job} ends in {rest(left_s or 0.0)}"
        if found.act == "fail":
            ctx.emit(
                CellStateSet,
                cell_id=cells[0].id,
                state="failed",
                cause="allocation-too-short",
                by="policy",
                reason=f"{words}: ask for more time in [slurm]",
            )
            return []
        if not self.connector.requeue:
            raise StopSweepError("interrupted", f'{words}; [policy] allocation is "stop"')
        ctx.note("info", f"{words}: it is given back, and another one is asked for")
        self._given_back.add(now.seen.job)
        await self.connector.give_up()
        await ctx.wait_until(lambda: not ctx.connected, GONE_S)
        raise HostLostError("the allocation was given back", host=ctx.host_name)

    # ---- the end

    async def end(self, outcome: Outcome, *, keep: bool = False) -> Outcome:
        """Cancels the allocation, with what could not be undone in the outcome. `keep`: it is left with what runs in it."""
        now, ctx = self.ctx.state.allocation, self.ctx
        self.no_more()
        if keep and now is not None and not now.ended:
            words = f"Slurm job {now.seen.job} goes on: `ddtop stop {ctx.run_id}` cancels it"
            return replace(outcome, left_behind=(*outcome.left_behind, words))
        if now is not None and not now.ended:
            self._given_back.add(now.seen.job)
        open_cells = any(c.state in OPEN_STATES for c in ctx.state.plan_cells)
        why = await self.connector.release(forget=not open_cells)
        if not why or (now is None and outcome.word == "host-lost"):
            return outcome
        name = f"Slurm job {now.seen.job}" if now is not None else "the Slurm job, if there is one,"
        words = f"{name} could not be cancelled ({why}): run `ddtop stop {ctx.run_id}`, or scancel"
        return replace(outcome, left_behind=(*outcome.left_behind, words))


def _moved(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return (old is None) != (new is None)
    return abs(old - new) > SHIFT_S


def keeper_for(ctx: SweepContext, connector: Any) -> AllocationKeeper | None:
    """The keeper of a connector that asks for allocations; None for every other host."""
    return AllocationKeeper(ctx, connector) if hasattr(connector, "release") else None
