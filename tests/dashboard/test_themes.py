"""Themes: the shipped ones can be read, the user's are taken, and bad files are told in one toast."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from ddtop.dashboard.draw.paint import ROLES
from ddtop.dashboard.themes import ThemeError, fallbacks, load_folder, parse_theme, shipped_folder
from tests.dashboard import story
from tests.dashboard.conftest import Open, session_of, settle

SHIPPED = load_folder(shipped_folder())
MINIMAL = 'name = "mine"\nprimary = "#ff8800"\nforeground = "#eeeeee"\nbackground = "#101010"\n'


def luminance(colour: Color) -> float:
    """Relative luminance after WCAG 2."""
    parts = [c / 255 for c in colour.rgb]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """Contrast ratio after WCAG 2."""
    high, low = sorted((luminance(Color.parse(first)), luminance(Color.parse(second))), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_four_themes_are_shipped() -> None:
    assert SHIPPED.bad == ()
    assert {t.name for t in SHIPPED.themes} == {"ddtop-dark", "ddtop-light", "deuteranopia", "mono"}


@pytest.mark.parametrize("theme", SHIPPED.themes, ids=lambda t: t.name)
def test_every_role_can_be_read_on_every_ground(theme: object) -> None:
    variables = theme.variables  # type: ignore[attr-defined]
    grounds = {"background": theme.background, "alert": variables["dd-alert"], "panel": theme.panel}  # type: ignore[attr-defined]
    for role in set(ROLES) - {"track", "bar", "spark"}:
        for name, ground in grounds.items():
            least = 3.5 if role == "dim" or name == "alert" else 4.5
            found = contrast(variables[f"dd-{role}"], ground)
            assert found >= least, f"{role} on {name}: {found:.2f}"


@pytest.mark.parametrize("theme", BUILTIN_THEMES.values(), ids=lambda t: t.name)
def test_every_role_has_a_colour_in_textuals_own_themes(theme: object) -> None:
    found = fallbacks(theme, theme.to_color_system().generate())  # type: ignore[arg-type,attr-defined]
    assert {f"dd-{role}" for role in ROLES} <= set(found)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = ", "not TOML"),
        ('name = "x"', "`primary` is missing"),
        (MINIMAL + 'error = "reddish"', "`error` is not a colour: 'reddish'"),
        (MINIMAL + "eror = 1", "unknown key `eror`"),
        (MINIMAL + 'dark = "yes"', "`dark` is not true or false"),
        (MINIMAL + '[variables]\n"dd-ok" = 4', "`variables.dd-ok` is not a colour"),
    ],
)
def test_a_bad_theme_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ThemeError, match=why):
        parse_theme(text)


async def test_users_themes_are_taken_and_bad_ones_told_in_one_toast(open_app: Open, tmp_path: Path) -> None:
    folder = tmp_path / "themes"
    folder.mkdir()
    (folder / "mine.toml").write_text(MINIMAL)
    (folder / "a.toml").write_text("name = ")
    (folder / "b.toml").write_text('name = "x"')
    session, now = session_of(story.running())
    async with open_app(session, now=now, theme="mine") as (app, _):
        assert app.theme == "mine"
        (note,) = app._notifications
        assert "a.toml" in note.message
        assert "b.toml" in note.message


async def test_an_unknown_theme_is_told_with_those_there_are(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, theme="pinkish") as (app, _):
        assert app.theme == "ddtop-dark"
        (note,) = app._notifications
        assert "no theme `pinkish`" in note.message
        assert "deuteranopia" in note.message


async def test_big_t_goes_through_the_themes(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        seen = []
        for _ in range(4):
            await pilot.press("T")
            await settle(pilot)
            seen.append(app.theme)
        assert seen == ["ddtop-light", "deuteranopia", "mono", "ddtop-dark"]
