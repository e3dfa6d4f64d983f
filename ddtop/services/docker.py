"""A server that is a container of its own, started with `docker run`; `unit` is the container's name.

The generation is (container id, StartedAt); `docker inspect` gives the port. Each configuration is a new container. The
one before it is removed only if ddtop made it (label `ddtop.run`); any other container of that name is refused.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import shlex
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ddtop.errors import AgentError
from ddtop.events import LogLine
from ddtop.hosts.base import Host
from ddtop.services.base import CallResult, Launch, OriginalState
from ddtop.services.readings import UnitReading

_FORM = (
    "{{.Id}}|{{.State.StartedAt}}|{{.State.Status}}|{{.State.Pid}}|{{.State.ExitCode}}|{{.State.OOMKilled}}|"
    '{{.RestartCount}}|{{index .Config.Labels "ddtop.run"}}|{{range .NetworkSettings.Networks}}{{.IPAddress}},{{end}}'
)
_POLL_S = 0.5
_STARTED = re.compile(
    r"(?P<second>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?(?:Z| \+0000 UTC)"
)
"""As docker writes a moment, and as podman does in `--format`."""
EARLY_NS = 90_000_000
"""So much earlier than StartedAt a line of the same start may be stamped."""
_NO_CONTAINER = re.compile(r"no such (?:object|container)|no container with name", re.IGNORECASE)
_PIECE = 16_384
"""Bytes of one line that docker's log drivers keep together; it stamps each piece of a longer one when they are read."""
_READ_B = 200_000
"""What `exec` gives of each of the two outputs, at most."""


class DockerService:
    """Runs one container. `unit` is its name; `program` is the client, `docker` or `podman`."""

    kind = "docker"
    stops_itself = False
    log_place: str | None = None

    def __init__(self, unit: str, program: str = "docker") -> None:
        self.unit = unit
        self.program = program

    async def _run(
        self, host: Host, *words: str, timeout_s: float = 20.0, max_b: int = _READ_B
    ) -> dict[str, Any]:
        return await host.call("exec", argv=[self.program, *words], timeout_s=timeout_s, max_b=max_b)

    async def read(self, host: Host) -> UnitReading:
        return (await self._inspected(host))[0]

    async def _inspected(self, host: Host) -> tuple[UnitReading, str]:
        """The container as it is now, and the run that made it: "" where ddtop did not, or where that is not known.

        Never kept: readings are taken beside a start, and one of them may be of the container before."""
        answer = await self._run(host, "inspect", "--format", _FORM, self.unit, timeout_s=5)
        if answer["rc"] != 0 and not _NO_CONTAINER.search(answer["stderr"]):
            # The daemon is away or busy: nothing is known of the container, least of all that it is gone.
            away = _words(answer) or None
            return UnitReading(unit=self.unit, at=time.monotonic(), kind=self.kind, load_error=away), ""
        return read_container(self.unit, answer["rc"], answer["stdout"], time.monotonic(), kind=self.kind)

    @asynccontextmanager
    async def watch(self, host: Host) -> AsyncIterator[AsyncIterator[list[UnitReading]]]:
        async def readings() -> AsyncIterator[list[UnitReading]]:
            last: UnitReading | None = None
            while True:
                now = await self.read(host)
                if last is None or (now.active, now.generation, now.exit_code) != (
                    last.active,
                    last.generation,
                    last.exit_code,
                ):
                    last = now
                    yield [now]
                await asyncio.sleep(_POLL_S)

        yield readings()

    @asynccontextmanager
    async def follow(self, host: Host, cursor: str | None) -> AsyncIterator[AsyncIterator[list[LogLine]]]:
        async def lines() -> AsyncIterator[list[LogLine]]:
            at = cursor
            while True:
                found = await self.drain(host, at)
                if found:
                    at = found[-1].cursor
                    yield found
                await asyncio.sleep(_POLL_S)

        yield lines()

    async def drain(self, host: Host, cursor: str | None) -> list[LogLine]:
        """Lines after `cursor`: `STAMP#N`, docker's time stamp of the last line and its number at that instant.

        Reads on until nothing more is there: one answer of the agent holds `_READ_B` of each output."""
        found: list[LogLine] = []
        while True:
            stamp, _, count = (found[-1].cursor or "" if found else cursor or "").partition("#")
            words = ["logs", "--timestamps", *(["--since", stamp] if stamp else ["--tail", "0"]), self.unit]
            answer = await self._run(host, *words, max_b=2 * _READ_B)
            if answer["rc"] != 0:
                return found
            text = whole_lines(answer["stdout"], answer["stderr"], bool(answer.get("truncated")))
            more = stamped_lines(text, stamp, int(count or 0))
            found += more
            if not answer.get("truncated") or not more:
                return found

    async def history(self, host: Host, generation: str) -> list[LogLine]:
        started = first_stamp(generation)
        return await self.drain(host, f"{started}#0") if started else []

    async def configure(self, host: Host, launch: Launch, run_id: str, expires_at_s: float) -> str:
        now, made_by = await self._inspected(host)
        if now.load == "loaded" and not made_by:  # before anything is stopped
            raise AgentError(
                f"the container {self.unit} exists and was not made by ddtop",
                code="failed",
                do=f"remove or rename it, or give [service] unit another name than {self.unit}",
            )
        return shlex.join(self._argv(launch, run_id))

    def _argv(self, launch: Launch, run_id: str) -> list[str]:
        env = [word for key, value in sorted(launch.env.items()) for word in ("-e", f"{key}={value}")]
        return ["run", "-d", "--name", self.unit, "--label", f"ddtop.run={run_id}", *env, *launch.argv]

    async def stop(self, host: Host) -> CallResult:
        answer = await self._run(host, "stop", "--time", "30", self.unit, timeout_s=45)
        missing = "No such container" in answer["stderr"]
        return CallResult(
            rc=0 if missing else answer["rc"], error=answer["stderr"], what=f"{self.program} stop {self.unit}"
        )

    async def start(self, host: Host, launch: Launch, job_id: str) -> CallResult:
        now, made_by = await self._inspected(host)
        if now.load == "loaded":
            if not made_by:
                return CallResult(
                    rc=1,
                    error=f"the container {self.unit} exists and was not made by ddtop: remove or rename it",
                )
            await self._run(host, "rm", "-f", self.unit)
        try:
            answer = await self._run(host, *self._argv(launch, job_id.partition("-")[0]), timeout_s=60)
        except AgentError as error:
            return CallResult(rc=1, error=error.what, what=f"{self.program} run {self.unit}")
        return CallResult(rc=answer["rc"], error=answer["stderr"], what=f"{self.program} run {self.unit}")

    def owns(self, listener: Mapping[str, Any], unit: UnitReading | None) -> bool | None:
        if unit is None or not unit.container:
            return False if listener.get("pid") is not None else None
        ident, _, rest = unit.container.partition("@")
        theirs = listener.get("docker")
        if theirs:
            return ident.startswith(str(theirs)[:12])
        if listener.get("proxy_to"):
            return listener["proxy_to"] in rest.partition("@")[2].split(",")
        return None if listener.get("pid") is None else listener["pid"] == unit.main_pid

    def activity_args(self, unit: UnitReading) -> dict[str, Any] | None:
        return {"pid": unit.main_pid} if unit.main_pid else None

    async def save_for_restore(self, host: Host, run_id: str) -> None:
        """Saves nothing: a container keeps its own arguments."""

    async def restore(self, host: Host, original: OriginalState) -> list[str]:
        now, made_by = await self._inspected(host)
        if original.generation is not None and _ident(now.generation) == _ident(original.generation):
            if now.running or not original.active:
                return []
            answer = await self._run(host, "start", self.unit)  # it was stopped, and nothing took its place
            return (
                [f"container {self.unit} could not be started again: {_words(answer)}"]
                if answer["rc"]
                else []
            )
        left: list[str] = []
        if made_by:
            answer = await self._run(host, "rm", "-f", self.unit)
            left += [f"container {self.unit} could not be removed: {_words(answer)}"] if answer["rc"] else []
        if original.active and original.generation is not None:
            left.append(f"container {self.unit}, left by an earlier run, was replaced and is gone")
        return left


def _ident(generation: str | None) -> str | None:
    """The container's id in a generation."""
    return generation.partition("@")[0] if generation else None


def _words(answer: Mapping[str, Any]) -> str:
    return str(answer["stderr"]).strip()[-200:]


def read_container(
    name: str, rc: int, shown: str, at: float, *, kind: str = "docker"
) -> tuple[UnitReading, str]:
    """A reading of the line that `docker inspect --format _FORM` printed, and the label `ddtop.run` ("" without one)."""
    parts = shown.strip().split("|")
    if rc != 0 or len(parts) < 9:
        return UnitReading(unit=name, at=at, kind=kind, load="not-found", active="inactive", sub="dead"), ""
    ident, started, status, pid, code, oom, restarts, label, ips = parts[:9]
    up = status in ("running", "paused")
    if status == "restarting":  # by its restart policy: in systemd's words
        return UnitReading(
            unit=name,
            at=at,
            kind=kind,
            load="loaded",
            active="activating",
            sub="auto-restart",
            result="oom-kill" if oom == "true" else "exit-code",
            generation=f"{ident}@{started}",
            n_restarts=int(restarts) if restarts.isdigit() else None,
            need_reload=False,
            exit_code=f"exited/{code}",
            container=f"{ident}@{started}@{ips}",
        ), "" if label == "<no value>" else label
    bad = not up and code not in ("0", "")
    reading = UnitReading(
        unit=name,
        at=at,
        kind=kind,
        load="loaded",
        active="active" if up else ("failed" if bad else "inactive"),
        sub="running" if up else "exited",
        result="oom-kill" if oom == "true" else ("exit-code" if bad else "success"),
        main_pid=int(pid) if pid.isdigit() and pid != "0" else None,
        generation=f"{ident}@{started}",
        n_restarts=int(restarts) if restarts.isdigit() else None,
        need_reload=False,
        exit_code=None if up else f"exited/{code}",
        container=f"{ident}@{started}@{ips}",
    )
    return reading, "" if label == "<no value>" else label


def whole_lines(out: str, err: str, truncated: bool) -> str:
    """Both outputs of `docker logs --timestamps` as one text, of which everything up to its last stamp is there.

    Where an answer was cut, the cut line goes, and so does what the other output has after it: it is read again."""
    if not truncated:
        return out + err
    cut = [text[: text.rfind("\n") + 1] for text in (out, err) if len(text.encode()) >= _READ_B]
    ends = [text.rstrip("\n").rsplit("\n", 1)[-1].partition(" ")[0] for text in cut if text]
    if not ends:
        return out + err
    both = [text if len(text.encode()) < _READ_B else text[: text.rfind("\n") + 1] for text in (out, err)]
    return "".join(
        line
        for text in both
        for line in text.splitlines(keepends=True)
        if line.partition(" ")[0] <= min(ends)
    )


def first_stamp(generation: str) -> str:
    """The earliest stamp that a line of this start can have, as docker writes it; empty where it is not known.

    docker notes StartedAt after the process has begun, so its first lines may be older. The run before it ended at
    least 100 ms earlier: that is the shortest pause of a restart policy.

    >>> first_stamp("c0ffee@2026-12-01T03:02:01.05Z")
    '2026-12-01T03:02:00.960000000Z'
    >>> first_stamp("c0ffee@2026-12-01 03:02:01.05 +0000 UTC@10.88.0.2,")
    '2026-12-01T03:02:00.960000000Z'
    """
    found = _STARTED.match(generation.partition("@")[2].partition("@")[0])
    if found is None:
        return ""
    second = datetime.datetime.fromisoformat(found["second"] + "+00:00")
    nanos = int((found["part"] or "").ljust(9, "0")) - EARLY_NS
    second += datetime.timedelta(seconds=nanos // 10**9)
    return f"{second:%Y-%m-%dT%H:%M:%S}.{nanos % 10**9:09d}Z"


def stamped_lines(text: str, stamp: str, count: int) -> list[LogLine]:
    """Lines of `docker logs --timestamps --since STAMP`, without the first `count` lines stamped STAMP."""
    rows = sorted(
        (line.partition(" ") for line in text.split("\n") if line[:4].isdigit()), key=lambda row: row[0]
    )
    found: list[LogLine] = []
    number, last = 0, ""
    for at, _, body in rows:
        number = number + 1 if at == last else 1
        last = at
        if at < stamp or (at == stamp and number <= count):
            continue
        whole = body.replace(f"{at} ", "") if len(body) > _PIECE else body
        found.append(LogLine(text=whole.rsplit("\r", 1)[-1], cursor=f"{at}#{number}"))
    return found
