"""Measuring with ddtop's load generator: one detached job takes all remaining cells of a configuration.

The job does not notice a lost connection: it is watched again, or its results are collected, afterwards.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ddtop.agent.loadgen.records import pack_value
from ddtop.bench.search import next_point, point_load
from ddtop.errors import AgentError
from ddtop.events import CellSpec, CellStateSet, SearchStep
from ddtop.hosts.base import Host
from ddtop.journal.fold.views import CellView
from ddtop.services.base import Launch
from ddtop.sweep.cell.accuracy_guard import load_options
from ddtop.sweep.cell.attempts import attempt_for, cells_with_result, interrupt_begun
from ddtop.sweep.cell.ending import MeasureEnd, Subject
from ddtop.sweep.cell.job_watch import JobWatch
from ddtop.sweep.cell.life.silence import Silences
from ddtop.sweep.cell.outcome import Origin, keep_without_verdict
from ddtop.sweep.cell.results import (
    forget_jobs,
    has_cut_requests,
    has_dying_requests,
    read_result,
    take_result,
)
from ddtop.sweep.cell.search import finish, following, steps_on, tried
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.limits import JOB_SPARE_S
from ddtop.sweep.shared.plan import Bench
from ddtop.sweep.shared.requests import Requests

CHARS_PER_TOKEN = 4.0
PROMPTS_PLAIN = 200_000
"""Characters of prompts that a job holds as they are."""


def job_id(run_id: str, launch: Launch) -> str:
    """A name that no earlier job has: it becomes a folder and a unit on the host."""
    config = re.sub(r"[^A-Za-z0-9_.-]+", "_", launch.config)[:40]
    return f"{run_id}-{config}-tp{launch.tp}-{secrets.token_hex(3)}"


def packed_prompts(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """`cells`, and the prompts that they share once and packed, where they would fill the line that a job has to fit into."""
    size = sum(len(json.dumps(cell.get("prompts") or ())) for cell in cells)
    if size <= PROMPTS_PLAIN:
        return {"cells": cells}
    packed: dict[str, str] = {}
    for cell in cells:
        if isinstance(prompts := cell.get("prompts"), list):
            key = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:12]
            packed.setdefault(key, pack_value(prompts))
            cell["prompts"] = key
    return {"cells": cells, "prompts_z": packed}


class Measurer:
    """Starts jobs of the load generator, watches them, and collects what they measured meanwhile."""

    def __init__(self, ctx: SweepContext, requests: Requests) -> None:
        self.ctx = ctx
        self.requests = requests
        self._silences: dict[str, Silences] = {}
        """By restart key: how long the server was seen to be silent by itself."""
        self._left: dict[str, Subject | None] = {}
        """Stopped jobs whose results could not be collected yet, with the server that each measured."""

    async def run(self, host: Host, subject: Subject, cells: Sequence[CellSpec]) -> MeasureEnd:
        """Measures the first of `cells` on the running server by one job: all up to the next search, or one load of a
        search. Raises AgentError."""
        if (late := await self._late(host)) is not None:
            return late
        bench, job = self._bench, job_id(self.ctx.run_id, subject.launch)
        search = cells[0].search
        if search is not None:
            cells = cells[:1]
            view = self.ctx.state.cells[cells[0].id]
            steps = steps_on(view, subject.generation)
            if steps and following(search, steps) is None:
                return self._finish(view, steps, subject)
        else:
            cells = list(itertools.takewhile(lambda cell: cell.search is None, cells))
        spec = self.job_spec(subject, cells)
        limit_s = sum(float(c.get("time_limit_s", bench.time_limit_s)) + JOB_SPARE_S for c in spec["cells"])
        await forget_jobs(self.ctx, host)
        await host.call(
            "job-start",
            job=job,
            kind="loadgen",
            spec=spec,
            limit_s=limit_s,
            env=dict(bench.env),
            run=self.ctx.run_id,
            timeout_s=30,
        )
        return await self.watch(host, job, [c.id for c in cells], subject)

    async def watch(
        self, host: Host, job: str, cell_ids: Sequence[str], subject: Subject | None
    ) -> MeasureEnd:
        """Follows a job to its end, or to what ends it."""
        key = subject.launch.key if subject is not None else ""
        silences = self._silences.setdefault(key, Silences())
        end = await JobWatch(
            self.ctx, self.requests, host, job, cell_ids, subject, silences=silences, size=self._prompt_tokens
        ).run()
        if end.kind != "ended":
            try:
                end = replace(end, results=end.results + await self._rest(host, job, subject))
            except AgentError as error:  # the end that was found counts; the results wait on the host
                self._left[job] = subject
                self.ctx.note("warn", f"the results of {job} could not be collected yet: {error.what}")
        self._pause_searches()
        return end

    async def _late(self, host: Host) -> MeasureEnd | None:
        """Before another job is started: what those before had measured. None where nothing is new.

        Raises AgentError; the host is looked at anew then, and every job on it with it.
        """
        results = 0
        while self._left:
            job, subject = self._left.popitem()
            try:
                results += await self._rest(host, job, subject)
            except AgentError as error:
                if error.code != "not-found":  # gone with a reboot, say: there is nothing to collect any more
                    raise
        return MeasureEnd(kind="replan", results=results) if results else None

    async def _rest(self, host: Host, job: str, subject: Subject | None) -> int:
        """Takes what a stopped job had measured whole and not reported yet: a finished cell is not measured again."""
        count = 0
        for cell_id, raw in (await self._uncollected(host, job))[0]:
            if not has_cut_requests(raw) and not has_dying_requests(raw):
                count += take_result(self.ctx, job, cell_id, raw, subject) is not None
        return count

    async def _uncollected(self, host: Host, job: str) -> tuple[list[tuple[str, dict[str, Any]]], str]:
        """(cell, result) of each result of a job that is not recorded yet, and why the job ended."""
        known, found = cells_with_result(self.ctx.state, job), []
        while True:
            page = await host.call("job-collect", job=job, known=known, timeout_s=60)
            for item in page["results"]:
                known.append(str(item["id"]))
                found.append((str(item["id"]), await read_result(host, item)))
            if not page.get("more") or not page["results"]:
                return found, str(page["job"].get("why") or "its job ended before it")

    def _finish(self, view: CellView, steps: Sequence[SearchStep], subject: Subject) -> MeasureEnd:
        """The result of a search whose loads are all recorded: the runner ended before it was."""
        launch = subject.launch
        origin = Origin(
            job=steps[-1].job,
            generation=subject.generation,
            engine=launch.engine,
            engine_version=subject.engine_version,
        )
        finish(self.ctx, view, steps, {}, origin)
        return MeasureEnd(kind="ended", cell_id=view.id, results=1)

    def _pause_searches(self) -> None:
        """A search between two loads does not run while the sweep is paused or ends."""
        requests = self.requests
        if requests.stopped_by is None and requests.paused_by is None and requests.restart_by is None:
            return
        for cell in self.ctx.state.plan_cells:
            if cell.spec.search is not None and cell.state == "running":
                number, why = cell.attempts[-1].number, "between two loads of its search"
                self.ctx.emit(CellStateSet, cell_id=cell.id, state="interrupted", reason=why, attempt=number)

    def _prompt_tokens(self, cell_id: str) -> float:
        """Tokens of one prompt of a cell as planned, its context included; 0.0 for a cell that the plan has no more."""
        if self.ctx.sweep is None:
            return 0.0
        load = {**self._bench.defaults, **self._bench.cells.get(cell_id, {})}
        texts = [len(str(prompt)) for prompt in load.get("prompts") or ()]
        said = (int(load.get("turns") or 1) - 1) * int(load.get("output_tokens") or 0)
        given = float(load.get("context") or 0) + float(load.get("shared_prefix_tokens") or 0)
        drawn = load.get("context_lengths") or {}
        given += float(drawn.get("max") or drawn.get("p99") or drawn.get("mean") or 0)
        given += max(
            (p.get("input_tokens") or 0 for p in load.get("prompts") or () if isinstance(p, dict)), default=0
        )
        return given + said + max(texts, default=0) * int(load.get("turns") or 1) / CHARS_PER_TOKEN

    @property
    def _bench(self) -> Bench:
        assert self.ctx.sweep is not None
        return self.ctx.sweep.bench

    def job_spec(self, subject: Subject, cells: Sequence[CellSpec]) -> dict[str, Any]:
        """The job for the load generator (agent/loadgen)."""
        launch, bench = subject.launch, self._bench
        defaults = {
            "url": f"http://127.0.0.1:{launch.port}",
            "engine": launch.engine,
            "model": subject.model,
            "server_pids": [subject.main_pid] if subject.main_pid else [],
            **bench.defaults,
        }
        listed = []
        for cell in cells:
            load = bench.cells.get(cell.id, {})
            listed.append({**load, **self._own_load({**defaults, **load}, cell, subject), "id": cell.id})
        return {"schema": 1, "run": self.ctx.run_id, "defaults": defaults, **packed_prompts(listed)}

    def _own_load(self, asked: dict[str, Any], cell: CellSpec, subject: Subject) -> dict[str, Any]:
        """What a cell asks beyond its plan: the options of the accuracy guard, or the next load of its search."""
        if cell.search is None:
            return load_options(asked, cell)
        steps = [tried(step) for step in steps_on(self.ctx.state.cells[cell.id], subject.generation)]
        point = next_point(steps, cell.search)
        assert point is not None
        turns = int(asked.get("turns") or 1)
        return point_load(cell.search, point, steps, str(asked.get("nonce") or ""), turns)

    async def collect(self, host: Host, job: str, *, alive: bool) -> int:
        """Takes the results of an ended job that are not recorded yet. Returns how many there were.

        `alive`: the server that it measured still runs; else requests that were cut off are no verdict on their cells.
        """
        ctx = self.ctx
        found, why = await self._uncollected(host, job)
        for cell_id, raw in found:
            cell = ctx.state.cells.get(cell_id)
            attempt = attempt_for(cell, job) if cell else None
            if not alive and has_cut_requests(raw):
                keep_without_verdict(ctx, cell_id, raw, job=job)
            elif cell is None or attempt is None or attempt is cell.attempts[-1] or not has_cut_requests(raw):
                take_result(ctx, job, cell_id, raw, None)
        interrupt_begun(ctx, job, why)
        return len(found)
