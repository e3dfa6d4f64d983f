"""The load generator's own error on the host, measured once for a run whose plan asks for it (`[record] selftest`).

It runs beside the first ready server, before its first cell: with the CPU load that such a server makes while it is idle.
"""

from __future__ import annotations

import secrets
from typing import Any

from ddtop.bench.selftest import selftest_result
from ddtop.errors import AgentError
from ddtop.events import SelftestDone
from ddtop.hosts.base import Host
from ddtop.sweep.shared.context import SweepContext

MOST_STREAMS = 512
CHUNK_MS = 20.0
LIMIT_S = 90.0


async def self_test_once(ctx: SweepContext, host: Host) -> None:
    """Records `SelftestDone`, or notes why there is none. Raises HostLostError alone."""
    if ctx.sweep is None or not ctx.sweep.selftest or ctx.state.selftest is not None:
        return
    streams = min(MOST_STREAMS, max((cell.concurrency for cell in ctx.sweep.cells), default=1) or 1)
    job = f"{ctx.run_id}-selftest-{secrets.token_hex(3)}"
    try:
        result = await _run(host, job, {"streams": streams, "dt_ms": CHUNK_MS, "rounds": 2}, ctx.run_id)
    except AgentError as error:
        ctx.note("warn", f"the load generator's own error could not be measured: {error.what}")
        return
    if result is None:
        ctx.note("warn", "the load generator's own error could not be measured: its job gave no result")
        return
    ctx.emit(SelftestDone, result=selftest_result(result, CHUNK_MS))


async def _run(host: Host, job: str, spec: dict[str, Any], run_id: str) -> dict[str, Any] | None:
    await host.call(
        "job-start", job=job, kind="selftest", spec=spec, limit_s=LIMIT_S, env={}, run=run_id, timeout_s=30
    )
    found: dict[str, Any] | None = None
    async with host.stream("job-watch", job=job, known=[]) as batches:
        async for batch in batches:
            for item in batch:
                if isinstance(item.get("result"), dict):
                    found = dict(item["result"])
    await host.call("job-forget", job=job)
    return found
