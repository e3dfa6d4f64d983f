"""The load generator's own error, measured on the host as a job: a real agent, a real stamping server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtop.errors import AgentError
from ddtop.events import Event, Note, SelftestDone
from ddtop.journal.fold.state import State
from ddtop.plan import parse_plan
from ddtop.sweep.configuration import selftest as room
from ddtop.sweep.configuration.selftest import self_test_once
from ddtop.sweep.setup.from_plan import sweep_from
from ddtop.sweep.shared.context import SweepContext
from tests.agent.helpers import agent
from tests.plan.test_plan import SMALL


def context(text: str) -> tuple[SweepContext, list[Event]]:
    events: list[Event] = []
    sweep = sweep_from(parse_plan(text)[0])
    return SweepContext(run_id="r1", host_name="h", sink=events.append, state=State(), sweep=sweep), events


ASKED = SMALL + "\n[record]\nselftest = true\n"


@pytest.mark.process
async def test_it_is_measured_once_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_STREAMS", 2)
    ctx, events = context(ASKED)
    async with agent(tmp_path) as host:
        await self_test_once(ctx, host)
        await self_test_once(ctx, host)
        assert (await host.call("job-list"))["jobs"] == []
    (done,) = [e for e in events if isinstance(e, SelftestDone)]
    assert done.result["load"]["streams"] <= 2
    assert done.result["requests"] == 2 * done.result["load"]["streams"]
    assert done.result["token_mismatches"] == done.result["chunk_mismatches"] == 0
    assert done.result["ttft_error_ms"]["p50"] >= 0
    assert isinstance(done.result["fit"], bool)
    assert ctx.state.selftest == done.result


async def test_a_plan_that_does_not_ask_gets_none() -> None:
    ctx, events = context(SMALL)
    await self_test_once(ctx, None)  # type: ignore[arg-type]
    assert events == []


async def test_a_host_that_cannot_is_noted() -> None:
    class Refusing:
        async def call(self, op: str, **_args: Any) -> dict[str, Any]:
            raise AgentError(f"{op}: no room", code="failed")

    ctx, events = context(ASKED)
    await self_test_once(ctx, Refusing())  # type: ignore[arg-type]
    (note,) = events
    assert isinstance(note, Note)
    assert note.text == "the load generator's own error could not be measured: job-start: no room"
