"""No traceback on a user's screen: what fails inside becomes a toast and a line in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop import events as ev
from ddtop.dashboard.faults import FaultLog
from ddtop.dashboard.screens.dashboard import DashboardScreen
from ddtop.errors import JournalError
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle
from tests.dashboard.memory import MemorySession


async def test_a_handler_that_fails_is_a_toast_and_the_app_lives_on(open_app: Open, tmp_path: Path) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, faults=True) as (app, pilot):
        app.view.action_metric = lambda: 1 / 0  # type: ignore[method-assign,assignment]
        await pilot.press("m")
        await settle(pilot)
        await pilot.press("space")
        await settle(pilot)
        assert isinstance(session.commands()[0], ev.Pause)
        assert any("ZeroDivisionError" in note.message for note in app._notifications)
        assert "Traceback" not in screen_text(app)
    text = (tmp_path / "faults.log").read_text()
    assert "ZeroDivisionError" in text
    assert "Traceback" in text


async def test_a_panel_that_cannot_be_drawn_is_a_toast(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, faults=True) as (app, pilot):

        def broken(_self: DashboardScreen, _width: int, _height: int) -> list[object]:
            raise KeyError("no such thing")

        screen = app.screen
        monkeypatch.setattr(screen.query_one("#gpus"), "_draw_lines", lambda w, h: broken(screen, w, h))  # type: ignore[arg-type]
        await settle(pilot)
        assert any("no such thing" in note.message for note in app._notifications)
        assert "Sweep" in screen_text(app)
    assert "KeyError" in (tmp_path / "faults.log").read_text()


async def test_a_recording_that_cannot_be_read_is_told_in_its_own_words(open_app: Open) -> None:
    class Broken(MemorySession):
        async def events(self):  # type: ignore[no-untyped-def,override]
            raise JournalError("run.ddtop is damaged", do="ddtop runs")
            yield

    async with open_app(Broken()) as (app, _):
        (note,) = app._notifications
        assert note.message.startswith("run.ddtop is damaged")
        assert "do:    ddtop runs" in note.message
        assert "✗ NOT FOLLOWED  run.ddtop is damaged" in screen_text(app)


def test_a_storm_of_faults_is_told_from_single_ones(tmp_path: Path) -> None:
    log = FaultLog(tmp_path / "x.log")
    for number in range(FaultLog.STORM - 1):
        log.record(ValueError("x"), "here", number * 0.1)
    assert not log.storm
    log.record(ValueError("x"), "here", 3.0)
    assert log.storm
    log.record(ValueError("x"), "here", 300.0)
    assert not log.storm


def test_a_repeated_fault_is_said_once_and_written_each_time(tmp_path: Path) -> None:
    log = FaultLog(tmp_path / "x.log")
    assert log.record(ValueError("x"), "here", 1.0) is not None
    assert log.record(ValueError("x"), "here", 2.0) is None
    assert (tmp_path / "x.log").read_text().count("here: ValueError: x") == 2


def test_a_fault_log_that_cannot_be_written_is_no_new_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = FaultLog(tmp_path / "file" / "x.log").record(ValueError("x"), "here", 1.0)
    assert said is not None
    assert "cannot be written" in said
