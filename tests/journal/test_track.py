"""The run as one line: what the fold keeps of starts, cells, alerts and absences, and that it stays small."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.track import LANE_MOST, LANES, Track
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.write.writer import JournalWriter
from tests.journal.made import SPECS, Clock, any_event, measured, restart, sweep

START = 1_700_000_000.0


def lane(track: Track, name: str) -> list[tuple[str, str, float | None]]:
    return [
        (s.what, s.state, None if s.end_s is None else s.end_s - s.begin_s)
        for s in track.lanes[name]  # type: ignore[index]
    ]


def test_a_sweep_is_a_line_of_starts_cells_and_its_alert() -> None:
    track = fold(sweep()).track
    assert lane(track, "start") == [
        ("auto tp1", "ready", 55.0),
        ("b15 tp1", "failed", 6.0),
        ("b15 tp1", "ready", 55.0),
    ]
    assert lane(track, "cell") == [
        ("a1", "done", 30.0),
        ("a2", "done", 90.0),
        ("b1", "done", 30.0),
        ("b2", "running", None),
    ]
    assert lane(track, "alert") == [("al-1", "done", 20.0)]
    assert track.begin_s == START + 1


def begun() -> tuple[Clock, list[ev.Event]]:
    clock = Clock()
    return clock, [
        ev.RunStarted(**clock(), run_id="r", name="n", mode="sweep", segment=0),
        ev.CellsPlanned(**clock(), cells=SPECS, baseline="auto"),
        *restart(clock, "auto", "at-1"),
    ]


def test_a_killed_runner_leaves_an_absence_and_what_was_at_work_is_interrupted() -> None:
    clock, events = begun()
    events += [
        ev.CellStarted(**clock(), cell_id="a1", attempt=1),
        ev.SweepPaused(**clock(10), by="you"),
        ev.HostLost(**clock(1), what="cut"),
        ev.RttMeasured(**clock(5), rtt_ms=1.0),
    ]
    gone = events[-1].at_s
    events += [ev.RunStarted(**clock(3600), run_id="r", name="n", mode="sweep", segment=1)]
    track = fold(events).track
    assert lane(track, "absent") == [("", "", 3600.0)]
    assert track.lanes["absent"][0].begin_s == gone
    assert lane(track, "cell") == [("a1", "interrupted", 16.0)]
    assert lane(track, "lost")[0][2] == 5.0 and lane(track, "paused")[0][2] == 6.0
    # Its result was on the host, and is collected by the next runner.
    events += [*measured(clock, "a1", 26.0)[3:]]
    assert lane(fold(events).track, "cell") == [("a1", "done", 16.0)]


def test_doubts_and_marks_that_come_later_change_the_cells_colour() -> None:
    clock, events = begun()
    events += measured(clock, "a1", 26.0)
    doubted = ev.CellMeasured(
        **clock(5), cell_id="a1", attempt=1, validity="SUSPECT", reasons=("host-fault",)
    )
    assert lane(fold([*events, doubted]).track, "cell") == [("a1", "suspect", 30.0)]
    broken = ev.CellStateSet(**clock(5), cell_id="a1", state="broken", by="you")
    assert lane(fold([*events, doubted, broken]).track, "cell")[0][1] == "broken"
    again = ev.CellStateSet(**clock(5), cell_id="a1", state="planned", by="you")
    assert (
        lane(fold([*events, again]).track, "cell")[0][1] == "done"
    )  # what was measured then stays what it was


def test_an_alert_that_is_raised_again_is_one_alert() -> None:
    clock, events = begun()
    alert = restart(clock, "b15", "at-2", ready=False)[-1]
    events += [alert, ev.AlertResolved(**clock(5), alert_id="al-1", how="retry", by="you")]
    again = fold([*events, *[alert] * 3]).track
    assert [s.what for s in again.lanes["alert"]] == ["al-1", "al-1"]
    assert again.lanes["alert"][1].end_s is None


def test_nobody_watches_from_the_last_goodbye_to_the_next_look() -> None:
    clock, events = begun()
    assert fold(events).track.unwatched is not None  # a run without a dashboard, from its begin on
    events += [ev.ViewersSeen(**clock(), count=1), ev.ViewersSeen(**clock(60), count=0)]
    left = events[-1].at_s
    unwatched = fold(events).track.unwatched
    assert unwatched is not None and (unwatched.begin_s, unwatched.end_s) == (left, None)
    events += [ev.ViewersSeen(**clock(900), count=1)]
    unwatched = fold(events).track.unwatched
    assert unwatched is not None and (unwatched.begin_s, unwatched.end_s) == (left, left + 900)


def test_a_link_that_flaps_all_week_stays_a_short_line() -> None:
    clock, events = begun()
    track = fold(events).track
    for _ in range(20_000):
        track.note(ev.HostLost(**clock(20), what="cut"), clock.now)
        track.note(ev.HostConnected(**clock(10), agent="a", python="3", uid=0, user="u"), clock.now)
    lost = track.lanes["lost"]
    assert len(lost) <= LANE_MOST
    assert sum(s.count for s in lost) == 20_000
    assert lost[-1].end_s == START + clock.now
    assert all(a.begin_s <= b.begin_s for a, b in pairwise(lost))
    # What was joined still covers the week evenly: no gap longer than a thousandth of it.
    gaps = [b.begin_s - (a.end_s or 0.0) for a, b in pairwise(lost)]
    assert max(gaps) < 20_000 * 30 / 500


def test_joined_cells_have_the_worst_state_of_all() -> None:
    clock, events = begun()
    track = fold(events).track
    for number in range(3 * LANE_MOST):
        cell = f"c{number}"
        track.note(ev.CellStarted(**clock(), cell_id=cell, attempt=1), 0)
        state = "failed" if number == 7 else "done"
        track.note(ev.CellStateSet(**clock(), cell_id=cell, state=state), 0)  # type: ignore[arg-type]
    cells = track.lanes["cell"]
    assert len(cells) <= LANE_MOST and sum(s.count for s in cells) == 3 * LANE_MOST
    assert [s.state for s in cells].count("failed") == 1 and cells[0].count > 1


def _runner(at_s: float) -> ev.Event:
    return ev.RunStarted(at_s=at_s, mono_s=0.0, run_id="", name="", mode="monitor", segment=0)


@example([_runner(at_s) for at_s in (0.0, 0.0, 1.0, 0.0, 0.0)])
@settings(deadline=None, max_examples=150)
@given(st.lists(any_event(), max_size=25))
def test_any_events_give_lanes_in_order(events: list[ev.Event]) -> None:
    track = fold(events).track
    for name in LANES:
        stretches = track.lanes[name]
        assert all(a.begin_s <= b.begin_s for a, b in pairwise(stretches))
        assert all(s.end_s is None or s.end_s >= s.begin_s for s in stretches)
        assert all(s.begin_s <= track.end_s for s in stretches)


def test_a_replay_knows_the_whole_line_and_counts_alerts_once(tmp_path: Path) -> None:
    path = tmp_path / "run.ddtop"
    clock, events = begun()
    cell = measured(clock, "a1", 1.0)
    alert = restart(clock, "b15", "at-2", ready=False)[-1]
    other = ev.AlertRaised(
        **clock(60),
        alert_id="al-2",
        title="HOST LOST",
        verdict="lost-host",
        cause="x",
        cause_text="x",
        kind="host",
        advice="",
    )
    events = [
        *events,
        *cell,
        alert,
        alert,
        other,
        ev.RunEnded(**clock(), outcome="done", exit_code=0),
    ]
    with JournalWriter.open(path) as journal:
        journal.extend(events)
    session = ReplaySession(path)
    session.pause()
    assert session.track.lanes == fold(events).track.lanes
    assert session.alerts == (0, 2)
    session.to_alert(-1)
    assert session.alerts == (2, 2) and session.position == other.at_s
    session.to_alert(0)
    assert session.alerts == (1, 2)
    session.next_alert()
    assert session.alerts == (2, 2)
    session.next_alert()
    assert session.alerts == (2, 2)  # there is none after the last
    session.close()
