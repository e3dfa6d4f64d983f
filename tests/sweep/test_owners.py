"""Whose a process or a listener of the probe is, and what the gate makes of a container's port."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ddtop.services.base import Launch
from ddtop.services.readings import ListenerReading, UnitReading
from ddtop.services.systemd import SystemdService
from ddtop.sweep.gatekeeper import Gatekeeper
from ddtop.sweep.prober import is_ours

CID = "f09716f5088db2716a0f568b010b50ab96b5b8814bb583f816395229ba54585b"
UNITS = ("q.service",)


@pytest.mark.parametrize(
    ("row", "ours"),
    [
        ({"unit": "q.service"}, True),
        ({"unit": "r.service"}, False),
        ({"unit": None}, False),
        ({"unit": f"docker-{CID}.scope"}, True),
        ({"unit": f"libpod-{CID}.scope"}, True),
        ({"unit": "docker-aaaa.scope", "docker": "aaaa"}, False),
        ({"unit": "docker.service", "docker": CID}, True),
    ],
)
def test_a_container_of_our_units_is_ours(row: dict[str, Any], ours: bool) -> None:
    assert is_ours(row, UNITS, {"q.service": CID}) is ours
    assert is_ours({"unit": f"docker-{CID}.scope"}, UNITS, None) is False


class Tickets:
    """Gives every process the invocation of another start."""

    async def call(self, op: str, **args: object) -> dict[str, object]:
        assert op == "ticket"
        return {"invocation": "b" * 32}


@pytest.mark.parametrize(
    ("owned", "container", "known", "owner"),
    [
        (True, CID, CID, "new"),  # the very container of this generation, whatever its environment says
        (None, CID, None, "unknown"),  # the unit's container is not known yet: no old server
        (True, None, None, "old"),
        (False, CID, CID, "foreign"),
    ],
)
def test_who_answers(owned: bool | None, container: str | None, known: str | None, owner: str) -> None:
    launch = Launch(key="k", config="a", tp=1, kind="systemd", unit="q.service", engine="sglang", port=30000)
    keeper = Gatekeeper(launch, SystemdService("q.service"), "chat")
    unit = UnitReading(
        unit="q.service", at=0.0, active="active", main_pid=9, generation="a" * 32, container=known
    )
    item = ListenerReading(
        addr="0.0.0.0", port=30000, pid=15, unit=f"docker-{CID}.scope", container=container, owned=owned
    )
    answer = asyncio.run(keeper.owner(Tickets(), item, unit, 1.0))  # type: ignore[arg-type]
    assert answer.owner == owner
    assert answer.who == ("container f09716f5088d (pid 15)" if container else f"docker-{CID}.scope (pid 15)")
