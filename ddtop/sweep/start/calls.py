"""The calls of one restart: configure, stop what must be down, start. Their success proves nothing; the gate does."""

from __future__ import annotations

import asyncio

from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import CallResult
from ddtop.services.command import SCRIPT, end_scripts, scripts_run
from ddtop.sweep.recovery.restore import remember_original
from ddtop.sweep.shared.context import SweepContext, UnitFeed
from ddtop.sweep.shared.limits import COOL_DOWN_S, OVERRIDE_EXPIRY_S, STOP_WAIT_S
from ddtop.sweep.shared.log_lines import drain_log, take_lines
from ddtop.sweep.start.attempt import Attempt

SCRIPT_POLL_S = 0.25
COOL_DOWN_POLL_S = 0.3
HELD_SHARE = 0.05
"""Share of GPU memory in use above which it still belongs to the stopped server."""


async def make_calls(ctx: SweepContext, host: Host, a: Attempt) -> None:
    """Configures, stops and starts. What the last call returned goes to `a`; the watchdog judges how long it takes."""
    service = a.feed.service
    hindered = await _make_way(ctx, host, a)
    if hindered is not None:
        a.take_call(hindered)
        return
    await drain_log(ctx, host, a.feed)  # the old server's last words: they explain nothing of the new start
    if a.feed.redirected is not None:
        async with a.feed.lock:
            take_lines(ctx, a.feed, await a.feed.redirected.drain(host))
    if not service.stops_itself:
        a.log.begin_new()
    a.take_call(await service.start(host, a.launch, a.id + SCRIPT))
    a.log.begin_new()
    ctx.take_reading(await service.read(host))


async def _make_way(ctx: SweepContext, host: Host, a: Attempt) -> CallResult | None:
    """Configures, and stops what must be down. The call after which a start could only fail; None where it may begin."""
    launch, service = a.launch, a.feed.service
    assert ctx.sweep is not None
    await remember_original(ctx, host, launch.unit, run_id=ctx.run_id)
    try:
        what = await service.configure(host, launch, ctx.run_id, ctx.wall() + OVERRIDE_EXPIRY_S)
    except AgentError as error:
        text = f"{error.what}\n{error.code.replace('-', ' ')}"
        return CallResult(rc=1, error=text, what="writing the override", do=error.do)
    ctx.note("info", f"{launch.config}: {what}")
    a.enter_phase("stopping")
    for rival in ctx.sweep.rivals(launch):
        await remember_original(ctx, host, rival, run_id=ctx.run_id)
        stopped = await _stop(ctx, host, ctx.feed(rival))
        if stopped.rc:  # it keeps its port and GPU memory: the start would fail for another reason
            return stopped
    if not service.stops_itself:
        called = await _stop(ctx, host, a.feed)
        if called.rc:
            return called
        if not await _cool_down(ctx, host, a):
            # A foreign process has the port: the start could only fail. The watchdog names it at once.
            return CallResult(rc=0, what="the restart")
    return None


async def _stop(ctx: SweepContext, host: Host, feed: UnitFeed) -> CallResult:
    """Stops a unit and waits until it is gone."""
    reading = await feed.service.read(host)
    ctx.take_reading(reading)
    if (reading.gone and not reading.job) or reading.load == "not-found":
        return CallResult(rc=0)
    called = await feed.service.stop(host)
    if called.rc:
        return called
    began = ctx.mono()
    while ctx.mono() - began < STOP_WAIT_S:
        now = feed.reading
        if now is not None and now.gone and not now.job and now.sub != "auto-restart":
            return called
        await ctx.wait(1.0)
        if feed.reading is now:
            ctx.take_reading(await feed.service.read(host))
    return CallResult(rc=1, error=f"{feed.unit} did not stop", what=called.what)


async def _cool_down(ctx: SweepContext, host: Host, a: Attempt) -> bool:
    """Waits until the port is free and GPU memory is back, COOL_DOWN_S at most; says what is not.

    False: a foreign process has taken the port, seen twice. A container may outlive its unit's client for a moment:
    it is not counted as foreign.
    """
    began, gpus = ctx.mono(), ctx.gpu_watch
    foreign_before: set[int] = set()
    while True:
        listeners = await a.gate_reader.listeners(host, a.unit)
        a.take_listeners(listeners)
        foreign = {x.pid for x in listeners if x.owned is False and x.pid is not None and x.container is None}
        if foreign & foreign_before:
            return False
        foreign_before = foreign
        used = [g.mem_used_mib / g.mem_total_mib for g in gpus.readings if g.mem_used_mib and g.mem_total_mib]
        fresh = gpus.read_at is not None and gpus.read_at >= a.began
        if not listeners and not (fresh and max(used, default=0.0) > HELD_SHARE):
            return True
        if ctx.mono() - began > COOL_DOWN_S:
            what = f"port {a.launch.port} is still taken" if listeners else "GPU memory is still held"
            ctx.note("warn", f"{a.launch.unit} is stopped, but {what}")
            return True
        await asyncio.sleep(COOL_DOWN_POLL_S)


async def end_running_scripts(ctx: SweepContext, host: Host, *, grace_s: float = 0.0) -> None:
    """Ends the owner's reconfigure script of an earlier start, so that it does not disturb the next one.

    For `grace_s` seconds it may end by itself: what a script leaves behind that is cut off is unknown.
    """
    until = ctx.mono() + grace_s
    try:
        while ctx.mono() < until and await scripts_run(host, ctx.run_id):
            await ctx.wait(SCRIPT_POLL_S)
        await end_scripts(host, ctx.run_id)
    except AgentError as error:
        ctx.note("warn", f"the reconfigure script could not be stopped: {error.what}")
