"""The timeline: time to columns and back, the line at every width, and its keys and mouse in a replay."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.dashboard.draw.paint import ROLES, plain, width_of
from ddtop.dashboard.panels.timeline.strip import (
    FILL,
    LEAST,
    MARK,
    Expected,
    Run,
    expected,
    strip,
    target_at,
    words_at,
)
from ddtop.dashboard.widgets.timelinestrip import TimelineStrip
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.fold.track import Stretch, Track
from ddtop.journal.read.eta import sweep_eta
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.scale import clock_marks, horizon, scale
from ddtop.journal.write.writer import JournalWriter
from tests.commands.record_demo import EVENTS
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle

T = 1_795_000_000.0
spans = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=5).map(
    lambda pairs: sorted((T + min(p), T + max(p)) for p in pairs)
)


@settings(deadline=None)
@given(st.floats(0, 1e6), st.integers(1, 220), spans)
def test_a_column_holds_the_time_it_stands_for(
    length: float, width: int, absent: list[tuple[float, float]]
) -> None:
    line = scale(T, T + length, width, absent)
    places = [line.place(T + length * n / 50) for n in range(51)]
    assert all(0.0 <= a <= b <= 1.0 for a, b in pairwise(places))
    for column in range(width):
        assert line.column(line.time(column)) == column
    assert line.time(-5) == pytest.approx(line.begin_s) and line.time(width + 5) == pytest.approx(line.end_s)
    assert all(t < u and a < b for (t, a), (u, b) in pairwise(line.knots))


def test_a_night_without_a_runner_takes_little_of_the_line() -> None:
    line = scale(T, T + 36_000, 100, [(T + 1800, T + 34_200)])
    assert line.column(T + 34_200) - line.column(T + 1800) <= 5
    assert line.column(T + 1799) in (47, 48) and line.column(T + 36_000) == 99


def test_the_right_end_of_a_moving_line_moves_in_steps() -> None:
    assert horizon(None, 100.0, 0.0) == 104.0
    assert horizon(104.0, 103.0, 0.0) == 104.0  # it would fit
    assert horizon(104.0, 105.0, 0.0) > 105.0
    assert horizon(104.0, 60.0, 0.0) < 70.0  # it was much too long


@settings(deadline=None)
@given(st.floats(1, 3e6), st.integers(20, 220), spans)
def test_clock_marks_never_overlap_and_stay_inside(
    length: float, width: int, absent: list[tuple[float, float]]
) -> None:
    marks = clock_marks(scale(T, T + length, width, absent))
    for (a, word), (b, _) in pairwise(marks):
        assert a + len(word) < b
    assert all(column >= 0 and column + len(word) <= width for column, word in marks)


def demo() -> State:
    return fold(ev.decode_event(row) for row in EVENTS.read_text().splitlines())


def runs() -> list[Run]:
    state = demo()
    track = state.track
    assert track.begin_s is not None
    half = (track.begin_s + track.end_s) / 2
    out = [Run(track, track.end_s, track.end_s), Run(track, half, track.end_s, True, (1, 3))]
    for script in (story.running(), story.failed(), story.finished()):
        folded = fold(script.out)
        ahead = expected(folded, 300.0, 60.0, 2)
        out.append(Run(folded.track, script.now, script.now + 400, False, (1, 1), ahead, script.now + 360))
    return out


@pytest.mark.parametrize("height", [1, 2])
@pytest.mark.parametrize("width", [*range(20, 60), 80, 100, 120, 160, 200, 220])
def test_the_line_fills_every_width_exactly(width: int, height: int) -> None:
    for run in runs():
        drawn = strip(run, width, height)
        assert len(drawn.lines) == height
        for row in drawn.lines:
            assert width_of(row) <= width
            assert {span.role.removesuffix("+sel") for span in row} <= set(ROLES)
        assert drawn.scale is not None and drawn.left + drawn.scale.width <= width
        assert drawn.scale.width >= min(LEAST, width - 2)


def test_there_is_no_line_without_room_or_run() -> None:
    assert strip(runs()[0], LEAST - 1, 2).lines == ()
    assert strip(Run(Track(), T, T), 120, 2).lines == ()


def track_of(**lanes: list[Stretch]) -> Track:
    track = Track(begin_s=T, end_s=T + 100, ended=True)
    for name, some in lanes.items():
        track.lanes[name] = some  # type: ignore[index]
    return track


def drawn(track: Track, width: int = 102, **fields: object) -> str:
    run = dataclasses.replace(Run(track, T + 100, T + 100), **fields)  # type: ignore[arg-type]
    return plain(strip(run, width, 2).lines[0])[1:]


def test_each_state_has_a_glyph_of_its_own() -> None:
    """NO_COLOR has no roles: what differs must differ in its glyphs."""
    looks = {}
    for (lane, state), (fill, _role) in FILL.items():
        if state == "running" or (lane, state) in (
            ("start", "interrupted"),
            ("stage", "interrupted"),
            ("alert", "open"),
        ):
            continue
        _rank, mark, _ = MARK.get((lane, state), (0, "", ""))
        looks.setdefault(fill + mark, []).append((lane, state))
    doubles = [some for some in looks.values() if len(some) > 1]
    assert doubles == [
        [("cell", "failed"), ("cell", "broken")]
    ]  # both are ✗; the tooltip and the matrix tell them apart


def test_what_went_wrong_wins_a_column() -> None:
    cells = [Stretch(T + n, T + n + 1, "done", f"c{n}") for n in range(100)]
    cells[50].state = "failed"
    line = drawn(track_of(cell=cells), 22)
    assert line.count("✗") == 1 and set(line.strip()) == {"█", "✗"}
    alert = [Stretch(T + 50.4, T + 51, "done", "al")]
    assert "✗" not in drawn(track_of(cell=cells, alert=alert), 22)
    assert drawn(track_of(cell=cells, alert=alert), 22).count("!") == 1


def test_an_open_alert_shows_how_long_nothing_was_at_work() -> None:
    line = drawn(
        track_of(cell=[Stretch(T, T + 20, "done", "a")], alert=[Stretch(T + 20, T + 70, "done", "al")])
    )
    assert line.rstrip() == "█" * 20 + "!" + "┄" * 49


def test_a_cut_hides_what_was_at_work_and_a_pause_does_not() -> None:
    cell = [Stretch(T, T + 100, "done", "a")]
    line = drawn(track_of(cell=cell, lost=[Stretch(T + 40, T + 60)], paused=[Stretch(T + 70, T + 80)]))
    assert line[45] == "~" and line[75] == "█"


def test_the_rest_of_the_plan_stands_behind_now() -> None:
    track = track_of(cell=[Stretch(T, None, "running", "a")])
    track.ended = False
    line = drawn(
        track, now_s=T + 40, end_s=T + 100, ahead=(Expected(20, True), Expected(40, False)), alerts=(0, 0)
    )
    assert line[:41] == "▓" * 40 + "▶" and line[42] == ":" and line[90] == "·"


def test_expected_stretches_share_what_the_eta_says() -> None:
    state = fold(story.running().out)
    eta = sweep_eta(state, T)
    ahead = expected(state, 290.0, 60.0, eta.restarts)
    assert sum(part.seconds for part in ahead) == pytest.approx(350.0)
    assert eta.restarts and sum(part.start for part in ahead) == eta.restarts
    assert not ahead[0].start  # the server of the cell in flight runs
    assert expected(state, None, 60.0, 6) == ()


def test_a_click_on_an_alert_means_the_alert() -> None:
    track = track_of(alert=[Stretch(T + 50.7, T + 51, "done", "al")], cell=[Stretch(T, T + 100, "done", "a")])
    run = Run(track, T + 100, T + 100, True)
    shown = strip(run, 102, 2)
    assert shown.scale is not None
    assert target_at(run, shown.scale, 50) == T + 50.7
    assert target_at(run, shown.scale, 20) == pytest.approx(T + 20.5)
    said = words_at(run, State(), shown, 50)
    assert "alert: resolved after" in said and "a: done 1m40s" in said


# ------------------------------------------------------------------------------------------- on the screen


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's kept run."""
    path = tmp_path_factory.mktemp("rec") / "demo.ddtop"
    with JournalWriter.open(path) as opened:
        opened.extend(ev.decode_event(row) for row in EVENTS.read_text().splitlines())
    return path


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_replay_is_moved_by_keys_and_by_the_mouse(
    open_app: Open, recording: Path, size: tuple[int, int]
) -> None:
    session = ReplaySession(recording)
    session.pause()
    async with open_app(session, size=size) as (app, pilot):
        await settle(pilot, 0.2)
        panel = app.screen.query_one(TimelineStrip)
        total = session.alerts[1]
        assert total >= 1 and panel.size.height == (2 if size[1] >= 34 else 1)
        assert f"{total} alert" in screen_text(app)
        await pilot.press("right_parenthesis")
        await settle(pilot, 0.2)
        assert f"alert {total} of {total}" in screen_text(app)
        last = session.position
        await pilot.press("left_parenthesis")
        await settle(pilot, 0.2)
        assert session.alerts[0] == 1 and session.position <= last
        line = panel._strip.scale
        assert line is not None
        for column in (line.width // 4, line.width - 1, 0):
            await pilot.click(panel, offset=(panel._strip.left + column, 0))
            await settle(pilot, 0.2)
            assert line.column(session.position) == column
        await pilot.mouse_down(panel, offset=(panel._strip.left, 0))
        await pilot.hover(panel, offset=(panel._strip.left + line.width // 2, 0))
        await settle(pilot, 0.2)
        assert line.column(session.position) == line.width // 2  # while the button is held
        await pilot.mouse_up(panel, offset=(panel._strip.left + line.width // 2, 0))
        await pilot.hover(panel, offset=(panel._strip.left + 3, 0))
        await settle(pilot, 0.1)
        assert line.column(session.position) == line.width // 2  # and not after it
        panel.focus()
        await pilot.press("right", "right")
        await settle(pilot, 0.2)
        assert line.column(session.position) == line.width // 2 + 2
        await pilot.press("home")
        await settle(pilot, 0.2)
        assert session.position == line.begin_s
        await pilot.press("end")
        await settle(pilot, 0.2)
        assert session.position == pytest.approx(line.end_s)


async def test_live_a_click_chooses_the_cell_that_was_at_work(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, pilot):
        panel = app.screen.query_one(TimelineStrip)
        cells = app.here.state.track.lanes["cell"]
        wanted = max(cells, key=lambda s: (s.end_s or now) - s.begin_s)
        line = panel._strip.scale
        assert line is not None
        middle = line.column((wanted.begin_s + (wanted.end_s or now)) / 2)
        await pilot.click(panel, offset=(panel._strip.left + middle, 0))
        await settle(pilot)
        chosen = app.here.selected_cell()
        assert chosen is not None and app.here.state.cells[wanted.what].spec.config == app.here.selected()[0]


async def test_a_host_that_is_only_watched_has_no_line(open_app: Open) -> None:
    script = story.Script()
    script.add(ev.RunStarted, run_id="m", name="", mode="monitor", segment=0)
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, _):
        assert not app.screen.query_one(TimelineStrip).display
