"""Measuring: one detached job takes all remaining cells of a configuration; each result is committed as it arrives.

The connection may go meanwhile: the job does not notice, and is watched or collected afterwards. The server is
watched all the while: if it dies under a cell, the cause comes from its log, not from failed requests.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.events import CellProgress, CellSpec, CellStateSet, Generation
from ddtop.hosts.base import Host
from ddtop.journal.fold.views import CellView
from ddtop.services.base import Launch
from ddtop.sweep.cell.accuracy_guard import wanted
from ddtop.sweep.cell.ending import EndWatch, MeasureEnd, Subject
from ddtop.sweep.cell.outcome import (
    Committed,
    attempt_for,
    begin_cell,
    commit,
    generation_of,
    keep_without_verdict,
)
from ddtop.sweep.cell.server_watch import ChunkWatch, ServerLog, has_cut_requests, read_json_file
from ddtop.sweep.shared.context import StopSweepError

TICK_S = 0.25
JOB_SPARE_S = 180.0


class Measurer(EndWatch):
    """See the module."""

    # ---- starting

    async def run(self, host: Host, subject: Subject, cells: Sequence[CellSpec]) -> MeasureEnd:
        """Measures `cells` on the running server by one job."""
        job = self.job_id(subject.launch)
        spec = self.job_spec(subject, cells)
        limit_s = sum(
            float(c.get("time_limit_s", self._bench.time_limit_s)) + JOB_SPARE_S for c in spec["cells"]
        )
        await host.call(
            "job-start",
            job=job,
            kind="loadgen",
            spec=spec,
            limit_s=limit_s,
            env=dict(self._bench.env),
            run=self.ctx.run_id,
            timeout_s=30,
        )
        return await self.watch(host, job, [c.id for c in cells], subject)

    @property
    def _bench(self) -> Any:
        assert self.ctx.sweep is not None
        return self.ctx.sweep.bench

    def job_id(self, launch: Launch) -> str:
        """A name that no earlier job has: it becomes a folder and a unit on the host."""
        config = re.sub(r"[^A-Za-z0-9_.-]+", "_", launch.config)[:40]
        return f"{self.ctx.run_id}-{config}-tp{launch.tp}-{secrets.token_hex(3)}"

    def job_spec(self, subject: Subject, cells: Sequence[CellSpec]) -> dict[str, Any]:
        """The job for the load generator (agent/loadgen)."""
        launch = subject.launch
        defaults = {
            "url": f"http://127.0.0.1:{launch.port}",
            "engine": launch.engine,
            "model": subject.model,
            "server_pids": [subject.main_pid] if subject.main_pid else [],
            **self._bench.defaults,
        }
        loads = {c.id: {**defaults, **self._bench.cells.get(c.id, {})} for c in cells}
        listed = [{**self._bench.cells.get(c.id, {}), **wanted(loads[c.id], c), "id": c.id} for c in cells]
        return {"schema": 1, "run": self.ctx.run_id, "defaults": defaults, "cells": listed}

    # ---- watching

    async def watch(
        self, host: Host, job: str, cell_ids: Sequence[str], subject: Subject | None, *, settle: bool = True
    ) -> MeasureEnd:
        """Follows a job to its end, or to what ends it. `subject` None: the server is not watched (it is unknown).
        `settle`: a cell without a result when the job has ended was interrupted; else that is the caller's to say."""
        known = [
            c.id
            for c in self.ctx.state.cells.values()
            if (a := attempt_for(c, job)) and a.measured_at_s is not None
        ]
        inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        reader = asyncio.create_task(self._read(host, job, known, inbox))
        log = self._listen(subject)
        try:
            return await self._loop(host, job, list(cell_ids), subject, inbox, reader, log, settle)
        finally:
            if subject is not None and log is not None:
                self.ctx.feed(subject.launch.unit).listeners.remove(log.take)
            self.ctx.host_state.chunks = None
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    def _listen(self, subject: Subject | None) -> ServerLog | None:
        if subject is None:
            return None
        log = ServerLog(self.ctx, subject.launch, subject.generation.id)
        self.ctx.feed(subject.launch.unit).listeners.append(log.take)
        return log

    async def _read(
        self, host: Host, job: str, known: list[str], inbox: asyncio.Queue[dict[str, Any]]
    ) -> None:
        async with host.stream("job-watch", job=job, known=known) as batches:
            async for batch in batches:
                for item in batch:
                    inbox.put_nowait(item)
                self.ctx.wake()

    async def _loop(
        self,
        host: Host,
        job: str,
        cell_ids: list[str],
        subject: Subject | None,
        inbox: asyncio.Queue[dict[str, Any]],
        reader: asyncio.Task[None],
        log: ServerLog | None,
        settle: bool,
    ) -> MeasureEnd:
        ctx = self.ctx
        watch = ChunkWatch(ctx.mono())
        ctx.host_state.chunks = watch
        results = 0
        stop_after = False
        while True:
            while not inbox.empty():
                item = inbox.get_nowait()
                if "progress" in item:
                    self._progress(job, item["progress"], subject, cell_ids)
                    watch.take(item["progress"], ctx.mono())
                elif "id" in item and str(item["id"]) not in ctx.state.cells:
                    continue  # how a benchmark of the user's own ended: its state comes next, and who runs it reads the rest
                elif "id" in item:
                    raw = await self._raw(host, item)
                    if subject is not None and has_cut_requests(raw) and await self._gone(host, subject):
                        # Requests that failed because the server died are no verdict on the cell: its death is.
                        return await self._dead(host, job, subject, log, str(item["id"]), results)
                    results += 1
                    if subject is None and has_cut_requests(raw):
                        keep_without_verdict(self.ctx, str(item["id"]), raw, job=job)
                        continue
                    done = self.take_result(job, str(item["id"]), raw, subject)
                    if done is not None and done.restart:
                        await self._stop_job(host, job)
                        if subject is not None and self._died(subject):
                            return await self._dead(host, job, subject, log, str(item["id"]), results)
                        return MeasureEnd(
                            kind="restart", cell_id=str(item["id"]), results=results, useless=done
                        )
                    if stop_after or (done is not None and done.no_tokens and done.state == "broken"):
                        # Where a whole configuration is broken, the job must not go on with its other cells.
                        await self._stop_job(host, job)
                        self.reset_unmeasured(job)
                        return MeasureEnd(kind="replan", results=results)
                elif "state" in item and item["state"].get("state") != "running":
                    if settle:
                        why = item["state"].get("why") or f"the job ended {item['state'].get('state')}"
                        self.interrupted(job, str(why))
                    return MeasureEnd(kind="ended", results=results)
            if reader.done() and inbox.empty():
                reader.result()
                return MeasureEnd(kind="ended", results=results)
            if subject is not None and self._died(subject):
                await asyncio.sleep(
                    0.3
                )  # a unit that passes through a state for a moment, and results under way
                if inbox.empty() and self._died(subject):
                    return await self._dead(host, job, subject, log, None, results)
                continue
            if watch.hung(ctx.mono()):
                return await self._hung(host, job, subject, results)
            noted = ctx.host_state.grave() if subject is not None else None
            if noted is not None and subject is not None:
                return await self._host_fault(host, job, subject, noted, results)
            wish = await self._wishes(host, job, cell_ids)
            if wish is not None:
                if wish == "now":
                    return MeasureEnd(kind="replan", results=results)
                stop_after = True
            await ctx.wait(TICK_S)

    def _progress(
        self, job: str, item: Mapping[str, Any], subject: Subject | None, cell_ids: list[str]
    ) -> None:
        cell = self.ctx.state.cells.get(str(item.get("cell")))
        if cell is None or cell.id not in cell_ids:
            return
        attempt = attempt_for(cell, job)
        if item.get("phase") == "committed" or (attempt is not None and attempt.measured_at_s is not None):
            return
        begin_cell(self.ctx, cell, job, subject.generation if subject else None)
        done, total = item.get("done"), item.get("requests")
        pct = 100.0 * done / total if isinstance(done, int) and isinstance(total, int) and total else None
        self.ctx.emit(CellProgress, cell_id=cell.id, requests_done=done, requests_total=total, pct=pct)

    async def _raw(self, host: Host, item: Mapping[str, Any]) -> dict[str, Any]:
        raw = item.get("result")
        if raw is None and item.get("file"):
            raw = await read_json_file(host, str(item["file"]))
        return raw if isinstance(raw, dict) else {}

    def take_result(
        self, job: str, cell_id: str, raw: dict[str, Any], subject: Subject | None
    ) -> Committed | None:
        """Commits one result of a job."""
        cell = self.ctx.state.cells.get(cell_id)
        attempt = attempt_for(cell, job) if cell else None
        generation = subject.generation if subject else (attempt.generation if attempt else None)
        if generation is None and cell is not None:
            generation = generation_of(self.ctx.state, job, cell.spec.restart_key)
        launch = subject.launch if subject else None
        if launch is None and cell is not None and self.ctx.sweep is not None:
            launch = self.ctx.sweep.launches.get(cell.spec.restart_key)
        known: dict[str, Any] = {}
        if subject is not None and subject.overridden:
            known["arguments_overridden"] = list(subject.overridden)
        return commit(
            self.ctx,
            cell_id,
            raw,
            job=job,
            generation=generation,
            engine=launch.engine if launch else "",
            engine_version=subject.engine_version if subject else self.version_of(generation),
            known=known,
            answer_by_s=self._answer_by_s() if subject is not None else None,
        )

    def _answer_by_s(self) -> float | None:
        ctx = self.ctx
        assert ctx.sweep is not None
        return self.requests.answer_by_s(ctx.wall(), ctx.sweep.policy.answer_s)

    def version_of(self, generation: Generation | None) -> str | None:
        for restart in reversed(self.ctx.state.restarts):
            if (
                restart.generation is not None
                and generation is not None
                and restart.generation.id == generation.id
            ):
                return restart.engine_version
        return None

    # ---- what people want

    async def _wishes(self, host: Host, job: str, cell_ids: list[str]) -> str | None:
        """What people want of the job: None, "now" (it was stopped), or "after" the cell in flight."""
        requests, state = self.requests, self.ctx.state
        if requests.stop is not None:
            await self._stop_job(host, job)
            self.interrupted(job, f"stopped by {requests.stop}")
            raise StopSweepError("stopped", f"stopped by {requests.stop}")
        if requests.restart is not None:
            await self._stop_job(host, job)
            self.interrupted(job, f"the service is restarted for {requests.restart}")
            return "now"
        mine = requests.touched & set(cell_ids)
        if mine:
            requests.touched -= mine
            flight = [i for i in mine if (a := attempt_for(state.cells[i], job)) and a.measured_at_s is None]
            if flight:
                await self._stop_job(host, job)
                return "now"
            return "after"
        return "after" if requests.paused_by is not None or requests.restage else None

    def reset_unmeasured(self, job: str) -> None:
        """The job had begun its next cell before it heard that it should stop: that cell is as if it had not begun."""
        for cell in self._begun(job):
            self.ctx.emit(
                CellStateSet, cell_id=cell.id, state="planned", reason="the job was stopped before it"
            )

    def _begun(self, job: str) -> list[CellView]:
        """Cells that the job had begun and not finished, and no later job has begun."""
        return [
            cell
            for cell in self.ctx.state.cells.values()
            if cell.state == "running"
            and cell.attempts
            and cell.attempts[-1].job == job
            and cell.attempts[-1].measured_at_s is None
        ]

    def interrupted(self, job: str, why: str) -> None:
        """Cells that the job had begun and not finished are interrupted."""
        for cell in self._begun(job):
            attempt = attempt_for(cell, job)
            number = attempt.number if attempt is not None else None
            self.ctx.emit(CellStateSet, cell_id=cell.id, state="interrupted", reason=why, attempt=number)

    # ---- collecting

    async def collect(self, host: Host, job: str, *, alive: bool) -> int:
        """Takes the results of an ended job that the journal lacks. Returns how many there were. `alive`: the server that
        was last ready still runs; if not, requests that were cut off are no verdict on their cells."""
        known = [
            c.id
            for c in self.ctx.state.cells.values()
            if (a := attempt_for(c, job)) and a.measured_at_s is not None
        ]
        count = 0
        while True:
            answer = await host.call("job-collect", job=job, known=known, timeout_s=60)
            for item in answer["results"]:
                known.append(str(item["id"]))
                count += 1
                cell, raw = self.ctx.state.cells.get(str(item["id"])), await self._raw(host, item)
                attempt = attempt_for(cell, job) if cell else None
                if not alive and has_cut_requests(raw):
                    keep_without_verdict(self.ctx, str(item["id"]), raw, job=job)
                elif (
                    cell is None
                    or attempt is None
                    or attempt is cell.attempts[-1]
                    or not has_cut_requests(raw)
                ):
                    self.take_result(job, str(item["id"]), raw, None)
            if not answer.get("more") or not answer["results"]:
                break
        self.interrupted(job, str(answer["job"].get("why") or "its job ended before it"))
        return count
