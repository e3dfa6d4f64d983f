"""Which plot is shown, as a line that names its keys, and what each key changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ddtop.charts.axes import METRICS, PLACES
from ddtop.charts.kinds import PICTURES, SEARCH
from ddtop.charts.make import Choice
from ddtop.charts.model import Chart
from ddtop.charts.names import Names
from ddtop.charts.searches import OTHERS, SHARE
from ddtop.dashboard.draw.paint import Line, Span, crop, line, width_of

Part = Literal["what", "x", "y", "by"]


def turned(choice: Choice, shown: Chart | None, names: Names, part: Part, step: int) -> Choice:
    """The choice with the next (or previous) picture, axis or split; another picture has its own axes again."""
    if part == "what":
        return Choice(_next(tuple(PICTURES), choice.what, step))
    usual = PICTURES[choice.what]
    x, y, by = shown.drawn_by if shown is not None else (usual.x[0], usual.y[0], "config")
    now, known = {
        "x": (choice.x or x, names.x),
        "y": (choice.y or y, names.y),
        "by": (choice.by or by, [name for name in names.varied if name != (choice.x or x)]),
    }[part]
    if choice.what == SEARCH:
        known = (SHARE, *OTHERS) if part == "y" else ()
    if not known:
        return choice
    following = _next(known, now, step)
    if part == "x":
        return replace(choice, x=following)
    return replace(choice, y=following) if part == "y" else replace(choice, by=following)


def _next(known: Sequence[str], now: str, step: int) -> str:
    return known[(known.index(now) + step) % len(known)] if now in known else known[0 if step > 0 else -1]


def choice_line(choice: Choice, shown: Chart | None, width: int) -> Line:
    """What is drawn, and the key of each part: `d plot throughput 1/9  X x concurrency  Y y throughput  i by config  F save SVG`."""
    x, y, by = shown.drawn_by if shown is not None else (choice.x or "…", choice.y or "…", choice.by or "…")
    number = list(PICTURES).index(choice.what) + 1
    what = f"{choice.what} {number}/{len(PICTURES)}" if choice == Choice(choice.what) else "own axes"
    for say in (_name, str):  # the names that `--x` takes are shorter
        made = _line(
            [("d", f"plot {what}"), ("X", f"x {say(x)}"), ("Y", f"y {say(y)}"), ("i", f"by {say(by)}")]
        )
        if width_of(made) + len(" F save") <= width:
            break
    return crop(
        (*made, Span(" F ", "key", "key:F"), Span("save SVG" if width >= 100 else "save", "label", "key:F")),
        width,
    )


def _line(parts: Sequence[tuple[str, str]]) -> Line:
    spans: list[Span] = []
    for key, words in parts:
        label, _, value = words.partition(" ")
        spans += [
            Span(f" {key} ", "key", f"key:{key}"),
            Span(label + " ", "label", f"key:{key}"),
            Span(value + " ", "value", f"key:{key}"),
        ]
    return line(*spans)


def _name(name: str) -> str:
    kind = METRICS.get(name) or PLACES.get(name)
    return kind.label if kind is not None else name.replace("_", " ")
