"""A unit's log that is not in the journal: where it goes by the unit's files, and how it is followed there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ddtop.engines import ENGINES
from ddtop.errors import AgentError
from ddtop.events import LogLine
from ddtop.hosts.local import LocalConnector
from ddtop.services.log_file import FILE_CURSOR, LogFile, together
from ddtop.services.process import read_proc
from ddtop.services.unit.output import output_of
from ddtop.sweep.start.evidence.log import StartLog
from ddtop.sweep.start.evidence.phases import Phases
from ddtop.sweep.start.evidence.progress import begin

S = "# /etc/systemd/system/x.service\n[Unit]\nStandardOutput=append:/not/this\n[Service]\n"
PLACES = [
    ("", (), ""),
    ("StandardOutput=journal\n", (), ""),
    ("StandardOutput=inherit\n", (), ""),
    ("StandardOutput=syslog\n", (), ""),
    ("StandardOutput=journal+console\n", (), ""),
    ("StandardOutput=append:/var/log/s.log\n", ("/var/log/s.log",), ""),
    (
        "StandardOutput=file:/var/log/s.log\nStandardError=file:/var/log/e.log\n",
        ("/var/log/s.log", "/var/log/e.log"),
        "",
    ),
    ("StandardOutput=truncate:/var/log/s.log\nStandardError=inherit\n", ("/var/log/s.log",), ""),
    ("StandardOutput=append:/a\nStandardError=append:/a\n", ("/a",), ""),
    ("StandardError=append:/var/log/err.log\n", ("/var/log/err.log",), ""),
    ("StandardOutput=append:/var/log/%p-%i.log\n", ("/var/log/sglang-8.log",), ""),
    ("StandardOutput=append:%L/%n.log\n", ("/var/log/sglang@8.service.log",), ""),
    ("StandardOutput=append:/a\n[Service]\nStandardOutput=journal\n", (), ""),
    ("StandardOutput=append:/a\n# /run/x.conf\n[Service]\nStandardOutput=append:/b\n", ("/b",), ""),
    ("StandardOutput=null\n", (), "StandardOutput=null, StandardError=null"),
    ("StandardOutput = append:/a b.log\n", ("/a b.log",), ""),
    ("StandardOutput=append:/x/%q\n", (), "StandardOutput=append:/x/%q, StandardError=append:/x/%q"),
]


@pytest.mark.parametrize(("text", "files", "elsewhere"), PLACES)
def test_where_a_units_output_goes(text: str, files: tuple[str, ...], elsewhere: str) -> None:
    found = output_of(S + text, "sglang@8.service")
    assert (found.files, found.elsewhere) == (files, elsewhere)


@asynccontextmanager
async def local(folder: Path) -> AsyncIterator[Any]:
    host = await LocalConnector(host_dir=str(folder / "state"), python=sys.executable).connect()
    try:
        yield host
    finally:
        await host.close()


@asynccontextmanager
async def quiet_journal() -> AsyncIterator[AsyncIterator[list[LogLine]]]:
    async def lines() -> AsyncIterator[list[LogLine]]:
        yield [LogLine(text="Started x.service", cursor="j1", invocation="g", pid=1)]
        await asyncio.sleep(60)

    yield lines()


async def test_file_and_journal_together_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_text("old words\n")
    async with local(tmp_path) as host:
        file = LogFile(str(path))
        await file.mark_end(host)
        seen: list[LogLine] = []

        async def read() -> None:
            async with together(quiet_journal, [file], host) as batches:
                async for batch in batches:
                    seen.extend(batch)

        task = asyncio.create_task(read())
        await asyncio.sleep(0.3)
        with path.open("a") as log:
            log.write("one\ntwo\n")
        for _ in range(200):
            if len(seen) >= 3:
                break
            await asyncio.sleep(0.02)
        assert {line.text for line in seen} == {"Started x.service", "one", "two"}
        assert all(str(x.cursor).startswith(FILE_CURSOR) for x in seen if x.text in ("one", "two"))
        assert await file.drain(host) == []
        with path.open("a") as log:
            log.write("three\n")
        drained = [x.text for x in await file.drain(host)]
        for _ in range(100):
            if drained or any(x.text == "three" for x in seen):
                break
            await asyncio.sleep(0.02)
        assert drained == ["three"] or any(x.text == "three" for x in seen)
        task.cancel()
        await asyncio.wait([task])


async def test_a_file_that_is_not_there_yet_is_new_whole(tmp_path: Path) -> None:
    async with local(tmp_path) as host:
        file = LogFile(str(tmp_path / "later.log"))
        await file.mark_end(host)
        (tmp_path / "later.log").write_text("first\nsecond\n")
        assert [x.text for x in await file.drain(host)] == ["first", "second"]


async def test_a_journal_that_may_not_be_read_is_no_end_where_a_file_has_the_log(tmp_path: Path) -> None:
    @asynccontextmanager
    async def refused() -> AsyncIterator[AsyncIterator[list[LogLine]]]:
        raise AgentError("this login may not read the journal", code="not-permitted")
        yield  # pragma: no cover

    path = tmp_path / "s.log"
    path.write_text("")
    async with local(tmp_path) as host:
        file = LogFile(str(path))
        await file.mark_end(host)
        async with together(refused, [file], host) as batches:
            first = asyncio.ensure_future(anext(aiter(batches)))
            await asyncio.sleep(0.3)
            path.write_text("it speaks\n")
            assert [x.text for x in await asyncio.wait_for(first, 5)] == ["it speaks"]
        with pytest.raises(AgentError):
            async with together(refused, [], host) as batches:
                await anext(aiter(batches))


OLD = [
    "[2026-11-30 22:52:21] Subprocess scheduler_0 (pid=11231) crashed with exit code -15. Triggering SIGQUIT for cleanup...",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB.",
    "[2026-11-30 22:52:21] The server is fired up and ready to roll!",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
]


@pytest.mark.parametrize("words", OLD)
def test_the_old_servers_last_words_in_a_file_are_not_the_new_starts(words: str) -> None:
    """A file names no start: what was read before the old process was gone is the old one's."""
    log, p, ph = StartLog(ENGINES["sglang"], "11231@486808:boot"), begin(0.0), Phases()
    log.feed(LogLine(text=words, cursor="5:100"), 1.0, p, ph)
    assert log.cause() is None and log.mark is None and not log.tail
    log.begin_new()
    log.generation = "19368@498203:boot"
    for n, text in enumerate(
        (
            "[2026-11-30 22:53:36] Scheduler hit an exception: Traceback (most recent call last):",
            '  File "/x/scheduler.py", line 6362, in run_scheduler_process',
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB.",
        )
    ):
        log.feed(LogLine(text=text, cursor=f"6:{n}"), 2.0 + n, p, ph)
    cause = log.cause()
    assert cause is not None and cause.slug.startswith("oom"), "the new one's own words count"


def test_without_an_old_server_every_line_counts() -> None:
    log = StartLog(ENGINES["sglang"], None)
    log.feed(
        LogLine(text="The server is fired up and ready to roll!", cursor="5:1"), 1.0, begin(0.0), Phases()
    )
    assert log.mark is not None


def test_when_a_process_ended_is_known_on_the_hosts_clock() -> None:
    item = {
        "active": False,
        "exit": {"code": 1},
        "generation": "b/7@9",
        "mono_s": 500.0,
        "wall_s": 1010.0,
        "ended_at_s": 1008.5,
        "argv": ["x"],
        "log": "/l",
    }
    assert read_proc("p", item, 1.0).changed_mono_s == 498.5
    assert read_proc("p", {**item, "wall_s": None}, 1.0).changed_mono_s is None
