"""What a person met in the first hour: a box that is read for long, small terminals, settings that do not work."""

from __future__ import annotations

import time

import pytest

from ddtop import events as ev
from ddtop.dashboard.actions.key_faults import bindings, is_key, key_faults
from ddtop.dashboard.panels.alert import alert_lines
from ddtop.dashboard.panels.header import host_part, service_part
from ddtop.dashboard.panels.history import history_items
from ddtop.dashboard.panels.moment.found import place_lines
from ddtop.dashboard.panels.moment.starting import starting_lines
from ddtop.dashboard.panels.plan import plan_head, plan_items
from ddtop.dashboard.panels.results import Sort, results_head, results_items
from ddtop.dashboard.widgets.logview import LogView
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle, steady


def plain(rows: list[tuple]) -> str:  # type: ignore[type-arg]
    return "\n".join("".join(span.text for span in row) for row in rows)


def stuck(seconds: float) -> story.Script:
    """A start that failed after two seconds, `seconds` ago, about which nobody has decided yet."""
    script = story.Script()
    story.begin(script)
    story.restart(script, "b16", "inv-b16", ready=False)
    script.add(ev.PhaseSeen, attempt_id="start-b16", phase="loading", state="failed", elapsed_s=1.0)
    script.add(ev.AlertRaised, **story.alert_fields(script.now))
    script.now += seconds
    return script


@pytest.mark.parametrize("key", ["r", "s"])
async def test_a_step_that_is_read_for_long_is_given_when_enter_is_pressed(
    open_app: Open, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (_, pilot):
        await pilot.press(key)
        await settle(pilot)
        monkeypatch.setattr(time, "time", lambda: now + 40)
        await pilot.press("enter")
        await settle(pilot)
        (command,) = [c for c in session.commands() if not isinstance(c, ev.Attend)]
        assert command.at_s == now + 40


def test_how_long_a_start_took_to_fail_does_not_grow_while_a_person_thinks() -> None:
    script = stuck(60)
    state = fold(script.out)
    before = plain(starting_lines(state, script.now, 80, 9)).splitlines()[0]
    script.add(
        ev.RestartFailed,
        attempt_id="start-b16",
        verdict="failed",
        cause="nccl-system-error",
        kind="transient",
    )
    state = fold(script.out)
    after = plain(starting_lines(state, script.now, 80, 9)).splitlines()[0]
    took = before.split(" after ")[1].split(" ·")[0]
    assert after.split(" after ")[1].split(" ·")[0] == took
    (row,) = [r for r in plain([i.line for i in history_items(state, 120)]).splitlines() if "✗ restart" in r]
    assert f"after {took}:" in row


def test_a_start_that_failed_is_so_on_every_screen_before_it_is_decided() -> None:
    state = fold(stuck(5).out)
    assert "✗ not started after" in plain([item.line for item in plan_items(state)])
    assert "▶ starting" not in plain([item.line for item in plan_items(state)])
    told = plain([item.line for item in history_items(state, 120)])
    assert "✗ restart for b16 tp1  not started after" in told
    assert "under way" not in told


def test_the_age_of_a_decision_is_its_own_not_the_alerts() -> None:
    script = stuck(60)
    script.add(ev.AlertDecided, alert_id=story.ALERT, what="start b16 again (try 2 of 2)", by="policy")
    bar = plain(alert_lines(fold(script.out), script.now + 3, 160, False))
    assert "start b16 again (try 2 of 2) · policy · 3s ago" in bar


def test_a_model_that_was_staged_is_not_said_to_be_missing() -> None:
    script = story.Script()
    story.begin(script)
    path = "/dev/shm/M"
    script.add(ev.ProbeTaken, probe={"model": {"verdict": "restage-needed", "path": path}, "unknown": []})
    assert "! model restage-needed" in plain(place_lines(fold(script.out)))
    script.wait(5)
    script.add(ev.StageProgress, target="/other", state="done")
    assert "! model restage-needed" in plain(place_lines(fold(script.out)))
    script.add(ev.StageProgress, target=path, state="done")
    assert "✓ model complete" in plain(place_lines(fold(script.out)))


def test_after_the_end_nothing_is_said_to_be_up_or_ready() -> None:
    script = story.finished()
    state = fold(script.out)
    assert state.run.ended is not None
    shown = plain([host_part(state, script.now), *service_part(state, script.now)])
    assert "not connected" in shown
    assert "ready" not in shown
    assert "●" not in shown


async def test_there_is_nothing_to_stop_after_the_end(open_app: Open) -> None:
    session, now = session_of(story.finished())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("S")
        await settle(pilot)
        shown = screen_text(app)
        assert "Stop the run?" not in shown
        assert any("Nothing can be stopped: the run has ended" in note.message for note in app._notifications)


def test_one_of_a_thing_is_not_many() -> None:
    script = story.Script()
    story.begin(script)
    script.add(ev.CellsPlanned, cells=story.cells()[:1], baseline="auto")
    head = plain(plan_head(fold(script.out), script.now))
    assert "1 cell " in head
    assert "1 cell, 1 restart," in head


@pytest.mark.parametrize("width", [60, 78, 98, 118, 198])
def test_a_line_of_the_results_is_as_wide_as_the_screen_at_most(width: int) -> None:
    state = fold(story.failed().out)
    rows = plain(
        [*results_head(width, Sort(), "auto"), *(i.line for i in results_items(state, Sort(), "auto", width))]
    )
    measured = [row for row in rows.splitlines() if "×" in row]
    assert len(measured) > 5
    assert max(map(len, measured)) <= width
    assert width < 78 or "TTFT p50" in rows


async def test_the_log_stays_at_its_end_when_the_alert_bar_takes_its_lines(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, size=(80, 24)) as (app, pilot):
        session.put(*story.failed().out[len(story.running().out) :])
        await settle(pilot, 0.3)
        shown = await steady(pilot)
        view = app.screen.query_one(LogView)
        assert "NOT STARTING?" in shown
        assert view.following
        assert round(view.scroll_y) == view.max_scroll_y
        assert "Main process exited" in shown


@pytest.mark.parametrize("size", [(40, 12), (59, 20)])
async def test_a_slim_terminal_shows_the_sweep_and_the_end_of_the_log(
    open_app: Open, size: tuple[int, int]
) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, size=size) as (_, pilot):
        shown = await steady(pilot)
        assert "Sweep" in shown
        assert "b15" in shown
        assert "fib@" in shown
        assert "GPUs" in shown
        assert "Log" in shown


@pytest.mark.parametrize("size", [(10, 3), (1, 1), (20, 6), (300, 5)])
async def test_a_tiny_terminal_breaks_nothing_and_growing_shows_all(
    open_app: Open, size: tuple[int, int]
) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=size) as (app, pilot):
        await settle(pilot)
        await pilot.resize_terminal(120, 40)
        shown = await steady(pilot)
        assert "NOT STARTING?" in shown
        assert "Sweep" in shown
        assert app.faults.faults == []


async def test_what_is_wrong_with_a_time_is_said_whole(open_app: Open) -> None:
    from ddtop.dashboard.screens.modals import AskScreen

    session, now = session_of(story.running())
    async with open_app(session, now=now, size=(60, 24)) as (app, pilot):
        wrong = "`foo` is no time. 14:03 or 14:03:59, +10m or -90s from here, or 2026-11-30 14:03"
        app.push_screen(AskScreen("Go to a time", "hint", lambda text: wrong))
        await settle(pilot)
        await pilot.press("x", "enter")
        shown = await steady(pilot)
        assert "2026-11-30" in shown
        assert shown.count("14:03") == 3
        assert "enter OK" in shown


def test_keys_of_the_settings_that_do_not_work_are_named() -> None:
    assert key_faults({"pause": "f5", "skip": "ctrl+x", "sort": "o", "help": "?", "log-level": "L"}) == []
    (typo,) = key_faults({"puase": "f5"})
    assert typo == "puase: unknown action; did you mean `pause`?"
    (strange,) = key_faults({"pause": "nosuchkey"})
    assert "`nosuchkey` is not a key" in strange
    (twice,) = key_faults({"pause": "x"})
    assert twice == "pause: `x` is also the key of skip; give skip another key"
    assert key_faults({"pause": "x", "skip": "space"}) == []


def test_every_key_that_ships_is_a_key() -> None:
    assert all(is_key(key.strip()) for b in bindings().values() for key in b.key.split(","))


async def test_a_key_is_moved_as_one_writes_it_and_a_wrong_line_is_told(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, keymap={"pause": "?", "help": "f1", "puase": "z"}) as (app, pilot):
        assert any("did you mean `pause`?" in note.message for note in app._notifications)
        await pilot.press("question_mark")
        await settle(pilot)
        assert isinstance(session.commands()[0], ev.Pause)


@pytest.mark.parametrize("rings", [True, False])
async def test_the_bell_rings_only_where_the_settings_let_it(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, rings: bool
) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, bell=rings) as (app, pilot):
        rung: list[int] = []
        monkeypatch.setattr(app, "bell", lambda: rung.append(1))
        script = story.Script(now)
        script.add(ev.AlertRaised, **story.alert_fields(script.now))
        session.put(*script.out)
        await settle(pilot, 0.2)
        assert rung == ([1] if rings else [])


def test_state_without_events_draws() -> None:
    assert plan_head(State(), 0.0)
