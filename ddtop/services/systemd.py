"""A server that is a systemd unit: of the system, or of the login's own manager.

Arguments are set by a run-time drop-in (`/run/systemd/system/UNIT.d/50-ddtop.conf`, empty `ExecStart=` first), which
is gone after a reboot; it carries the run's id and an expiry. A unit whose main process is `docker run` or `podman run`
has a container too: then `inspect` gives the generation and the port, never docker-proxy.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import LogLine
from ddtop.hosts.base import Host
from ddtop.services.base import CallResult, Launch, OriginalState, journal_line
from ddtop.services.containers import container_name, inspect_container, lacks_container
from ddtop.services.log_file import LogFile, together
from ddtop.services.readings import UnitReading, read_unit
from ddtop.services.unit.output import output_of
from ddtop.services.unit.systemctl_show import exec_argv

CONTAINER_POLL_S = 0.5
"""Seconds between two looks at a unit whose `docker run` has not created its container yet."""


class SystemdService:
    """Runs one systemd unit. `user` means `systemctl --user`."""

    kind = "systemd"
    stops_itself = False

    def __init__(self, unit: str, *, user: bool = False) -> None:
        self.unit = unit if "." in unit.rsplit("/", 1)[-1] else f"{unit}.service"
        self.user = user
        self.log_files: tuple[LogFile, ...] = ()
        self.log_place: str | None = None

    async def find_log(self, host: Host) -> bool:
        """Looks where the unit's files send its output. True: it is another place than before."""
        try:
            text = (await host.call("unit-cat", unit=self.unit, user=self.user))["text"]
        except AgentError:
            return False
        found = output_of(str(text), self.unit)
        self.log_place = ", ".join(found.files) or found.elsewhere or None
        if found.files == tuple(f.path for f in self.log_files):
            return False
        self.log_files = tuple(LogFile(path) for path in found.files)
        for file in self.log_files:
            await file.mark_end(host)
        return True

    async def read(self, host: Host) -> UnitReading:
        answer = await host.call("unit-show", unit=self.unit, user=self.user)
        return await self._reading(host, answer["props"])

    async def _reading(self, host: Host, props: Mapping[str, Any]) -> UnitReading:
        return await self._with_container(host, read_unit(self.unit, props, time.monotonic()))

    async def _with_container(self, host: Host, reading: UnitReading) -> UnitReading:
        name = container_name(exec_argv(reading.argv))
        if name is None or not reading.running:
            return reading
        found = await inspect_container(host, *name)
        if found is None:
            return reading
        # Both make the generation: a container may be replaced under a unit that stays. It is as old as what systemd said:
        # the client may have ended meanwhile, and a reading of that must not be overwritten.
        return replace(reading, container=found, generation=f"{reading.generation or ''}/{found}")

    @asynccontextmanager
    async def watch(self, host: Host) -> AsyncIterator[AsyncIterator[list[UnitReading]]]:
        async with host.stream("unit-watch", unit=self.unit, user=self.user, poll_s=5) as batches:
            async with aclosing(self._watched(host, aiter(batches))) as readings:
                yield readings

    async def _watched(
        self, host: Host, batches: AsyncIterator[list[dict[str, Any]]]
    ) -> AsyncGenerator[list[UnitReading], None]:
        """A reading after each change, and one when the container of a `docker run` appears: systemd reports only the
        client, which runs before its container exists."""
        coming: asyncio.Future[list[dict[str, Any]] | None] | None = None
        last: UnitReading | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(batches, None))
                waits = last is not None and lacks_container(last)
                await asyncio.wait([coming], timeout=CONTAINER_POLL_S if waits else None)
                if coming.done():
                    batch, coming = coming.result(), None
                    if batch is None:
                        return
                    found = [await self._reading(host, item["props"]) for item in batch if "props" in item]
                    last = found[-1] if found else last
                    yield found
                elif last is not None:
                    now = await self.read(host)
                    if not lacks_container(now):
                        last = now
                        yield [now]
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait([coming])
                if not coming.cancelled():
                    coming.exception()  # taken, so that asyncio does not log it: others report the lost host

    @asynccontextmanager
    async def follow(self, host: Host, cursor: str | None) -> AsyncIterator[AsyncIterator[list[LogLine]]]:
        await self.find_log(host)
        if not self.log_files:
            async with self._journal(host, cursor) as lines:
                yield lines
            return
        async with together(lambda: self._journal(host, cursor), self.log_files, host) as lines:
            yield lines

    @asynccontextmanager
    async def _journal(self, host: Host, cursor: str | None) -> AsyncIterator[AsyncIterator[list[LogLine]]]:
        async with host.stream(
            "journal-follow",
            unit=self.unit,
            user=self.user,
            after_cursor=cursor,
            invocation=None,
            anchor=True,
        ) as batches:

            async def lines() -> AsyncIterator[list[LogLine]]:
                async for batch in batches:
                    yield lines_of(batch)

            yield lines()

    async def drain(self, host: Host, cursor: str | None) -> list[LogLine]:
        in_files = [line for file in self.log_files for line in await file.drain(host)]
        try:
            return await self._drain_journal(host, cursor) + in_files
        except AgentError:
            if in_files:
                return in_files
            raise

    async def _drain_journal(self, host: Host, cursor: str | None) -> list[LogLine]:
        found: list[LogLine] = []
        for _ in range(20):
            answer = await host.call(
                "journal-read",
                unit=self.unit,
                user=self.user,
                after_cursor=cursor,
                invocation=None,
                lines=2000,
            )
            lines = [line for item in answer["entries"] if (line := journal_line(item)) is not None]
            found += lines
            if not answer.get("more") or not lines:
                break
            cursor = lines[-1].cursor
        return found

    async def history(self, host: Host, generation: str) -> list[LogLine]:
        answer = await host.call(
            "journal-read",
            unit=self.unit,
            user=self.user,
            after_cursor=None,
            invocation=generation.partition("/")[0],
            lines=5000,
        )
        return [line for item in answer["entries"] if (line := journal_line(item)) is not None]

    async def configure(self, host: Host, launch: Launch, run_id: str, expires_at_s: float) -> str:
        if not launch.argv and not launch.env:
            return f"{self.unit} is started as it is"
        answer = await host.call(
            "override-write",
            unit=self.unit,
            user=self.user,
            run=run_id,
            expires_at_s=expires_at_s,
            exec_argv=list(launch.argv),
            env=dict(launch.env),
            extra={},
        )
        return f"{answer['path']}: {shlex.join(launch.argv)}"

    async def stop(self, host: Host) -> CallResult:
        return await self._action(host, "stop")

    async def start(self, host: Host, launch: Launch, job_id: str) -> CallResult:
        # A restart by the sweep counts against StartLimitBurst: without the reset a unit that failed often is refused.
        await self._action(host, "reset-failed")
        return await self._action(host, "start")

    async def _action(self, host: Host, action: str) -> CallResult:
        words = f"systemctl {'--user ' if self.user else ''}{action} {self.unit}"
        try:
            answer = await host.call("unit-action", unit=self.unit, action=action, user=self.user)
        except AgentError as error:
            return CallResult(
                rc=1, error=f"{error.what}\n{error.code.replace('-', ' ')}", what=words, do=error.do
            )
        return CallResult(rc=answer["rc"], error=answer.get("stderr", ""), what=words)

    def owns(self, listener: Mapping[str, Any], unit: UnitReading | None) -> bool | None:
        if unit is not None and unit.container:
            ours = unit.container.partition("@")[0]
            theirs = listener.get("docker")
            if theirs:
                return ours.startswith(str(theirs)[:12]) or str(theirs).startswith(ours[:12])
            if listener.get("proxy_to"):
                return True if listener["proxy_to"] in unit.container.split("@")[-1].split(",") else None
        elif (
            unit is not None
            and lacks_container(unit)
            and (listener.get("docker") or listener.get("proxy_to"))
        ):
            return None  # a container, and the unit's own is not known yet
        if listener.get("unit"):
            same_manager = self.user == ("/user@" in str(listener.get("cgroup", "")))
            return listener["unit"] == self.unit and same_manager
        if unit is not None and unit.cgroup and listener.get("cgroup"):
            group = str(listener["cgroup"])
            return group == unit.cgroup or group.startswith(unit.cgroup + "/")
        if listener.get("pid") is not None:
            return unit is not None and listener["pid"] == unit.main_pid
        return None

    def activity_args(self, unit: UnitReading) -> dict[str, Any] | None:
        return {"unit": self.unit, "user": self.user} if unit.running else None

    async def save_for_restore(self, host: Host, run_id: str) -> None:
        """Saves nothing: the unit's own file is not changed."""

    async def restore(self, host: Host, original: OriginalState) -> list[str]:
        left: list[str] = []
        removed: list[str] = []
        try:
            removed = (await host.call("override-remove", unit=self.unit, user=self.user))["removed"]
        except AgentError as error:
            left.append(f"the override of {self.unit} could not be removed: {error.what}")
        now = await self.read(host)
        action = None
        # A start by the sweep keeps the sweep's arguments, even if an earlier try removed the override.
        if original.active and (removed or not now.running or now.generation in original.ours):
            action = "restart" if now.running else "start"
        elif not original.active and (now.running or now.active == "activating"):
            action = "stop"
        elif now.active == "failed" and not original.active:
            action = "reset-failed"
        if action:
            if action == "start":
                await self._action(host, "reset-failed")
            called = await self._action(host, action)
            if called.rc:
                left.append(f"{called.what} failed: {called.error.strip()[-200:]}")
        return left


def lines_of(batch: list[dict[str, Any]]) -> list[LogLine]:
    """The lines of a batch. An anchor comes as an empty line that carries only the cursor to go on from."""
    found: list[LogLine] = []
    for item in batch:
        if item.get("anchor"):
            found.append(LogLine(text="", cursor=item["cursor"]))
        elif (line := journal_line(item)) is not None:
            found.append(line)
    return found
