"""Reconnecting: when it waits, for how long, and what ends it."""

import asyncio
import contextlib
from typing import Any

import pytest

from ddtop.errors import HostLostError, HostUnreachableError
from ddtop.hosts.reconnect import Backoff, connect_forever, connect_with_retries

FAST = Backoff(first_s=0.01, most_s=0.05, healthy_s=0.2)


class FakeHost:
    def __init__(self) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.closed = False

    async def wait_lost(self) -> str:
        return await asyncio.shield(self.lost)

    async def close(self) -> None:
        self.closed = True


class FakeConnector:
    """Plays a list of outcomes: an exception, or None for a host."""

    name = target = "fake"

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.hosts: list[FakeHost] = []

    async def connect(self) -> Any:
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        self.hosts.append(FakeHost())
        return self.hosts[-1]


def lost() -> HostLostError:
    return HostLostError("refused", host="fake")


def test_back_off_doubles_to_30_s() -> None:
    policy = Backoff()
    assert [policy.wait_s(n) for n in range(1, 9)] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert policy.wait_s(10_000) == 30
    assert policy.healthy_s == 60


async def test_tries_until_it_is_there_and_tells() -> None:
    told: list[tuple[int, str, float | None]] = []
    host = await connect_with_retries(FakeConnector(lost(), lost()), lambda *a: told.append(a), FAST)
    assert host is not None
    assert [(attempt, next_s) for attempt, _, next_s in told] == [
        (1, None),
        (1, 0.01),
        (2, None),
        (2, 0.02),
        (3, None),
    ]
    assert "refused" in told[1][1]


async def test_final_errors_end_it() -> None:
    with pytest.raises(HostUnreachableError):
        await connect_with_retries(
            FakeConnector(lost(), HostUnreachableError("key changed")), lambda *a: None, FAST
        )


async def test_yields_a_new_host_with_the_reason_and_closes_the_old() -> None:
    connector = FakeConnector()
    seen = []
    async with contextlib.aclosing(connect_forever(connector, lambda *a: None, FAST)) as hosts:
        async for host, why in hosts:
            seen.append(why)
            if len(seen) == 3:
                break
            host.lost.set_result(f"cut {len(seen)}")  # type: ignore[attr-defined]
            await host.wait_lost()
    assert seen == ["", "cut 1", "cut 2"]
    assert all(host.closed for host in connector.hosts)


async def test_young_deaths_wait_longer_and_health_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    now = [1000.0]
    waits: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    async def no_wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("ddtop.hosts.reconnect.asyncio.sleep", no_wait)
    ages = [0.1, 0.1, 0.1, 5.0, 0.1]
    async with contextlib.aclosing(connect_forever(FakeConnector(), lambda *a: None, FAST)) as hosts:
        async for host, _ in hosts:
            if not ages:
                break
            now[0] += ages.pop(0)
            host.lost.set_result("cut")  # type: ignore[attr-defined]
    assert waits == [0.01, 0.02, 0.04, 0.01], "after the healthy one the next try came at once"
