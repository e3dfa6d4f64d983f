"""The panel follows the moment: which face every state has, and that none is empty or too wide."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ddtop import events as ev
from ddtop.dashboard.draw.paint import plain, width_of
from ddtop.dashboard.panels.alert import alert_lines
from ddtop.dashboard.panels.cell.result import quality_lines
from ddtop.dashboard.panels.moment.face import Face, face_of
from ddtop.dashboard.panels.moment.failed import card_lines
from ddtop.dashboard.panels.moment.moving import move_parts
from ddtop.dashboard.panels.moment.panel import WANTS, moment_lines, moment_title
from ddtop.journal.act.seat import Seat
from ddtop.journal.fold.apply import fold
from ddtop.words import CAUSE_KINDS
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


# ------------------------------------------------------------------------------------- what a start shows


def test_what_moves_in_a_start_is_shown_with_its_pace() -> None:
    script = starting()
    for number in range(12):
        script.now += 1
        moving = ev.Moving(
            read_mib=10_240.0 + 400 * number,
            gpu_mem_mib=20_480.0 + 512 * number,
            cpu_s=100.0 + 2.5 * number,
            what=f"{10_240 + 400 * number} MiB read",
        )
        script.add(
            ev.PhaseSeen,
            attempt_id="start-auto",
            phase="loading",
            state="running",
            elapsed_s=60.0,
            moving=moving,
        )
    state = fold(script.out)
    shown = "\n".join(plain(row) for row in moment_lines("starting", state, script.now, 110, 20))
    assert "read 14.3 GiB 400 MiB/s" in shown
    assert "GPU memory 25.5 GiB +0.5 GiB/s" in shown
    assert "CPU 2.5 cores" in shown
    assert "14640 MiB read" in shown
    old = "\n".join(plain(row) for row in moment_lines("starting", state, script.now + 60, 110, 20))
    assert "MiB/s" not in old, "a pace of a minute ago is not shown as the present one"


def test_a_start_without_counters_shows_none() -> None:
    assert move_parts([], 0.0) == []
    (only,) = move_parts([(1.0, ev.Moving(read_mib=2048.0))], 2.0)
    assert plain(only).strip() == "read 2.0 GiB"


def test_learned_phases_are_shown_before_they_come_and_slow_ones_are_marked() -> None:
    script = begun()
    script.add(
        ev.RestartStarted,
        attempt_id="s",
        config="auto",
        tp=1,
        unit=story.UNIT,
        expected_s=90.0,
        usual={"launching": 4.0, "loading": 60.0, "capturing": 20.0},
    )
    script.add(ev.PhaseSeen, attempt_id="s", phase="launching", state="done", elapsed_s=30.0)
    script.add(ev.PhaseSeen, attempt_id="s", phase="loading", state="running", elapsed_s=15.0, pct=25.0)
    rows = [plain(row).strip() for row in moment_lines("starting", fold(script.out), script.now, 90, 20)]
    assert "of about 1m30s" in rows[0]
    assert any(row.startswith("✓ launch") and row.endswith("usually 4s") for row in rows)
    assert any(row.startswith("▶ load") and "25 %" in row for row in rows)
    assert any(row.startswith("· capture") and "usually 20s" in row for row in rows)
    assert not any(row.startswith("· kv") for row in rows), (
        "a phase that this engine never had is not announced"
    )


# --------------------------------------------------------------------------------------------- the end


def test_the_end_says_why_each_configuration_failed_and_what_to_do() -> None:
    script = story.failed()
    cells = tuple(story.cell_id("b16", n) for n in range(5))
    script.add(ev.AlertRaised, **story.alert_fields(script.now) | {"cell_ids": cells})
    for cell in cells:
        script.add(
            ev.CellStateSet, cell_id=cell, state="failed", reason="NCCL error", cause="nccl-system-error"
        )
    script.add(ev.RunEnded, outcome="some-failed", exit_code=10)
    state = fold(script.out)
    shown = "\n".join(plain(row).rstrip() for row in moment_lines("ended", state, script.now, 100, 30))
    assert "✗ b16 5 cells failed: NCCL error" in shown
    assert "▸ torch.distributed.DistBackendError" in shown
    assert "do Retry once" in shown
    short = [plain(row) for row in moment_lines("ended", state, script.now, 60, 8)]
    assert any("b16 5 cells failed" in row for row in short), (
        "where there is no room, what failed still stands"
    )
    assert "results and plots" in short[-1]


def test_a_connection_that_failed_says_what_it_means_and_what_to_do() -> None:
    script = Script()
    script.add(ev.RunStarted, run_id="r1", name="nosuchhost", mode="monitor", segment=0)
    script.add(ev.HostConnecting, attempt=1, target="nosuchhost")
    why = "nosuchhost: the name nosuchhost does not resolve\n  means: DNS does not know it\n  do:    correct the name"
    script.add(ev.RunEnded, outcome="host-lost", exit_code=11, reason=why)
    state = fold(script.out)
    assert face_of(state, script.now) == "ended"
    rows = [
        plain(row).strip()
        for row in moment_lines("ended", state, script.now, 70, 16, Seat(held=False, starts=True))
    ]
    assert "why    nosuchhost: the name nosuchhost does not resolve" in rows
    assert "means  DNS does not know it" in rows
    assert "do     correct the name" in rows
    assert rows[-1] == "r connects again"
    for seat in (Seat(), Seat(replay=True), Seat(held=False)):
        shown = [plain(row).strip() for row in moment_lines("ended", state, script.now, 70, 16, seat)]
        assert "r connects again" not in shown, "nobody would do it"


def died(title: str = "NOT STARTING?", **more: object) -> Script:
    """A server that died under a cell, in a recording that gave it the title of a start."""
    script = story.running()
    fields = story.alert_fields(script.now) | {
        "title": title,
        "attempt_id": None,
        "cell_ids": (story.cell_id("b15", 2),),
        "kind": "bug",
    }
    script.add(ev.AlertRaised, **fields | more)
    return script


@pytest.mark.parametrize(
    ("script", "title"),
    [
        (died(), "SERVER DIED"),
        (died(verdict="stalled"), "SERVER HUNG"),
        (died("NO TOKENS", verdict="no-tokens"), "NO TOKENS"),
        (story.failed(), "NOT STARTING?"),
    ],
)
def test_a_title_says_what_happened_also_of_an_older_recording(script: Script, title: str) -> None:
    (alert,) = fold(script.out).open_alerts
    assert alert.raised.title == title


def test_the_small_face_of_a_failure_repeats_no_line_of_the_log_and_no_bare_word() -> None:
    """The log's last lines stand right below it at 80x24."""
    state = fold(story.failed().out)
    rows = [plain(row) for row in moment_lines("failed", state, story.failed().now, 78, 5)]
    assert sum("▸" in row for row in rows) == 1 and any("DistBackendError" in row for row in rows)
    assert any(row.startswith("advice ") for row in rows) and "✓ stop" in " ".join(rows)
    texts = {t.line.text.strip() for t in state.logs[story.UNIT].lines}
    assert (
        sum(row.strip(" ▸")[9:].strip()[:20] in {t[:20] for t in texts} for row in rows if row.strip()) <= 1
    )
    for script in (story.failed(), died()):
        state = fold(script.out)
        alert = state.open_alerts[0]
        screens = [moment_lines("failed", state, script.now, 118, height) for height in (5, 12, 40)]
        screens.append(card_lines(state, alert, script.now, 118))
        screens.append(alert_lines(state, script.now, 118))
        for shown in screens:
            words = " ".join(plain(row) for row in shown)
            assert f"({alert.raised.kind})" not in words
        assert any(CAUSE_KINDS[alert.raised.kind] in plain(row) for row in screens[0])


def test_no_form_of_a_program_reaches_the_text_of_a_cell() -> None:
    metrics = story.metrics("b15", 1) | {
        "client": {
            "clock": None,
            "lag_ms": {"p50": 1.25, "max": None},
            "kernel_stamps": True,
            "shards": [1, 2],
        },
        "acceptance": {"by_position": (0.9, None), "simulated": False},
    }
    shown = " ".join(plain(row) for row in quality_lines(metrics, 90))
    assert not re.search(r"None|True|False|[{}']", shown)
    assert "clock n/a" in shown and "lag ms (p50 1.25, max n/a)" in shown and "kernel stamps yes" in shown


def test_the_card_of_an_alert_begins_with_the_line_that_tells() -> None:
    script = story.failed()
    state = fold(script.out)
    rows = [plain(row) for row in card_lines(state, state.open_alerts[0], script.now, 78)]
    first = next(number for number, row in enumerate(rows) if row.startswith("▸"))
    assert first <= 2 and "DistBackendError" in rows[first], (
        "in sight at 24 rows, before anything is scrolled"
    )
