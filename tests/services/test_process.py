"""The plain-process service, with the real agent: what a watcher and a follower are told over several starts."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import LogLine
from ddtop.hosts.local import LocalConnector
from ddtop.services.base import Launch, read_listener
from ddtop.services.process import ProcessService
from ddtop.services.readings import UnitReading
from ddtop.sweep.start.gate_reads import GateReader
from tests.waiting import HANG_S


@asynccontextmanager
async def local(folder: Path) -> AsyncIterator[Any]:
    host = await LocalConnector(host_dir=str(folder / "state"), python=sys.executable).connect()
    try:
        yield host
    finally:
        await host.close()


def launch(script: str) -> Launch:
    return Launch(
        key="k",
        config="c",
        tp=1,
        kind="process",
        unit="srv",
        engine="sglang",
        port=1,
        argv=("sh", "-c", script),
    )


async def until(condition: Any, what: str) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"never came: {what}")


async def test_a_process_never_started_is_inactive_and_is_watched_from_its_first_start(
    tmp_path: Path,
) -> None:
    async with local(tmp_path) as host:
        service = ProcessService("srv")
        seen: list[UnitReading] = []
        lines: list[LogLine] = []

        async def watch() -> None:
            async with service.watch(host) as batches:
                async for batch in batches:
                    seen.extend(batch)

        async def follow() -> None:
            async with service.follow(host, None) as batches:
                async for batch in batches:
                    lines.extend(batch)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watch()), group.create_task(follow())]
            await until(lambda: seen, "the state of a process never started")
            assert (seen[0].active, seen[0].main_pid) == ("inactive", None)
            for n in range(4):
                called = await service.start(host, launch(f"echo same words; echo start {n}; exit 3"), "job")
                assert called.rc == 0, called.error
                await until(
                    lambda n=n: any(f"start {n}" in line.text for line in lines), f"the words of start {n}"
                )
                await until(lambda: seen[-1].active == "failed", "its end")
            for task in tasks:
                task.cancel()
        assert [line.text for line in lines] == [x for n in range(4) for x in ("same words", f"start {n}")]
        assert len({line.cursor for line in lines}) == 8, (
            "no line of a later start passes for one of an earlier"
        )
        assert seen[-1].exit_code == "exited/3"


async def test_a_drain_after_a_new_start_reads_the_new_log_from_its_beginning(tmp_path: Path) -> None:
    async with local(tmp_path) as host:
        service = ProcessService("srv")
        await service.start(host, launch("for i in 1 2 3 4 5; do echo a long first log $i; done"), "job")
        found: list[LogLine] = []
        for _ in range(200):
            found = await service.drain(host, None)
            if len(found) == 5:
                break
            await asyncio.sleep(0.02)
        cursor = found[-1].cursor
        assert await service.drain(host, cursor) == []
        for _ in range(200):
            if not (await service.read(host)).running:
                break
            await asyncio.sleep(0.02)
        called = await service.start(host, launch("echo short"), "job")
        assert called.rc == 0, called.error
        for _ in range(200):
            found = await service.drain(host, cursor)
            if found:
                break
            await asyncio.sleep(0.02)
        assert [line.text for line in found] == ["short"]


async def test_a_process_that_stands_still_takes_the_stop_too(tmp_path: Path) -> None:
    """SIGTERM alone waits for ever in a process that SIGSTOP holds: it would end by SIGKILL, without its last words."""
    async with local(tmp_path) as host:
        service = ProcessService("srv")
        words = "trap 'echo stopped in order; exit 0' TERM; echo up; while :; do sleep 0.1; done"
        called = await service.start(host, launch(words), "job")
        assert called.rc == 0, called.error
        lines: list[LogLine] = []
        for _ in range(500):
            lines = await service.drain(host, None)
            if lines:
                break
            await asyncio.sleep(0.02)
        pid = (await service.read(host)).main_pid
        assert pid is not None and lines[0].text == "up"
        os.kill(pid, signal.SIGSTOP)
        stopped = await service.stop(host)
        assert stopped.rc == 0, stopped.error
        async with asyncio.timeout(HANG_S):
            while (ended := await service.read(host)).exit_code is None:
                await asyncio.sleep(0.02)
        assert ended.exit_code == "exited/0"
        assert (await service.drain(host, None))[-1].text == "stopped in order"


@pytest.mark.parametrize(
    ("argv", "cwd", "cause", "says"),
    [
        (("/opt/nope/bin/python", "-m", "x"), None, "exec-not-found", "/opt/nope/bin/python: No such file"),
        (("./plan.txt",), None, "exec-not-found", "plan.txt: Permission denied"),
        (("sleep", "60"), "/opt/nowhere", "working-directory-missing", "/opt/nowhere: No such file"),
    ],
)
async def test_what_cannot_be_run_is_refused_with_its_cause(
    tmp_path: Path, argv: tuple[str, ...], cwd: str | None, cause: str, says: str
) -> None:
    async with local(tmp_path) as host, asyncio.timeout(HANG_S):
        (tmp_path / "plan.txt").write_text("no program")
        argv = tuple(word.replace("./", f"{tmp_path}/") for word in argv)
        called = await ProcessService("srv").start(host, replace(launch(""), argv=argv, cwd=cwd), "j")
    assert called.refused == cause and says in called.error and "in the plan" in called.do


async def test_a_server_below_a_shell_is_the_services(tmp_path: Path) -> None:
    """A wrapper that does not `exec`: the listener is its child, and a stranger on another port is not."""
    serve = "import socket,time; s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen(); print(s.getsockname()[1],flush=True); time.sleep(600)"
    async with local(tmp_path) as host, asyncio.timeout(HANG_S):
        service = ProcessService("srv")
        called = await service.start(host, launch(f'{sys.executable} -c "{serve}"; exit $?'), "j")
        assert called.rc == 0, called.error
        while not (lines := await service.drain(host, None)):
            await asyncio.sleep(0.02)
        unit = await service.read(host)
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            (ours,) = (await host.call("listeners", port=int(lines[0].text)))["listeners"]
            (theirs,) = (await host.call("listeners", port=other.getsockname()[1]))["listeners"]
        assert ours["pid"] != unit.main_pid
        assert service.owns(ours, unit) is True and service.owns(theirs, unit) is False
        owner = await GateReader(launch(""), service, "chat").owner(
            host, read_listener(service, ours, unit), unit, 0.0
        )
        assert owner.owner == "new"
        await service.stop(host)
        while (await service.read(host)).running:
            await asyncio.sleep(0.02)
