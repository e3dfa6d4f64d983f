"""Themes as TOML files: those shipped with ddtop, and the user's own.

A file holds the fields of a Textual theme (`name`, `dark`, `primary`, `secondary`, `accent`, `foreground`,
`background`, `surface`, `panel`, `success`, `warning`, `error`) and a table `[variables]` with ddtop's roles
(`dd-ok`, `dd-bad`, …; see `paint.ROLES`), each of which falls back to a colour of the theme.
The `name` in the file is the theme's id, not the file's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import tomli
from textual.color import Color, ColorParseError
from textual.theme import Theme

import ddtop
from ddtop.charts.tones import DARK, LIGHT

COLOURS = (
    "primary",
    "secondary",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "success",
    "warning",
    "error",
)
REQUIRED = ("name", "primary", "background", "foreground")
DEFAULT = "ddtop-dark"


@dataclass(frozen=True)
class Loaded:
    """Themes read from a folder, and the files that could not be used, each with its reason."""

    themes: tuple[Theme, ...]
    bad: tuple[tuple[Path, str], ...]


class ThemeError(ValueError):
    """A theme file that cannot be used; the message says where and why."""


def shipped_folder() -> Path:
    """Where ddtop's own themes are: inside the installed package, or beside it in a checkout."""
    package = Path(ddtop.__file__).parent
    installed = package / "_shipped" / "themes"
    return installed if installed.is_dir() else package.parent / "themes"


def load_folder(folder: Path) -> Loaded:
    """All `*.toml` themes of `folder`, sorted by file name. A folder that is not there holds none."""
    themes: list[Theme] = []
    bad: list[tuple[Path, str]] = []
    for path in sorted(folder.glob("*.toml")) if folder.is_dir() else []:
        try:
            themes.append(parse_theme(path.read_bytes().decode("utf-8")))
        except (OSError, UnicodeDecodeError, ThemeError) as error:
            bad.append((path, str(error)))
    return Loaded(tuple(themes), tuple(bad))


def user_folder() -> Path:
    """Where the user's themes are: `$XDG_CONFIG_HOME/ddtop/themes`."""
    return platformdirs.user_config_path("ddtop") / "themes"


def load_all(own: Path | None = None) -> Loaded:
    """The shipped themes, then the user's, which are in `own` or in `user_folder()`."""
    loaded = [load_folder(shipped_folder()), load_folder(own or user_folder())]
    return Loaded(tuple(t for one in loaded for t in one.themes), tuple(b for one in loaded for b in one.bad))


def parse_theme(text: str) -> Theme:
    """The theme in a TOML text. Raises ThemeError naming the key and what is wrong with it."""
    try:
        table = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise ThemeError(f"not TOML: {error}") from error
    for key in REQUIRED:
        if not isinstance(table.get(key), str):
            raise ThemeError(f"`{key}` is missing or not a string")
    unknown = set(table) - {*COLOURS, "name", "dark", "variables"}
    if unknown:
        raise ThemeError(f"unknown key `{sorted(unknown)[0]}`; allowed: name, dark, {', '.join(COLOURS)}")
    colours = {key: _colour(key, table[key]) for key in COLOURS if key in table}
    variables = table.get("variables", {})
    if not isinstance(variables, dict):
        raise ThemeError("`variables` is not a table")
    dark = table.get("dark", True)
    if not isinstance(dark, bool):
        raise ThemeError("`dark` is not true or false")
    fields: dict[str, Any] = dict(colours)
    fields["variables"] = {key: _colour(f"variables.{key}", value) for key, value in variables.items()}
    return Theme(name=table["name"], dark=dark, **fields)


def fallbacks(theme: Theme, generated: Mapping[str, str]) -> dict[str, str]:
    """ddtop's variables for a theme that does not set them, from the colours it has.

    `generated` is what Textual derived for the theme (it fills in what the theme leaves open).
    """
    foreground = theme.foreground or generated.get("foreground", "#d0d0d0")
    background = theme.background or generated.get("background", "#101010")
    ok = theme.success or generated.get("success", foreground)
    warn = theme.warning or generated.get("warning", foreground)
    bad = theme.error or generated.get("error", foreground)
    accent = theme.accent or generated.get("accent", theme.primary)
    if theme.ansi:
        ok, warn, bad, accent = "ansi_green", "ansi_yellow", "ansi_red", "ansi_cyan"
        quiet = {"dd-dim": foreground, "dd-label": foreground, "dd-track": foreground}
        rule, cursor, alert = foreground, "ansi_blue", background
        names = ("cyan", "yellow", "green", "magenta", "blue", "bright_magenta", "white", "red")
        tones: Sequence[str] = [f"ansi_{name}" for name in names]
    else:
        quiet = {
            "dd-dim": _mix(foreground, background, 0.42),
            "dd-label": _mix(foreground, background, 0.22),
            "dd-track": _mix(foreground, background, 0.75),
        }
        rule = _mix(foreground, background, 0.75)
        cursor = _mix(theme.primary, background, 0.65)
        alert = _mix(bad, background, 0.82)
        tones = DARK if theme.dark else LIGHT
    return {
        **dict.fromkeys(("dd-text", "dd-value", "dd-title"), foreground),
        **quiet,
        "dd-key": accent,
        "dd-accent": theme.primary,
        "dd-gain": ok,
        "dd-ok": ok,
        "dd-warn": warn,
        "dd-bad": bad,
        "dd-run": theme.primary,
        "dd-bar": theme.primary,
        "dd-hot": warn,
        "dd-spark": theme.secondary or theme.primary,
        "dd-rule": rule,
        "dd-rule-focus": accent,
        "dd-cursor": cursor,
        "dd-alert": alert,
        **{f"dd-tone-{number}": colour for number, colour in enumerate(tones)},
    }


def _colour(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ThemeError(f"`{key}` is not a colour: {value!r}")
    try:
        Color.parse(value)
    except ColorParseError as error:
        raise ThemeError(f"`{key}` is not a colour: {value!r}") from error
    return value


def _mix(text: str, other: str, share: float) -> str:
    """`text` blended towards `other`; the text itself where either is a terminal's own colour."""
    try:
        first, second = Color.parse(text), Color.parse(other)
    except ColorParseError:
        return text
    if first.ansi is not None or second.ansi is not None:
        return text
    return first.blend(second, share).hex
