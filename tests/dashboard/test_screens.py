"""Screens, panes, log, palette, mouse, clipboard: what is seen, and how one gets there and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from ddtop import events as ev
from ddtop.dashboard.screens.cell import CellScreen
from ddtop.dashboard.screens.dashboard import DashboardScreen
from ddtop.dashboard.screens.help import HelpScreen
from ddtop.dashboard.screens.hosts import HostsScreen
from ddtop.dashboard.screens.log import LogScreen
from ddtop.dashboard.screens.plan import PlanScreen
from ddtop.dashboard.screens.results import ResultsScreen
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.logpane import LogPane
from ddtop.dashboard.widgets.places import PlacedContainer
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle
from tests.dashboard.memory import MemorySession

SCREENS = [
    ("v", ResultsScreen),
    ("P", PlanScreen),
    ("h", HostsScreen),
    ("l", LogScreen),
    ("enter", CellScreen),
    ("question_mark", HelpScreen),
]


async def test_each_key_opens_its_screen_and_escape_comes_back(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        for key, kind in SCREENS:
            await pilot.press(key)
            await settle(pilot)
            assert isinstance(app.screen, kind), key
            await pilot.press("escape")
            await settle(pilot)
            assert isinstance(app.screen, DashboardScreen), key


async def test_screens_take_each_others_place(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        for key in ("v", "P", "h", "l"):
            await pilot.press(key)
            await settle(pilot)
        assert len(app.screen_stack) == 2
        assert isinstance(app.screen, LogScreen)


async def test_escape_on_the_first_screen_never_leaves(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("escape", "escape")
        await settle(pilot)
        assert isinstance(app.screen, DashboardScreen)
        assert app.is_running


async def test_help_shows_only_keys_that_are_valid_now(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, size=(120, 60)) as (app, pilot):
        await pilot.press("question_mark")
        await settle(pilot)
        shown = screen_text(app)
        assert "Pause the sweep" in shown
        assert "Go to a time" not in shown
        assert "The alert's advised action" not in shown


async def test_a_host_that_is_only_watched_offers_no_key_of_a_sweep(open_app: Open) -> None:
    script = story.Script()
    script.add(ev.RunStarted, run_id="m", name="ct200", mode="monitor", segment=0)
    script.add(ev.HostConnected, agent="a", python="3", uid=0, user="root", boot="b1/1")
    script.add(ev.ProbeTaken, probe={"servers": [{"engine": "sglang", "port": 30000}]})
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert "sglang on port 30000" in screen_text(app)
        bottom = screen_text(app).splitlines()[-1]
        assert "Skip" not in bottom
        assert "Results" not in bottom
        await pilot.press("x", "t", "b", "v", "enter")
        await settle(pilot)
        assert session.commands() == []
        assert len(app.screen_stack) == 1


async def test_the_filter_narrows_the_log_and_escape_ends_it(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=(120, 50)) as (app, pilot):
        await pilot.press("slash", *"shards !27")
        await settle(pilot)
        pane = app.screen.query_one(LogPane)
        assert len(pane.view.index.rows) == 4
        assert "4 of" in screen_text(app)
        await pilot.press("enter", "n", "n")
        await settle(pilot)
        assert pane.view.hit == 1
        await pilot.press("N")
        assert pane.view.hit == 0
        await pilot.press("escape")
        await settle(pilot)
        assert len(pane.view.index.rows) == 12
        assert not pane.query_one(Input).has_class("-on")


async def test_a_broken_expression_is_said_and_changes_nothing(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("slash", *"~(", "enter")
        await settle(pilot)
        assert any("is not a regular expression" in note.message for note in app._notifications)


async def test_p_shows_the_log_of_the_previous_start(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, pilot):
        assert "configuration b16" in "\n".join(
            app.screen.query_one(LogPane).view.buffer[n].line.text
            for n in app.screen.query_one(LogPane).view.index.rows
        )
        await pilot.press("p")
        await settle(pilot)
        assert "previous start" in screen_text(app)
        view = app.screen.query_one(LogPane).view
        texts = [view.buffer[n].line.text for n in view.index.rows]
        assert "[ddtop] configuration b15" in texts
        assert "[ddtop] configuration b16" not in texts


async def test_the_log_screen_opens_at_the_alerts_evidence_and_jumps_to_errors(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("l")
        await settle(pilot)
        view = app.screen.query_one(LogPane).view
        assert view.hit is not None
        assert "DistBackendError" in view.text_in_sight()
        await pilot.press("E")
        assert "model_runner.py" in view.text_in_sight()
        await pilot.press("L", "L", "L")
        await settle(pilot)
        assert "errors" in screen_text(app)
        assert all("Loading" not in view.buffer[n].line.text for n in view.index.rows)


async def test_tab_and_numbers_go_through_the_panes(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        assert app.focused is not None
        assert app.focused.id == "sweep"
        await pilot.press("tab")
        assert app.focused.id == "moment"
        for number, name in enumerate(("gpus", "sweep", "moment", "log"), 1):
            await pilot.press(str(number))
            assert app.focused is not None
            assert app.focused.id == name


async def test_a_click_selects_a_cell_and_a_double_click_opens_it(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.click("#sweep", offset=(13, 4))
        await settle(pilot)
        cell = app.here.selected_cell()
        assert cell is not None
        assert cell.spec.config == "linear"
        await pilot.click("#sweep", offset=(13, 4), times=2)
        await settle(pilot)
        assert isinstance(app.screen, CellScreen)


async def test_a_click_on_a_key_in_the_bottom_line_is_that_key(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        column = screen_text(app).splitlines()[-1].index("v Results")
        await pilot.click("#footer", offset=(column, 0))
        await settle(pilot)
        assert isinstance(app.screen, ResultsScreen)


async def test_every_valid_action_is_in_the_palette(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, _):
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert {
            "Pause the sweep, or go on",
            "Restart the service",
            "Results and plots",
            "Theme mono",
        } <= titles
        assert "Go to a time" not in titles


async def test_the_palette_does_what_the_key_does(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (_, pilot):
        await pilot.press("ctrl+p", *"Pause the sweep")
        await settle(pilot, 0.4)
        await pilot.press("enter")
        await settle(pilot, 0.3)
        assert isinstance(session.commands()[0], ev.Pause)


async def test_ctrl_c_leaves_as_q_does(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("ctrl+c")
        await pilot.pause()
    assert app.words is not None
    assert "goes on without this dashboard" in app.words


async def test_results_sort_and_take_another_baseline(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("v")
        await settle(pilot)
        panel = app.screen.query_one(ListPanel)
        assert panel.items[0].key == story.cell_id("auto", 0)
        await pilot.press("o", "o")
        await settle(pilot)
        assert panel.items[0].key == story.cell_id("b15", 4)
        await pilot.press("O")
        await settle(pilot)
        assert panel.items[0].key == story.cell_id("auto", 3)
        await pilot.press("O", "home", "B")
        await settle(pilot)
        assert app.here.baseline == "b15"
        assert "baseline b15" in screen_text(app)


async def test_t_p_can_be_turned_and_metrics_changed(open_app: Open) -> None:
    script = story.Script()
    story.begin(script, tps=(1, 4, 8))
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert "tp1 of 1,4,8" in screen_text(app)
        await pilot.press("plus")
        await settle(pilot)
        assert "tp4" in screen_text(app)
        await pilot.press("minus", "minus", "m")
        await settle(pilot)
        assert "tp8" in screen_text(app)
        assert "decode/req" in screen_text(app)


async def test_y_copies_what_is_in_view(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("y")
        assert app.clipboard.splitlines()[0].startswith("config\tfib@256")
        await pilot.press("v", "y")
        await settle(pilot)
        assert app.clipboard.splitlines()[0].startswith("config\ttp\tworkload")
        assert len(app.clipboard.splitlines()) == 41
        await pilot.press("l", "y")
        await settle(pilot)
        assert "DistBackendError" in app.clipboard


async def test_f12_writes_the_screen_as_svg(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("f12")
        await settle(pilot)
        (path,) = tmp_path.glob("ddtop-ct200-*.svg")
        assert path.read_text().startswith("<svg")
        assert any(str(path) in note.message for note in app._notifications)


async def test_several_hosts_and_the_numbers_that_choose_them(open_app: Open) -> None:
    first, now = session_of(story.running())
    script = story.Script()
    story.begin(script)
    other = [
        type(e)(**{**{f: getattr(e, f) for f in e.__struct_fields__}, "host": "b300"}) for e in script.out
    ]
    second = MemorySession(other)
    async with open_app([first, second], now=now) as (app, pilot):
        assert "1 ct200" in screen_text(app)
        await pilot.press("2")
        await settle(pilot)
        assert "2 b300" in screen_text(app)
        await pilot.press("space")
        await settle(pilot)
        assert isinstance(second.commands()[0], ev.Pause)
        assert first.commands() == []
        await pilot.press("h")
        await settle(pilot)
        shown = screen_text(app)
        assert "1 ct200" in shown
        assert "2 b300" in shown
        await pilot.press("up", "enter")
        await settle(pilot)
        assert app.current == 0


async def test_an_alert_on_another_host_is_announced(open_app: Open) -> None:
    first, now = session_of(story.running())
    second = MemorySession()
    async with open_app([first, second], now=now) as (app, pilot):
        alert = ev.AlertRaised(at_s=now, mono_s=1, host="b300", **story.alert_fields(now))  # type: ignore[arg-type]
        second.put(alert)
        await settle(pilot, 0.15)
        assert any(note.message.startswith("b300: NOT STARTING?") for note in app._notifications)


async def test_the_bell_rings_once_for_an_alert_and_never_for_history(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        rung: list[int] = []
        monkeypatch.setattr(app, "bell", lambda: rung.append(1))
        alert = ev.AlertRaised(at_s=now, mono_s=1, host=story.HOST, **story.alert_fields(now))  # type: ignore[arg-type]
        session.put(alert)
        session.put(alert)
        await settle(pilot, 0.2)
        assert rung == [1]
        old = {**story.alert_fields(now), "alert_id": "old"}
        session.put(ev.AlertRaised(at_s=now - 3600, mono_s=1, host=story.HOST, **old))  # type: ignore[arg-type]
        await settle(pilot, 0.2)
        assert rung == [1]


async def test_the_alert_bar_stays_until_the_alert_is_resolved(open_app: Open) -> None:
    script = story.failed()
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert app.screen.query_one("#alert").has_class("-on")
        session.put(
            ev.AlertResolved(
                at_s=now, mono_s=1, host=story.HOST, alert_id=story.ALERT, how="retried", by="policy"
            )
        )
        await settle(pilot, 0.2)
        assert not app.screen.query_one("#alert").has_class("-on")
        assert "NOT STARTING" not in screen_text(app)


async def test_lines_without_a_time_get_none_but_are_found_with_their_cell(open_app: Open) -> None:
    script = story.running()
    script.now -= 10
    script.add(
        ev.LogRead, unit=story.UNIT, lines=(ev.LogLine(text="a line without a time", invocation="inv-b15"),)
    )
    script.now += 10
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        (row,) = [text for text in screen_text(app).splitlines() if "a line without a time" in text]
        assert row.startswith("│    a line without a time")
        await pilot.press("enter")
        await settle(pilot)
        assert "a line without a time" in screen_text(app)


async def test_an_empty_start_points_to_the_one_before(open_app: Open) -> None:
    script = story.running()
    script.add(ev.RestartStarted, attempt_id="next", config="b16", tp=1, unit=story.UNIT)
    script.log("first word", invocation="inv-next")
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert "first word" in screen_text(app)
        await pilot.press("slash", *"zzz", "enter")
        await settle(pilot)
        assert "No line matches the filter" in screen_text(app)


async def test_the_panes_move_when_the_terminal_or_a_want_changes(open_app: Open) -> None:
    """Textual keeps an arrangement by size: one that changed within a size, or after a resize, stayed as it was."""
    script = story.Script()
    story.begin(script)
    story.restart(script, "auto", "i")
    session, now = session_of(script)
    async with open_app(session, now=now, size=(120, 40)) as (app, pilot):
        gpus = app.screen.query_one("#gpus")
        before = gpus.size.height
        session.put(
            ev.BoundDiagnosed(
                at_s=now,
                mono_s=0.0,
                verdict="idle",
                strength="strong",
                why="DRAM 0 %",
                meaning="no work on the GPU",
            )
        )
        await settle(pilot)
        assert gpus.size.height == before + 2
        for size in ((200, 60), (80, 24), (120, 40)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            places = app.screen.query_one(PlacedContainer).places
            for name, place in places.items():
                region = app.screen.query_one(f"#{name}").region
                assert (region.x, region.width, region.height) == (place.x, place.width, place.height)
            assert max(place.x + place.width for place in places.values()) == size[0]
