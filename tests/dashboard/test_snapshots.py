"""What the screen shows, byte by byte, at every size and in every theme.

Texts come from the compositor's strips and are kept as `snapshots/*.txt`; of each theme an SVG is kept too.
`DDTOP_SNAPSHOTS=write pytest tests/dashboard/test_snapshots.py` writes them anew; look at the difference
before you commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ddtop import events as ev
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle, steady

FOLDER = Path(__file__).parent / "snapshots"
SIZES = [(80, 24), (120, 40), (200, 60)]
THEMES = ["ddtop-dark", "ddtop-light", "deuteranopia", "mono"]


def compare(name: str, shown: str) -> None:
    """Hold `shown` against the file `name`, or write it where that is asked for."""
    path = FOLDER / name
    if os.environ.get("DDTOP_SNAPSHOTS") == "write":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
        return
    assert path.exists(), f"{name} is not there; write it with DDTOP_SNAPSHOTS=write"
    kept = path.read_text(encoding="utf-8")
    if kept == shown:
        return
    if path.suffix == ".txt":
        assert shown.splitlines() == kept.splitlines()
    pytest.fail(f"{name} differs from what is shown")


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("moment", ["running", "failed"])
async def test_the_dashboard_at_every_size(open_app: Open, size: tuple[int, int], moment: str) -> None:
    session, now = session_of({"running": story.running, "failed": story.failed}[moment]())
    async with open_app(session, now=now, size=size) as (_, pilot):
        shown = await steady(pilot)
    compare(f"dashboard-{moment}-{size[0]}x{size[1]}.txt", shown + "\n")
    assert max(len(line) for line in shown.splitlines()) <= size[0]
    assert "SIMULATED" in shown


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_plots_at_every_size(open_app: Open, size: tuple[int, int]) -> None:
    session, now = session_of(story.finished())
    async with open_app(session, now=now, size=size) as (_, pilot):
        await pilot.press("v", "v")
        shown = await steady(pilot)
        await pilot.press("C", "C")
        energy = await steady(pilot)
    compare(f"plots-{size[0]}x{size[1]}.txt", shown + "\n")
    compare(f"plots-energy-{size[0]}x{size[1]}.txt", energy + "\n")
    assert max(len(line) for line in shown.splitlines()) <= size[0]


async def test_every_screen(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=(110, 34)) as (app, pilot):
        for keys in ("v home", "v v", "P home", "h", "enter", "question_mark", "l", "r", "R"):
            for key in keys.split():
                await pilot.press(key)
                await settle(pilot)
            compare(f"screen-{keys.replace(' ', '-')}.txt", await steady(pilot) + "\n")
            while len(app.screen_stack) > 1:
                app.pop_screen()
            await settle(pilot)


async def test_proposed_steps(open_app: Open) -> None:
    script = story.running()
    story.proposed(script)
    session, now = session_of(script)
    async with open_app(session, now=now, size=(80, 24)) as (_, pilot):
        compare("steps-bar-80x24.txt", await steady(pilot) + "\n")
        await pilot.press("r", "space")
        compare("steps-80x24.txt", await steady(pilot) + "\n")


@pytest.mark.parametrize("theme", THEMES)
async def test_every_theme(open_app: Open, theme: str) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=(80, 24), theme=theme) as (app, pilot):
        await steady(pilot)
        compare(f"theme-{theme}.svg", app.export_screenshot(title="ddtop"))


async def test_without_colour_the_words_are_the_same_and_nothing_is_coloured(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=(80, 24)) as (app, _):
        coloured = screen_text(app)
    monkeypatch.setenv("NO_COLOR", "1")
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=(80, 24), no_color=True) as (app, _):
        assert app.no_color
        assert screen_text(app) == coloured
        strips = app.screen._compositor.render_strips()
        drawn = [segment.style for strip in strips for segment in strip if segment.style]
        filtered = app.export_screenshot()
    assert drawn
    body = re.sub(r'<circle[^>]*fill="#[0-9a-f]+"[^>]*>', "", filtered)  # the drawn window's three buttons
    colours = set(re.findall(r"fill: (#[0-9a-f]{6})", body)) - {"#c5c8c6"}  # the drawn window's title
    grey = {c for c in colours if c[1:3] == c[3:5] == c[5:7]}
    assert colours == grey
    for word in ("✗ broken", "✗ failed", "! NOT STARTING?", "● up", "? "):
        assert word in coloured


async def test_an_empty_no_color_means_colour(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    session, now = session_of(story.failed())
    async with open_app(session, now=now, no_color=True) as (app, _):
        assert not app.no_color


async def test_before_anything_is_known(open_app: Open) -> None:
    from tests.dashboard.memory import MemorySession

    async with open_app(MemorySession(), now=story.T0, size=(80, 24)) as (_, pilot):
        compare("empty-80x24.txt", await steady(pilot) + "\n")


async def test_a_lost_host_keeps_its_last_values_and_says_how_old_they_are(open_app: Open) -> None:
    script = story.running()
    script.add(ev.HostLost, what="ct200 has not answered for 9 s", means="the link is cut", do="wait")
    script.now += 70
    session, now = session_of(script)
    async with open_app(session, now=now, size=(120, 40)) as (app, _):
        shown = screen_text(app)
        assert "✗ lost 1m14s" in shown
        assert shown.count("stale 1m14s") == 3, "GPUs, sweep and log; the moment says it in its first line"
        assert "1m14s ago" in shown
        assert "431" in shown
