"""`bench.kind = "command"`: any benchmark on the host measures a cell; its result file is read by format or by paths.

One detached job for each cell. The acceptance length comes from the engine's counters over the cell where it has them,
else it is the mean of the lines that the server logged meanwhile (and marked so).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ddtop.bench.importers import diagnose_results
from ddtop.bench.importers.stating import command_doubts, reasons_of
from ddtop.bench.judge.cell import CellJudgement, judgement
from ddtop.bench.metric_paths import MetricPathError, evaluate
from ddtop.engines import ENGINES
from ddtop.engines.base import AcceptanceCounters
from ddtop.engines.log.grammar import parse_line
from ddtop.errors import AgentError
from ddtop.events import CellSpec, LogLine
from ddtop.hosts.base import Host
from ddtop.sweep.cell.attempts import attempt_for, begin_cell, interrupt_begun, version_of
from ddtop.sweep.cell.ending import MeasureEnd, Subject
from ddtop.sweep.cell.job_watch import JobWatch
from ddtop.sweep.cell.measure import job_id
from ddtop.sweep.cell.outcome import Origin, commit_judged
from ddtop.sweep.cell.results import forget_jobs, read_file
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.log_lines import drain_log
from ddtop.sweep.shared.requests import Requests

RESULT = "result.json"
MOST_B = 32 << 20
"""A larger result file is read only so far."""
IMPORTED = {
    "output_tps": "output_tok_s",
    "output_throughput_tps": "output_tok_s",
    "output_token_throughput_tps": "output_tok_s",
    "request_throughput": "requests_s",
    "completed": "requests_ok",
    "failed": "requests_failed",
}
"""The importers' names of metrics → ddtop's."""


class ExternalBenchmark:
    """Runs the plan's benchmark for one cell after another."""

    def __init__(self, ctx: SweepContext, requests: Requests) -> None:
        self.ctx = ctx
        self.requests = requests
        self._accepted: list[float] = []
        self._before: AcceptanceCounters | None = None

    async def run(self, host: Host, subject: Subject, cell: CellSpec) -> MeasureEnd:
        """Measures one cell by the plan's command."""
        ctx = self.ctx
        assert ctx.sweep is not None
        bench = ctx.sweep.bench
        job = job_id(ctx.run_id, subject.launch)
        # The job's folder is known before it exists: the agent keeps jobs by their ids.
        result = f"{host.hello.state_dir}/jobs/{job}/{RESULT}"
        argv = [word.replace("{result}", result) for word in bench.commands[cell.id]]
        await forget_jobs(ctx, host)
        begin_cell(ctx, ctx.state.cells[cell.id], job, subject.generation)
        self._accepted, self._before = [], await self._counters(host, subject)
        await host.call(
            "job-start",
            job=job,
            kind="exec",
            spec={"argv": argv, "run": ctx.run_id},
            limit_s=bench.time_limit_s,
            env=dict(bench.env),
            run=ctx.run_id,
            timeout_s=30,
        )
        return await self.follow(host, subject, job)

    async def follow(self, host: Host, subject: Subject | None, job: str) -> MeasureEnd:
        """Follows a job, also one of an earlier connection, and takes its one result."""
        feed = self.ctx.feed(subject.launch.unit) if subject is not None else None
        if feed is not None:
            feed.listeners.append(self._on_line)
        try:
            ids = [c.id for c in self.ctx.state.plan_cells]
            end = await JobWatch(self.ctx, self.requests, host, job, ids, subject, settle=False).run()
            if end.kind == "ended":
                return await self._finish(host, subject, job)
            return end
        finally:
            if feed is not None:
                feed.listeners.remove(self._on_line)

    async def collect(self, host: Host, job: str, *, alive: bool) -> int:
        """Takes the result of a benchmark that ended while no runner watched; returns how many there were.

        `alive`: the server that it measured still runs.
        """
        return (await self._finish(host, None, job, alive=alive)).results

    def _on_line(self, line: LogLine) -> None:
        for fact in parse_line(None, line.text):
            length = fact.values.get("accept_len")
            if fact.kind in ("decode", "spec", "timing") and isinstance(length, int | float) and length > 0:
                self._accepted.append(float(length))

    async def _counters(self, host: Host, subject: Subject | None) -> AcceptanceCounters | None:
        if subject is None:
            return None
        engine = ENGINES[subject.launch.engine]
        try:
            reply = await host.call(
                "http",
                method="GET",
                url=f"http://127.0.0.1:{subject.launch.port}{engine.metrics_path}",
                timeout_s=5,
            )
        except AgentError:
            return None
        return engine.acceptance_counters(str(reply["body"])) if reply.get("status") == 200 else None

    async def _finish(
        self, host: Host, subject: Subject | None, job: str, *, alive: bool = False
    ) -> MeasureEnd:
        ctx = self.ctx
        cell = next(
            (c for c in ctx.state.cells.values() if (a := attempt_for(c, job)) and a.measured_at_s is None),
            None,
        )
        if cell is None:
            return MeasureEnd(kind="ended", results=1)
        assert ctx.sweep is not None
        shown = await host.call("job-show", job=job)
        if shown.get("state") == "lost" or (shown.get("state") == "killed" and shown.get("why") == "stopped"):
            interrupt_begun(ctx, job, str(shown.get("why") or f"the job ended {shown.get('state')}"))
            return MeasureEnd(kind="ended")
        data = await self._read_result(host, job)
        after = await self._counters(host, subject)
        metrics, problem, doubts = read_metrics(data, ctx.sweep.bench.format, ctx.sweep.bench.metrics)
        length = after.length_since(self._before) if after is not None and self._before is not None else None
        if length is not None:
            metrics["acceptance_length"], metrics["acceptance"] = length, {"source": "counters"}
        elif "acceptance_length" not in metrics and await self._logged(host, subject):
            metrics["acceptance_length"] = sum(self._accepted) / len(self._accepted)
            metrics["acceptance"] = {"source": "log", "lines": len(self._accepted)}
        judged = judge_command(metrics, problem, shown, doubts)
        if judged.state != "done" and subject is None and not alive:
            # Without its server a benchmark says nothing of the configuration.
            interrupt_begun(ctx, job, "the server was gone while it was measured")
            return MeasureEnd(kind="ended")
        attempt = attempt_for(cell, job)
        if cell.state == "done" and attempt is not cell.attempts[-1]:
            return MeasureEnd(kind="ended")  # a later one has measured it
        generation = attempt.generation if attempt else None
        launch = subject.launch if subject else ctx.sweep.launches.get(cell.spec.restart_key)
        done = commit_judged(
            ctx,
            cell,
            judged,
            {"job": job, "state": shown.get("state"), "why": shown.get("why"), "result": bounded(data)},
            Origin(
                job=job,
                generation=generation,
                engine=launch.engine if launch else "",
                engine_version=subject.engine_version if subject else version_of(ctx.state, generation),
            ),
        )
        if done.restart:
            return MeasureEnd(kind="restart", cell_id=cell.id, results=1, invalid=done)
        return MeasureEnd(kind="ended", cell_id=cell.id, results=1)

    async def _logged(self, host: Host, subject: Subject | None) -> bool:
        """Whether the server logged acceptance lengths meanwhile; its last lines are fetched first."""
        if subject is not None:
            await drain_log(self.ctx, host, self.ctx.feed(subject.launch.unit))
        return bool(self._accepted)

    async def _read_result(self, host: Host, job: str) -> bytes | None:
        try:
            return await read_file(host, f"{host.hello.state_dir}/jobs/{job}/{RESULT}", MOST_B)
        except AgentError:
            return None


def bounded(data: bytes | None) -> Any:
    """A result file for the journal: as JSON where it is small JSON, else its beginning as text."""
    if data is None:
        return None
    if len(data) < 100_000:
        try:
            return json.loads(data)
        except ValueError:
            pass
    return data[:20_000].decode("utf-8", "replace")


def read_metrics(
    data: bytes | None, form: str, paths: Mapping[str, str]
) -> tuple[dict[str, Any], str, dict[str, str]]:
    """(metrics by ddtop's names, what is wrong in words, {reason: what was found} of the importer's rules).

    Paths of the plan go before the known formats; what they find is judged by the same rules (`judge_command`).
    """
    if data is None:
        return {}, "the benchmark wrote no result file", {}
    metrics: dict[str, Any] = {}
    if paths:
        try:
            parsed = json.loads(data)
        except ValueError:
            return {}, "the result file is not JSON", {}
        for name, path in paths.items():
            try:
                value = evaluate(path, parsed)
            except MetricPathError as error:
                return metrics, str(error), {}
            if value is not None:
                metrics[name] = value
        return metrics, "" if metrics else "no metric path of the plan finds a value in the result file", {}
    found = diagnose_results(data, name=f"result.{form if form != 'auto' else 'json'}")
    for theirs, ours in IMPORTED.items():
        value = found.get(theirs)
        if isinstance(value, int | float):
            metrics.setdefault(ours, value)
    metrics |= {
        k: v
        for k, v in found.items()
        if isinstance(v, int | float) and not isinstance(v, bool) and k not in IMPORTED
    }
    if found.get("verdict") in ("failed", "unknown"):
        if found.get("cause") in ("no-tokens", "no-request-completed"):
            return metrics, "", {"no-tokens": str(found.get("why"))}
        return metrics, f"{found.get('cause')}: {found.get('advice', '')}", {}
    return metrics, "", reasons_of(found)


def judge_command(
    metrics: dict[str, Any], problem: str, job: Mapping[str, Any], doubts: Mapping[str, str] | None = None
) -> CellJudgement:
    """The verdict on a benchmark's result: 0 tok/s is the server's fault, a failed benchmark is not."""
    details = dict(doubts) if doubts else command_doubts(metrics)
    if "no-tokens" in details:
        details = {"no-tokens": details["no-tokens"]}
    elif job.get("state") != "done":
        details = {"generator-failed": str(job.get("why") or f"the benchmark ended {job.get('state')}")}
    elif problem:
        details = {"generator-failed": problem}
    elif "output_tok_s" not in metrics:
        details["no-usage"] = "the result names no output_tok_s: give its path in [bench] metrics"
    return judgement(details, metrics)
