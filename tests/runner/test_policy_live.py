"""What a live runner does by itself: each kind of cause, 0 tokens, a slow start, an unanswered alert, a bad result."""

from __future__ import annotations

import json
from pathlib import Path

from ddtop.events import (
    AlertRaised,
    AlertResolved,
    CellMeasured,
    CellStateSet,
    MarkBroken,
    PhaseSeen,
    RestartFailed,
    RestartReady,
    RestartStarted,
)
from tests.runner.rig import Rig, Runner

QUICK = {"ddtop.sweep.configuration.failed_start.RETRY_PAUSE_S": 0.2}


def starts(runner: Runner, config: str) -> int:
    return sum(e.config == config for e in runner.of(RestartStarted))


def test_each_kind_of_cause_without_a_person(rig: Rig) -> None:
    """Transient: once more. Arguments: never again. A bug: once more, then broken. Slow: waited for, no alert."""
    plan = rig.plan(
        'once = { env = { SIM_FAIL_FIRST_START = "nccl-watchdog" } }\n'
        'twice = { env = { SIM_FAIL_FIRST_START = "nccl-watchdog", SIM_FAIL_STARTS = "3" } }\n'
        'args = { env = { SIM_FAIL_FIRST_START = "cuda-oom" } }\n'
        'bug = { env = { SIM_FAIL_FIRST_START = "cublas", SIM_FAIL_STARTS = "3" } }\n'
        'slow = { env = { SIM_LOAD_S = "10" } }',
        baseline="once",
    )
    runner = rig.start(plan, patch=QUICK)
    assert runner.wait() == 10
    assert runner.states() == ["done", "failed", "failed", "broken", "done"]
    assert [starts(runner, c) for c in ("once", "twice", "args", "bug", "slow")] == [2, 2, 1, 2, 1]

    raised = {a.alert_id: a for a in runner.of(AlertRaised)}
    slow = [e.attempt_id for e in runner.of(RestartStarted) if e.config == "slow"]
    assert not [a for a in raised.values() if a.attempt_id in slow], "slow is not dead: no alert"
    assert any(
        "longer than the usual" in (e.detail or "") for e in runner.of(PhaseSeen) if e.attempt_id in slow
    )
    assert {a.kind for a in raised.values()} == {"transient", "config", "bug"}
    assert all(a.answer_by_s is None and a.policy for a in raised.values()), (
        "without a viewer nothing is asked; what is done is recorded"
    )
    assert {e.alert_id for e in runner.of(AlertResolved)} == set(raised)
    broken = next(c for c in runner.state().plan_cells if c.state == "broken")
    assert broken.signature_id == "cublas-exec" and broken.by == "policy"
    assert rig.engines() == []


def test_zero_tokens_breaks_and_a_new_engine_version_reopens(rig: Rig) -> None:
    """0 tokens: one restart, then broken; not run again by a resume or a later run, until the engine is another one."""
    configs = 'a = { args = ["--random-seed", "7"], env = { SIM_ZERO_TOKENS = "1", SIM_ZERO_TOKENS_IN = "1.0" } }\nb = {}'
    version = rig.world.root / "version"
    version.write_text("1.0")
    first = rig.start(rig.plan(configs, baseline="b"), patch=QUICK)
    assert first.wait() == 10
    assert (first.states("a"), first.states("b")) == (["broken"], ["done"])
    broken = next(c for c in first.state().plan_cells if c.state == "broken")
    assert starts(first, "a") == 2 and [a.validity for a in broken.attempts] == ["INVALID", "INVALID"]
    alerts = {a.alert_id: a for a in first.of(AlertRaised)}
    assert {a.verdict for a in alerts.values()} == {"no-tokens"} and len(alerts) == 1, "it rings once"
    assert broken.engine_version == "1.0" and "0 tok/s twice" in broken.reason

    again = rig.start(None)
    assert again.wait() == 10
    assert starts(again, "a") == 2 and len(again.of(CellMeasured)) == 3, "not run again by a resume"

    version.write_text("2.0")
    new = rig.start(
        rig.plan(configs, baseline="b", name="new"), recording=rig.home / "new.ddtop", patch=QUICK
    )
    assert new.wait() == 0
    assert new.states() == ["done", "done"] and starts(new, "a") == 1
    known = next(e for e in new.of(CellStateSet) if e.by == "history")
    assert known.state == "broken" and "known from an earlier run" in known.reason, (
        "nor by another run on this host"
    )
    reopened = next(e for e in new.of(CellStateSet) if e.state == "planned")
    assert "broken with sglang 1.0" in reopened.reason and "2.0" in reopened.reason


def test_an_alert_without_a_decision_is_decided_by_the_policy(rig: Rig) -> None:
    """A dashboard is open and no decision comes: the policy after answer_s; the dashboard closes: the policy at once."""
    plan = rig.plan(
        'a = { env = { SIM_FAIL_FIRST_START = "nccl-watchdog" } }\n'
        'b = { env = { SIM_FAIL_FIRST_START = "cublas", SIM_FAIL_STARTS = "3" } }\n'
        'c = { env = { SIM_FAIL_FIRST_START = "cuda-oom" } }',
        answer_s=4,
    )
    runner = rig.start(plan, attended=True, patch=QUICK)
    with runner.viewer():
        alert = runner.alert("failed")
        failed = runner.until(lambda s: s.restarts[0].outcome == "failed" and s.restarts[0], "decision")
        assert failed.verdict == "failed"
        waited = next(e for e in runner.of(RestartFailed)).mono_s - runner.of(AlertRaised)[0].mono_s
        assert 3.5 <= waited <= 30, f"{waited:.1f} s"
        assert alert.raised.answer_by_s is not None
        runner.until(lambda s: runner.states("a") == ["done"], "the retried start")
        bug = runner.until(
            lambda s: next((a for a in s.open_alerts if a.raised.kind == "bug"), None), "alert of b"
        )
        runner.obeyed(MarkBroken, alert_id=bug.id)
        config = runner.until(
            lambda s: next((a for a in s.open_alerts if a.raised.kind == "config"), None), "alert of c"
        )
        assert config.open
    assert runner.wait() == 10
    assert runner.states() == ["done", "broken", "failed"]
    by = {c.spec.config: c.by for c in runner.state().plan_cells}
    assert by["b"] == "anna" and by["c"] == "policy"


def test_a_result_spoiled_by_our_side_is_measured_again_twice_at_most(rig: Rig) -> None:
    """The benchmark fails on the host, not the server: two more tries, then failed, never broken; no restart for it."""
    script = rig.world.root / "bench.py"
    script.write_text(
        "import json, sys, pathlib\n"
        "count = pathlib.Path(sys.argv[0]).with_suffix('.' + sys.argv[1])\n"
        "n = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(n + 1))\n"
        "text = json.dumps({'tok_s': 5}) if sys.argv[1] == '12' and n == 2 else 'no JSON'\n"
        "pathlib.Path(sys.argv[2]).write_text(text)\n"
    )
    bench = json.dumps([str(rig.world.bin / "python3"), str(script), "{output_tokens}", "{result}"])
    plan = rig.plan("a = {}", tokens="[8, 12]").replace(
        "requests_per_stream = 2\nwarmup = 0\n",
        f'kind = "command"\nargv = {bench}\nmetrics = {{ output_tok_s = "tok_s" }}\n',
    )
    runner = rig.start(plan, patch=QUICK)
    assert runner.wait() == 10
    assert runner.states() == ["failed", "done"]
    assert [len(c.attempts) for c in runner.state().plan_cells] == [3, 3]
    assert Path(script.with_suffix(".8")).read_text() == "3"
    assert len(runner.of(RestartReady)) == 1, "the server is not at fault"
    assert {a.verdict for a in runner.of(AlertRaised)} == {"measuring-failed"}
    failed = runner.state().plan_cells[0]
    assert failed.cause == "generator-failed" and "3 runs" in failed.reason
    assert not runner.state().open_alerts
