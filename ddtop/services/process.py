"""A server that is a plain command under the agent's supervisor, for hosts that have sshd and no systemd.

The generation is (pid, start time); the log is a file in the agent's state folder, followed by (inode, offset).
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import LogLine
from ddtop.hosts.base import Host
from ddtop.services.base import CallResult, Launch, OriginalState
from ddtop.services.readings import UnitReading

START_WAIT_S = 0.2
STOP_S = 30
"""For a process to end by SIGTERM; then comes SIGKILL."""
REFUSED = {
    "correct `command` in the plan": "exec-not-found",
    "correct `cwd` in the plan": "working-directory-missing",
}
"""What the agent says to do about a program that it cannot run → the cause."""
GONE_S = 45.0
"""How long a stop may take: `STOP_S` for the process, the rest for its supervisor."""


class ProcessService:
    """Runs one supervised command. `unit` is the name that the supervisor knows it by."""

    kind = "process"
    stops_itself = False
    log_place: str | None = None

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self._log: str | None = None

    def _reading(self, item: Mapping[str, Any]) -> UnitReading:
        self._log = item.get("log") or self._log
        return read_proc(self.unit, item, time.monotonic())

    async def read(self, host: Host) -> UnitReading:
        try:
            return self._reading(await host.call("proc-show", name=self.unit))
        except AgentError as error:
            if error.code == "not-found":
                return UnitReading(
                    unit=self.unit, at=time.monotonic(), kind=self.kind, active="inactive", sub="dead"
                )
            raise

    @asynccontextmanager
    async def watch(self, host: Host) -> AsyncIterator[AsyncIterator[list[UnitReading]]]:
        async with aclosing(self._readings(host)) as readings:
            yield readings

    async def _readings(self, host: Host) -> AsyncGenerator[list[UnitReading], None]:
        """Readings of the process. One that was never started is inactive, not an error; its log appears with its start."""
        reading = await self.read(host)
        if self._log is None:
            yield [reading]
        while self._log is None:
            await asyncio.sleep(START_WAIT_S)
            await self.read(host)
        async with host.stream("proc-watch", name=self.unit) as batches:
            async for batch in batches:
                yield [self._reading(item) for item in batch if "active" in item]

    @asynccontextmanager
    async def follow(self, host: Host, cursor: str | None) -> AsyncIterator[AsyncIterator[list[LogLine]]]:
        never_started = False
        while self._log is None:  # a process that was never started here has no log yet
            await self.read(host)
            if self._log is None:
                never_started = True
                await asyncio.sleep(START_WAIT_S)
        inode, offset = split_cursor(cursor)
        if never_started and offset is None:
            offset = 0  # all that it holds is new
        async with host.stream("file-follow", path=self._log, offset=offset, inode=inode) as batches:

            async def lines() -> AsyncIterator[list[LogLine]]:
                async for batch in batches:
                    yield [
                        LogLine(
                            text=str(item["text"]),
                            at_s=item.get("at_s"),
                            cursor=f"{item['inode']}:{item['offset']}",
                        )
                        for item in batch
                        if "text" in item and "offset" in item
                    ]

            yield lines()

    async def drain(self, host: Host, cursor: str | None) -> list[LogLine]:
        if self._log is None:
            return []
        inode, offset = split_cursor(cursor)
        start = offset or 0
        answer = await host.call("file-read", path=self._log, offset=start, max_b=500_000)
        now = answer.get("inode", inode)
        if start and inode is not None and now != inode:  # a new start's log: the cursor was the old one's
            start, answer = 0, await host.call("file-read", path=self._log, offset=0, max_b=500_000)
        found: list[LogLine] = []
        for line in answer.get("text", "").splitlines(keepends=True):
            start += len(line.encode("utf-8", "surrogateescape"))
            if line.endswith("\n"):
                found.append(
                    LogLine(text=line.rstrip("\n").rsplit("\r", 1)[-1], cursor=f"{now or 0}:{start}")
                )
        return found

    async def history(self, host: Host, generation: str) -> list[LogLine]:
        return await self.drain(host, None)

    async def configure(self, host: Host, launch: Launch, run_id: str, expires_at_s: float) -> str:
        return shlex.join(launch.argv)

    async def stop(self, host: Host) -> CallResult:
        words = f"stop {self.unit}"
        try:
            await host.call("proc-stop", name=self.unit, stop_s=STOP_S)
        except AgentError as error:
            if error.code == "not-found":
                return CallResult(rc=0, what=words)
            return CallResult(rc=1, error=error.what, what=words)
        return CallResult(rc=0, what=words)

    async def start(self, host: Host, launch: Launch, job_id: str) -> CallResult:
        words = f"start {self.unit}"
        try:
            answer = await host.call(
                "proc-start",
                name=self.unit,
                argv=list(launch.argv),
                env=dict(launch.env),
                cwd=launch.cwd,
                stop_s=STOP_S,
            )
        except AgentError as error:
            cause = REFUSED.get(error.do) if error.code == "bad-request" else None
            return CallResult(rc=1, error=error.what, what=words, do=error.do, refused=cause)
        self._log = answer.get("log") or self._log
        return CallResult(rc=0, what=words)

    def owns(self, listener: Mapping[str, Any], unit: UnitReading | None) -> bool | None:
        pid = listener.get("pid")
        if pid is None:
            return None
        if unit is not None and unit.cgroup and listener.get("cgroup") == unit.cgroup:
            return True
        # The process leads a group of its own: a server that its wrapper did not `exec` is in it.
        main = unit.main_pid if unit is not None else None
        return main is not None and main in (pid, listener.get("pgrp"))

    def activity_args(self, unit: UnitReading) -> dict[str, Any] | None:
        return {"pid": unit.main_pid} if unit.main_pid else None

    async def save_for_restore(self, host: Host, run_id: str) -> None:
        await host.call("proc-keep", name=self.unit, run=run_id)

    async def restore(self, host: Host, original: OriginalState) -> list[str]:
        now = await self.read(host)
        if original.active and now.running and now.generation == original.generation:
            return []  # the run never came to touch it
        if now.running:
            called = await self._stopped(host)
            if called.rc:
                return [f"{self.unit} could not be stopped: {called.error}"]
        return await self._start_original(host, original) if original.active else []

    async def _stopped(self, host: Host) -> CallResult:
        """Stops it and waits until it has exited: the next start needs its name and its port."""
        called = await self.stop(host)
        until = time.monotonic() + GONE_S
        while called.rc == 0 and not (await self.read(host)).gone:
            if time.monotonic() > until:
                return CallResult(rc=1, error=f"it still runs after {GONE_S:.0f} s", what=called.what)
            await asyncio.sleep(START_WAIT_S)
        return called

    async def _start_original(self, host: Host, original: OriginalState) -> list[str]:
        """As it was started before; where the host has not kept that, by its command line, which is said."""
        try:
            await host.call("proc-restore", name=self.unit, run=original.run)
        except AgentError as error:
            if error.code != "not-found" or not original.argv:
                return [f"{self.unit} could not be started again: {error.what}"]
        else:
            return []
        try:
            await host.call(
                "proc-start", name=self.unit, argv=list(original.argv), env={}, cwd=None, stop_s=STOP_S
            )
        except AgentError as error:
            return [f"{self.unit} could not be started again: {error.what}"]
        return [f"{self.unit} was started again by its command line alone: its environment was not kept"]


def split_cursor(cursor: str | None) -> tuple[int | None, int | None]:
    """(inode, offset) of a file cursor; (None, None) without one."""
    head, sep, tail = (cursor or "").partition(":")
    return (int(head), int(tail)) if sep and head.isdigit() and tail.isdigit() else (None, None)


def read_proc(name: str, item: Mapping[str, Any], at: float) -> UnitReading:
    """A reading from the supervisor's answer, in systemd's words."""
    active, raw = item.get("active"), item.get("exit")
    running = active is True or active in ("active", "running")
    code = exit_code(raw)
    failed = not running and code is not None and code not in ("exited/0", "killed/15")
    word = "active" if running else ("failed" if failed else "inactive")
    if item.get("ending"):  # stopping: its supervisor waits for the last of its processes
        word = "deactivating"
    # As `pid@start:boot`, without a slash: in a log the sweep takes the text before a slash as the name of a start.
    boot, _, start = str(item["generation"]).rpartition("/") if item.get("generation") else ("", "", "")
    generation = f"{start}:{boot.replace('/', '.')}" if start else None
    return UnitReading(
        unit=name,
        at=at,
        kind="process",
        load="loaded",
        active=word,
        sub="running" if running else "dead",
        result="success" if not failed else "exit-code",
        main_pid=item.get("pid"),
        generation=generation,
        n_restarts=0,
        need_reload=False,
        exit_code=code,
        argv=shlex.join(item.get("argv") or []),
        changed_mono_s=_changed(item, running),
    )


def _changed(item: Mapping[str, Any], running: bool) -> float | None:
    """When its state last changed, on the host's monotonic clock: both of the host's clocks were read at once.

    >>> _changed({"mono_s": 500.0, "wall_s": 1010.0, "ended_at_s": 1008.5}, False)
    498.5
    """
    at = item.get("started_at_s" if running else "ended_at_s")
    mono, wall = item.get("mono_s"), item.get("wall_s")
    if at is None or mono is None or wall is None:
        return None
    return float(mono) - max(0.0, float(wall) - float(at))


def exit_code(raw: Any) -> str | None:
    """The supervisor's `exit` in systemd's words, or its own words where it did not see the exit.

    >>> exit_code({"code": 1}), exit_code({"signal": "SIGKILL"}), exit_code({"signal": "signal 40"}), exit_code(None)
    ('exited/1', 'killed/9', 'killed/40', None)
    >>> exit_code({"error": "the host was rebooted"})
    'the host was rebooted'
    """
    if not isinstance(raw, Mapping):
        return None
    if isinstance(raw.get("code"), int):
        return f"exited/{raw['code']}"
    if isinstance(raw.get("signal"), str):
        name = raw["signal"]
        number = signal.Signals.__members__.get(name)
        return f"killed/{int(number) if number is not None else name.rpartition(' ')[2]}"
    return str(raw["error"]) if raw.get("error") else None
