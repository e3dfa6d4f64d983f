"""The seam between ddtop and a machine: a Host answers requests and gives streams, by whatever transport.

Everything above this room runs unchanged against an SSH host, the local machine or a test's fake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent says of itself and its host when it starts (HELLO in agent/wire.py)."""

    agent: str
    python: str
    uid: int
    user: str
    boot: str
    can: frozenset[str]
    unknown: frozenset[str]
    hostname: str
    state_dir: str | None
    state_why: str = ""
    """Why there is no state folder, and so no detached jobs."""
    mono_s: float
    at_s: float


class Host(Protocol):
    """One machine, reached. All methods raise HostLostError when the connection is gone.

    `call` raises AgentError (with the wire's code) when the agent says it cannot.
    """

    name: str
    """The name the user gave, as in `ct200`."""

    @property
    def hello(self) -> Hello: ...

    @property
    def rtt_ms(self) -> float | None:
        """Round trip of the last ping, in milliseconds."""
        ...

    async def call(self, op: str, *, timeout_s: float = 15.0, **args: Any) -> dict[str, Any]:
        """One request, one answer. `timeout_s` is the client's own limit, over the agent's."""
        ...

    def stream(
        self, op: str, **args: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[list[dict[str, Any]]]]:
        """Batches of a stream. Leaving the context cancels it on the host."""
        ...

    async def wait_lost(self) -> str:
        """Returns the reason, as a sentence, once the connection is gone: within 15 s of a silent cut."""
        ...

    async def close(self) -> None:
        """Ends the connection and the agent. Detached jobs go on."""
        ...


class Connector(Protocol):
    """How to reach one host again and again (SSH, local, demo)."""

    name: str
    target: str
    """As shown: `root@10.0.0.5:22 via jump`."""

    async def connect(self) -> Host:
        """A fresh connection with a running agent.

        Raises HostUnreachableError when trying again cannot help (unknown or changed host key, permission denied,
        no python3), HostLostError when it may (refused, timed out, cut).
        """
        ...


OnTry = Callable[[int, str, float | None], None]
"""Called with attempt, error text and seconds until the next try (None: now)."""
