"""What the dashboard's tests share: an app on a scripted session, with the clock standing still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import textual.app
import textual.pilot
from textual.pilot import Pilot

from ddtop.dashboard import key_queue
from ddtop.dashboard.app import DashboardApp
from ddtop.dashboard.watched import Watched
from ddtop.dashboard.widgets.plots import PlotGrid
from tests.dashboard.memory import MemorySession
from tests.dashboard.story import Script

Open = Callable[..., AbstractAsyncContextManager[tuple[DashboardApp, "Pilot[int]"]]]


def screen_text(app: DashboardApp) -> str:
    """What the screen shows, as plain text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def settle(pilot: Pilot[int], seconds: float = 0.0) -> None:
    """Let messages and workers go through until the screen stands still."""
    app = pilot.app
    assert isinstance(app, DashboardApp)
    await pilot.pause(seconds or None)
    before = ""
    for _ in range(8):
        app.refresh_screens()
        await pilot.pause()
        while any(grid.drawing for grid in app.screen.query(PlotGrid)):
            await asyncio.sleep(0.005)  # plots are made and drawn in threads
        await pilot.pause()
        shown = screen_text(app)
        if shown == before:
            return
        before = shown


async def steady(pilot: Pilot[int]) -> str:
    """The screen's text once it stood still for a tenth of a second: scroll bars come a frame after their lines."""
    app = pilot.app
    assert isinstance(app, DashboardApp)
    await settle(pilot)
    same, before = 0, ""
    for _ in range(50):
        await asyncio.sleep(0.025)
        app.refresh_screens()
        await pilot.pause()
        shown = screen_text(app)
        same = same + 1 if shown == before else 0
        if same == 4:
            break
        before = shown
    return before


def quiet_of(app: DashboardApp) -> Callable[..., Coroutine[Any, Any, None]]:
    """Waits until every key is done and no widget of `app` has a message left.

    Textual's own pilot waits until the process uses no CPU for 20 ms instead, which a busy machine makes long
    and an app that redraws ten times a second makes a matter of luck.
    """

    async def quiet(_least: float = 0.0, most: float = 30.0) -> None:
        empty = 0
        end = time.monotonic() + most
        while empty < 3 and time.monotonic() < end:
            await asyncio.sleep(0.001)
            queues = [app._message_queue, *(node._message_queue for node in list(app._registry))]
            busy = (
                any(not queue.empty() for queue in queues)
                or bool(app._next_callbacks)
                or not app.key_queue.idle
            )
            empty = 0 if busy else empty + 1

    return quiet


@pytest.fixture
def open_app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Open:
    """Opens an app on sessions; `now` stops the wall clock. Faults inside the dashboard fail the test."""
    monkeypatch.setattr(Watched, "_size_b", lambda self: 3_100_000)
    monkeypatch.setattr(key_queue, "HOLD_S", 30.0)  # no key gives up its screen because the machine is busy
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    @asynccontextmanager
    async def opened(
        sessions: Any,
        *,
        now: float | None = None,
        size: tuple[int, int] = (120, 40),
        faults: bool = False,
        no_color: bool = False,
        **options: object,
    ) -> AsyncIterator[tuple[DashboardApp, Pilot[int]]]:
        if not no_color:
            monkeypatch.delenv("NO_COLOR", raising=False)
        if now is not None:
            monkeypatch.setattr(time, "time", lambda: now)
        many = list(sessions) if isinstance(sessions, list) else [sessions]
        options.setdefault("themes_folder", tmp_path / "themes")
        app = DashboardApp(many, fault_log=tmp_path / "faults.log", viewer="test", **options)  # type: ignore[arg-type]
        monkeypatch.setattr(textual.app, "wait_for_idle", quiet_of(app))
        monkeypatch.setattr(textual.pilot, "wait_for_idle", quiet_of(app))
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            yield app, pilot
        if not faults:
            assert app.faults.faults == []

    return opened


def session_of(script: Script) -> tuple[MemorySession, float]:
    """A session with the script's events, and a time shortly after its end."""
    return MemorySession(script.out), script.now + 4
