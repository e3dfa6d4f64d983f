"""Roles → colours of the theme in use."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style as RichStyle
from textual.color import Color, ColorParseError

from ddtop.dashboard.draw.paint import ROLES

BOLD = {"title", "key", "bad", "run", "value", "gain"}
"""Roles that are also bold, so that they stand out where there is no colour."""

PREFIX = "dd-"


def role_styles(variables: Mapping[str, str], background: Color) -> dict[str, RichStyle]:
    """Style of every role, and of every role under the cursor (`<role>+sel`).

    `variables` are the theme's, `dd-<role>` among them; `background` is that of the widget.
    """
    base = background.rich_color
    cursor = _colour(variables.get(f"{PREFIX}cursor"), background)
    styles: dict[str, RichStyle] = {}
    for role in ROLES:
        colour = _colour(variables.get(f"{PREFIX}{role}"), background)
        bold = role in BOLD
        styles[role] = RichStyle(color=colour.rich_color, bgcolor=base, bold=bold)
        ink = cursor.get_contrast_text(1.0) if role in ("text", "value", "label", "dim") else colour
        styles[f"{role}+sel"] = RichStyle(color=ink.rich_color, bgcolor=cursor.rich_color, bold=True)
    return styles


def _colour(text: str | None, background: Color) -> Color:
    """A colour of the theme, laid over `background` where it is transparent."""
    if text:
        try:
            colour = Color.parse(text)
        except ColorParseError:
            colour = background.inverse
        return background + colour if colour.a < 1 else colour
    return background.inverse
