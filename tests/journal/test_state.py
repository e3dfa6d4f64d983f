"""The fold: what a sweep's events make of the state, at every prefix, and how fast."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.journal.fold import apply as appliers
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.eta import Prior, sweep_eta
from ddtop.journal.read.select import (
    action_on,
    advised_action,
    advised_alert,
    counts,
    key_of_action,
    metric_value,
    questions,
    remaining,
    running_cell,
    tps,
)
from ddtop.journal.results.matrix import matrix, progress_pct
from tests.journal.made import KINDS, SPECS, Clock, any_event, measured, spec, sweep


def test_every_kind_of_event_has_an_applier() -> None:
    assert set(appliers.HANDLERS) == set(KINDS)


def test_a_sweep_folds_to_what_happened() -> None:
    state = fold(sweep())
    assert (state.run.name, state.run.mode, state.run.baseline) == ("demo", "sweep", "auto")
    assert state.host.state == "connected" and state.host.rtt_ms == 18.0 and state.host.can == ("restart",)
    assert [c.state for c in state.cells.values()] == ["done", "done", "done", "running", "skipped"]
    assert state.cells["c1"].reason == "0 tok/s"
    assert state.cells["a1"].metrics["output_tok_s"] == 26.0
    assert state.cells["a1"].seconds == 30.0
    assert [r.outcome for r in state.restarts] == ["ready", "failed", "ready"]
    assert state.restarts[0].seconds == 55.0
    assert state.restarts[0].phases["loading"].elapsed_s == 51.0
    assert state.restarts[0].gate["token"].ok is True
    assert state.restarts[1].verdict == "failed" and state.restarts[1].kind == "transient"
    assert [a.open for a in state.alerts.values()] == [False]
    assert state.gpus[1].history[-1].power_w == 401.0
    assert state.logs["s.service"].lines[0].line.cursor == "c1"
    assert state.logs["s.service"].lines[0].seq == 6
    assert state.strays == 0
    assert counts(state.plan_cells).ended == 4
    assert [c.id for c in remaining(state)] == ["b2"]
    assert running_cell(state) is state.cells["b2"]


def test_a_doubt_that_comes_later_changes_the_judgement_and_no_time() -> None:
    clock = Clock()
    raw = {
        "started_at_s": 100.0,
        "ended_at_s": 130.0,
        "window": {"zero_mono_ns": 5_000_000_000, "wall_s": 20.0},
    }
    state = fold(
        [
            ev.CellsPlanned(**clock(), cells=SPECS, baseline="auto"),
            ev.CellStarted(**clock(), cell_id="a1", attempt=1),
            ev.CellMeasured(
                **clock(30), cell_id="a1", attempt=1, validity="VALID", metrics={"n": 1}, raw=raw
            ),
            ev.CellMeasured(
                **clock(300),
                cell_id="a1",
                attempt=1,
                validity="SUSPECT",
                reasons=("host-fault",),
                metrics={"n": 1},
            ),
        ]
    )
    cell, (attempt,) = state.cells["a1"], state.cells["a1"].attempts
    assert (cell.validity, cell.reasons, cell.metrics) == ("SUSPECT", ("host-fault",), {"n": 1})
    assert cell.seconds == 30.0 and attempt.window_mono_s == (5.0, 25.0)
    assert attempt.measured_at_s == 1_700_000_032.0


@pytest.mark.parametrize(
    ("seen_s", "span_s", "took_s"),
    [
        (30.0, 29.0, 29.0),  # as usual
        (0.1, 29.0, 29.0),  # collected after a cut: begun and measured in one moment
        (900.0, 29.0, 29.0),  # begun before a cut, collected after it
        (30.0, 3629.0, 30.0),  # the host's clock was set ahead under it: the rest of the sweep took "hours"
        (30.0, -3571.0, 30.0),  # … or back
    ],
)
def test_a_cell_took_what_it_took_whatever_clocks_say(seen_s: float, span_s: float, took_s: float) -> None:
    clock = Clock()
    raw = {
        "started_at_s": 100.0,
        "ended_at_s": 100.0 + span_s,
        "window": {"zero_mono_ns": 5_000_000_000, "wall_s": 20.0},
    }
    state = fold(
        [
            ev.CellsPlanned(**clock(), cells=SPECS, baseline="auto"),
            ev.CellStarted(**clock(), cell_id="a1", attempt=1),
            ev.CellMeasured(**clock(seen_s), cell_id="a1", attempt=1, validity="VALID", raw=raw),
        ]
    )
    assert state.cells["a1"].seconds == pytest.approx(took_s)


def test_a_window_of_nonsense_breaks_no_fold() -> None:
    clock = Clock()
    raw = {"window": {"zero_mono_ns": 1, "wall_s": ["x"]}, "started_at_s": "a", "ended_at_s": None}
    state = fold(
        [
            ev.CellsPlanned(**clock(), cells=SPECS, baseline="auto"),
            ev.CellMeasured(**clock(), cell_id="a1", attempt=1, validity="VALID", raw=raw),
        ]
    )
    assert state.cells["a1"].seconds is None


def test_the_acceptance_of_a_window_is_not_that_of_its_burst() -> None:
    """Both count from 0; a window whose first report has more steps than the burst had was taken for its continuation."""
    clock = Clock()
    says = [("settling", 100, 50), ("window", 240, 80), ("window", 540, 180)]
    state = fold(
        [
            ev.CellsPlanned(**clock(), cells=SPECS, baseline="auto"),
            ev.CellStarted(**clock(), cell_id="a1", attempt=1),
            *(
                ev.CellProgress(**clock(), cell_id="a1", phase=phase, spec_tokens=tokens, spec_steps=steps)
                for phase, tokens, steps in says
            ),
        ]
    )
    (attempt,) = state.cells["a1"].attempts
    assert [v for _, v in attempt.live.points("accept")] == [2.0, 3.0, 3.0]


def test_the_matrix_shows_speedups_against_the_baseline() -> None:
    view = matrix(fold(sweep()))
    assert tps(fold(sweep())) == [1]
    assert [c.label(view.columns) for c in view.columns] == ["fib@256", "fib@1024"]
    assert [r.config for r in view.rows] == ["auto", "b15", "b8"]
    auto, b15, b8 = view.rows
    assert auto.baseline and auto.cells[0] is not None and auto.cells[0].speedup == 1.0
    assert b15.cells[0] is not None and b15.cells[0].speedup == 143.0 / 26.0
    assert b15.cells[1] is not None and b15.cells[1].value is None
    assert progress_pct(fold(sweep()).cells[b15.cells[1].ids[0]]) == 25.0
    assert b8.cells[0] is not None and b8.cells[0].state == "skipped" and b8.cells[1] is None


def test_overlapping_repeats_are_not_different() -> None:
    cells = tuple(
        spec(f"{config}{n}", config, repeat=n) for config in ("auto", "b15", "b16") for n in range(2)
    )
    clock = Clock()
    events: list[ev.Event] = [ev.CellsPlanned(**clock(), cells=cells, baseline="auto")]
    for cell_id, tok_s in zip([c.id for c in cells], (26.0, 28.0, 27.0, 29.0, 90.0, 95.0), strict=True):
        events += measured(clock, cell_id, tok_s)
    rows = matrix(fold(events)).rows
    assert [row.cells[0].differs for row in rows if row.cells[0]] == [None, False, True]
    b15 = rows[1].cells[0]
    # logs of 26/28, 27/29, 90/95: half their squared differences, 3 degrees of freedom: sd 0.0476, t 3.182
    assert b15 is not None and (b15.low, b15.high) == pytest.approx((28 / 1.113, 28 * 1.113), abs=0.01)
    assert (b15.n, b15.starts, b15.basis) == (2, 1, "inside")


def test_a_broken_cells_number_is_no_result() -> None:
    clock = Clock()
    events = [
        ev.CellsPlanned(**clock(), cells=SPECS, baseline="auto"),
        *measured(clock, "b1", 0.0),
        ev.CellStateSet(**clock(), cell_id="b1", state="broken", reason="0 tok/s twice"),
    ]
    cell = matrix(fold(events)).rows[1].cells[0]
    assert cell is not None and cell.value is None and cell.reason == "0 tok/s twice"


def test_an_edited_plan_keeps_results_hides_the_vanished_and_plans_the_new() -> None:
    state = fold(sweep())
    edited = (SPECS[2], SPECS[0], spec("n1", "b16"), spec("c1", "b8"))
    apply(state, ev.CellsPlanned(at_s=2e9, mono_s=999.0, cells=edited, baseline="auto"))
    assert [c.id for c in state.plan_cells] == ["b1", "a1", "n1", "c1"]
    assert state.cells["b1"].state == "done" and state.cells["n1"].state == "planned"
    assert state.cells["c1"].state == "planned", "the plan no longer skips it"
    assert state.cells["a2"].hidden and state.cells["a2"].metrics


def test_a_persons_skip_survives_a_new_plan() -> None:
    state = fold(sweep())
    apply(state, ev.CellStateSet(at_s=2e9, mono_s=1.0, cell_id="b2", state="skipped", by="v1"))
    apply(state, ev.CellsPlanned(at_s=2e9, mono_s=2.0, cells=SPECS, baseline="auto"))
    assert state.cells["b2"].state == "skipped"


def alert(clock: Clock, ident: str, **fields: object) -> ev.AlertRaised:
    raw = {
        "title": ident,
        "verdict": "failed",
        "cause": "x",
        "cause_text": "x",
        "kind": "unknown",
        "advice": "",
        "actions": (ev.Action(key="r", label="retry b15", command="retry"),),
    }
    return ev.AlertRaised(**clock(), alert_id=ident, **(raw | fields))  # type: ignore[arg-type]


def test_the_oldest_question_is_answered_first() -> None:
    clock = Clock()
    first, second = alert(clock, "first"), alert(clock, "second")
    note = alert(clock, "note", actions=())
    state = fold([note, first, second])
    assert [a.id for a in questions(state)] == ["first", "second", "note"]
    apply(state, ev.AlertDecided(**clock(), alert_id="first", what="start it again", by="policy"))
    assert [a.id for a in questions(state)] == ["second", "first", "note"], "what is decided asks no more"
    apply(state, alert(clock, "gone", verdict="lost-host"))
    found = advised_alert(state)
    assert found is not None and found.id == "gone", "without the host nothing else can be done"
    for ident in ("gone", "first", "second", "note"):
        apply(state, ev.AlertResolved(**clock(), alert_id=ident, how="skip", by="v"))
    assert advised_alert(state) is None


def test_a_key_does_the_same_about_every_alert() -> None:
    """Older recordings gave `r` to whatever was advised: a retry in one alert, a skip in the next."""
    clock = Clock()
    actions = (
        ev.Action(key="r", label="skip b15", command="skip"),
        ev.Action(key="t", label="retry anyway", command="retry"),
        ev.Action(key="z", label="of a later version", command="later"),
    )
    (found,) = questions(fold([alert(clock, "a", actions=actions)]))
    assert advised_action(found) is actions[0]
    assert [key_of_action(a) for a in actions] == ["x", "r", "z"]
    assert action_on(found, "r") is actions[1]
    assert action_on(found, "s") is None


def test_a_new_segment_forgets_the_old_connection_and_ends_no_cell_by_itself() -> None:
    state = fold(sweep())
    again = ev.RunStarted(at_s=1.8e9, mono_s=3.0, run_id="r1", name="demo", mode="sweep", segment=1)
    apply(state, again)
    assert state.host.state == "idle" and state.cells["b2"].state == "running"
    assert state.run.plan_toml == "name='demo'", "a resume without a plan keeps the old one"
    apply(state, ev.RestartStarted(at_s=1.8e9, mono_s=4.0, attempt_id="x", config="b16", tp=1, unit="u"))
    assert [r.outcome for r in state.restarts] == ["ready", "failed", "ready", "running"]
    assert state.restarting is state.restarts[-1]
    done = ev.CellMeasured(at_s=1.8e9, mono_s=9.0, cell_id="b2", attempt=1, validity="VALID")
    apply(state, done)
    assert state.cells["b2"].seconds is None, "monotonic clocks of two runners are not comparable"


def test_proposed_steps_stand_until_answered() -> None:
    plan = ev.StepsPlanned(
        at_s=1.0,
        mono_s=1.0,
        plan_id="p1",
        why="rebooted",
        steps=(ev.Step(id="1", action="stage", title="re-stage", reason="tmpfs was emptied"),),
    )
    state = fold([plan])
    assert state.proposed is plan
    taken = ev.StepTaken(
        at_s=2.0,
        mono_s=2.0,
        plan_id="p1",
        step_id="1",
        action="stage",
        title="t",
        reason="r",
        by="v",
        state="started",
    )
    apply(state, taken)
    assert state.proposed is None and state.steps["p1", "1"].ended_at_s is None


def test_a_loss_counts_from_the_loss_and_not_from_each_attempt() -> None:
    state = fold(sweep())
    apply(state, ev.HostLost(at_s=2e9, mono_s=1.0, what="no answer for 9 s"))
    apply(state, ev.HostConnecting(at_s=2e9 + 5, mono_s=6.0, attempt=2, retry_in_s=4.0))
    assert state.host.state == "connecting" and state.host.since_at_s == 2e9 and state.host.attempt == 2
    apply(state, ev.HostRebooted(at_s=2e9 + 9, mono_s=9.0, boot_before="a", boot_now="b"))
    apply(state, ev.HostConnected(at_s=2e9 + 9, mono_s=9.0, agent="a", python="3", uid=0, user="root"))
    assert state.host.state == "rebooted"


def test_eta_uses_the_most_similar_cells_and_the_starts_left() -> None:
    events = sweep()
    state = fold(events)
    left = sweep_eta(state, now_s=state.at_s)
    assert (left.cells, left.restarts) == (1, 0)
    assert left.total_s == 90.0 - 5.0, "1024 tokens took 90 s on auto; 5 s of this one are over"
    early = fold(events[:2])
    assert sweep_eta(early, now_s=0.0).total_s is None
    prior = Prior(cell_s=lambda s: 10.0, restart_s=lambda c, tp: 100.0)
    assert sweep_eta(early, now_s=0.0, prior=prior).total_s == 4 * 10.0 + 2 * 100.0


def test_metric_names_reach_into_distributions() -> None:
    metrics = {"ttft_ms": {"p50": 3}, "on": True}
    assert metric_value(metrics, "ttft_ms.p50") == 3.0
    assert metric_value(metrics, "on") is None and metric_value(metrics, "ttft_ms") is None


@given(st.integers(0, len(sweep())))
def test_any_prefix_folds_to_a_valid_state(length: int) -> None:
    state = fold(sweep()[:length])
    assert state.seq == length and state.strays == 0
    assert counts(state.plan_cells).total == len(state.plan_cells)
    for cell in state.cells.values():
        assert cell.state != "done" or cell.metrics
    view = matrix(state)
    assert all(len(row.cells) == len(view.columns) for row in view.rows)
    sweep_eta(state, now_s=state.at_s)


@settings(max_examples=60, deadline=None)
@given(st.lists(any_event(), max_size=12))
def test_events_in_any_order_never_break_the_fold_or_the_selectors(events: list[ev.Event]) -> None:
    state = fold(events)
    assert state.seq == len(events)
    matrix(state)
    sweep_eta(state, now_s=0.0)
    advised_alert(state)
    assert state.stage is None or state.stages


def test_the_fold_takes_twenty_thousand_events_a_second() -> None:
    gpus = tuple(ev.GpuReading(index=i, power_w=400.0, util_gpu_pct=99.0, mem_used_mib=1.0) for i in range(8))
    lines = tuple(ev.LogLine(text="Decode batch", at_s=1.0) for _ in range(3))
    mixed: list[ev.Event] = []
    for n in range(2000):
        mixed += [
            ev.GpuSampled(at_s=float(n), mono_s=float(n), gpus=gpus),
            ev.LogRead(at_s=float(n), mono_s=float(n), unit="u", lines=lines),
            ev.RttMeasured(at_s=float(n), mono_s=float(n), rtt_ms=1.0),
            ev.CellProgress(at_s=float(n), mono_s=float(n), cell_id="a1", pct=1.0),
        ]
    best = min(_cpu_seconds(mixed) for _ in range(3))
    assert len(mixed) / best > 20_000, f"{len(mixed) / best:.0f} events/s"


def _cpu_seconds(events: list[ev.Event]) -> float:
    state = State()
    started = time.process_time()
    fold(events, state)
    return time.process_time() - started
