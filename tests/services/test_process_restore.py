"""A plain process that ran before the sweep comes back as it was started: real processes under a real agent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddtop.hosts.client import AgentHost
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.services.base import Launch
from ddtop.services.process import ProcessService
from ddtop.sweep.recovery.restore import original_states, remember_original, restore_all
from ddtop.sweep.shared.context import SweepContext
from tests.agent.helpers import agent, state_dir
from tests.sweep.test_controller import make_sweep
from tests.waiting import HANG_S

__all__ = ["state_dir"]

pytestmark = pytest.mark.skipif(
    Path("/run/systemd/system").is_dir(), reason="here jobs are units: the bed tests them"
)
SAY = ["sh", "-c", 'echo "key=$API_KEY word=$WORD in $(pwd) args $*"; exec sleep 300', "--", "--tp", "8"]
SWEEPS = Launch(
    key="k", config="b", tp=1, kind="process", unit="srv", engine="sglang", port=30000, argv=("sleep", "301")
)


def deck_on(events: list[Any], state: State | None = None) -> SweepContext:
    sweep = replace(make_sweep(), launches={"k": SWEEPS}, model=None)
    return SweepContext(
        run_id="run1", host_name="here", sink=events.append, state=state or State(), sweep=sweep
    )


async def first_line(host: AgentHost) -> str:
    path = Path((await host.call("proc-show", name="srv"))["log"])
    async with asyncio.timeout(HANG_S):
        while not (text := path.read_text()):
            await asyncio.sleep(0.05)
    return text.strip()


async def owner_starts(host: AgentHost, folder: Path) -> str:
    await host.call(
        "proc-start", name="srv", argv=SAY, env={"API_KEY": "s3cret", "WORD": "hi"}, cwd=str(folder), stop_s=7
    )
    return await first_line(host)


async def taken_over(host: AgentHost, ctx: SweepContext) -> None:
    """As a restart of the sweep does it."""
    await remember_original(ctx, host, "srv", run_id="run1")
    service = ctx.feed("srv").service
    assert isinstance(service, ProcessService)
    assert (await service._stopped(host)).rc == 0
    assert (await service.start(host, SWEEPS, "job")).rc == 0


async def test_it_comes_back_as_it_was_started(state_dir: Path, tmp_path: Path) -> None:
    """By a later runner, after the first one died: what it needs lies on the host, and no key in the recording."""
    events: list[Any] = []
    async with agent(state_dir) as host:
        before = await owner_starts(host, tmp_path)
        assert before == f"key=s3cret word=hi in {tmp_path} args --tp 8"
        await taken_over(host, deck_on(events))
    async with agent(state_dir) as host:
        later = deck_on(events, fold(list(events)))
        assert (await host.call("proc-show", name="srv"))["argv"] == ["sleep", "301"]
        assert await restore_all(later, host) == []
        try:
            assert await first_line(host) == before
            spec = json.loads((state_dir / "processes" / "srv" / "spec.json").read_text())
            assert spec["stop_s"] == 7
            assert not list((state_dir / "processes" / "srv").glob("former-*")), (
                "what was put back is forgotten"
            )
            assert original_states(later.state) == {}
        finally:
            await host.call("proc-stop", name="srv")
    assert not any("s3cret" in repr(event) for event in events)


async def test_one_that_the_run_never_touched_runs_on(state_dir: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    async with agent(state_dir) as host:
        await owner_starts(host, tmp_path)
        shown = await host.call("proc-show", name="srv")
        ctx = deck_on(events)
        await remember_original(ctx, host, "srv", run_id="run1")
        try:
            assert await restore_all(ctx, host) == []
            assert (await host.call("proc-show", name="srv"))["generation"] == shown["generation"]
        finally:
            await host.call("proc-stop", name="srv")


async def test_where_nothing_was_kept_that_is_said(state_dir: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    async with agent(state_dir) as host:
        await owner_starts(host, tmp_path)
        ctx = deck_on(events)
        await taken_over(host, ctx)
        for path in (state_dir / "processes" / "srv").glob("former-*"):
            path.unlink()
        try:
            left = await restore_all(ctx, host)
            assert left == ["srv was started again by its command line alone: its environment was not kept"]
            assert (await first_line(host)).startswith("key= word= in ")
        finally:
            await host.call("proc-stop", name="srv")


async def test_one_that_did_not_run_is_stopped(state_dir: Path) -> None:
    events: list[Any] = []
    async with agent(state_dir) as host:
        ctx = deck_on(events)
        await taken_over(host, ctx)
        assert await restore_all(ctx, host) == []
        assert not (await host.call("proc-show", name="srv"))["active"]
