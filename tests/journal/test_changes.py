"""What changed between two moments: counted once, named, and in words that a person who comes back can use."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.dashboard.looked import KEPT_S, Looks
from ddtop.journal.act.changes import TOLD, cells_as_of, changes, looked_since
from ddtop.journal.fold.apply import fold
from ddtop.report.conclusion.changes import change_rows, change_text
from tests.commands.record_demo import EVENTS
from tests.dashboard import story
from tests.journal.made import SPECS, Clock, any_event, measured, restart


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def night() -> tuple[Clock, list[ev.Event], float]:
    """auto measured; then nobody looks: b15 does not start, is retried, the host reboots, a2 is measured again, faster."""
    clock = Clock()
    events: list[ev.Event] = [
        ev.RunStarted(**clock(), run_id="r", name="n", mode="sweep", segment=0),
        ev.CellsPlanned(**clock(), cells=SPECS, baseline="auto"),
        *restart(clock, "auto", "at-1"),
        *measured(clock, "a1", 26.0),
        *measured(clock, "a2", 26.3),
    ]
    left_s = events[-1].at_s
    events += [
        *restart(clock, "b15", "at-2", ready=False),
        ev.AlertDecided(**clock(60), alert_id="al-1", what="retry b15", by="policy"),
        ev.AlertResolved(**clock(60), alert_id="al-1", how="b15 is ready", by="sweep"),
        *restart(clock, "b15", "at-3"),
        *measured(clock, "b1", 143.0),
        ev.HostLost(**clock(), what="cut"),
        ev.HostConnected(**clock(90), agent="a", python="3", uid=0, user="u"),
        ev.HostRebooted(**clock(), boot_before="1", boot_now="2"),
        ev.CellStateSet(**clock(), cell_id="b2", state="failed", reason="CUDA error", by="sweep"),
    ]
    return clock, events, left_s


def test_what_a_person_who_comes_back_reads() -> None:
    _, events, left_s = night()
    state = fold(events)
    text = change_text(state, left_s, state.at_s, live=True)
    assert text.splitlines() == [
        "Since 22:15, 5m07s ago",
        "✓ 1 cell done: 3 of 5 now",
        "✗ 1 cell failed: b15 fib@1024 tp1 c1",
        "      CUDA error",
        "  1 start became ready, 1 failed",
        "! 1 alert raised, all answered",
        "      22:15 NOT STARTING? ct200: s.service failed 2 s after restart: NCCL unhandled system error",
        "            → retry b15 (policy); resolved after 2m00s by sweep: b15 is ready",
        "↻ the host was rebooted once",
        "~ the host was lost once, 1m30s in all",
        "★ Best so far (1 of 2 loads changed)",
        "      fib@256 c1: b15 ☆ 143 tok/s, 5.50× auto; reads best, not sure: one measurement each (was auto)",
        "  No cell is left to measure",
    ]
    dead = change_rows(state, left_s, state.at_s, live=False)
    assert dead[-1].role == "bad" and "runner is gone" in dead[-1].text


def test_nothing_is_said_to_have_changed_where_nothing_has() -> None:
    _, events, left_s = night()
    state = fold(events[: 2 + 7 + 10])
    assert not changes(state, state.at_s).any
    assert "Nothing happened." in change_text(state, state.at_s, state.at_s + 900, live=True)
    ended = fold([*events, ev.RunEnded(at_s=state.at_s + 900, mono_s=0.0, outcome="done", exit_code=0)])
    assert "It ended at" in change_text(ended, left_s, ended.at_s, live=False)


def test_an_alert_from_before_counts_once_it_is_answered() -> None:
    clock = Clock()
    events = [
        ev.RunStarted(**clock(), run_id="r", name="n", mode="sweep", segment=0),
        *restart(clock, "b15", "at-1", ready=False),
    ]
    left_s = events[-1].at_s
    assert not changes(fold(events), left_s).any
    events.append(ev.AlertDecided(**clock(600), alert_id="al-1", what="skip b15", by="anna@laptop"))
    found = changes(fold(events), left_s)
    assert not found.raised and [a.id for a in found.answered] == ["al-1"]
    assert "decided by anna@laptop: skip b15" in change_text(fold(events), left_s, events[-1].at_s, live=True)


def test_cells_as_they_were_before_a_second_measurement() -> None:
    clock, events, _ = night()
    before_s = fold(events).at_s
    faster = {"output_tok_s": 30.0}
    events += [
        ev.CellStateSet(**clock(), cell_id="a1", state="planned", by="you"),
        ev.CellMeasured(**clock(), cell_id="a1", attempt=2, validity="VALID", metrics=faster),
        ev.CellStateSet(**clock(), cell_id="a1", state="done", attempt=2),
    ]
    state = fold(events)
    assert state.cells["a1"].metrics["output_tok_s"] == 30.0
    old = cells_as_of(state, before_s).cells
    assert old["a1"].metrics["output_tok_s"] == 26.0 and old["a1"].state == "done"
    assert cells_as_of(state, 0.0).cells["b1"].state == "planned"
    assert state.cells["a1"].metrics["output_tok_s"] == 30.0  # the state itself is untouched


@settings(deadline=None, max_examples=100)
@given(st.lists(any_event(), max_size=20), st.floats(-1e9, 2e9))
def test_any_events_can_be_told_from_any_moment(events: list[ev.Event], since_s: float) -> None:
    state = fold(events)
    found = changes(state, since_s, max(since_s, state.at_s))
    assert found.lost.seconds >= 0 and found.absent.seconds >= 0
    assert all(c.state == kind for kind in TOLD for c in found.cells[kind])


def test_two_halves_of_a_run_make_the_whole() -> None:
    events = [ev.decode_event(row) for row in EVENTS.read_text().splitlines()]
    state = fold(events)
    begin, end = events[0].at_s - 1, state.at_s
    whole = changes(state, begin, end)
    assert len(whole.cells["done"]) == whole.now.done and whole.ended
    assert len(whole.raised) == len(state.alerts)
    for at_s in (events[n].at_s for n in range(0, len(events), 97)):
        halves = changes(state, begin, at_s), changes(state, at_s, end)
        assert sum(len(half.cells["done"]) for half in halves) == whole.now.done
        assert sum(len(half.raised) for half in halves) == len(whole.raised)
        assert sum(len(half.ready) for half in halves) == len(whole.ready)


def test_since_when_nobody_looked() -> None:
    assert (
        looked_since(500.0, (100.0, None), 1000.0) == 500.0
    )  # one's own last look counts, whoever else looked
    assert looked_since(None, (100.0, None), 1000.0) == 100.0
    assert looked_since(None, (100.0, 1001.0), 1000.0) == 100.0  # it ended as this dashboard came
    assert looked_since(None, (100.0, 800.0), 1000.0) is None  # a colleague has looked since
    assert looked_since(None, None, 1000.0) is None


def test_looks_are_kept_for_each_run_and_forgotten_in_time(tmp_path: Path) -> None:
    looks = Looks(tmp_path / "looks")
    assert looks.last("r1") is None
    looks.note("r1")
    looks.note("../../escape")
    assert looks.last("r1") is not None and looks.last("r2") is None
    files = list((tmp_path / "looks").iterdir())
    assert len(files) == 2 and len(list(tmp_path.iterdir())) == 1
    for file in files:
        os.utime(file, (0, time.time() - KEPT_S - 5))
    looks.note("r3")
    assert looks.last("r1") is None and looks.last("r3") is not None
    Looks(None).note("r1")
    blocked = tmp_path / "file"
    blocked.write_text("")
    Looks(blocked).note("r1")  # a folder that cannot be made keeps nothing, and nothing fails
    assert Looks(blocked).last("r1") is None


def test_a_story_is_told_from_its_middle() -> None:
    script = story.finished()
    state = fold(script.out)
    text = change_text(state, story.T0, script.now, live=False)
    assert "alert raised" in text and "★ Best so far" in text and "ended at" in text
