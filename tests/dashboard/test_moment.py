"""The panel follows the moment: which face every state has, and that none is empty or too wide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ddtop import events as ev
from ddtop.dashboard.draw.paint import plain, width_of
from ddtop.dashboard.panels.moment.face import Face, face_of
from ddtop.dashboard.panels.moment.panel import WANTS, moment_lines, moment_title
from ddtop.journal.fold.apply import fold
from tests.dashboard import story
from tests.dashboard.story import Script

Make = Callable[[], Script]


def nothing() -> Script:
    return Script()


def begun() -> Script:
    script = Script()
    story.begin(script)
    return script


def refused_link() -> Script:
    script = Script()
    script.add(ev.RunStarted, run_id="r1", name="x", mode="sweep", segment=0)
    script.add(ev.CellsPlanned, cells=story.cells(), baseline="auto")
    script.add(
        ev.HostConnecting, attempt=2, target="root@ct200:22", retry_in_s=8.0, error="connection refused"
    )
    return script


def ended(outcome: str, **more: object) -> Make:
    def make() -> Script:
        script = refused_link() if outcome == "refused" else story.running()
        script.add(ev.RunEnded, outcome=outcome, exit_code=1, **more)
        return script

    return make


def watching() -> Script:
    script = Script()
    script.add(ev.RunStarted, run_id="r1", name="x", mode="monitor", segment=0)
    script.add(ev.HostConnected, agent="a", python="3", uid=0, user="root", boot="b1/1")
    script.add(ev.ProbeTaken, probe={"servers": []})
    return script


def staging() -> Script:
    script = begun()
    script.add(ev.StageProgress, target="/dev/shm/Q", state="copying", bytes_done=10, bytes_total=100)
    return script


def starting() -> Script:
    script = begun()
    story.restart(script, "auto", "i", ready=False)
    return script


def gate_open() -> Script:
    script = starting()
    for part in ("listener", "mark", "arguments"):
        proof = ev.Evidence(source="http", text="as wanted")
        script.add(ev.GateSeen, attempt_id="start-auto", part=part, ok=True, evidence=proof)
    return script


def ready() -> Script:
    script = begun()
    story.restart(script, "auto", "i")
    return script


def searching() -> Script:
    script = ready()
    script.add(ev.CellStarted, cell_id=story.cell_id("auto", 0), attempt=1)
    script.add(ev.CellStateSet, cell_id=story.cell_id("auto", 0), state="running")
    return script


def stuck() -> Script:
    """A start that failed, and a person is asked: it is not decided yet."""
    script = begun()
    story.restart(script, "b16", "i", ready=False)
    script.add(ev.PhaseSeen, attempt_id="start-b16", phase="loading", state="failed", elapsed_s=1.0)
    script.add(ev.AlertRaised, **story.alert_fields(script.now))
    return script


def retried() -> Script:
    """The same, and the next try is under way while its alert is still open."""
    script = stuck()
    script.add(ev.AlertDecided, alert_id=story.ALERT, what="start b16 again", by="you@laptop")
    script.add(
        ev.RestartFailed,
        attempt_id="start-b16",
        verdict="failed",
        cause="nccl-system-error",
        kind="transient",
    )
    script.add(ev.RestartStarted, attempt_id="again", config="b16", tp=1, unit=story.UNIT)
    return script


def cell_failed() -> Script:
    script = story.running()
    cell = story.cell_id("b15", 2)
    fields = story.alert_fields(script.now) | {
        "title": "SERVER DIED",
        "attempt_id": None,
        "cell_ids": (cell,),
    }
    script.add(ev.AlertRaised, **fields)
    return script


def slow() -> Script:
    script = starting()
    script.add(
        ev.AlertRaised, **story.alert_fields(script.now) | {"verdict": "slow", "attempt_id": "start-auto"}
    )
    return script


def given_up() -> Script:
    """A start failed, the policy went on, and the next one has not begun."""
    script = story.failed()
    script.add(ev.AlertResolved, alert_id=story.ALERT, how="b16 failed; the sweep goes on", by="policy")
    return script


def foreign() -> Script:
    script = begun()
    fields = story.alert_fields(script.now) | {
        "title": "FOREIGN PROCESS",
        "verdict": "foreign",
        "attempt_id": None,
        "cause_text": "ct200: pid 812 (python) of anna is on GPU 0",
    }
    script.add(ev.AlertRaised, **fields)
    return script


def proposed() -> Script:
    script = begun()
    story.proposed(script)
    return script


def step_under_way() -> Script:
    script = begun()
    script.add(
        ev.StepTaken,
        plan_id="p",
        step_id="lease",
        action="wait",
        title="wait for the lease of ct200",
        reason="anna's run ends in 4 min",
        by="automatic",
        state="started",
    )
    return script


def paused() -> Script:
    script = ready()
    script.add(ev.SweepPaused, by="you@laptop")
    return script


def paused_while_measuring() -> Script:
    script = searching()
    script.add(ev.SweepPaused, by="you@laptop")
    return script


def lost() -> Script:
    script = story.running()
    script.add(ev.HostLost, what="ct200 has not answered for 9 s", means="the link is cut", do="wait")
    return script


def lost_with_a_question() -> Script:
    script = stuck()
    script.add(ev.HostLost, what="ct200 has not answered for 9 s")
    return script


def reconnecting() -> Script:
    script = lost()
    script.add(ev.HostConnecting, attempt=3, target="x")
    return script


STATES: list[tuple[Make, Face, str]] = [
    (nothing, "connecting", "Waiting for the runner"),
    (refused_link, "connecting", "connection refused"),
    (watching, "watching", "No server process is running."),
    (begun, "next", "Looking at the host"),
    (staging, "staging", "copying"),
    (starting, "starting", "▶ load"),
    (gate_open, "starting", "✓ listener"),
    (ready, "ready", "✓ gate passed"),
    (searching, "measuring", "▶ measuring"),
    (story.running, "measuring", "5 of 8 requests"),
    (stuck, "failed", "NCCL unhandled system error"),
    (story.failed, "failed", "▸ "),
    (cell_failed, "failed", "nccl-system-error"),
    (retried, "starting", "▶ starting"),
    (slow, "starting", "▶ starting"),
    (given_up, "next", "b16 tp1 failed"),
    (foreign, "waiting", "pid 812 (python) of anna"),
    (proposed, "waiting", "3 steps proposed"),
    (step_under_way, "waiting", "anna's run ends in 4 min"),
    (paused, "paused", "by you@laptop"),
    (paused_while_measuring, "measuring", "▶ measuring"),
    (lost, "lost", "ct200 has not answered for 9 s"),
    (lost_with_a_question, "lost", "no connection"),
    (reconnecting, "lost", "try 3"),
    (story.finished, "ended", "b32"),
    (ended("stopped"), "ended", "Stopped"),
    (ended("crashed", reason="the runner was killed"), "ended", "the runner was killed"),
    (ended("refused", reason="ct200: connection refused"), "ended", "connection refused"),
]


@pytest.mark.parametrize(("make", "face", "says"), STATES, ids=[make.__name__ for make, _, _ in STATES])
def test_every_state_has_its_face_and_the_face_says_what_matters(make: Make, face: Face, says: str) -> None:
    script = make()
    state, now = fold(script.out), script.now + 4
    assert face_of(state, now) == face
    shown = "\n".join(plain(row) for row in moment_lines(face, state, now, 100, WANTS[face]))
    assert says in shown
    assert moment_title(face, state)


def test_a_sweep_whose_runner_is_gone_is_interrupted() -> None:
    script = story.running()
    state = fold(script.out)
    assert face_of(state, script.now, orphaned=True) == "interrupted"
    shown = "\n".join(plain(row) for row in moment_lines("interrupted", state, script.now, 100, 8))
    assert "nothing is running this sweep" in shown
    assert "b15 code@512 tp1 c1 was being measured" in shown


@pytest.mark.parametrize(("make", "face", "says"), STATES, ids=[make.__name__ for make, _, _ in STATES])
def test_no_face_is_empty_or_larger_than_its_place(make: Make, face: Face, says: str) -> None:
    script = make()
    state = fold(script.out)
    for width in (38, 44, 52, 78, 96, 118):
        for height in (2, 4, 8, 14, 34):
            rows = moment_lines(face, state, script.now + 4, width, height)
            assert 0 < len(rows) <= height
            assert all(width_of(row) <= width for row in rows)
            assert any(plain(row).strip() for row in rows)
