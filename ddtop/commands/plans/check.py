"""`plan check` and `plan show`: a plan file, checked or listed. They reach no host."""

from __future__ import annotations

from pathlib import Path

from ddtop.words import many


def check_plan(plan: Path) -> str:
    """One line for a plan without errors, its warnings below. Raises PlanError with every error at once."""
    from ddtop.plan import check_plan as check
    from ddtop.plan import expand

    read, warnings = check(plan)
    cells = expand(read)
    starts = len({c.spec.restart_key for c in cells})
    lines = [f"{plan}: no errors: {many(len(cells), 'cell')}, {many(starts, 'server start')}"]
    return "\n".join(lines + [f"  warning: {w}" for w in warnings])


def show_plan(plan: Path) -> str:
    """The cells, the server starts and, where there is history, the estimated time. Raises PlanError."""
    from ddtop.journal.history.store import History
    from ddtop.plan import check_plan as check
    from ddtop.plan import show

    read, warnings = check(plan)
    with History() as history:
        model = read.model.name or read.model.path if read.model else ""
        prior = history.prior(host=read.host or "", model=model, engine=read.service.engine)
        text = show(read, prior)
    return "\n".join([text.rstrip("\n"), *(f"warning: {w}" for w in warnings)])
