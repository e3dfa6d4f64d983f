"""What a panel draws, as plain values: lines of spans, each span a text in a role.

A panel's content is made by pure functions that return `Line`s and know nothing of Textual; one widget
(`widgets/panel.py`) turns them into strips. Roles, not colours, stand here: the theme gives each its colour.
Meaning never rests on a role alone (NO_COLOR has none): the words and glyphs are in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from ddtop.errors import INVISIBLE

TONES = tuple(f"tone-{number}" for number in range(8))
"""Roles of the series of a plot."""

ROLES = (
    "text",
    "dim",
    "label",
    "value",
    "title",
    "key",
    "accent",
    "gain",
    "ok",
    "warn",
    "bad",
    "run",
    "bar",
    "hot",
    "track",
    "spark",
    *TONES,
)
"""Every role a span can have; each is the theme variable `dd-<role>`. `+sel` after one marks the cursor."""

ELLIPSIS = "…"

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])")
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ") | INVISIBLE


def clean(text: str) -> str:
    """`text` without terminal escape sequences and invisible characters, and with a blank for any other control character.

    What hosts, servers and plans say must never reach the terminal as anything but words.
    """
    if text.isprintable():
        return text
    return _ESCAPES.sub("", text).translate(_CONTROLS)


class Span(NamedTuple):
    """A piece of text in one role. `target` is what a click on it means, in the panel's own words."""

    text: str
    role: str = "text"
    target: str | None = None


Line = tuple[Span, ...]


@dataclass(frozen=True)
class Item:
    """One line of a list. Only an item with a `key` can be under the cursor."""

    line: Line
    key: str | None = None


Part = str | Span | tuple[str, str]


def line(*parts: Part) -> Line:
    """A line of parts: a bare string is in the role `text`, a pair is (text, role). Empty parts go."""
    spans: list[Span] = []
    for part in parts:
        if isinstance(part, Span):
            span = part
        elif isinstance(part, str):
            span = Span(part)
        else:
            span = Span(*part)
        if span.text:
            spans.append(span if span.text.isprintable() else span._replace(text=clean(span.text)))
    return tuple(spans)


def plain(spans: Line) -> str:
    """The text of a line without its roles."""
    return "".join(span.text for span in spans)


def width_of(spans: Iterable[Span]) -> int:
    """Width of a line in terminal cells."""
    return sum(cell_len(span.text) for span in spans)


def fit_text(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells: cut with an ellipsis, or padded (on the left if `right`)."""
    if width <= 0:
        return ""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + ELLIPSIS
    return " " * (width - size) + text if right else text + " " * (width - size)


def crop(spans: Line, width: int) -> Line:
    """The line in at most `width` cells, with an ellipsis where something was cut."""
    if width_of(spans) <= width:
        return spans
    out: list[Span] = []
    room = width - 1
    for span in spans:
        size = cell_len(span.text)
        if size <= room:
            out.append(span)
            room -= size
            continue
        out.append(span._replace(text=set_cell_size(span.text, room) + ELLIPSIS))
        break
    return tuple(out)


def pad(spans: Line, width: int) -> Line:
    """The line in exactly `width` cells."""
    spans = crop(spans, width)
    room = width - width_of(spans)
    return (*spans, Span(" " * room)) if room > 0 else spans


def spread(left: Line, right: Line, width: int) -> Line:
    """`left` and `right` at the two ends of a line of `width` cells; `left` is cut first."""
    room = width - width_of(right)
    if room <= 0:
        return crop(right, width)
    return (*pad(left, room), *right)


def selected(spans: Line) -> Line:
    """The same line, marked as under the cursor."""
    return tuple(span._replace(role=f"{span.role}+sel") for span in spans)


def join(lines: Sequence[Line], gap: str = "  ") -> Line:
    """Lines one after the other with a dim gap between those that are not empty."""
    out: list[Span] = []
    for spans in lines:
        if not spans:
            continue
        if out:
            out.append(Span(gap, "dim"))
        out.extend(spans)
    return tuple(out)


def flow(phrases: Sequence[tuple[str, str]], width: int, most: int, gap: str = " · ") -> list[Line]:
    """Phrases (text, role) one after the other in at most `most` lines of `width` cells, broken at spaces. What does not
    fit is left out from a space on, with an ellipsis: never within a number."""
    lines: list[list[Span]] = [[]]
    used = 0
    for text, role in phrases:
        before = gap if lines[-1] else ""
        for number, word in enumerate(clean(text).split(" ")):
            lead = before if number == 0 else " "
            size = cell_len(lead) + cell_len(word)
            if lines[-1] and used + size > width:
                if len(lines) == most:
                    return _ended([tuple(spans) for spans in lines], width)
                lines.append([])
                lead, size, used = "", cell_len(word), 0
            if lead:
                lines[-1].append(Span(lead, "dim" if number == 0 else role))
            lines[-1].append(Span(word, role))
            used += size
    return [crop(tuple(spans), width) for spans in lines if spans]


def _ended(lines: list[Line], width: int) -> list[Line]:
    """With an ellipsis at the end of the last line, in the place of words where it is full."""
    last = list(lines[-1])
    while len(last) > 1 and width_of(last) + 2 > width:
        last.pop()
    return [*lines[:-1], crop((*last, Span(" " + ELLIPSIS, "dim")), width)]


def packed(parts: Sequence[Line], width: int, gap: int = 2) -> list[Line]:
    """Parts one after the other, broken between parts where a line is full."""
    rows: list[Line] = []
    current: list[Span] = []
    used = 0
    for part in parts:
        size_ = width_of(part)
        if current and used + gap + size_ > width:
            rows.append(tuple(current))
            current, used = [], 0
        if current:
            current.append(Span(" " * gap))
            used += gap
        current.extend(part)
        used += size_
    if current:
        rows.append(tuple(current))
    return rows


def wrap_text(text: str, width: int, most: int) -> list[str]:
    """`text` broken at spaces into at most `most` lines of `width` cells, the last cut with an ellipsis."""
    words = text.split()
    lines: list[str] = []
    current = ""
    for number, word in enumerate(words):
        joined = f"{current} {word}" if current else word
        if cell_len(joined) <= width or not current:
            current = joined
            continue
        if len(lines) == most - 1:
            rest = " ".join([current, *words[number:]])
            return [*lines, fit_text(rest, width).rstrip()]
        lines.append(fit_text(current, width).rstrip())
        current = word
    if current:
        lines.append(fit_text(current, width).rstrip())
    return lines
