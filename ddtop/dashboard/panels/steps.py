"""Proposed steps, each with its reason and the exact thing it touches; any can be left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ddtop.dashboard.paint import Line, line, selected, wrap_text
from ddtop.dashboard.text import duration
from ddtop.events import Step


def steps_lines(steps: Sequence[Step], left_out: Collection[str], cursor: int, width: int) -> list[Line]:
    """The steps in order: a box (will be done or left out), title, then reason and detail below it."""
    out: list[Line] = []
    for number, step in enumerate(steps):
        out_of_it = step.id in left_out
        box = "[ ] left out" if out_of_it else "[x]"
        ask = "  needs your consent" if step.needs_consent else ""
        head = line(
            ("› " if number == cursor else "  ", "key"),
            (f"{box} ", "dim" if out_of_it else "ok"),
            (f"{number + 1}. {step.title}", "dim" if out_of_it else "value"),
            (ask, "warn"),
        )
        out.append(selected(head) if number == cursor else head)
        out.extend(
            line(("       because ", "dim"), (row, "label"))
            if at == 0
            else line("               ", (row, "label"))
            for at, row in enumerate(wrap_text(step.reason, width - 16, 3))
        )
        if step.detail:
            out.extend(line("       ", (row, "dim")) for row in wrap_text(step.detail, width - 8, 2))
    return out


def countdown_line(answer_by_s: float | None, now_s: float) -> Line:
    """When the policy decides if nobody does."""
    if answer_by_s is None:
        return line(("nothing is done until you decide", "dim"))
    left = max(0.0, answer_by_s - now_s)
    if left <= 0:
        return line(("the policy decides now", "warn"))
    return line(("without an answer the policy decides in ", "label"), (duration(left), "warn"))
