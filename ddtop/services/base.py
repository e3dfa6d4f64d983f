"""`Service`: the protocol that every way to run a server process implements.

A service acts only when it is asked, and reaches the host through `Host.call` and `Host.stream` alone. The return of a
call proves nothing about the server: the sweep reads the unit again and judges it (`ddtop.sweep.start.watchdog`).

Order of calls in one start: `save_for_restore` (before the run first touches the unit), `configure`, `stop` (unless
`stops_itself`), `start`. `watch` and `follow` run beside them for the whole sweep; `restore` comes at the end of the run.

A new kind needs: a class with these methods, a line in `kinds.service_for` (and in `kinds.OUTSIDE_SYSTEMD`), its name in
`ddtop.plan.model` (`ServiceKind`, `SERVICE_KINDS`) and in `plan.read.configs.read_service`, and the word that its
evidence names as source in `readings.TOLD_BY`. `docker.py` is the example to start from: it needs nothing of systemd.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ddtop.events import LogLine
from ddtop.hosts.base import Host
from ddtop.services.readings import ListenerReading, UnitReading


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """How to start the server of one configuration."""

    key: str
    """The restart key: cells with the same key share one start."""
    config: str
    tp: int
    kind: str
    """The service's kind, as in the plan."""
    unit: str
    engine: str
    port: int
    argv: tuple[str, ...] = ()
    """The server's command line; empty where the unit or the user's script sets it."""
    env: Mapping[str, str] = field(default_factory=dict)
    stop_units: tuple[str, ...] = ()
    """Units that must be down first: they share the port or the GPUs."""
    configure: tuple[str, ...] = ()
    """The user's reconfigure script (kind `command`)."""
    timeout_s: float = 1000.0
    """Time limit of the script, in seconds."""
    user: bool = False
    """A unit of the login's own manager (`systemctl --user`)."""
    cwd: str | None = None
    model_path: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CallResult:
    """What `start` or `stop` returned. A success proves nothing; a failure is one."""

    rc: int | None
    """Exit code; None if the call has none (its time limit passed, or it is still running)."""
    error: str = ""
    """What the command printed, or the agent's error."""
    what: str = ""
    """The command as a person would type it, for messages."""
    do: str = ""
    """The agent's own advice, if it gave any."""
    by_script: bool = False
    """The user's reconfigure script returned it."""
    timed_out: bool = False
    refused: str | None = None
    """The cause, where what the plan asks for cannot be run at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OriginalState:
    """What a unit was before the run touched it: what restoring means."""

    unit: str
    kind: str
    active: bool
    user: bool = False
    argv: tuple[str, ...] = ()
    run: str = ""
    """Id of the run that recorded this."""
    generation: str | None = None
    """The start that was running; None if none was, or if an older ddtop recorded it."""
    ours: frozenset[str] = frozenset()
    """Starts made by the sweep: if one of them is running, it is not the original."""


class Service(Protocol):
    """One server process on one host."""

    kind: str
    unit: str
    log_place: str | None
    """Where the log is, in words, if not where this kind has it by nature (the journal): a file, or nowhere."""

    async def read(self, host: Host) -> UnitReading:
        """The unit as it is now. A unit that does not exist is a reading too (`not-found` or `inactive`)."""
        ...

    def watch(self, host: Host) -> AbstractAsyncContextManager[AsyncIterator[list[UnitReading]]]:
        """Yields a reading at once and one after each change, in batches."""
        ...

    def follow(
        self, host: Host, cursor: str | None
    ) -> AbstractAsyncContextManager[AsyncIterator[list[LogLine]]]:
        """The log after `cursor`, each line once; without a cursor, from now on. Each line carries its own cursor."""
        ...

    async def drain(self, host: Host, cursor: str | None) -> list[LogLine]:
        """The lines after `cursor` that are there now, without waiting for more."""
        ...

    async def history(self, host: Host, generation: str) -> list[LogLine]:
        """The lines that one start has logged so far (the last few thousand)."""
        ...

    async def configure(self, host: Host, launch: Launch, run_id: str, expires_at_s: float) -> str:
        """Makes the next start use `launch`. Returns what was written, in words.

        run_id, expires_at_s (seconds since 1970) go into what is written, so that leftovers are found later.
        Raises AgentError where the host refuses: nothing has been stopped yet.
        """
        ...

    async def stop(self, host: Host) -> CallResult:
        """Requests the stop and returns; the caller watches until the unit is gone."""
        ...

    async def start(self, host: Host, launch: Launch, job_id: str) -> CallResult:
        """Requests the start. With a reconfigure script: runs it as the host job `job_id` and waits for it."""
        ...

    @property
    def stops_itself(self) -> bool:
        """Whether `start` also stops the old process, so that `stop` is not called before it."""
        ...

    def owns(self, listener: Mapping[str, Any], unit: UnitReading | None) -> bool | None:
        """Whether a listening socket (LISTENER of agent/wire.py) belongs to this service; None if that cannot be seen."""
        ...

    def activity_args(self, unit: UnitReading) -> dict[str, Any] | None:
        """Arguments of the agent's `activity` stream that select the unit's processes; None if none run."""
        ...

    async def save_for_restore(self, host: Host, run_id: str) -> None:
        """Saves on the host what `restore` needs and a recording must not hold (an environment with secrets).

        Raises AgentError.
        """
        ...

    async def restore(self, host: Host, original: OriginalState) -> list[str]:
        """Puts the unit back to `original`. Returns what could not be undone, in words."""
        ...


def read_listener(service: Service, row: Mapping[str, Any], unit: UnitReading | None) -> ListenerReading:
    """A listening socket that the agent reported, with whether `service` owns it."""
    return ListenerReading(
        addr=str(row.get("addr", "?")),
        port=int(row.get("port", 0)),
        pid=row.get("pid"),
        comm=row.get("comm"),
        cgroup=row.get("cgroup"),
        unit=row.get("unit"),
        container=row.get("docker"),
        owned=service.owns(row, unit),
    )


def journal_line(item: Mapping[str, Any]) -> LogLine | None:
    """The log line of one `journal-follow` item; None for items without text (an anchor, a gap)."""
    if item.get("anchor") or item.get("gap") or "text" not in item:
        return None
    text = str(item["text"])
    if item.get("cut"):
        text = text or "[a line journald gave no text for]"
    return LogLine(
        text=text,
        at_s=item.get("at_s"),
        cursor=item.get("cursor") or None,
        invocation=item.get("invocation"),
        pid=item.get("pid"),
        priority=item.get("priority"),
    )
