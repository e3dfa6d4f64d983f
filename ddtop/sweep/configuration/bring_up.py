"""Bringing up one configuration's server: started until it is ready, or given up after its failures are decided on.

The controller asks `ensure` for a running server of a launch. It gets a subject to measure, or None where the
configuration was given up (its cells are then failed, broken or skipped) or a viewer wants something else first.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddtop import events as ev
from ddtop.hosts.base import Host
from ddtop.journal.fold.views import RestartView
from ddtop.journal.read.select import key_of
from ddtop.services.base import Launch
from ddtop.sweep.cell.ending import Subject
from ddtop.sweep.configuration.failed_start import FailedStarts
from ddtop.sweep.configuration.provenance import record_provenance
from ddtop.sweep.configuration.selftest import self_test_once
from ddtop.sweep.configuration.waits import HostWaits
from ddtop.sweep.recovery.reconcile import start_under_way
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.plan import OPEN_STATES
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.start.restart import Restarter
from ddtop.sweep.start.result import Cancelled, Started


class ConfigurationRunner:
    """Starts servers. `failed_starts` decides what follows a start that failed."""

    def __init__(self, ctx: SweepContext, requests: Requests, waits: HostWaits) -> None:
        self.ctx = ctx
        self.requests = requests
        self.failed_starts = FailedStarts(ctx, requests, waits, self._cancelled)
        self.restarter = Restarter(ctx, self._cancelled, self.failed_starts.waited_from)

    async def ensure(self, host: Host, launch: Launch, cells: Sequence[ev.CellSpec]) -> Subject | None:
        """A server of `launch` that passed the gate; None where there is none now. Raises StopSweepError."""
        attach = self._under_way(launch)
        while True:
            result = await self.restarter.run(host, launch, cells, attach=attach)
            if isinstance(result, Cancelled):
                return None
            if isinstance(result, Started):
                self._note_new_version(launch, result)
                self.failed_starts.forget(launch)
                await record_provenance(self.ctx, host, launch, result)
                await self_test_once(self.ctx, host)
                return Subject(
                    launch=launch,
                    generation=result.generation,
                    engine_version=result.engine_version,
                    model=result.model,
                    main_pid=result.main_pid,
                    overridden=result.overridden,
                )
            how_next = await self.failed_starts.decide(host, launch, result)
            if how_next == "give-up":
                return None
            attach = self.ctx.state.restart if how_next == "wait" else None

    def _note_new_version(self, launch: Launch, started: Started) -> None:
        """Says where earlier results are from another engine build; cells broken with that build are planned again."""
        now, program = started.engine_version, launch.argv[:1]
        if now is None or self.ctx.sweep is None:
            return
        launches = self.ctx.sweep.launches.values()
        same = {x.key for x in launches if x.unit == launch.unit and x.argv[:1] == program}
        cells = [
            c
            for c in self.ctx.state.plan_cells
            if c.spec.restart_key in same and c.engine_version not in (None, now)
        ]
        old = sorted({str(c.engine_version) for c in cells if c.state == "done"})
        if old:
            self.ctx.note(
                "warn",
                f"{launch.unit} is {launch.engine} {now} now; earlier results of this run are from {', '.join(old)}",
            )
        for cell in cells:
            if cell.state == "broken":
                self.ctx.emit(
                    ev.CellStateSet,
                    cell_id=cell.id,
                    state="planned",
                    by="sweep",
                    reason=f"it was broken with {launch.engine} {cell.engine_version}; this is {now}",
                )

    def _under_way(self, launch: Launch) -> RestartView | None:
        """A start of `launch` that an earlier connection or runner began and that still runs."""
        ctx = self.ctx
        if ctx.sweep is None or ctx.feed(launch.unit).reading is None:
            return None
        last = start_under_way(ctx.state, ctx.state.probe, ctx.sweep)
        return last if last is not None and key_of(ctx.state, last.cell_ids) == launch.key else None

    def _cancelled(self, launch: Launch) -> bool:
        """Whether a viewer wants something else than a start of `launch`: a stop, a new start, none of its cells."""
        if self.requests.stopped_by is not None or self.requests.restart_by is not None:
            return True
        mine = [c for c in self.ctx.state.plan_cells if c.spec.restart_key == launch.key]
        return bool(mine) and not any(c.state in OPEN_STATES for c in mine)
