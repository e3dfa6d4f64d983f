"""Log lines of a unit: each recorded once, without secrets, then handed to the unit's listeners."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ddtop.errors import AgentError
from ddtop.events import LogGap, LogLine, LogRead
from ddtop.hosts.base import Host
from ddtop.redact import log_line
from ddtop.services.log_file import FILE_CURSOR
from ddtop.sweep.shared.context import SweepContext, UnitFeed


def take_lines(ctx: SweepContext, feed: UnitFeed, lines: Iterable[LogLine]) -> None:
    """Records the lines that are new, then hands them to the listeners."""
    fresh: list[LogLine] = []
    for line in lines:
        if line.cursor is not None:
            if not feed.is_new(line):
                continue
            if not line.cursor.startswith(FILE_CURSOR):
                feed.cursor = line.cursor
        if line.text:
            text = log_line(line.text)
            fresh.append(line if text is line.text else replace(line, text=text))
    if not fresh:
        return
    ctx.emit(LogRead, unit=feed.unit, lines=tuple(fresh))
    for listener in tuple(feed.listeners):
        for line in fresh:
            listener(line)
    ctx.wake()


async def drain_log(ctx: SweepContext, host: Host, feed: UnitFeed) -> None:
    """Reads what the log holds and the follower has not brought yet (journald is up to 500 ms late)."""
    async with feed.lock:
        try:
            take_lines(ctx, feed, await feed.service.drain(host, feed.cursor))
        except AgentError as error:
            ctx.emit(LogGap, unit=feed.unit, reason=f"the log could not be read to its end: {error.what}")
