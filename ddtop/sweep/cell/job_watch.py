"""One job, watched to its end or to what ends it: each result is committed as it arrives, the server is watched too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ddtop.bench.figures.live import progress_fields
from ddtop.events import CellProgress
from ddtop.hosts.base import Host
from ddtop.sweep.cell.attempts import (
    attempt_for,
    begin_cell,
    cells_with_result,
    has_result,
    in_flight,
    interrupt_begun,
    return_begun,
)
from ddtop.sweep.cell.ending import (
    MeasureEnd,
    Subject,
    hang_judgement,
    is_gone,
    is_gone_now,
    why_failed,
)
from ddtop.sweep.cell.life.server_watch import ChunkWatch, ServerLog, Size
from ddtop.sweep.cell.life.signs import LifeWatch
from ddtop.sweep.cell.life.silence import Life, Silence, Silences, is_hung
from ddtop.sweep.cell.outcome import keep_without_verdict
from ddtop.sweep.cell.results import (
    has_cut_requests,
    has_dying_requests,
    read_result,
    stop_job,
    take_result,
)
from ddtop.sweep.cell.server_figures import follow_figures
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.kernel_faults import FaultRecord
from ddtop.sweep.shared.limits import ASK_AFTER_S, DYING_S
from ddtop.sweep.shared.log_lines import drain_log
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.shared.verdict import Judgement
from ddtop.sweep.tell.alerts import HOST_FAULT, fault_judgement

TICK_S = 0.25
CONFIRM_S = 0.3
"""A unit may pass through a state for a moment, and results may be under way."""


class JobWatch:
    """Follows one job. `subject` None: the server is not watched, for it is unknown.

    `settle`: a cell without a result when the job ends is interrupted; else that is left to the caller. `silences`: of
    this configuration so far; `size`: tokens of a cell's prompts.
    """

    def __init__(
        self,
        ctx: SweepContext,
        requests: Requests,
        host: Host,
        job: str,
        cell_ids: Sequence[str],
        subject: Subject | None,
        *,
        settle: bool = True,
        silences: Silences | None = None,
        size: Size | None = None,
    ) -> None:
        self.ctx = ctx
        self.requests = requests
        self.host = host
        self.job = job
        self.cell_ids = frozenset(cell_ids)
        self.subject = subject
        self._settle = settle
        self._results = 0
        self._stop_after_cell = False
        self._recorded: dict[str, Any] = {}
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._chunks = ChunkWatch(ctx.mono(), silences, size)
        self._life: LifeWatch | None = None
        if subject is not None:
            self._life = LifeWatch(ctx, host, subject.launch, subject.generation.main_pid, self._chunks)
        self._log = ServerLog(ctx, subject.launch, subject.generation.id) if subject is not None else None

    async def run(self) -> MeasureEnd:
        """Raises StopSweepError, HostLostError, AgentError."""
        ctx = self.ctx
        known = cells_with_result(ctx.state, self.job)
        reader = asyncio.create_task(self._read(known))
        listeners = ctx.feed(self.subject.launch.unit).listeners if self.subject is not None else []
        if self._log is not None:
            listeners.append(self._log.take)
        ctx.gpu_watch.chunks = self._chunks
        beside = [] if self._life is None else [asyncio.create_task(self._life.run())]
        if self.subject is not None:
            beside.append(asyncio.create_task(follow_figures(ctx, self.host, self.subject.launch)))
        try:
            return await self._follow(reader)
        finally:
            if self._log is not None:
                listeners.remove(self._log.take)
            ctx.gpu_watch.chunks = None
            for task in (reader, *beside):
                task.cancel()
            await asyncio.gather(reader, *beside, return_exceptions=True)

    async def _read(self, known: list[str]) -> None:
        async with self.host.stream("job-watch", job=self.job, known=known) as batches:
            async for batch in batches:
                for item in batch:
                    self._inbox.put_nowait(item)
                self.ctx.wake()

    async def _follow(self, reader: asyncio.Task[None]) -> MeasureEnd:
        while True:
            while not self._inbox.empty():
                end = await self._take(self._inbox.get_nowait())
                if end is not None:
                    return end
            if reader.done() and self._inbox.empty():
                reader.result()
                return MeasureEnd(kind="ended", results=self._results)
            if self._server_gone():
                await asyncio.sleep(CONFIRM_S)
                if self._inbox.empty() and self._server_gone():
                    return await self._server_failed(None)
                continue
            end = await self._look_around()
            if end is not None:
                return end
            await self.ctx.wait(TICK_S)

    async def _look_around(self) -> MeasureEnd | None:
        """What ends the measurement although the job and the server run: a hang, a fault of the host, a viewer."""
        now = self.ctx.mono()
        silence = self._chunks.silence(self._life.life(now) if self._life is not None else Life(), now)
        if silence is not None and is_hung(silence):
            return await self._hung(silence)
        if silence is not None and silence.quiet_s >= ASK_AFTER_S and self._log_names_its_end():
            return await self._server_failed(None)
        record = self.ctx.faults.unreported_grave() if self.subject is not None else None
        if record is not None and self.subject is not None:
            return await self._host_fault(record, self.subject)
        asked = await self._asked_to_stop()
        if asked == "now":
            return MeasureEnd(kind="replan", results=self._results)
        self._stop_after_cell = self._stop_after_cell or asked == "after-cell"
        return None

    # ---- what the job sends

    async def _take(self, item: dict[str, Any]) -> MeasureEnd | None:
        """One item of the job's stream; what it means for the measurement, None where it goes on."""
        if "progress" in item:
            self._progress(item["progress"])
            self._chunks.take(item["progress"], self.ctx.mono())
        elif "id" in item:
            # An id that is no cell's: how an external benchmark ended. Its state comes next; its runner reads the rest.
            return await self._result(item) if str(item["id"]) in self.ctx.state.cells else None
        elif "state" in item and item["state"].get("state") != "running":
            if self._settle:
                why = item["state"].get("why") or f"the job ended {item['state'].get('state')}"
                interrupt_begun(self.ctx, self.job, str(why))
            return MeasureEnd(kind="ended", results=self._results)
        return None

    def _progress(self, item: Mapping[str, Any]) -> None:
        cell = self.ctx.state.cells.get(str(item.get("cell")))
        if cell is None or cell.id not in self.cell_ids:
            return
        if item.get("phase") == "committed" or has_result(cell, self.job):
            return
        begin_cell(self.ctx, cell, self.job, self.subject.generation if self.subject else None)
        fields = progress_fields(item)
        if cell.spec.search is not None:
            # a load ends when it is decided: how many requests that takes is unknown
            fields |= {"requests_total": None, "pct": None}
        known = self._recorded if self._recorded.get("of") == (cell.id, fields["phase"]) else {}
        self._recorded = {"of": (cell.id, fields["phase"]), **fields}
        for name in ("ttft", "tpot"):
            if fields.get(name) == known.get(name):  # the same bins need not be recorded again
                fields.pop(name, None)
        self.ctx.emit(CellProgress, cell_id=cell.id, **fields)

    async def _result(self, item: Mapping[str, Any]) -> MeasureEnd | None:
        ctx, cell_id, subject = self.ctx, str(item["id"]), self.subject
        raw = await read_result(self.host, item)
        if subject is not None and has_dying_requests(raw) and await self._is_dying(subject):
            # Requests that failed because the server died are no verdict on the cell: the server's failure is.
            return await self._server_failed(cell_id)
        self._results += 1
        if subject is None and has_cut_requests(raw):
            keep_without_verdict(ctx, cell_id, raw, job=self.job)
            return None
        answer_by = (
            self.requests.answer_by_s(ctx.wall(), ctx.policy.answer_s) if subject is not None else None
        )
        done = take_result(ctx, self.job, cell_id, raw, subject, answer_by_s=answer_by)
        if done is not None and done.restart:
            await stop_job(ctx, self.host, self.job)
            if self._server_gone():
                return await self._server_failed(cell_id)
            return MeasureEnd(kind="restart", cell_id=cell_id, results=self._results, invalid=done)
        if self._stop_after_cell or (done is not None and done.no_tokens and done.state == "broken"):
            # Where a whole configuration is broken, its other cells are not measured.
            await stop_job(ctx, self.host, self.job)
            return_begun(ctx, self.job)
            return MeasureEnd(kind="replan", results=self._results)
        return None

    # ---- what ends it

    def _log_names_its_end(self) -> bool:
        """Whether the log names a fatal cause, though the process may still live: an engine dies before its server."""
        return self._log is not None and self._log.names_its_end()

    async def _is_dying(self, subject: Subject) -> bool:
        """Whether a server under which requests failed is gone, or will be: its manager stops it, or its log says so before
        its process ends."""
        if await is_gone_now(self.ctx, self.host, subject):
            return True
        reading = self.ctx.feed(subject.launch.unit).reading
        if reading is not None and reading.active == "deactivating":
            await self.ctx.wait_until(self._server_gone, DYING_S)
            return True
        await drain_log(self.ctx, self.host, self.ctx.feed(subject.launch.unit))
        if not self._log_names_its_end():
            return False
        if self._life is not None:
            await self._life.look()
        await self.ctx.wait_until(self._server_gone, DYING_S)
        return True

    def _server_gone(self) -> bool:
        return self.subject is not None and is_gone(self.ctx, self.subject)

    async def _server_failed(self, cell_id: str | None) -> MeasureEnd:
        """The server is gone: results that are there are kept, and the cause is read from its log."""
        ctx, subject, log = self.ctx, self.subject, self._log
        assert subject is not None and log is not None
        await stop_job(ctx, self.host, self.job)
        if self._life is not None:
            await self._life.look()
        ended = self._life.ended_first if self._life is not None else ()
        await drain_log(ctx, self.host, ctx.feed(subject.launch.unit))
        ended = tuple(replace(one, spoke=log.spoke(one.pid)) for one in ended)
        judgement, seen_s = await why_failed(ctx, self.host, subject, log, ended)
        return self._failed(judgement, cell_id, seen_s)

    async def _host_fault(self, record: FaultRecord, subject: Subject) -> MeasureEnd:
        """The kernel or the driver reports a fault after which nothing measured here counts."""
        record.reported = True
        await stop_job(self.ctx, self.host, self.job)
        unit = subject.launch.unit
        judgement = fault_judgement(record.fault, unit, "was stopped while it was measured")
        return self._failed(replace(judgement, title=HOST_FAULT), record.cell_id)

    async def _hung(self, silence: Silence) -> MeasureEnd:
        flight = in_flight(self.ctx.state)
        await stop_job(self.ctx, self.host, self.job)
        unit = self.subject.launch.unit if self.subject else "the server"
        return self._failed(hang_judgement(unit, self.job, silence, self._chunks.open), flight)

    def _failed(self, judgement: Judgement, cell_id: str | None, seen_s: float | None = None) -> MeasureEnd:
        return MeasureEnd(
            kind="server-failed",
            judgement=judgement,
            cell_id=cell_id or in_flight(self.ctx.state),
            fault_seen_s=seen_s,
            results=self._results,
        )

    # ---- what viewers ask

    async def _asked_to_stop(self) -> Literal["now", "after-cell"] | None:
        """Whether viewers want the job stopped: `now` (it is), after the cell in flight, or not. Raises StopSweepError."""
        requests, ctx = self.requests, self.ctx
        if requests.stopped_by is not None:
            await self._interrupt(requests.stop_reason)
            raise StopSweepError("stopped", requests.stop_reason)
        if requests.restart_by is not None:
            await self._interrupt(f"the service is restarted for {requests.restart_by}")
            return "now"
        changed = requests.take_changed(self.cell_ids)
        if changed:
            attempts = [attempt_for(ctx.state.cells[i], self.job) for i in changed]
            if any(a is not None and a.measured_at_s is None for a in attempts):
                await stop_job(ctx, self.host, self.job)
                return "now"
            return "after-cell"
        return "after-cell" if requests.paused_by is not None or requests.restage else None

    async def _interrupt(self, why: str) -> None:
        await stop_job(self.ctx, self.host, self.job)
        interrupt_begun(self.ctx, self.job, why)
