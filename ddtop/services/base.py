"""One protocol for however a server process is run. All actions on the host go through `Host.call` alone.

A service changes nothing by itself: it is asked. What an action *returned* proves nothing about the server; the
sweep reads the unit again and judges (`ddtop.sweep.start.watchdog`).
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
    """How the server of one configuration is to be started."""

    key: str
    """The restart key: cells with the same key share one start."""
    config: str
    tp: int
    kind: str
    unit: str
    engine: str
    port: int
    argv: tuple[str, ...] = ()
    """Empty where a script of the user's sets the arguments."""
    env: Mapping[str, str] = field(default_factory=dict)
    stop_units: tuple[str, ...] = ()
    configure: tuple[str, ...] = ()
    """The user's reconfigure script (kind `command`)."""
    timeout_s: float = 1000.0
    """Limit of the script."""
    user: bool = False
    """A unit of the login's own manager (`systemctl --user`)."""
    cwd: str | None = None
    model_path: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Called:
    """What a call returned. Success proves nothing; a failure is a failure."""

    rc: int | None
    error: str = ""
    what: str = ""
    do: str = ""
    """What the host says would help, where it says so."""
    by_script: bool = False
    timed_out: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class OriginalState:
    """What a unit was before the run touched it: what restoring means."""

    unit: str
    kind: str
    active: bool
    user: bool = False
    argv: tuple[str, ...] = ()
    run: str = ""
    """The run that found it so."""
    generation: str | None = None
    """Which start ran then; None where none did, or an older ddtop wrote it down."""
    ours: frozenset[str] = frozenset()
    """Starts that the sweep has made: one that still runs is not what was there before."""


class Service(Protocol):
    """One server process on one host."""

    kind: str
    unit: str

    async def read(self, host: Host) -> UnitReading:
        """The unit as it is now."""
        ...

    def watch(self, host: Host) -> AbstractAsyncContextManager[AsyncIterator[list[UnitReading]]]:
        """Readings: one at once, one after each change."""
        ...

    def follow(
        self, host: Host, cursor: str | None
    ) -> AbstractAsyncContextManager[AsyncIterator[list[LogLine]]]:
        """The log from `cursor` on, none lost and none twice; without one, from now on."""
        ...

    async def drain(self, host: Host, cursor: str | None) -> list[LogLine]:
        """What the log holds after `cursor` at this moment, without following."""
        ...

    async def history(self, host: Host, generation: str) -> list[LogLine]:
        """What one start has written so far (the latest few thousand lines)."""
        ...

    async def configure(self, host: Host, launch: Launch, run_id: str, expires_at_s: float) -> str:
        """Makes the next start use `launch`; says in words what was written. Raises AgentError."""
        ...

    async def stop(self, host: Host) -> Called:
        """Begins the stop; does not wait."""
        ...

    async def start(self, host: Host, launch: Launch, job_id: str) -> Called:
        """Starts it (or runs the user's script, waiting for it)."""
        ...

    @property
    def stops_itself(self) -> bool:
        """The start call stops the old process too (a script does)."""
        ...

    def owns(self, listener: Mapping[str, Any], unit: UnitReading | None) -> bool | None:
        """Whether a LISTENER of the agent belongs to this service; None if it cannot be seen."""
        ...

    def activity_args(self, unit: UnitReading) -> dict[str, Any] | None:
        """Arguments of the agent's `activity` stream for the unit's processes; None when there are none."""
        ...

    async def keep(self, host: Host, run_id: str) -> None:
        """Called before the run first touches it: keeps on the host what `restore` will need and a recording must not
        hold. Raises AgentError."""
        ...

    async def restore(self, host: Host, original: OriginalState) -> list[str]:
        """Puts back what it was. Returns, in words, what could not be undone."""
        ...


def read_listener(service: Service, row: Mapping[str, Any], unit: UnitReading | None) -> ListenerReading:
    """One LISTENER of the agent, with its ownership."""
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
    """A log line of a `journal-follow` item; None for anchors, gaps and the like."""
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
