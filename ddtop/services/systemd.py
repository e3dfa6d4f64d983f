"""A server that is a systemd unit: of the system, or of the login's own manager.

Arguments are set by a run-time drop-in (`/run/systemd/system/UNIT.d/50-ddtop.conf`, empty `ExecStart=` first), which
a reboot forgets; it carries the run's id and an expiry. A unit whose main process is `docker run` or `podman run`
has a container too: its generation and its port are then told by inspect, never by docker-proxy.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import LogLine
from ddtop.hosts.base import Host
from ddtop.services.base import Called, Launch, OriginalState, journal_line
from ddtop.services.readings import UnitReading, read_unit

_ARGV = re.compile(r"argv\[\]=(?P<argv>.*?) ; ")
CONTAINER_POLL_S = 0.5
"""How often a unit whose `docker run` has not made its container yet is looked at again."""


class SystemdService:
    """See the module. `user` means `systemctl --user`."""

    kind = "systemd"
    stops_itself = False

    def __init__(self, unit: str, *, user: bool = False) -> None:
        self.unit = unit if "." in unit.rsplit("/", 1)[-1] else f"{unit}.service"
        self.user = user

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
        # Both make the generation: a container may be replaced under a unit that stays.
        generation = f"{reading.generation or ''}/{found}"
        return replace(reading, container=found, generation=generation, at=time.monotonic())

    @asynccontextmanager
    async def watch(self, host: Host) -> AsyncIterator[AsyncIterator[list[UnitReading]]]:
        async with host.stream("unit-watch", unit=self.unit, user=self.user, poll_s=5) as batches:
            async with aclosing(self._watched(host, aiter(batches))) as readings:
                yield readings

    async def _watched(
        self, host: Host, batches: AsyncIterator[list[dict[str, Any]]]
    ) -> AsyncGenerator[list[UnitReading], None]:
        """A reading after each change, and one when the container of a `docker run` appears: systemd tells of the
        client alone, which is there before its container is."""
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
                    now = await self._with_container(host, last)
                    if now is not last:
                        last = now
                        yield [now]
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait([coming])
                if not coming.cancelled():
                    coming.exception()  # the loss of the host is told by whoever else waits on it

    @asynccontextmanager
    async def follow(self, host: Host, cursor: str | None) -> AsyncIterator[AsyncIterator[list[LogLine]]]:
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

    async def stop(self, host: Host) -> Called:
        return await self._action(host, "stop")

    async def start(self, host: Host, launch: Launch, job_id: str) -> Called:
        # Without it a unit that failed often is refused: a restart by the sweep counts against StartLimitBurst.
        await self._action(host, "reset-failed")
        return await self._action(host, "start")

    async def _action(self, host: Host, action: str) -> Called:
        words = f"systemctl {'--user ' if self.user else ''}{action} {self.unit}"
        try:
            answer = await host.call("unit-action", unit=self.unit, action=action, user=self.user)
        except AgentError as error:
            return Called(
                rc=1, error=f"{error.what}\n{error.code.replace('-', ' ')}", what=words, do=error.do
            )
        return Called(rc=answer["rc"], error=answer.get("stderr", ""), what=words)

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

    async def keep(self, host: Host, run_id: str) -> None:
        """Nothing: the unit's own file stays."""

    async def restore(self, host: Host, original: OriginalState) -> list[str]:
        left: list[str] = []
        removed: list[str] = []
        try:
            removed = (await host.call("override-remove", unit=self.unit, user=self.user))["removed"]
        except AgentError as error:
            left.append(f"the override of {self.unit} could not be removed: {error.what}")
        now = await self.read(host)
        action = None
        # What the sweep started runs on with the sweep's arguments, though an earlier try has removed the override.
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


def exec_argv(shown: str | None) -> list[str]:
    """The argv of `ExecStart` as `systemctl show` prints it.

    >>> exec_argv("{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --name x img ; ignore_errors=no ; }")[1:4]
    ['run', '--name', 'x']
    """
    match = _ARGV.search((shown or "").rsplit("\n", 1)[-1])
    return match["argv"].split() if match else []


def runs_container(argv: list[str]) -> bool:
    """Whether a command is `docker run` or `podman run`."""
    return len(argv) > 1 and argv[0].rsplit("/", 1)[-1] in ("docker", "podman") and "run" in argv[1:3]


def lacks_container(unit: UnitReading) -> bool:
    """Whether a unit is the client of a container that is not known (yet)."""
    return unit.running and unit.container is None and runs_container(exec_argv(unit.argv))


def container_name(argv: list[str]) -> tuple[str, str] | None:
    """(program, container name) where a command is `docker run --name X` or `podman run`; None otherwise."""
    if not runs_container(argv):
        return None
    for i, word in enumerate(argv):
        if word == "--name" and i + 1 < len(argv):
            return argv[0], argv[i + 1]
        if word.startswith("--name="):
            return argv[0], word[7:]
    return None


async def inspect_container(host: Host, program: str, name: str) -> str | None:
    """`ID@StartedAt@IP,IP` of a container that is there; None when there is none (yet), or it may not be looked at."""
    answer = await host.call("exec", argv=[program, "inspect", name], timeout_s=5)
    return container_id(answer["stdout"]) if answer["rc"] == 0 else None


def container_id(shown: str) -> str | None:
    """`ID@StartedAt@IP,IP` of the JSON of `docker inspect`; None where that cannot be read.

    >>> container_id('[{"Id": "ab", "State": {"StartedAt": "t"}, "NetworkSettings": {"Networks": {"n": {"IPAddress": "10.1.1.2"}}}}]')
    'ab@t@10.1.1.2'
    """
    try:
        value = json.loads(shown)[0]
        ident, started = str(value["Id"]), str(value["State"]["StartedAt"])
        networks = (value.get("NetworkSettings") or {}).get("Networks") or {}
        addresses = [str(n["IPAddress"]) for n in networks.values() if n and n.get("IPAddress")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return f"{ident}@{started}@{','.join(addresses)}" if ident else None
