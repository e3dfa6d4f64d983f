"""Proposed steps, each with its reason and the exact thing it touches; any can be left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from ddtop.dashboard.draw.paint import Line, line, selected, wrap_text
from ddtop.dashboard.draw.text import duration
from ddtop.events import Step, StepsPlanned
from ddtop.journal.fold.state import State

StepState = Literal["started", "done", "failed", "left-out"]

MARK: dict[StepState, tuple[str, str]] = {
    "started": ("▶ running", "run"),
    "done": ("✓ done", "ok"),
    "failed": ("✗ failed", "bad"),
    "left-out": ("– left out", "dim"),
}


def taken(state: State, plan: StepsPlanned | None) -> dict[str, StepState]:
    """Step id → what became of it, for the steps of `plan`."""
    if plan is None:
        return {}
    return {step: view.state for (plan_id, step), view in state.steps.items() if plan_id == plan.plan_id}


def under_way_line(state: State, plan: StepsPlanned) -> Line:
    """`▶ step 2 of 3: restart …` for a plan that is being done."""
    states = taken(state, plan)
    for number, step in enumerate(plan.steps, 1):
        if states.get(step.id) not in ("done", "left-out"):
            return line((f"▶ step {number} of {len(plan.steps)}: ", "run"), (step.title, "value"))
    return line((f"✓ {len(plan.steps)} steps done", "ok"))


def steps_lines(
    steps: Sequence[Step],
    left_out: Collection[str],
    cursor: int | None,
    width: int,
    states: Mapping[str, StepState] | None = None,
) -> list[Line]:
    """The steps in order: a box (will be done or left out) or what became of it, title, reason and detail.

    `states` is given once the steps are being done; `cursor` is None where nothing can be chosen.
    """
    out: list[Line] = []
    for number, step in enumerate(steps):
        gone = step.id in left_out
        if states is not None:
            state = states.get(step.id)
            box, role = MARK[state] if state is not None else ("· waiting", "dim")
        else:
            box, role = ("[ ] left out", "dim") if gone else ("[x]", "ok")
        ask = "  needs approval" if step.needs_consent and states is None else ""
        head = line(
            ("› " if number == cursor else "  ", "key"),
            (f"{box} ", role),
            (f"{number + 1}. {step.title}", "dim" if gone else "value"),
            (ask, "warn"),
        )
        out.append(selected(head) if number == cursor else head)
        for at, row in enumerate(wrap_text(step.reason, width - 16, 3)):
            out.append(line("       because " if at == 0 else " " * 15, (row, "label")))
        if step.detail:
            out.extend(line("       ", (row, "dim")) for row in wrap_text(step.detail, width - 8, 2))
    return out


def countdown_line(answer_by_s: float | None, now_s: float) -> Line:
    """When the policy decides if you do not."""
    if answer_by_s is None:
        return line(("These steps need no approval and start at once.", "dim"))
    left = max(0.0, answer_by_s - now_s)
    if left <= 0:
        return line(("The policy decides now.", "warn"))
    return line(("If you do not answer, the policy decides in ", "label"), (duration(left), "warn"))
