"""Plots on the results screen: chosen by keys, drawn only when something changed, saved as SVG, readable without colour."""

from __future__ import annotations

import errno
import re
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from textual.binding import Binding

from ddtop import events as ev
from ddtop.charts.kinds import PICTURES
from ddtop.charts.make import Choice, chart
from ddtop.charts.names import names_of
from ddtop.dashboard import keys
from ddtop.dashboard.app import DashboardApp
from ddtop.dashboard.draw.paint import plain
from ddtop.dashboard.panels.plots import choice_line, turned
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.screens.results import ResultsScreen
from ddtop.dashboard.widgets import plot as module
from ddtop.dashboard.widgets import plots as grid_module
from ddtop.dashboard.widgets.plot import PlotPane
from ddtop.events import decode_event
from tests.charts.made import DATA, real
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle, steady
from tests.dashboard.memory import MemorySession

REAL = [decode_event(line) for line in (DATA / "h200-llamacpp" / "events.jsonl").read_text().splitlines()]


def shown_choice(app: DashboardApp) -> Choice:
    assert isinstance(app.screen, ResultsScreen)
    return app.screen.grid.choice


def test_c_goes_through_the_pictures_and_back() -> None:
    choice, names, seen = Choice(), names_of(real()), []
    for _ in PICTURES:
        seen.append(choice.what)
        choice = turned(choice, None, names, "what", 1)
    assert seen == list(PICTURES) and choice == Choice()
    assert turned(choice, None, names, "what", -1) == Choice("search")


def test_axes_go_on_from_those_shown_and_another_picture_has_its_own() -> None:
    names, choice = names_of(real()), Choice()
    choice = turned(choice, chart(real(), choice), names, "x", 1)
    assert choice == Choice(x="n")
    choice = turned(choice, chart(real(), choice), names, "y", -1)
    assert choice.y == names.y[-1]
    choice = turned(choice, chart(real(), choice), names, "by", 1)
    assert choice.by in names.varied
    assert turned(choice, chart(real(), choice), names, "what", 1) == Choice("speedup")


def test_nothing_is_split_by_what_is_on_its_x_axis() -> None:
    names, choice = names_of(real()), Choice(x="n")
    seen = set()
    for _ in range(8):
        choice = turned(choice, chart(real(), choice), names, "by", 1)
        seen.add(choice.by)
    assert "n" not in seen and {"config", "load", "none"} <= seen


def test_a_search_has_axes_of_its_own() -> None:
    empty = chart(real(), Choice("search"))
    assert turned(Choice("search"), empty, names_of(real()), "x", 1) == Choice("search")
    assert turned(Choice("search"), empty, names_of(real()), "y", 1).y == "output_tok_s"


@pytest.mark.parametrize("what", PICTURES)
def test_the_line_of_choices_fits_eighty_columns(what: str) -> None:
    choice = Choice(what)
    words = plain(choice_line(choice, chart(real(), choice), 78))
    assert re.search(rf" d plot {what} \d/9 +X x .+ Y y .+ i by .+ F save", words), words


async def test_keys_choose_the_plot_and_its_axes(open_app: Open) -> None:
    async with open_app(MemorySession(REAL), now=REAL[-1].at_s, size=(80, 24)) as (app, pilot):
        await pilot.press("v", "v")
        shown = await steady(pilot)
        assert "Throughput by concurrency · tp1 · mix@256" in shown and "(▼) tiny" in shown
        assert "d plot throughput 1/9" in shown
        await pilot.press("d")
        assert "plain = 1" in await steady(pilot)
        await pilot.press("D", "D")
        assert "no search has tried a load" in await steady(pilot)
        await pilot.press("d", "X", "Y")
        shown = await steady(pilot)
        assert "Speed-up by n" in shown and "d plot own axes" in shown
        await pilot.press("i")
        assert shown_choice(app).by is not None
        await pilot.press("v")
        assert "sorted by plan order" in await steady(pilot)


async def test_keys_of_plots_are_off_where_there_is_none(open_app: Open) -> None:
    session, now = session_of(story.finished())
    async with open_app(session, now=now, size=(80, 24)) as (app, pilot):
        await pilot.press("v", "d", "F")
        await settle(pilot)
        assert shown_choice(app) == Choice()
        assert "This is a key of the plots: v turns to them." in {n.message for n in app._notifications}


def full(*_: object, **__: object) -> None:
    """A disk without room."""
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_key_saves_the_picture(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session, now = session_of(story.finished())
    async with open_app(session, now=now, size=(120, 40)) as (app, pilot):
        await pilot.press("v", "v")
        await settle(pilot)
        await pilot.press("F")
        await settle(pilot)
        (path,) = tmp_path.glob("ddtop-ct200-throughput-*.svg")
        assert any(str(path) in note.message for note in app._notifications)
        text = path.read_text()
        ET.fromstring(text)
        assert "SIMULATED" in text and "prefers-color-scheme" in text
        await pilot.press("D")
        await settle(pilot)
        await pilot.press("F")
        await settle(pilot)
        assert any("no points to save" in note.message for note in app._notifications)
        monkeypatch.setattr(Path, "write_text", full)
        await pilot.press("d")
        await settle(pilot)
        await pilot.press("F")
        await settle(pilot)
        assert any("No space left" in note.message for note in app._notifications)


async def test_a_plot_is_drawn_once_for_what_it_shows(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress of a cell, redraws and the clock draw nothing anew; a result does."""
    drawings = []
    real_drawn = module.drawn
    monkeypatch.setattr(module, "drawn", lambda *args: drawings.append(args) or real_drawn(*args))
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=(80, 24)) as (app, pilot):
        await pilot.press("v", "v")
        await steady(pilot)
        before = len(drawings)
        for _ in range(5):
            app.refresh_screens()
            await settle(pilot)
        cell = story.cell_id("b15", 0)
        stamps = {"at_s": now, "mono_s": 1.0, "host": story.HOST}
        session.put(ev.CellProgress(**stamps, cell_id=cell, requests_done=1, requests_total=4))
        await steady(pilot)
        assert len(drawings) == before
        measured = ev.CellMeasured(
            **stamps, cell_id=cell, attempt=9, validity="VALID", metrics={"output_tok_s": 999.0}
        )
        session.put(measured)
        await steady(pilot)
        assert len(drawings) == before + 1


async def test_charts_are_made_and_drawn_in_threads_of_their_own(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never in the event loop's: not when a key asks for another, and not when a result comes."""
    threads = []
    for name, owner in (("drawn", module), ("chart", grid_module)):
        wrapped = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, made=wrapped: threads.append(threading.current_thread()) or made(*args)
        )
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=(200, 60)) as (_, pilot):
        await pilot.press("v", "v", "d", "X")
        await settle(pilot)
        stamps = {"at_s": now, "mono_s": 1.0, "host": story.HOST}
        session.put(ev.CellStateSet(**stamps, cell_id=story.cell_id("b15", 0), state="broken"))
        await settle(pilot)
    assert len(threads) > 8 and threading.current_thread() not in threads


async def test_a_chart_that_read_a_change_in_the_middle_is_made_anew(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state moves on while a thread reads it: what came of that is thrown away, with its error."""
    session, now = session_of(story.finished())
    wrapped, calls = grid_module.chart, []

    async with open_app(session, now=now, size=(80, 24)) as (app, pilot):

        def torn(*args):
            calls.append(args)
            if len(calls) == 1:
                app.here.results_version += 1
                raise RuntimeError("dictionary changed size during iteration")
            return wrapped(*args)

        monkeypatch.setattr(grid_module, "chart", torn)
        await pilot.press("v", "v")
        shown = await steady(pilot)
        assert len(calls) >= 2 and "throughput (tok/s)" in shown
        assert not app.faults.faults


async def test_a_plot_that_cannot_be_drawn_ends_nothing(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no canvas")

    monkeypatch.setattr(module, "drawn", broken)
    session, now = session_of(story.finished())
    async with open_app(session, now=now, size=(80, 24)) as (app, pilot):
        await pilot.press("v", "v")
        assert "this plot cannot be drawn" in await steady(pilot)
        assert app.is_running and app.faults.faults
        app.faults.faults.clear()


async def test_without_colour_series_differ_by_their_markers(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_app(MemorySession(REAL), now=REAL[-1].at_s, size=(120, 40), no_color=True) as (
        app,
        pilot,
    ):
        await pilot.press("v", "v")
        shown = await steady(pilot)
        assert {"(●) plain", "(■) draft2", "(▲) draft4", "(◆) draft8", "(▼) tiny"} <= set(
            re.findall(r"\(\S\) [a-z]+\d?", shown)
        )
        assert app.no_color


@pytest.mark.parametrize("theme", ["ddtop-dark", "ddtop-light", "deuteranopia", "mono", "textual-ansi"])
async def test_every_theme_colours_the_series(open_app: Open, theme: str) -> None:
    async with open_app(MemorySession(REAL), now=REAL[-1].at_s, size=(120, 40), theme=theme) as (app, pilot):
        await pilot.press("v", "v")
        await steady(pilot)
        pane = next(iter(app.screen.query(PlotPane)))
        inks = pane._role_styles()
        assert len({str(inks[f"tone-{n}"].color) for n in range(8)}) == 8


async def test_a_click_on_the_line_is_its_key(open_app: Open) -> None:
    session, now = session_of(story.finished())
    async with open_app(session, now=now, size=(80, 24)) as (app, pilot):
        await pilot.press("v", "v")
        await settle(pilot)
        await pilot.click("#choice", offset=(3, 0))
        await settle(pilot)
        assert shown_choice(app) == Choice("speedup"), screen_text(app)


def test_no_key_of_the_plots_means_something_else_on_another_screen() -> None:
    """`c` was the next plot here and the columns of the matrix there; `a` the alert; `e` the next error of the log."""
    elsewhere = {
        key.strip()
        for name, group in vars(keys).items()
        if name != "PLOT" and isinstance(group, list)
        for one in group
        if isinstance(one, Binding)
        for key in one.key.split(",")
    }
    elsewhere |= {
        key.strip()
        for screen in DdScreen.__subclasses__()
        for one in screen.BINDINGS
        if isinstance(one, Binding) and one not in keys.PLOT
        for key in one.key.split(",")
    }
    mine = {key.strip() for one in keys.PLOT for key in one.key.split(",")}
    assert len(elsewhere) > 60 and not mine & elsewhere
