"""The way in: what it imports and when, what it refuses; and that no size and no moment breaks the screen."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ddtop.dashboard.run import run_dashboard
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, settle
from tests.dashboard.memory import MemorySession


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_nothing_heavy_is_imported_before_the_dashboard_runs() -> None:
    loaded = python("import sys, ddtop.dashboard.run; print(*sys.modules)").split()
    assert not {"textual", "rich", "plotext", "sqlite3", "asyncssh"} & set(loaded)


def test_plots_are_imported_only_when_they_are_looked_at() -> None:
    loaded = python("import sys, ddtop.dashboard.app; print(*sys.modules)").split()
    assert "textual" in loaded
    assert not {"plotext", "sqlite3", "asyncssh", "httpx"} & set(loaded)


def test_panels_know_nothing_of_textual() -> None:
    code = "import sys, pkgutil, importlib, ddtop.dashboard.panels as p\n"
    code += "for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.'): importlib.import_module(m.name)\n"
    assert "textual" not in python(code + "print(*sys.modules)").split()


def test_without_a_terminal_it_refuses_with_a_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_dashboard([MemorySession()]) == 2  # type: ignore[list-item]
    assert "--record" in capsys.readouterr().err
    assert run_dashboard([]) == 2
    assert "no recording" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (99, 50), (300, 80)], ids=lambda s: f"{s[0]}x{s[1]}")
async def test_no_moment_of_the_story_breaks_any_size(open_app: Open, size: tuple[int, int]) -> None:
    script = story.failed()
    story.rebooted(script)
    session = MemorySession()
    async with open_app(session, now=script.now, size=size) as (app, pilot):
        for batch in story.chunks(script, 120):
            session.put(*batch)
            await pilot.pause()
            app.refresh_screens()
        for key in (
            "v",
            "v",
            "P",
            "h",
            "H",
            "l",
            "escape",
            "r",
            "escape",
            "R",
            "escape",
            "enter",
            "escape",
            "4",
            "p",
            "1",
        ):
            await pilot.press(key)
        await settle(pilot)
        assert all(len(row) <= size[0] for row in screen_text(app).splitlines())


async def test_words_from_outside_are_never_taken_for_markup(open_app: Open) -> None:
    script = story.running()
    evil = "[bold red]x[/] [@click=app.bell()]y[/] \x1b[31mz\x1b[0m\x07 [/nope]"
    fields = {**story.alert_fields(script.now), "title": evil, "cause_text": evil, "advice": evil}
    from ddtop import events as ev

    script.add(ev.AlertRaised, **fields)
    script.add(ev.Note, level="warn", text=evil)
    script.log(evil, invocation="inv-b15")
    session = MemorySession(script.out)
    async with open_app(session, now=script.now) as (app, pilot):
        await settle(pilot)
        shown = screen_text(app)
        assert "[bold red]x[/]" in shown
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert " z" in shown


async def test_a_big_plan_is_drawn_in_a_fraction_of_a_tick(open_app: Open) -> None:
    """3 TP × 8 configurations × 90 columns: measured at 5 to 15 ms of CPU a refresh; the bound is far wider."""
    from ddtop import events as ev

    specs = [
        ev.CellSpec(
            id=f"{c}-{t}-{w}-{x}-{n}",
            config=c,
            tp=t,
            workload=f"w{w}",
            output_tokens=256,
            context=x * 8192,
            concurrency=n,
            restart_key=f"{c}{t}",
            baseline=c == "auto",
        )
        for t in (1, 4, 8)
        for c in story.CONFIGS
        for w in range(5)
        for x in range(3)
        for n in (1, 2, 4, 8, 16, 32)
    ]
    script = story.Script()
    story.begin(script)
    script.add(ev.CellsPlanned, cells=tuple(specs), baseline="auto")
    script.wait(600, load=1.0)
    session = MemorySession(script.out)
    async with open_app(session, now=script.now, size=(200, 60)) as (app, _):
        begin = time.process_time()
        for _ in range(10):
            app.here.cells_version += 1
            app.refresh_screens()
        spent = (time.process_time() - begin) / 10
        print(f"{len(specs)} cells: {spent * 1000:.1f} ms of CPU a refresh")
        assert spent < 0.1
