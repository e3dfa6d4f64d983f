"""What the measured server says of its load, once a second while its job runs: `ServerFigures` in the recording.

It is read on the host, beside the load and never by the load generator's timed process. What cannot be read is noted once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ddtop.engines import ENGINES
from ddtop.engines.server_load import LOAD_SERIES, ServerLoad, server_load
from ddtop.errors import AgentError, HostLostError
from ddtop.events import ServerFigures
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.sweep.shared.context import SweepContext

EVERY_S = 1.0
RETRY_S = 10.0
NOT_THERE = {
    "sglang": "start the server with --enable-metrics",
    "llamacpp": "start the server with --metrics",
}
"""How an engine is made to have the page."""


async def follow_figures(ctx: SweepContext, host: Host, launch: Launch) -> None:
    """Until it is cancelled or the connection is lost. Raises nothing for what cannot be read."""
    series = LOAD_SERIES.get(launch.engine)
    if series is None:
        return
    url = f"http://127.0.0.1:{launch.port}{ENGINES[launch.engine].metrics_path}"
    before: ServerLoad | None = None
    noted = False
    while True:
        try:
            async with host.stream(
                "metrics-follow", url=url, names=list(series.names), every_s=EVERY_S
            ) as batches:
                async for batch in batches:
                    for item in batch:
                        if "error" in item:
                            before = None
                            if not noted:
                                noted = True
                                _note(ctx, launch, str(item["error"]))
                            continue
                        before = _take(ctx, launch, item, before)
        except HostLostError:
            return
        except AgentError:
            pass  # an agent that has no such stream: no figures, and no harm
        await asyncio.sleep(RETRY_S)


def _take(
    ctx: SweepContext, launch: Launch, item: Mapping[str, Any], before: ServerLoad | None
) -> ServerLoad | None:
    load = server_load(launch.engine, item.get("rows") or ())
    if load is None:
        return None
    hit_pct, asked = load.hits_since(before)
    accepted = load.accepted_since(before)
    ctx.emit(
        ServerFigures,
        unit=launch.unit,
        running=load.running,
        queued=load.queued,
        kv_pct=None if load.kv_pct is None else round(load.kv_pct, 2),
        prefix_hit_pct=None if hit_pct is None else round(hit_pct, 2),
        prompt_tokens=asked,
        spec_tokens=accepted[0] if accepted is not None else None,
        spec_steps=accepted[1] if accepted is not None else None,
        host_mono_s=item.get("mono_s"),
        took_ms=item.get("took_ms"),
    )
    return load


def _note(ctx: SweepContext, launch: Launch, why: str) -> None:
    do = NOT_THERE.get(launch.engine, "")
    text = f"{launch.unit} gives no figures of its load ({ENGINES[launch.engine].metrics_path}: {why})"
    if not any(note.text.startswith(text) for note in ctx.state.notes):
        ctx.note("info", f"{text}: {do}" if do and why.startswith("HTTP 404") else text)
