"""The log of a unit whose output goes to a file: followed there by the agent, beside whatever the journal has of it.

Lines of a file carry no start's id, and a cursor of their own (`file:INODE:OFFSET`), so that the journal's is not lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import LogLine
from ddtop.hosts.base import Host

FILE_CURSOR = "file:"
"""How the cursor of a file's line begins."""
Follow = Callable[[], AbstractAsyncContextManager[AsyncIterator[list[LogLine]]]]


class LogFile:
    """One file that holds a unit's output, and how far it was read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.inode: int | None = None
        self.offset: int | None = None
        self.refused: str | None = None
        """Why this login may not read it."""

    def _line(self, text: str, inode: int, offset: int) -> LogLine:
        self.inode, self.offset = inode, offset
        return LogLine(text=text, cursor=f"{FILE_CURSOR}{inode}:{offset}")

    @asynccontextmanager
    async def follow(self, host: Host) -> AsyncIterator[AsyncIterator[list[LogLine]]]:
        """The lines after those that were read; of a file that was never read, those that come from now on."""
        try:
            async with host.stream(
                "file-follow", path=self.path, offset=self.offset, inode=self.inode
            ) as batches:

                async def lines() -> AsyncIterator[list[LogLine]]:
                    async for batch in batches:
                        self.refused = None
                        yield [
                            self._line(str(x["text"]), int(x["inode"]), int(x["offset"]))
                            for x in batch
                            if "text" in x and "offset" in x
                        ]

                yield lines()
        except AgentError as error:
            self.refused = error.what
            raise

    async def mark_end(self, host: Host) -> None:
        """Takes the file's end as read, if nothing of it was read yet: what it holds is of earlier starts."""
        if self.offset is not None:
            return
        try:
            found = await host.call("file-read", path=self.path, offset=0, max_b=1)
        except AgentError:
            self.offset, self.inode = 0, None  # not there yet: all that it will hold is new
            return
        self.inode, self.offset = found.get("inode"), int(found.get("size_b") or 0)

    async def drain(self, host: Host) -> list[LogLine]:
        """The lines that are there and were not read. [] where there is no such file, or it may not be read."""
        found: list[LogLine] = []
        try:
            start = self.offset or 0
            answer = await host.call("file-read", path=self.path, offset=start, max_b=500_000)
            if self.inode is not None and answer.get("inode") != self.inode:
                start, answer = 0, await host.call("file-read", path=self.path, offset=0, max_b=500_000)
        except AgentError:
            return []
        inode = int(answer.get("inode") or 0)
        for raw in str(answer.get("text", "")).splitlines(keepends=True):
            start += len(raw.encode("utf-8", "surrogateescape"))
            if raw.endswith("\n"):
                found.append(self._line(raw.rstrip("\n").rsplit("\r", 1)[-1], inode, start))
        return found


@asynccontextmanager
async def together(
    journal: Follow, files: Sequence[LogFile], host: Host
) -> AsyncIterator[AsyncIterator[list[LogLine]]]:
    """The lines of the journal and of the files, as they come. The journal's end is the end of all.

    A journal that this login may not read is no end where a file has the log.
    """
    async with aclosing(_merged(journal, files, host)) as lines:
        yield lines


async def _merged(
    journal: Follow, files: Sequence[LogFile], host: Host
) -> AsyncGenerator[list[LogLine], None]:
    queue: asyncio.Queue[list[LogLine] | BaseException | None] = asyncio.Queue()

    async def pump(follow: Follow) -> None:
        try:
            async with follow() as batches:
                async for lines in batches:
                    queue.put_nowait(lines)
        except Exception as error:  # handed on to the reader below
            queue.put_nowait(error)
        else:
            queue.put_nowait(None)

    follows: list[Any] = [journal, *((lambda f=f: f.follow(host)) for f in files)]
    tasks = [asyncio.create_task(pump(follow)) for follow in follows]
    open_ = len(tasks)
    try:
        while True:
            item = await queue.get()
            if isinstance(item, list):
                yield item
                continue
            open_ -= 1
            refused = isinstance(item, AgentError) and item.code in ("not-permitted", "not-found")
            if open_ and refused:
                continue
            if isinstance(item, BaseException):
                raise item
            return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
