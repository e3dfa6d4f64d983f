"""Every command through the journal's commands table against a live runner, as dashboards give them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from ddtop.errors import RefusedError
from ddtop.events import (
    Approve,
    CellMeasured,
    CellStateSet,
    CommandSeen,
    GoOn,
    MarkBroken,
    Pause,
    Restage,
    RestartReady,
    RestartService,
    RestartStarted,
    Resume,
    Retry,
    Skip,
    StepTaken,
    StopRun,
    SweepPaused,
    Undo,
    Wait,
)
from ddtop.journal.commands import append_command
from tests.runner.rig import Rig, alive

THREE = """
a = {}
b = { args = ["--speculative-algorithm", "DFLASH"] }
c = { args = ["--random-seed", "3"] }
"""
FAULTY = {
    "ddtop.sweep.shared.limits.TABLE_S": {},
    "ddtop.sweep.shared.limits.FLOOR_S": {},
    "ddtop.sweep.shared.limits.OTHER_FLOOR_S": 3.0,
    "ddtop.sweep.shared.limits.LOADING_MOVED_S": 3.0,
    "ddtop.sweep.configuration.failed_start.RETRY_PAUSE_S": 0.2,
}


def test_commands_of_a_run_that_works(rig: Rig) -> None:
    """Pause, go on, skip, mark, undo, retry, restart, re-stage and stop, from two viewers; then the run goes on."""
    runner = rig.start(rig.plan(THREE, tokens="[8, 12]", requests=8, step_s=0.02))
    first = runner.running("a")

    # ---- pause: after the cell in flight
    runner.obeyed(Pause)
    runner.refused(Pause, "paused already", viewer="bob")
    runner.until(lambda s: s.cells[first.id].state == "done", "end of the cell in flight")

    # ---- cells, while it is paused
    cell = next(c for c in runner.state().plan_cells if c.spec.config == "b")
    runner.obeyed(Skip, config="b")
    assert runner.states("b") == ["skipped", "skipped"]
    assert runner.state().cells[cell.id].reason == "skipped by anna"
    runner.refused(Skip, "it is skipped already", config="b")
    runner.refused(Undo, "you changed nothing", viewer="bob")
    runner.obeyed(Undo)
    assert runner.states("b") == ["planned", "planned"]
    runner.refused(Undo, "you changed nothing")
    runner.obeyed(Skip, cell_id=cell.id)
    assert runner.states("b") == ["skipped", "planned"]
    runner.obeyed(Retry, cell_id=cell.id, viewer="bob")
    runner.refused(Retry, "it is planned already", cell_id=cell.id)
    runner.obeyed(MarkBroken, config="b")
    assert runner.states("b") == ["broken", "broken"]
    runner.obeyed(MarkBroken, cell_id=cell.id, broken=False)
    assert runner.states("b") == ["planned", "broken"], "a broken cell only if asked"
    runner.obeyed(Retry, config="b", viewer="bob")
    assert runner.states("b") == ["planned", "planned"]

    # ---- refused and late ones, each with a sentence
    runner.refused(Retry, "no such cell or configuration", config="zzz")
    runner.refused(Skip, "no such cell or configuration", cell_id="zzz")
    runner.refused(Approve, "no longer wait for approval", plan_id="zzz")
    runner.refused(Wait, "nothing waits on this alert", alert_id="zzz")
    late = runner.command(Skip, config="b", at_s=time.time() - 60)
    assert late.outcome == "late" and "send it again" in late.reason
    ahead = runner.command(Skip, config="b", at_s=time.time() + 3600)
    assert ahead.outcome == "late", "the clock was set back since it was given"
    assert runner.states("b") == ["planned", "planned"]

    # ---- the same id counts once
    ident = runner.send(Skip, config="c")
    runner.send(Skip, config="c", ident=ident)
    runner.until(lambda s: any(c.command_id == ident for c in s.commands), "the answer")
    runner.obeyed(Undo)
    assert sum(e.command_id == ident for e in runner.of(CommandSeen)) == 1
    runner.obeyed(Skip, config="c")

    # ---- two viewers at once
    with runner.viewer("anna"), runner.viewer("bob"):
        runner.until(lambda s: s.viewers == 2, "two viewers")
    runner.until(lambda s: s.viewers == 0, "no viewer")

    # ---- go on, by either word
    assert runner.states("b") == ["planned", "planned"] and runner.states("a")[1] == "planned", (
        "it was paused"
    )
    runner.obeyed(Resume)
    runner.refused(GoOn, "not paused")
    runner.running("a")
    assert [type(e) for e in runner.of(SweepPaused)] == [SweepPaused]

    # ---- restart of the service: what was in flight is measured again on a new start
    before = runner.of(RestartReady)[-1].generation
    flight = runner.running("a")
    tries = len(runner.state().cells[flight.id].attempts)  # the pause may have taken it back once already
    runner.obeyed(RestartService)
    runner.until(lambda s: s.cells[flight.id].state == "interrupted", "interruption")
    runner.until(lambda s: s.cells[flight.id].state == "done", "the cell measured again")
    ready = runner.of(RestartReady)
    assert len(ready) == 2 and ready[-1].generation != before
    assert len(runner.state().cells[flight.id].attempts) == tries + 1

    # ---- re-stage: after the cell in flight
    runner.running("b")
    shutil.rmtree(rig.world.root / "shm" / "Sim-27B")
    runner.obeyed(Restage)
    runner.until(lambda s: (rig.world.root / "shm" / "Sim-27B" / "config.json").exists(), "the model again")

    # ---- stop, the server left as it is
    runner.running("b")
    runner.obeyed(StopRun, leave_running=True)
    assert runner.wait() == 130
    ended = runner.state().run.ended
    assert ended is not None and ended.outcome == "stopped" and "anna" in ended.reason
    assert len(rig.engines()) == 1
    assert "running" not in runner.states()

    # ---- no runner is there to obey
    with pytest.raises(RefusedError) as caught:
        append_command(runner.recording, Pause(id="x", viewer="anna", at_s=time.time()))
    assert "nothing is running" in str(caught.value) and "ddtop connect" in str(caught.value)

    # ---- the next runner goes on, and leaves the host as it was before the first one
    done = {e.cell_id for e in runner.of(CellMeasured)}
    starts = len(runner.of(RestartStarted))
    again = rig.start(None)
    assert again.wait() == 0
    assert again.states() == ["done"] * 4 + ["skipped"] * 2
    assert len(again.of(RestartStarted)) == starts, "the server that was left is used"
    measured = [e.cell_id for e in again.of(CellMeasured)]
    assert [measured.count(i) for i in done] == [1] * len(done), "no cell twice"
    assert rig.engines() == []


def test_commands_that_decide_an_alert(rig: Rig) -> None:
    """Retry, skip and mark from an alert; more time for a stalled start; a broken cell tried again."""
    plan = rig.plan(
        'a = { env = { SIM_FAIL_FIRST_START = "nccl-watchdog" } }\n'
        'b = { env = { SIM_FAIL_FIRST_START = "cuda-oom" } }\n'
        'c = { env = { SIM_FAIL_FIRST_START = "cublas" } }\n'
        'd = { env = { SIM_HANG = "load", SIM_HANG_S = "6" } }'
    )
    runner = rig.start(plan, attended=True, patch=FAULTY)
    with runner.viewer():
        alert = runner.alert("failed")
        assert alert.raised.actions[0].command == "retry" and alert.raised.answer_by_s is not None
        runner.obeyed(Retry, alert_id=alert.id)
        runner.until(lambda s: not s.alerts[alert.id].open, "resolved alert")

        oom = runner.until(
            lambda s: next((a for a in s.open_alerts if a.raised.kind == "config"), None), "config alert"
        )
        assert oom.raised.actions[0].command == "skip", "never a retry for a cause in the arguments"
        runner.obeyed(Skip, alert_id=oom.id)
        runner.until(lambda s: runner.states("b") == ["skipped"], "skipped configuration")

        bug = runner.until(
            lambda s: next((a for a in s.open_alerts if a.raised.kind == "bug"), None), "bug alert"
        )
        runner.obeyed(MarkBroken, alert_id=bug.id, viewer="bob")
        runner.until(lambda s: runner.states("c") == ["broken"], "broken configuration")
        assert runner.of(CellStateSet)[-1].by == "bob"
        runner.refused(Undo, "you changed nothing", viewer="carl")
        runner.obeyed(Undo, viewer="bob")
        assert runner.states("c") == ["planned"], "an answer is taken back as any mark"

        stalled = runner.alert("stalled")
        assert "wait" in {a.command for a in stalled.raised.actions}
        runner.obeyed(Wait, alert_id=stalled.id)
        runner.until(lambda s: runner.states("d") == ["done"], "the slow start ready after all")
        assert not runner.state().alerts[stalled.id].open
    assert runner.wait() == 0
    assert runner.states() == ["done", "skipped", "done", "done"], "the broken one worked at its second start"
    assert len([e for e in runner.of(RestartStarted) if e.config == "d"]) == 1, (
        "waited for, not started again"
    )
    rang = [a.id for a in runner.state().alerts.values()]
    assert len(rang) == 4 == len(set(rang))


def test_resume_shows_the_steps_and_approve_does_them(rig: Rig) -> None:
    """After a kill -9: the steps are asked about; one may be left out; a viewer who leaves lets the policy act."""
    runner = rig.start(rig.plan("a = {}", tokens="[8, 12]", requests=10, step_s=0.03))
    runner.running("a")
    os.kill(runner.process.pid, signal.SIGKILL)
    runner.process.wait()
    rig.world.end_processes()  # as after a reboot: no server, no job
    shutil.rmtree(rig.world.root / "shm" / "Sim-27B")
    model = rig.world.root / "shm" / "Sim-27B" / "config.json"

    second = rig.start(None, attended=True)
    with second.viewer():
        alert = second.alert("interrupted")
        steps = second.until(lambda s: s.proposed, "steps")
        assert {s.action for s in steps.steps if s.needs_consent} == {"stage", "restart"}
        second.obeyed(Resume, alert_id=alert.id)
        time.sleep(1.0)
        assert second.state().proposed is not None and not model.exists(), "shown, not done"
        restart = next(s for s in steps.steps if s.action == "restart")
        second.obeyed(Approve, plan_id=steps.plan_id, leave_out=(restart.id,))
        second.until(lambda s: s.paused, "pause: without the restart nothing can be measured")
        second.until(lambda s: not s.alerts[alert.id].open, "resolved alert")
        told = {(e.action, e.state, e.by) for e in second.of(StepTaken) if e.plan_id == steps.plan_id}
        assert ("stage", "done", "anna") in told and ("restart", "left-out", "anna") in told
        assert model.exists() and rig.engines() == []
        second.kill()
    shutil.rmtree(model.parent)

    third = rig.start(None, attended=True)
    with third.viewer():
        third.until(lambda s: s.run.segment == 2 and s.proposed, "steps")
        left_at = time.monotonic()
    third.until(lambda s: s.restarting, "the policy's restart")
    assert time.monotonic() - left_at < 45, "not only after answer_s"
    assert third.wait() == 0
    assert third.states() == ["done", "done"]
    assert {e.by for e in third.of(StepTaken) if e.action == "stage"} == {"automatic", "anna", "policy"}


def test_a_signal_stops_it_cleanly_and_a_second_one_at_once(rig: Rig) -> None:
    """SIGTERM leaves the host as found; two of them leave the rest to the next runner; only one may run for a host."""
    runner = rig.start(rig.plan("a = {}", tokens="[8, 12]", requests=12, step_s=0.03))
    runner.running("a")
    other = rig.start(rig.plan("a = {}", name="other"), recording=Path(f"{runner.recording}.2"))
    assert other.wait() == 12
    assert "already runs demo" in other.said() and "ddtop connect demo" in other.said()
    assert "Traceback" not in other.said()

    os.kill(runner.process.pid, signal.SIGTERM)
    assert runner.wait() == 130
    assert rig.engines() == [] and runner.states() == ["interrupted", "planned"]
    ended = runner.state().run.ended
    assert ended is not None and "SIGTERM" in ended.reason and not ended.left_behind

    again = rig.start(None)
    again.running("a")
    pid = again.process.pid
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGTERM)
    assert again.wait() in (-signal.SIGTERM, 130)
    assert not alive(pid)
    if again.state().run.ended is None:
        last = rig.start(None)
        assert last.wait() == 0
        assert last.states() == ["done", "done"]
    assert rig.engines() == []
