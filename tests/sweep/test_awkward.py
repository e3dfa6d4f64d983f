"""Commands and troubles at awkward moments: nothing a person decided is forgotten, and no alert stays for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from ddtop import events as ev
from ddtop.errors import AgentError
from ddtop.sweep.cell.results import take_result
from ddtop.sweep.controller import Controller
from ddtop.sweep.shared.gpus.use import GpuUse
from ddtop.sweep.start.attempt import Attempt
from ddtop.sweep.start.restart import Restarter
from tests.sweep.fakehost import FakeHost, Job, JumpingSelector, Unit, World
from tests.sweep.test_controller import Dead, Rig, at_cell, once_each
from tests.sweep.test_leaving import as_found, running_before


def later(seconds: float, act: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(seconds, act)


def test_a_decision_counts_though_the_dashboard_is_closed_right_after_it() -> None:
    """`x`, then `q`: both arrive in one look at the commands."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "hang"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted | ev.PhaseSeen):
            rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised):
            rig.give(ev.Skip, alert_id=event.alert_id)
            rig.give(ev.Attend, leaving=True)

    rig.on_event = see
    rig.run()
    assert rig.states("b") == ["skipped", "skipped"]
    assert sum("8192" in " ".join(argv) for argv in rig.world.starts) == 1, "it was not started once more"


def test_the_words_of_a_failed_command_are_waited_for_behind_systemds_own() -> None:
    """A program's output reaches the journal by another way than systemd's lines, and later on a busy host."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "start-pre"}
    rig.run()
    alert = next(e for e in rig.events if isinstance(e, ev.AlertRaised))
    assert alert.cause == "start-pre-failed", alert
    assert "mount /models is not there" in " ".join(e.text for e in alert.evidence), alert.evidence


def test_consent_counts_though_the_dashboard_is_closed_right_after_it() -> None:
    rig = Rig()
    reboot = at_cell("b0", lambda _: rig.world.reboot())

    def see(event: ev.Event, controller: Controller) -> None:
        reboot(event, controller)
        if isinstance(event, ev.HostConnected | ev.HostLost):
            rig.give(ev.Attend)
        if isinstance(event, ev.StepsPlanned) and event.answer_by_s:
            rig.give(ev.Approve, plan_id=event.plan_id, leave_out=("stage",))
            rig.give(ev.Attend, leaving=True)

    rig.on_event = see
    rig.run()
    assert [e.by for e in rig.events if isinstance(e, ev.StepTaken) and e.state == "left-out"] == ["me"]


def test_a_decision_taken_while_the_link_was_lost_is_kept() -> None:
    """The alert asks, the link breaks, the person skips: the configuration is not started again after the reconnect."""
    rig, lost = Rig(), []
    rig.world.faults = {"--context-length 8192": "hang"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted | ev.PhaseSeen):
            rig.give(ev.Attend)
        if isinstance(event, ev.AlertRaised) and event.verdict == "stalled" and not lost:
            lost.append(True)
            rig.world.link_up = False
            rig.world.drop()
            later(5.0, lambda: rig.give(ev.Skip, alert_id=event.alert_id))
            later(20.0, lambda: setattr(rig.world, "link_up", True))

    rig.on_event = see
    rig.run()
    assert rig.states("b") == ["skipped", "skipped"]
    assert sum("8192" in " ".join(argv) for argv in rig.world.starts) == 1
    assert rig.state.open_alerts == []


def test_the_alert_of_a_start_that_a_person_gave_up_is_closed() -> None:
    """The policy tries again; meanwhile the person skips the configuration from the list of cells."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "hang"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.attempt_id.endswith("-b-tp1-2"):
            later(2.0, lambda: rig.give(ev.Skip, config="b"))

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.states("b") == ["skipped", "skipped"]
    assert rig.state.open_alerts == [], [a.raised.title for a in rig.state.open_alerts]


def test_the_alert_of_a_start_is_closed_when_a_person_skips_before_the_next_try() -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "hang"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised):
            rig.give(ev.Skip, config="b")

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.states("b") == ["skipped", "skipped"] and rig.state.open_alerts == []


def test_the_alert_of_a_cell_is_closed_when_its_server_does_not_start_again() -> None:
    """The server dies under a cell, and then never comes up: all of it is settled by the failed start."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "exit-mid"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised) and event.cell_ids == ("b1",):
            rig.world.faults = {"--context-length 8192": "crash"}

    rig.on_event = see
    assert rig.run().word == "some-failed"
    assert rig.states("b") == ["done", "failed"]
    assert rig.state.open_alerts == [], [a.raised.cause_text for a in rig.state.open_alerts]


def test_the_alert_of_a_cell_is_closed_when_a_person_skips_it() -> None:
    rig = Rig()
    rig.world.broken_cells = {"b1"}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.attempt_id.endswith("-b-tp1-2"):
            rig.give(ev.Skip, cell_id="b1")

    rig.on_event = see
    assert rig.run().word == "done"
    assert rig.states("b") == ["done", "skipped"]
    assert rig.state.open_alerts == []


def test_a_stop_ends_a_copy_under_way() -> None:
    """A copy takes minutes, and a download an hour: whoever says stop does not wait for it, and it does not go on alone."""
    rig = Rig()
    rig.world.model, rig.world.stage_s = False, 3600.0

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.StageProgress) and event.state == "checking":
            later(10.0, lambda: rig.give(ev.StopRun))

    rig.on_event = see
    began = rig_time()
    outcome = rig.run()
    assert outcome.word == "stopped" and outcome.left_behind == ()
    assert rig_time() - began < 60
    assert [j.state for j in rig.world.begun] == ["killed"]
    assert rig.state.stage is not None and not rig.state.stage.active
    rig.on_event = None
    rig.world.stage_s = 5.0
    assert rig.run().word == "done", "the next run stages the rest"


def test_a_stop_while_a_failed_copy_asks() -> None:
    rig = Rig()
    rig.world.model, rig.world.stage_s = False, 5.0

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.StageProgress) and event.state == "checking":
            rig.give(ev.Attend)
            rig.world.model_on_disk = False
        if isinstance(event, ev.AlertRaised) and event.verdict == "staging-failed":
            assert event.answer_by_s is not None
            rig.give(ev.StopRun)

    rig.on_event = see
    began = rig_time()
    assert rig.run().word == "stopped"
    assert rig_time() - began < 30, "the 60 s for an answer are not waited out"


def rig_time() -> float:
    return JumpingSelector.clock[0]


def test_a_host_that_is_down_when_a_run_is_resumed_raises_an_alert_and_is_waited_for() -> None:
    """The machine is in maintenance: the resumed run says so at once, and goes on when the host is back."""
    rig = Rig()
    rig.on_event = at_cell("b0", lambda _: setattr(rig, "die_after", len(rig.events) + 1))
    with pytest.raises(Dead):
        rig.run()
    rig.world.link_up = False

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.HostConnecting) and event.error and not seen:
            seen.append(True)
            later(300.0, lambda: setattr(rig.world, "link_up", True))

    seen: list[bool] = []
    rig.on_event = see
    assert rig.run().word == "done"
    (alert,) = [a for a in rig.state.alerts.values() if a.raised.verdict == "lost-host"]
    assert "timed out" in alert.raised.cause_text and not alert.open


def test_a_host_that_stays_down_ends_the_run_after_the_policys_time() -> None:
    rig = Rig(host_lost_wait_min=2.0)
    rig.world.link_up = False
    began = rig_time()
    assert rig.run().word == "host-lost"
    assert 110 < rig_time() - began < 140


def test_the_alert_of_a_lost_host_is_closed_by_the_next_runner() -> None:
    """Its runner died while the link was lost."""
    rig = Rig()

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised) and event.verdict == "lost-host":
            rig.die_after = len(rig.events) + 1

    cut = at_cell("b0", lambda _: (setattr(rig.world, "link_up", False), rig.world.drop()))
    rig.on_event = lambda event, controller: (cut(event, controller), see(event, controller))
    with pytest.raises(Dead):
        rig.run()
    assert rig.state.open_alerts
    rig.world.link_up, rig.on_event = True, None
    assert rig.run().word == "done"
    assert rig.state.open_alerts == []


def test_the_alert_of_a_failed_copy_is_closed_when_the_model_is_there() -> None:
    """The person copies it himself, and takes the run up again."""
    rig = Rig()
    rig.world.model = False

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.StageProgress) and event.state == "checking":
            rig.world.model_on_disk = False

    rig.on_event = see
    assert rig.run().word == "some-failed"
    assert [a.raised.verdict for a in rig.state.open_alerts] == ["staging-failed"]
    rig.world.model, rig.on_event = True, None
    assert rig.run().word == "done"
    assert rig.state.open_alerts == []


def left_out(action: str, *, job_lost: bool = False) -> Rig:
    """The runner dies while b0 is measured; the next one asks about another run's override, and with it about all steps."""
    rig = Rig()
    rig.on_event = at_cell("b0", lambda _: setattr(rig, "die_after", len(rig.events) + 1))
    with pytest.raises(Dead):
        rig.run()
    for job in rig.world.jobs.values():
        if job_lost and job.state == "running":
            job.state = "lost"
    rig.world.overrides = [{"unit": "s.service", "path": "/run/x", "run": "other", "expires_at_s": 1e12}]

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.HostConnected):
            rig.give(ev.Attend)
        if isinstance(event, ev.StepsPlanned) and event.answer_by_s:
            ids = tuple(s.id for s in event.steps if s.action in (action, "restore"))
            rig.give(ev.Approve, plan_id=event.plan_id, leave_out=ids)
        if isinstance(event, ev.SweepPaused):
            later(60.0, lambda: rig.give(ev.GoOn))

    rig.on_event = see
    assert rig.run(attended=True).word == "done"
    assert action in [e.action for e in rig.events if isinstance(e, ev.StepTaken) and e.state == "left-out"]
    assert all(c.state == "done" for c in rig.state.plan_cells)
    once_each(rig.events)
    return rig


def test_a_job_that_is_not_waited_for_is_ended() -> None:
    """Two jobs at once would measure each other's load."""
    rig = left_out("wait-job")
    assert [j.state for j in rig.world.begun].count("killed") == 1
    assert sorted(rig.world.served) == sorted(c.id for c in rig.sweep.cells)


def test_going_on_that_is_left_out_pauses() -> None:
    rig = left_out("go-on", job_lost=True)
    (paused,) = [e.at_s for e in rig.events if isinstance(e, ev.SweepPaused)]
    begun = [e.at_s for e in rig.events if isinstance(e, ev.CellStarted) and e.at_s > paused]
    assert min(begun) - paused > 50


def test_a_rival_unit_that_cannot_be_stopped_is_named() -> None:
    """Its GPU memory and port would be missing, and the start fail for a reason that is none."""
    rig = Rig()
    key = next(iter(rig.sweep.launches))
    launches = {k: replace(x, stop_units=("rival.service",)) for k, x in rig.sweep.launches.items()}
    rig.sweep = replace(rig.sweep, launches=launches)
    assert key
    rival = rig.world.unit("rival.service")
    rival.active, rival.sub, rival.invocation = "active", "running", "e" * 32
    rig.world.stubborn = {"rival.service"}
    assert rig.run().word == "some-failed"
    texts = [e.cause_text for e in rig.events if isinstance(e, ev.AlertRaised)]
    assert texts and all("stop rival.service" in t for t in texts), texts
    assert rig.world.starts == [] and rig.alerts() == [("refused", "not-permitted")]


@pytest.mark.parametrize("nth", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("op", ["unit_show", "listeners", "job_start", "processes", "probe", "journal_read"])
def test_an_agent_that_fails_once_ends_no_run(monkeypatch: pytest.MonkeyPatch, op: str, nth: int) -> None:
    """One `systemctl show` or `ss` that took too long under load: the host is looked at anew, and no cell is lost."""
    rig, calls = Rig(), 0
    real: Callable[..., object] = getattr(FakeHost, f"op_{op}")

    def once(self: FakeHost, *args: object, **kw: object) -> object:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise AgentError("it took longer than 10 s", code="timeout")
        return real(self, *args, **kw)

    monkeypatch.setattr(FakeHost, f"op_{op}", once)
    outcome = rig.run()
    assert outcome.word == "done", outcome
    once_each(rig.events)
    assert rig.state.open_alerts == []


@pytest.mark.parametrize(("code", "tries"), [("timeout", 4), ("not-permitted", 1), ("bad-request", 1)])
def test_an_agent_that_goes_on_failing_ends_the_run_in_order(
    monkeypatch: pytest.MonkeyPatch, code: str, tries: int
) -> None:
    calls = 0

    def refuse(self: FakeHost, **_: object) -> object:
        nonlocal calls
        calls += 1
        raise AgentError("no room for the job", code=code)

    monkeypatch.setattr(FakeHost, "op_job_start", refuse)
    rig = Rig()
    outcome = rig.run()
    assert (outcome.word, calls) == ("some-failed", tries) and "no room for the job" in outcome.reason
    assert outcome.left_behind == ()


@pytest.mark.parametrize(
    ("code", "failures", "titles", "word"),
    [
        ("disk", 1, ["HOST DISK FULL"], "done"),
        ("disk", 8, ["HOST DISK FULL"], "done"),
        ("disk", 10_000, ["HOST DISK FULL"], "some-failed"),
        ("failed", 1, [], "done"),
        ("failed", 3, ["HOST IN TROUBLE"], "done"),
        ("failed", 4, ["HOST IN TROUBLE"], "some-failed"),
    ],
)
def test_what_keeps_the_sweep_from_its_work_is_an_alert(
    monkeypatch: pytest.MonkeyPatch, code: str, failures: int, titles: list[str], word: str
) -> None:
    """A full disk of the host is waited for as long as a lost host."""
    real, calls = FakeHost.op_job_start, 0

    def start(self: FakeHost, *args: object, **kw: object) -> object:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise AgentError("No space left on device: jobs/x", code=code)
        return real(self, *args, **kw)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeHost, "op_job_start", start)
    rig = Rig()
    assert rig.run().word == word
    raised = [e for e in rig.events if isinstance(e, ev.AlertRaised)]
    assert list(dict.fromkeys(e.title for e in raised)) == titles
    assert all("No space left" in e.cause_text and e.policy and e.advice for e in raised)
    assert bool(rig.state.open_alerts) is (word != "done")


def test_the_alert_of_a_full_disk_ends_though_its_runner_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """As seed 10014 of the campaign, with the host's disk in the place of this machine's."""
    real, full = FakeHost.op_job_start, [True]

    def start(self: FakeHost, *args: object, **kw: object) -> object:
        if full:
            raise AgentError("No space left on device: jobs/x", code="disk")
        return real(self, *args, **kw)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeHost, "op_job_start", start)
    rig = Rig()

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.AlertRaised):
            rig.die_after = len(rig.events) + 1

    rig.on_event = see
    with pytest.raises(Dead):
        rig.run()
    assert [a.raised.title for a in rig.state.open_alerts] == ["HOST DISK FULL"]
    full.clear()
    rig.on_event = None
    assert rig.run().word == "done" and not rig.state.open_alerts


@pytest.mark.parametrize(
    ("code", "failures", "title", "word"),
    [
        ("disk", 3, "HOST DISK FULL", "done"),
        ("failed", 2, "HOST IN TROUBLE", "done"),
        ("failed", 9, "HOST IN TROUBLE", "some-failed"),
        ("not-permitted", 1, "STAGING FAILED", "some-failed"),
    ],
)
def test_a_model_whose_copy_cannot_be_started_now_is_staged_later(
    monkeypatch: pytest.MonkeyPatch, code: str, failures: int, title: str, word: str
) -> None:
    """Seed 6001 of the campaign: the host's disk was full for 20 s, and the run ended as if the copy had failed."""
    real, calls = FakeHost.op_job_start, 0

    def start(self: FakeHost, *args: object, **kw: object) -> object:
        nonlocal calls
        calls += 1
        if kw["kind"] == "stage" and calls <= failures:
            text = "No space left on device" if code != "not-permitted" else "Permission denied"
            raise AgentError(f"{text}: jobs/x", code=code)
        return real(self, *args, **kw)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeHost, "op_job_start", start)
    rig = Rig()
    rig.world.model = False
    assert rig.run().word == word
    assert {e.title for e in rig.events if isinstance(e, ev.AlertRaised)} == {title}
    assert bool(rig.state.open_alerts) is (word != "done")
    assert (len(rig.world.starts) > 0) is (word == "done"), "nothing is started without its model"


@pytest.mark.parametrize("op", ["override_remove", "unit_show", "unit_action"])
def test_an_agent_that_fails_once_while_the_host_is_put_back_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    rig, failed = running_before(), 0
    real: Callable[..., object] = getattr(FakeHost, f"op_{op}")

    def once(self: FakeHost, *args: object, **kw: object) -> object:
        nonlocal failed
        going = [e for e in rig.events if isinstance(e, ev.StepTaken) and e.action == "restore"]
        if going and not failed:
            failed += 1
            raise AgentError("it took longer than 10 s", code="timeout")
        return real(self, *args, **kw)

    monkeypatch.setattr(FakeHost, f"op_{op}", once)
    outcome = rig.run()
    assert (outcome.word, outcome.left_behind, failed) == ("done", (), 1)
    assert as_found(rig)


def test_a_restart_by_the_owner_while_it_loads_is_no_other_server() -> None:
    """The seed that the new start reports is in the log of the new start, not in that of the one before it."""
    rig, acted = Rig(), []

    def see(event: ev.Event, controller: Controller) -> None:
        loading = isinstance(event, ev.PhaseSeen) and event.phase == "loading"
        if loading and not acted:
            unit = next(u for u in rig.world.units.values() if u.pid)
            acted.append(unit.invocation)
            asyncio.get_running_loop().call_later(0.5, rig.world.start, unit)

    rig.on_event = see
    outcome = rig.run()
    raised = [(e.verdict, e.cause_text) for e in rig.events if isinstance(e, ev.AlertRaised)]
    assert acted and raised == [] and outcome.word == "done"
    once_each(rig.events)


def test_a_restart_by_the_owner_between_the_gate_and_its_end_is_not_called_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 7020 of the campaign: nvidia-smi hung, the owner restarted the server meanwhile, and that start was called ready."""
    rig, acted = Rig(), []
    real = Restarter._gpu_use

    async def slow(self: Restarter, a: Attempt) -> GpuUse:
        if not acted:
            unit = next(u for u in rig.world.units.values() if u.pid)
            acted.append(unit.invocation)
            rig.world.start(unit)
        return await real(self, a)

    monkeypatch.setattr(Restarter, "_gpu_use", slow)
    up, ups = World._up, set()

    def came_up(self: World, unit: Unit, invocation: str) -> None:
        ups.add(invocation)
        up(self, unit, invocation)

    monkeypatch.setattr(World, "_up", came_up)
    false: list[str] = []

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartReady) and event.generation.id not in ups:
            false.append(event.generation.id)

    rig.on_event = see
    assert rig.run().word == "done" and acted and not false
    once_each(rig.events)


def test_a_cell_whose_result_comes_while_its_job_is_stopped_is_not_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 7521 of the campaign: paused between two cells, with the second one measured and not reported yet."""
    rig, late = Rig(), []
    real = FakeHost.op_job_stop

    def stop(self: FakeHost, job: str) -> object:
        found = self.world.jobs[job]
        todo = [c["id"] for c in found.spec["cells"] if c["id"] not in found.results]
        if todo and not late:
            late.append(todo[0])
            found.results[todo[0]] = self.world.measured(found, todo[0], 32)
            self.world.served.append(todo[0])
        return real(self, job)

    monkeypatch.setattr(FakeHost, "op_job_stop", stop)

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.CellStarted) and not late:
            rig.give(ev.Pause)
        if isinstance(event, ev.SweepPaused):
            later(30.0, lambda: rig.give(ev.GoOn))

    rig.on_event = see
    assert rig.run().word == "done" and late
    once_each(rig.events)
    assert sorted(rig.world.served) == sorted(c.id for c in rig.sweep.cells)


@pytest.mark.parametrize("fails", ["op_job_collect", "op_unit_show"])
def test_an_end_that_was_found_outlives_an_agent_that_fails(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server dies under a cell, and the agent fails as what its job left is collected, or as the unit is read again:
    the death is told and counted, and what was measured is taken later, not measured again."""
    rig, failed = Rig(), []
    rig.world.faults = {"--context-length 8192": "exit-mid"}
    real_stop, real = FakeHost.op_job_stop, getattr(FakeHost, fails)

    def stop(self: FakeHost, job: str) -> object:
        found = self.world.jobs[job]
        if self.world.serving is None and not failed:
            failed.append(1)
            for cell in [c["id"] for c in found.spec["cells"]][1:]:
                found.results[cell] = self.world.measured(found, cell, 32)
        return real_stop(self, job)

    def fail(self: FakeHost, **args: object) -> object:
        if failed == [1]:
            failed.append(2)
            raise AgentError("the agent could not do it", code="internal")
        return real(self, **args)

    monkeypatch.setattr(FakeHost, "op_job_stop", stop)
    monkeypatch.setattr(FakeHost, fails, fail)
    assert rig.run().word == "done" and failed == [1, 2]
    assert [e.verdict for e in rig.events if isinstance(e, ev.AlertRaised)].count("failed") >= 1
    once_each(rig.events)
    assert "b1" not in rig.world.served, "it was measured before the server died"


@pytest.mark.parametrize("pauses", [1, 9])
def test_a_cell_whose_server_paused_is_measured_again_once_on_the_same_start(
    pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server stood still for 1.5 of 2 s (SIGSTOP, a suspended machine): that half speed decides nothing where another
    result can be had. What pauses each time is the server's own, and is kept as SUSPECT."""
    rig, held = Rig(), []
    real = World.measured

    def measured(self: World, job: Job, cell: str, tokens: int) -> dict[str, object]:
        raw = real(self, job, cell, tokens)
        if cell == "b0" and len(held) < pauses:
            held.append(cell)
            last = raw["requests"][-1]
            last["t"] = [last["t"][0], 1_500_000_000, *last["t"][2:]]
            last["end"] = last["last_event"] = last["end"] + 1_500_000_000
            raw["window"]["wall_s"] = 2.0
        return raw

    monkeypatch.setattr(World, "measured", measured)
    assert rig.run().word == "done"
    found = [e for e in rig.events if isinstance(e, ev.CellMeasured) and e.cell_id == "b0"]
    assert ["server-paused" in e.reasons for e in found] == [True, pauses > 1]
    assert len({e.generation.id for e in found if e.generation}) == 1, "no restart for it"
    assert rig.states("b") == ["done", "done"] and len(rig.world.starts) == 3
    assert ("server-paused" in rig.state.cells["b0"].reasons) == (pauses > 1)
    assert rig.state.alerts == {}
    once_each(rig.events)


def test_a_second_result_of_a_finished_cell_changes_nothing() -> None:
    rig, taken = Rig(), []

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartStarted) and event.config == "b":
            raw = rig.world.measured(next(iter(rig.world.jobs.values())), "a0", 64)
            taken.append(take_result(controller.ctx, "another-job", "a0", raw, None))

    rig.on_event = see
    assert rig.run().word == "done" and taken == [None]
    once_each(rig.events)


def test_a_server_that_dies_before_its_log_is_followed_for_a_cell_is_named_by_its_log() -> None:
    rig, acted = Rig(bug="fail-and-go-on"), []

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.RestartReady) and not acted:
            unit = next(u for u in rig.world.units.values() if u.pid)
            acted.append(unit)
            rig.world._crash(
                unit, unit.invocation, "RuntimeError: CUDA error: an illegal memory access was encountered"
            )

    rig.on_event = see
    rig.run()
    raised = [e for e in rig.events if isinstance(e, ev.AlertRaised)]
    assert [e.cause for e in raised][:1] == ["cuda-illegal-memory-access"], raised
