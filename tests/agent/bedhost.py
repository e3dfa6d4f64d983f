"""Connecting to the bed's hosts in tests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ddtop.hosts.base import Host
from ddtop.hosts.ssh.connection import SshConnector
from tests.bed.client import Bed


def connector(name: str, user: str | None = None, **more: Any) -> SshConnector:
    return SshConnector(name, config_paths=[Path(Bed.ssh_config)], user=user, **more)


@contextlib.asynccontextmanager
async def reached(name: str, user: str | None = None, **more: Any) -> AsyncIterator[Host]:
    """A connected host."""
    host = await connector(name, user, **more).connect()
    try:
        yield host
    finally:
        await host.close()


async def take(batches: Any, count: int) -> list[dict[str, Any]]:
    """At least `count` items of a stream."""
    found: list[dict[str, Any]] = []
    async for batch in batches:
        found += batch
        if len(found) >= count:
            return found
    return found
