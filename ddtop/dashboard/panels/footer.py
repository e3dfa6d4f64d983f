"""The bottom line: the keys valid now, the most useful first, as many as fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ddtop.dashboard.draw.paint import Line, Span


@dataclass(frozen=True)
class Hint:
    """One key and what it does. `always` ones are kept when room is short."""

    key: str
    label: str
    always: bool = False


def footer_line(hints: Sequence[Hint], width: int) -> Line:
    """Hints in one line. The last ones go first, but never those that are `always` there."""
    kept = list(hints)
    while _width(kept) > width:
        loose = [hint for hint in kept if not hint.always]
        if not loose:
            break
        kept.remove(loose[-1])
    spans: list[Span] = [Span(" ")]
    for hint in kept:
        spans.append(Span(hint.key, "key", f"key:{hint.key}"))
        spans.append(Span(f" {hint.label}  ", "label", f"key:{hint.key}"))
    return tuple(spans)


def _width(hints: Sequence[Hint]) -> int:
    return 1 + sum(cell_len(hint.key) + cell_len(hint.label) + 3 for hint in hints)
