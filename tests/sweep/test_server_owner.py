"""What a reading is worth: whose a process or a listener is, which of two readings counts, and results of a dying server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ddtop.agent.loadgen.records import pack
from ddtop.journal.fold.state import State
from ddtop.services.base import Launch
from ddtop.services.readings import ListenerReading, UnitReading
from ddtop.services.systemd import SystemdService
from ddtop.sweep.cell.results import has_cut_requests
from ddtop.sweep.recovery.probe import is_ours
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.start.gate_reads import GateReader

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
        ({"unit": "docker.service", "comm": "docker-proxy", "proxy_to": "172.18.0.2"}, True),
        ({"unit": "docker.service", "comm": "docker-proxy", "proxy_to": "172.17.0.9"}, False),
        ({"unit": "docker.service", "comm": "docker-proxy"}, False),
    ],
)
def test_a_container_of_our_units_is_ours(row: dict[str, Any], ours: bool) -> None:
    assert is_ours(row, UNITS, {"q.service": f"{CID}@2026@172.17.0.2,172.18.0.2"}) is ours
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
        (True, CID, None, "unknown"),  # owned a moment ago; then its client died
        (None, CID, None, "unknown"),  # the unit's container is not known yet: no old server
        (True, None, None, "old"),
        (False, CID, CID, "foreign"),
    ],
)
def test_which_start_owns_the_port(
    owned: bool | None, container: str | None, known: str | None, owner: str
) -> None:
    launch = Launch(key="k", config="a", tp=1, kind="systemd", unit="q.service", engine="sglang", port=30000)
    gate_reader = GateReader(launch, SystemdService("q.service"), "chat")
    unit = UnitReading(
        unit="q.service", at=0.0, active="active", main_pid=9, generation="a" * 32, container=known
    )
    item = ListenerReading(
        addr="0.0.0.0", port=30000, pid=15, unit=f"docker-{CID}.scope", container=container, owned=owned
    )
    answer = asyncio.run(gate_reader.owner(Tickets(), item, unit, 1.0))  # type: ignore[arg-type]
    assert answer.owner == owner
    assert answer.who == ("container f09716f5088d (pid 15)" if container else f"docker-{CID}.scope (pid 15)")


def test_of_two_readings_asked_at_once_the_younger_counts() -> None:
    """The older answer may come last: it was asked before the container was there."""
    ctx = SweepContext(run_id="r", host_name="h", sink=lambda _: None, state=State(), sweep=None)
    young = UnitReading(unit="q.service", at=2.0, active="active", container=CID)
    ctx.take_reading(young)
    ctx.take_reading(UnitReading(unit="q.service", at=1.0, active="active"))
    assert ctx.feed("q.service").reading is young


@pytest.mark.parametrize(
    ("classes", "cut"),
    [
        (["ok", "refused"], True),
        (["truncated"], True),
        (["aborted"], True),
        (["ok", "empty", "http 500"], False),
        ([], False),
    ],
)
def test_results_whose_connections_ended_early(classes: list[str], cut: bool) -> None:
    raw = {"id": "c", "requests": [{"class": c, "why": "x" * 9000} for c in classes]}
    assert has_cut_requests(raw) is has_cut_requests(pack(raw)) is cut
    assert not has_cut_requests({"requests_z": "damaged"}) and not has_cut_requests({})
