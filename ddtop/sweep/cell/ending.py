"""What ends a measurement: the server died, hangs, or the host has a fault; the cause is read, never guessed.

The measurer builds on this.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from ddtop.errors import AgentError
from ddtop.events import Evidence, Generation
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.sweep.cell.outcome import Committed
from ddtop.sweep.cell.server_watch import HUNG_S, ServerLog
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.host_state import FAULT_LOOKBACK_S, FaultRecord
from ddtop.sweep.shared.log_lines import drain_log
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.shared.verdict import CauseReading, Judgement
from ddtop.sweep.start.watchdog import exit_slug, exit_words
from ddtop.sweep.tell.alerts import fault_judgement

KERNEL_S = 0.7
GONE_S = 0.5

EndKind = Literal["ended", "restart", "dead", "replan"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureEnd:
    """Why measuring ended: the job is over, the server must be restarted, it died, or a person changed something."""

    kind: EndKind
    judgement: Judgement | None = None
    cell_id: str | None = None
    fault_seen_s: float | None = None
    results: int = 0
    useless: Committed | None = None
    """The result for which the server is restarted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The server that is measured."""

    launch: Launch
    generation: Generation
    engine_version: str | None = None
    model: str = ""
    main_pid: int | None = None
    overridden: tuple[str, ...] = ()


class EndWatch:
    """See the module."""

    def __init__(self, ctx: SweepContext, requests: Requests) -> None:
        self.ctx = ctx
        self.requests = requests

    def _died(self, subject: Subject) -> bool:
        """Whether the server is no longer the one that is measured."""
        u = self.ctx.feed(subject.launch.unit).reading
        if u is None or u.active is None:
            return False
        return u.gone or (u.generation is not None and u.generation != subject.generation.id)

    async def _dead(
        self, host: Host, job: str, subject: Subject, log: ServerLog | None, cell_id: str | None, results: int
    ) -> MeasureEnd:
        """The server died: results that are there are kept, and the cause is read from its log."""
        ctx, feed = self.ctx, self.ctx.feed(subject.launch.unit)
        await self._stop_job(host, job)
        await drain_log(ctx, host, feed)
        ctx.take_reading(await feed.service.read(host))
        u = feed.reading
        why = Evidence(
            source="systemctl",
            text=f"{u.active}/{u.sub}, Result={u.result}, {u.exit_code or 'no exit code'}" if u else "?",
        )
        found: CauseReading | None = log.cause() if log is not None else None
        unit = subject.launch.unit
        if found is not None and found.fatal:
            j = Judgement(
                verdict="failed",
                cause=found.slug,
                kind=found.kind,
                advice=found.advice,
                signature_id=found.signature_id,
                text=f"{unit} died while it was measured: {found.text}",
                evidence=(*found.evidence, why),
            )
        else:
            slug = exit_slug(u) if u else "process-exited"
            words = exit_words(u) if u and u.gone else "was restarted by somebody else"
            j = Judgement(
                verdict="failed",
                cause=slug,
                kind="bug",
                text=f"{unit} {words} while it was measured",
                evidence=(why,),
            )
        # The kernel's line may come half a second after the death it explains, and explains it best.
        if "journal" in host.hello.can:
            await ctx.wait_until(
                lambda: ctx.host_state.behind(ctx.mono() - FAULT_LOOKBACK_S) is not None, KERNEL_S
            )
        noted = ctx.host_state.behind(ctx.mono() - FAULT_LOOKBACK_S)
        if noted is not None:
            noted.told = True
            j = fault_judgement(noted.fault, unit, "died while it was measured", j.evidence)
        seen = ctx.since_fault_s(u.changed_mono_s) if u else None
        flight = cell_id or next((c.id for c in ctx.state.cells.values() if c.state == "running"), None)
        return MeasureEnd(kind="dead", judgement=j, cell_id=flight, fault_seen_s=seen, results=results)

    async def _host_fault(
        self, host: Host, job: str, subject: Subject, noted: FaultRecord, results: int
    ) -> MeasureEnd:
        """The kernel or the driver says that nothing measured here counts until somebody has looked."""
        noted.told = True
        await self._stop_job(host, job)
        flight = next((c.id for c in self.ctx.state.cells.values() if c.state == "running"), None)
        j = fault_judgement(noted.fault, subject.launch.unit, "was stopped while it was measured")
        return MeasureEnd(kind="dead", judgement=j, cell_id=noted.cell_id or flight, results=results)

    async def _hung(self, host: Host, job: str, subject: Subject | None, results: int) -> MeasureEnd:
        flight = next((c.id for c in self.ctx.state.cells.values() if c.state == "running"), None)
        await self._stop_job(host, job)
        unit = subject.launch.unit if subject else "the server"
        j = Judgement(
            verdict="stalled",
            cause="engine-hung-zero-throughput",
            kind="bug",
            text=f"{unit} has given no token for {HUNG_S:.0f} s while requests run",
            evidence=(Evidence(source="job", text=f"{job}: no chunk for {HUNG_S:.0f} s"),),
            advice="restart once; a second time means it is broken",
        )
        return MeasureEnd(kind="dead", judgement=j, cell_id=flight, results=results)

    async def _gone(self, host: Host, subject: Subject) -> bool:
        """Whether the server has died; asked of the host, which may know a moment later than its clients."""
        for pause_s in (0.0, GONE_S):
            await asyncio.sleep(pause_s)
            self.ctx.take_reading(await self.ctx.feed(subject.launch.unit).service.read(host))
            if self._died(subject):
                return True
        return False

    async def _stop_job(self, host: Host, job: str) -> None:
        try:
            await host.call("job-stop", job=job, timeout_s=60)
        except AgentError as error:
            self.ctx.note("warn", f"job {job} could not be stopped: {error.what}")
