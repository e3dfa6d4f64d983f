"""The card that tells what changed while nobody looked: when it comes by itself, and how it goes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from ddtop import events as ev
from ddtop.dashboard.app import DashboardApp
from ddtop.dashboard.draw.paint import plain
from ddtop.dashboard.looked import Looks
from ddtop.dashboard.screens.changes import ChangesScreen
from ddtop.dashboard.widgets.panel import Panel
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.write.writer import JournalWriter
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle
from tests.waiting import HANG_S


def run_id() -> str:
    return next(e.run_id for e in story.failed().out if hasattr(e, "run_id"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    looks = Looks(tmp_path / "looks")
    looks.note(run_id())
    return tmp_path / "looks"


def unattended(script: story.Script) -> story.Script:
    """The same run without a dashboard open."""
    script.out[:] = [
        msgspec.structs.replace(e, attended=False) if isinstance(e, ev.RunStarted) else e for e in script.out
    ]
    return script


async def told(app: DashboardApp, pilot: Pilot[int]) -> None:
    """Wait for the card: a large recording comes in several batches."""
    async with asyncio.timeout(HANG_S):
        while not isinstance(app.screen, ChangesScreen):
            await settle(pilot, 0.05)
    await settle(pilot)


def left(folder: Path, at_s: float) -> None:
    (file,) = folder.iterdir()
    os.utime(file, (at_s, at_s))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_who_comes_back_is_told_and_any_key_closes_it(
    open_app: Open, folder: Path, size: tuple[int, int]
) -> None:
    session, now = session_of(story.failed())
    left(folder, now - 1200)
    async with open_app(session, now=now, size=size, looks=folder) as (app, pilot):
        assert isinstance(app.screen, ChangesScreen)
        shown = screen_text(app)
        for words in (
            "What changed",
            "any other key close",
            "20m00s ago",
            "done",
            "1 alert raised, none answered",
        ):
            assert words in shown
        assert Looks(folder).last(run_id()) != now - 1200  # it is being looked at
        await pilot.press("x")
        await settle(pilot)
        assert not isinstance(app.screen, ChangesScreen)
        assert session.commands() == []  # the key that closed it did nothing else
        await pilot.press("W")
        await settle(pilot)
        assert "20m00s ago" in screen_text(app)  # one key away, since the same moment
        await pilot.press("g", *"-5m", "enter")
        await settle(pilot)
        assert "5m00s ago" in screen_text(app)
        await pilot.press("down", "up")
        assert isinstance(app.screen, ChangesScreen)  # these move in it
        await pilot.press("escape")
        await settle(pilot)
        assert not isinstance(app.screen, ChangesScreen)


@pytest.mark.parametrize("away_s", [30, 590])
async def test_who_was_here_a_moment_ago_is_not_told(open_app: Open, folder: Path, away_s: float) -> None:
    session, now = session_of(story.failed())
    left(folder, now - away_s)
    async with open_app(session, now=now, looks=folder) as (app, _):
        assert not isinstance(app.screen, ChangesScreen)


async def test_a_first_look_at_a_run_that_nobody_watched_tells_all_of_it(
    open_app: Open, tmp_path: Path
) -> None:
    session, now = session_of(unattended(story.finished()))
    async with open_app(session, now=now, looks=tmp_path / "none") as (app, pilot):
        await told(app, pilot)
        assert "It ended at" in screen_text(app)


async def test_a_replay_tells_nothing_by_itself(open_app: Open, tmp_path: Path) -> None:
    path = tmp_path / "over.ddtop"
    with JournalWriter.open(path) as journal:
        journal.extend(story.failed().out)
    session = ReplaySession(path)
    session.to_alert(-1)
    async with open_app(session, looks=tmp_path / "looks") as (app, pilot):
        await settle(pilot, 0.3)
        assert not isinstance(app.screen, ChangesScreen) and not (tmp_path / "looks").exists()
        await pilot.press("W")
        await settle(pilot)
        assert isinstance(app.screen, ChangesScreen)
        assert "1 alert raised" in screen_text(app)


async def test_two_hosts_are_told_on_one_card(open_app: Open, tmp_path: Path) -> None:
    other = unattended(story.failed())
    other.out[:] = [
        msgspec.structs.replace(e, run_id="other") if isinstance(e, ev.RunStarted) else e for e in other.out
    ]
    one, now = session_of(unattended(story.failed()))
    two, _ = session_of(other)
    async with open_app([one, two], now=now + 3600, looks=tmp_path / "none") as (app, pilot):
        await told(app, pilot)
        rows = [plain(row) for row in app.screen.query_one("#changes", Panel).lines]
        assert sum(row.startswith("Since ") for row in rows) == 2
