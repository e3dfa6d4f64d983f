"""What a ready server runs on, recorded once for each start: before its first cell, in a bounded time, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import StartProvenance
from ddtop.hosts.base import Host
from ddtop.redact import without_secrets
from ddtop.services.base import Launch
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.start.result import Started

LOOK_S = 10.0


async def record_provenance(ctx: SweepContext, host: Host, launch: Launch, started: Started) -> None:
    """One look at the server of `started`. What cannot be read is recorded as unknown; raises HostLostError alone."""
    feed = ctx.feed(launch.unit)
    unit = feed.reading
    select = feed.service.activity_args(unit) if unit is not None else None
    container = unit.container.partition("@")[0] if unit is not None and unit.container else None
    if select is None:
        ctx.emit(
            StartProvenance, attempt_id=started.attempt_id, unknown={"all": "its processes are not known"}
        )
        return
    try:
        answer = await host.call(
            "provenance",
            **select,
            main_pid=started.main_pid,
            container=container,
            model=launch.model_path or _served(ctx),
            timeout_s=LOOK_S,
        )
    except AgentError as error:
        ctx.emit(StartProvenance, attempt_id=started.attempt_id, unknown={"all": error.what})
        return
    facts, unknown = dict(answer.get("facts") or {}), dict(answer.get("unknown") or {})
    gpus = held_gpus(facts)
    if gpus is None:
        unknown.setdefault("held", "the GPUs that were named are not among those listed")
    facts.pop("held", None)
    ctx.emit(
        StartProvenance,
        attempt_id=started.attempt_id,
        gpus=gpus,
        facts=without_secrets(facts),
        unknown=unknown,
    )


def _served(ctx: SweepContext) -> str | None:
    """Where the model lies by the server's own arguments, for a plan that names none; None for a name of a hub."""
    args = ctx.state.restarts[-1].resolved_args if ctx.state.restarts else {}
    paths = (args.get(name) for name in ("model_path", "model"))
    return next((p for p in paths if isinstance(p, str) and p.startswith("/")), None)


def held_gpus(facts: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Indices of the GPUs whose UUIDs are in `held`; None where they are not known."""
    held = facts.get("held")
    listed = {g.get("uuid"): g.get("index") for g in (facts.get("gpu") or {}).get("gpus") or ()}
    if held is None or any(str(listed.get(uuid)).isdigit() is False for uuid in held):
        return None
    return tuple(sorted(int(listed[uuid]) for uuid in held))
