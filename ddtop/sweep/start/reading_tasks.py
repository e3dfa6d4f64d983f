"""What is read beside a start, each in a task of its own: the port, the processes' activity, and the server by HTTP."""

from __future__ import annotations

import asyncio

from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.log_file import LogFile
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.log_lines import take_lines
from ddtop.sweep.start.answers import ELSEWHERE_S, behind_router
from ddtop.sweep.start.attempt import Attempt
from ddtop.sweep.start.evidence.progress import CACHES, activity_reading

POLL_S = 0.2
PORT_POLL_S = 0.5
ACTIVITY_RETRY_S = 1.0
HEALTH_EVERY_S = 0.5
LOOK_EVERY_S = 3.0
"""Between two looks at all ports, where nothing says that the server is ready."""
TOKEN_RETRY_S = 1.0
REQUEST_RETRY_S = 2.0
OUTPUT_POLL_S = 0.5


async def read_port(ctx: SweepContext, host: Host, a: Attempt) -> None:
    """Who listens on the port, and which start that is."""
    while True:
        if a.unit is not None and (a.unit.running or a.call.returned_at is not None):
            found = await a.gate_reader.listeners(host, a.unit)
            a.take_listeners(found)
            # None where nobody listens: the owner seen before is not the owner of the next listener.
            a.port_owner = await a.gate_reader.owner(host, found[0], a.unit, ctx.mono()) if found else None
            ctx.wake()
            await _look_elsewhere(ctx, host, a)
        await asyncio.sleep(PORT_POLL_S)


async def _look_elsewhere(ctx: SweepContext, host: Host, a: Attempt) -> None:
    """Where a server listens that says it is ready and has not opened its port."""
    mark, generation = a.log.mark, a.new_generation()
    said = mark is not None and ctx.mono() - mark.at >= ELSEWHERE_S
    unsaid = not a.log.engine.logs_ready_mark or a.log_is_blind() is not None
    if a.listeners or generation is None or not (said or unsaid):
        return
    if unsaid and ctx.mono() - a.looked_at < LOOK_EVERY_S:
        return
    a.looked_at = ctx.mono()
    try:
        found = await a.gate_reader.elsewhere(host, a.unit)
        words = [*a.launch.argv, (a.unit.argv if a.unit is not None else None) or ""]
        a.elsewhere = () if behind_router(words, found) else found
    except AgentError as error:
        ctx.note("warn", f"the listeners of {a.launch.unit} cannot be read: {error.what}")
    ctx.wake()


async def read_activity(ctx: SweepContext, host: Host, a: Attempt) -> None:
    """CPU, memory, bytes and compile caches of the unit's processes."""
    while True:
        args = a.feed.service.activity_args(a.unit) if a.unit is not None and a.seen_new else None
        if args is None:
            await asyncio.sleep(POLL_S)
            continue
        try:
            async with host.stream("activity", every_s=1, gpu=True, caches=CACHES, **args) as batches:
                async for batch in batches:
                    for item in batch:
                        a.take_activity(activity_reading(item, ctx.mono()))
        except AgentError as error:
            if error.code not in ("not-found", "not-permitted"):
                raise
        await asyncio.sleep(ACTIVITY_RETRY_S)


async def ask_server(ctx: SweepContext, host: Host, a: Attempt) -> None:
    """HTTP: the health path where it is the ready mark, then the arguments, then one generation."""
    while True:
        await asyncio.sleep(POLL_S)
        generation = a.new_generation()
        if generation is None or not a.listeners or a.gate()["listener"].state != "ok":
            continue
        try:
            await _ask_once(ctx, host, a, generation)
        except AgentError as error:
            ctx.note("warn", f"the server on port {a.launch.port} did not respond: {error.what}")
            await asyncio.sleep(REQUEST_RETRY_S)


async def _ask_once(ctx: SweepContext, host: Host, a: Attempt, generation: str) -> None:
    reader, now = a.gate_reader, ctx.mono
    if a.log.mark_of(generation) is None:
        a.take_health(generation, await reader.health(host), now())
    if a.log.mark_of(generation) is None and not a.seems_ready:
        await asyncio.sleep(HEALTH_EVERY_S)
        return
    if a.phases.current not in ("answering", "ready"):
        a.enter_phase("answering")
    if a.unit is not None and (a.args is None or a.args.generation != generation):
        read = await reader.args(host, a.unit, a.log.server_args(generation), now())
        if a.new_generation() != generation:
            return  # restarted meanwhile: who answered is not known
        a.args = read
        ctx.wake()
    if a.args is None or a.args.wrong:
        return
    if a.token is None or a.token.generation != generation or a.token.error:
        a.take_token(await reader.token(host, generation, now()))
        ctx.wake()
        if a.token is not None and a.token.error:
            await asyncio.sleep(TOKEN_RETRY_S)


async def read_output(ctx: SweepContext, host: Host, a: Attempt) -> None:
    """Follows the file to which a server's own command sends its output, where its manager has no line of it."""
    while True:
        await asyncio.sleep(OUTPUT_POLL_S)
        feed = a.feed
        try:
            if feed.redirected is None and a.speechless and a.output is None:
                a.output = await a.gate_reader.output(host, a.unit)
                if a.output is not None and a.output.startswith("/") and a.output != "/dev/null":
                    feed.redirected = LogFile(a.output)
                    await feed.redirected.mark_end(host)
                    ctx.note("info", f"the log of {feed.unit} is followed in {a.output}")
            if feed.redirected is not None:
                async with feed.lock:
                    take_lines(ctx, feed, await feed.redirected.drain(host))
        except AgentError:
            continue  # the process is just going, or may not be looked at
