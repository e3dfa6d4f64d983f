"""Connecting again while that can help: back-off from 1 to 30 s, reset by a connection that lasted 60 s."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from ddtop.errors import HostLostError
from ddtop.hosts.base import Connector, Host, OnTry


class Backoff(NamedTuple):
    """How long to wait between tries, in seconds."""

    first_s: float = 1.0
    factor: float = 2.0
    most_s: float = 30.0
    healthy_s: float = 60.0
    """A connection that lasted this long resets the count."""

    def wait_s(self, failures: int) -> float:
        """The wait after `failures` failures in a row (≥ 1).

        >>> [Backoff().wait_s(n) for n in (1, 2, 3, 4, 5, 6, 60)]
        [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        """
        return min(self.most_s, self.first_s * self.factor ** min(failures - 1, 30))


DEFAULT = Backoff()


async def connect_with_retries(
    connector: Connector, on_try: OnTry, policy: Backoff = DEFAULT, failures: int = 0
) -> Host:
    """Tries until there is a Host. `failures` continues an earlier count.

    `on_try(attempt, error, next_s)` is called before each try (error "", None) and after each failure.
    HostUnreachableError, for which trying again cannot help, is raised at once.
    """
    attempt = 0
    while True:
        attempt += 1
        if failures and attempt == 1:
            await asyncio.sleep(policy.wait_s(failures))
        on_try(attempt, "", None)
        try:
            return await connector.connect()
        except HostLostError as error:
            failures += 1
            wait = policy.wait_s(failures)
            on_try(attempt, str(error), wait)
            await asyncio.sleep(wait)


async def connect_forever(
    connector: Connector, on_try: OnTry, policy: Backoff = DEFAULT
) -> AsyncIterator[tuple[Host, str]]:
    """Yields (host, "why the last one was lost") for each connection made; the first with "".

    The consumer uses the host until it is lost (host.wait_lost()), then asks for the next. A host not yet lost
    is closed. Raises HostUnreachableError of a connect that cannot succeed. Use `contextlib.aclosing`.
    """
    failures = 0
    why = ""
    host: Host | None = None
    try:
        while True:
            host = await connect_with_retries(connector, on_try, policy, failures)
            began = time.monotonic()
            yield host, why
            lost = asyncio.create_task(host.wait_lost())
            done, _ = await asyncio.wait([lost], timeout=0)
            why = lost.result() if done else "given up by ddtop"
            lost.cancel()
            await host.close()
            host = None
            # After a healthy minute the first try comes at once; a connection that ended sooner counts as a failure.
            failures = 0 if time.monotonic() - began >= policy.healthy_s else failures + 1
    finally:
        if host is not None:
            await host.close()
