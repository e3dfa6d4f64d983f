"""A key that does nothing says why, on every screen; and no key says so that acts."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from textual.pilot import Pilot

from ddtop import events as ev
from ddtop.dashboard import keys
from ddtop.dashboard.actions.key_faults import bindings
from ddtop.dashboard.actions.why import why_not
from ddtop.dashboard.app import DashboardApp
from ddtop.dashboard.widgets.logpane import LogPane
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.write.writer import JournalWriter
from tests.dashboard import story
from tests.dashboard.conftest import Open, session_of, settle
from tests.dashboard.memory import MemorySession

MOTION = {"up", "down", "left", "right", "j", "k", "home", "end", "enter", "escape"}
"""Keys that move in what is shown: at its edge they rest."""
OPENS = {"q", "f12", "v", "P", "H", "h", "l", "W", "a", "g", "question_mark", "slash", "y", "T"}
"""Keys that are seen to act wherever they are active: they open a screen or say what they did."""
KEYS = sorted(
    {
        key
        for binding in (*keys.APP, *keys.REPLAY, *bindings().values())
        for key in binding.key.split(",")
        if key not in MOTION
    }
)
TYPED = {name: glyph for name, glyph in keys.GLYPHS.items() if len(glyph) == 1}


def typed(key: str) -> str | None:
    return TYPED.get(key, key if len(key) == 1 else None)


def seen(app: DashboardApp) -> tuple[object, ...]:
    """What a key can change, but for the drawing."""
    here, screen = app.here, app.screen
    logs = [(pane.filter, pane.view.hit, pane.view.following) for pane in screen.query(LogPane)]
    own = (getattr(screen, "sort", None), getattr(screen, "plotting", None), getattr(screen, "cell_id", None))
    cursor = here.cursor(here.matrix())
    return (
        here.shape,
        here.metric,
        here.baseline,
        here.tp,
        cursor,
        app.theme,
        app.focused,
        screen,
        logs,
        own,
        (here.now_s(), getattr(here.session, "speed", 0), getattr(here.session, "_count", 0))
        if here.replay
        else None,
    )


async def check(app: DashboardApp, pilot: Pilot[int]) -> None:
    """Each key of the table on the screen in front: a sentence, or something that changes."""
    for key in KEYS:
        why = why_not(app, key, typed(key))
        if why is not None:
            assert why.endswith(".") and "\n" not in why, (key, why)
        elif key not in OPENS:
            app.clear_notifications()
            before = seen(app)
            await pilot.press(key)
            assert app._notifications or seen(app) != before, f"{key} does nothing, and says nothing"


@pytest.mark.parametrize("opened", ["", "v", "l"], ids=["first", "results", "log"])
async def test_no_key_is_silent_after_the_end(open_app: Open, opened: str) -> None:
    script = story.finished()
    session = MemorySession(script.out, live=False)
    async with open_app(session, now=script.now + 4) as (app, pilot):
        if opened:
            await pilot.press(opened)
            await settle(pilot)
        await check(app, pilot)


async def test_no_key_is_silent_at_the_end_of_a_replay(open_app: Open, tmp_path: Path) -> None:
    with JournalWriter.open(tmp_path / "over.ddtop") as opened:
        opened.extend(story.finished().out)
    session = ReplaySession(tmp_path / "over.ddtop", speed=4096)
    session.seek(session.track.end_s)
    async with open_app(session) as (app, pilot):
        assert why_not(app, "right_curly_bracket", "}") is not None
        await check(app, pilot)


async def test_no_key_is_silent_on_a_host_that_is_only_watched(open_app: Open) -> None:
    script = story.Script()
    story.begin(script)
    script.out = [
        structs.replace(e, mode="monitor") if isinstance(e, ev.RunStarted) else e
        for e in script.out
        if not isinstance(e, ev.CellsPlanned)
    ]
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        await check(app, pilot)


async def test_the_sentences_name_the_way_on(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        for key, words in {
            "right_parenthesis": "ddtop replay",
            "a": "No alert is open",
            "e": "the log: l opens it",
            "o": "the results: v opens them",
            "r": "Nothing waits",
            "Q": "? shows those that are",
            "9": "There are 4 panes",
            "escape": "the first screen",
        }.items():
            app.clear_notifications()
            await pilot.press(key)
            await settle(pilot)
            (note,) = app._notifications
            assert words in note.message
            await pilot.press(key)
            assert len(app._notifications) <= 2, "a key that is held down does not fill the screen"


async def test_what_is_typed_into_a_line_is_no_key(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("slash", "Q", "x", "5")
        await settle(pilot)
        assert not app._notifications and session.commands() == []
        await pilot.press("escape", "S", "Z")
        await settle(pilot)
        assert any("does nothing in this box: esc closes it" in note.message for note in app._notifications)
