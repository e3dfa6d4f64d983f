"""A server that ended while no runner watched: what its job could not measure is no verdict on the configuration."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.sweep.cell.attempts import generation_of
from ddtop.sweep.cell.outcome import Origin, commit, keep_without_verdict
from ddtop.sweep.cell.results import read_result
from ddtop.sweep.shared.context import SweepContext
from tests.sweep.test_controller import Dead, Rig, make_sweep

SWEEP = make_sweep()
OLD, NEW = (ev.Generation(boot="boot-1/1", id=word * 32, main_pid=9) for word in "ab")
ASKED = {"start": 0, "end": 10**6, "tokens": 0, "chunks": 0}
REFUSED = {"id": "b1", "requests": [{"i": n, "class": "refused", **ASKED} for n in range(3)]}


def at(**fields: Any) -> dict[str, Any]:
    return {"at_s": 1.0, "mono_s": 1.0, "host": "fake", **fields}


def ready(attempt: str, config: str, generation: ev.Generation) -> list[ev.Event]:
    cells = (f"{config}0", f"{config}1")
    return [
        ev.RestartStarted(**at(attempt_id=attempt, config=config, tp=1, unit="s.service", cell_ids=cells)),
        ev.RestartReady(**at(attempt_id=attempt, generation=generation, ready_s=1.0, engine="sglang")),
    ]


def remembered(*more: ev.Event) -> State:
    begun: list[ev.Event] = [
        ev.RunStarted(**at(run_id="r", name="t", mode="sweep", segment=0)),
        ev.CellsPlanned(**at(cells=SWEEP.cells)),
        *ready("r-b-1", "b", OLD),
    ]
    return fold([*begun, *more])


def context_of(state: State) -> tuple[SweepContext, list[ev.Event]]:
    events: list[ev.Event] = []
    return SweepContext(run_id="r", host_name="fake", sink=events.append, state=state, sweep=SWEEP), events


def test_requests_refused_by_a_server_that_is_gone_are_no_verdict() -> None:
    ctx, events = context_of(remembered())
    keep_without_verdict(ctx, "b1", REFUSED, job="job-1")
    assert not [e for e in events if isinstance(e, ev.AlertRaised)]
    cell = ctx.state.cells["b1"]
    assert cell.state == "interrupted" and [a.validity for a in cell.attempts] == ["INVALID"]
    assert cell.attempts[0].reasons[0] == "server-gone"
    keep_without_verdict(ctx, "b0", {"id": "b0", "requests": [{"class": "refused"}]}, job="job-1")
    assert ctx.state.cells["b0"].attempts[0].reasons == ("server-gone",), "damaged, and cut off all the same"
    before = len(events)
    keep_without_verdict(ctx, "b1", REFUSED, job="job-1")
    assert len(events) == before, "a result is taken once"


def test_a_finished_cell_is_not_touched_by_an_old_job() -> None:
    ctx, events = context_of(remembered(ev.CellStateSet(**at(cell_id="b1", state="done"))))
    keep_without_verdict(ctx, "b1", REFUSED, job="job-1")
    assert events == [] and ctx.state.cells["b1"].state == "done"


def test_it_is_no_try_of_the_configuration() -> None:
    """After it, a server that gives no token for the first time is still restarted once, and not broken at once."""
    ctx, _ = context_of(remembered())
    keep_without_verdict(ctx, "b1", REFUSED, job="job-1")
    empty = {"id": "b1", "requests": [{"i": 0, "class": "empty", **ASKED}]}
    done = commit(ctx, "b1", empty, Origin(job="job-2", generation=NEW, engine="sglang"))
    assert done is not None and done.no_tokens and done.state == "interrupted" and done.restart


def test_the_server_a_job_measured() -> None:
    started = ev.CellStarted(**at(cell_id="b0", attempt=1, job="job-1", generation=OLD))
    state = remembered(started, *ready("r-b-2", "b", NEW))
    assert generation_of(state, "job-1", "key-b") == OLD, "as its other cells have it"
    assert generation_of(state, "job-2", "key-b") == NEW, "else the last one that was ready for these cells"
    assert generation_of(state, "job-2", "key-c") is None


def test_the_late_result_of_an_ended_server_is_no_verdict_though_another_runs_now() -> None:
    """The server dies under a cell and is started again; the runner dies before the cell is begun anew. The first job's
    last result then lies there beside a server that lives, and is none of its doing."""

    def dying(after: int | None) -> Rig:
        rig = Rig()
        rig.world.faults, rig.world.late_results = {"--context-length 8192": "exit-mid"}, True
        rig.die_after = after
        return rig

    whole = dying(None)
    assert whole.run().word == "done"
    ready_again = next(
        i
        for i, e in enumerate(whole.events)
        if isinstance(e, ev.RestartReady) and e.attempt_id.endswith("-b-tp1-2")
    )
    rig = dying(ready_again + 1)
    with pytest.raises(Dead):
        rig.run()
    assert rig.run().word == "done"
    cell = rig.state.cells["b1"]
    assert [a.validity for a in cell.attempts] == ["INVALID", whole.state.cells["b1"].validity]
    assert cell.attempts[0].reasons[0] == "server-gone"
    assert ("no-tokens", "zero-tokens") not in rig.alerts()
    assert rig.world.served.count("b1") == 1 and rig.state.open_alerts == []
    assert sum("8192" in " ".join(argv) for argv in rig.world.starts) == 2


@pytest.mark.parametrize("state", ["skipped", "broken"])
def test_an_invalid_late_result_does_not_reopen_what_a_viewer_settled(state: Any) -> None:
    """Skipped while it ran; the job's word on it comes afterwards."""
    ctx, events = context_of(
        remembered(
            ev.CellStarted(**at(cell_id="b1", attempt=1, job="job-1", generation=OLD)),
            ev.CellStateSet(**at(cell_id="b1", state=state, reason="by me", by="me")),
        )
    )
    empty = {"id": "b1", "requests": [{"i": 0, "class": "empty", **ASKED}]}
    done = commit(ctx, "b1", empty, Origin(job="job-1", generation=OLD, engine="sglang"))
    cell = ctx.state.cells["b1"]
    assert done is not None and done.state == state and not done.restart
    assert (cell.state, cell.by, cell.reason) == (state, "me", "by me")
    assert cell.attempts[0].validity == "INVALID", "it is kept all the same"
    assert not [e for e in events if isinstance(e, ev.AlertRaised)]


class CutFile:
    """A host whose disk has kept half of a result."""

    async def call(self, _op: str, **_: Any) -> dict[str, Any]:
        return {"b64": base64.b64encode(b'{"id": "b1", "requ').decode(), "eof": True}


def test_a_result_file_that_is_cut_is_an_invalid_result_and_no_crash() -> None:
    host: Any = CutFile()
    raw = asyncio.run(read_result(host, {"id": "b1", "file": "/state/b1.json"}))
    ctx, _ = context_of(remembered())
    commit(ctx, "b1", raw, Origin(job="job-1", generation=OLD, engine="sglang"))
    cell = ctx.state.cells["b1"]
    assert cell.attempts[0].validity == "INVALID" and cell.state == "interrupted", "it is measured again"
