"""The dashboard on real recordings: one that grows under a writer, and one that is replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtop import events as ev
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.read.session import LiveSession
from ddtop.journal.write.writer import JournalWriter
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, settle
from tests.waiting import HANG_S


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[JournalWriter]:
    with JournalWriter.open(tmp_path / "run.ddtop") as opened:
        yield opened


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole story as a recording that is over."""
    path = tmp_path_factory.mktemp("rec") / "over.ddtop"
    script = story.failed()
    script.wait(20)
    script.add(ev.AlertResolved, alert_id=story.ALERT, how="retried", by="policy")
    script.wait(20)
    script.add(ev.RunEnded, outcome="some-failed", exit_code=10)
    with JournalWriter.open(path) as opened:
        opened.extend(script.out)
    return path


async def test_a_growing_journal_is_followed_and_commands_reach_its_writer(
    open_app: Open, writer: JournalWriter
) -> None:
    script = story.running()
    writer.extend(script.out)
    session = LiveSession(writer.path, "test")
    async with open_app(session, now=script.now + 1) as (app, pilot):
        await settle(pilot, 0.5)
        assert "12 of 40" in screen_text(app)
        assert "● REC" in screen_text(app)
        script.out.clear()
        script.add(
            ev.CellMeasured,
            cell_id=story.cell_id("b15", 2),
            attempt=1,
            validity="VALID",
            metrics=story.metrics("b15", 2),
        )
        script.add(ev.CellStateSet, cell_id=story.cell_id("b15", 2), state="done", attempt=1)
        writer.extend(script.out)
        await settle(pilot, 0.4)
        assert "13 of 40" in screen_text(app)
        await pilot.press("space")
        await settle(pilot, 0.1)
        commands = writer.pending_commands()
        pauses = [c for c in commands if isinstance(c, ev.Pause)]
        assert len(pauses) == 1
        assert any(isinstance(c, ev.Attend) for c in commands)
        script.out.clear()
        script.add(ev.CommandSeen, command_id=pauses[0].id, viewer="test", command="pause", outcome="obeyed")
        script.add(ev.SweepPaused, by="test")
        writer.extend(script.out)
        await settle(pilot, 0.4)
        assert "PAUSED" in screen_text(app)
        assert any("✓ pause" in note.message for note in app._notifications)


async def test_a_journal_whose_runner_is_gone_says_so(open_app: Open, tmp_path: Path) -> None:
    script = story.running()
    with JournalWriter.open(tmp_path / "dead.ddtop") as opened:
        opened.extend(script.out)
    session = LiveSession(tmp_path / "dead.ddtop", "test")
    async with open_app(session, now=script.now + 1) as (app, pilot):
        await settle(pilot, 0.6)
        assert "✗ no runner" in screen_text(app)
        await pilot.press("space")
        async with asyncio.timeout(HANG_S):
            while not any("Nothing can be paused" in note.message for note in app._notifications):
                await settle(pilot, 0.05)


async def test_a_recording_is_replayed_with_the_keys_of_time(open_app: Open, recording: Path) -> None:
    session = ReplaySession(recording, speed=4)
    async with open_app(session) as (app, pilot):
        await settle(pilot, 0.3)
        assert "REPLAY 4×" in screen_text(app)
        await pilot.press("right_curly_bracket")
        await settle(pilot, 0.3)
        shown = screen_text(app)
        assert "NOT STARTING?" in shown
        assert "paused" in shown
        assert "b16" in shown
        at_alert = session.position
        await pilot.press("left_square_bracket")
        await settle(pilot, 0.3)
        assert "NOT STARTING?" not in screen_text(app)
        await pilot.press("right_square_bracket")
        await settle(pilot, 0.3)
        assert "NOT STARTING?" in screen_text(app)
        await pilot.press("greater_than_sign")
        assert session.speed == 8
        await pilot.press("less_than_sign", "less_than_sign")
        assert session.speed == 2
        await pilot.press("space")
        assert session.playing
        await pilot.press("space")
        assert not session.playing
        await pilot.press("g", *"-10m", "enter")
        await settle(pilot, 0.3)
        assert session.position < at_alert - 500
        assert "NOT STARTING?" not in screen_text(app)


async def test_a_replay_offers_no_key_that_would_act(open_app: Open, recording: Path) -> None:
    session = ReplaySession(recording, speed=4096)
    async with open_app(session) as (app, pilot):
        await settle(pilot, 0.6)
        for key in ("r", "x", "S", "R", "s", "u", "t", "b", "w"):
            app.clear_notifications()
            await pilot.press(key)
            await settle(pilot)
            (note,) = app._notifications
            assert note.message.startswith("Nothing can be ") and "in a replay" in note.message, key
        assert len(app.screen_stack) == 1
        await pilot.press("right_parenthesis")
        await settle(pilot)
        shown = screen_text(app)
        assert "NOT STARTING?" in shown and "offered retry b16, skip b16" in shown
        assert "r retry" not in shown and "x skip" not in shown and "a evidence" in shown
        active = {b.binding.id for b in app.screen.active_bindings.values() if b.enabled}
        assert "replay-step" in active and "replay-next-alert" not in active, "it stands at the last one"
        assert not active & {
            "skip",
            "stop-run",
            "restart-service",
            "restage",
            "undo",
            "try-again",
            "broken",
            "wait",
        }


async def test_live_and_replayed_show_the_same(open_app: Open, writer: JournalWriter, tmp_path: Path) -> None:
    script = story.loading()
    writer.extend(script.out)
    async with open_app(LiveSession(writer.path, "test"), now=script.now) as (app, pilot):
        await settle(pilot, 0.8)
        live = screen_text(app)
    writer.close()
    session = ReplaySession(writer.path, speed=4096)
    session.seek(script.now)
    async with open_app(session) as (app, pilot):
        await settle(pilot, 0.8)
        replayed = screen_text(app)
    # The header tells them apart, and so do the timeline and the keys; everything between is the same.
    rows, others = live.splitlines(), replayed.splitlines()
    line = next(number for number, row in enumerate(rows) if "ends by" in row) - 1
    assert rows[line].startswith(" ░░") and others[line].startswith(" ░░")
    assert rows[1:line] + rows[line + 2 : -2] == others[1:line] + others[line + 2 : -2]
