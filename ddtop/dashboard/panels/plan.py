"""The plan as it stands: what is done, what will run, what was left out and why."""

from __future__ import annotations

from ddtop.dashboard.draw.paint import Item, Line, line
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, day_time, duration, rate
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.eta import sweep_eta
from ddtop.journal.read.select import counts, metric_value, short_count, starts_of
from ddtop.words import many

FACTS = ("done", "running", "planned", "failed", "broken", "skipped", "interrupted")


def plan_head(state: State, now_s: float) -> list[Line]:
    """Counts, what is left and how long it takes."""
    if not state.plan_cells:
        return [line(("No plan: this host is only watched.", "dim")), ()]
    tally = counts(state.plan_cells)
    parts: list[tuple[str, str]] = [(f"{many(tally.total, 'cell')}  ", "value")]
    for name in FACTS:
        number = getattr(tally, name)
        if number:
            parts.append((f"{CELL_GLYPH[name]} {number} {name}  ", CELL_ROLE[name]))
    left = sweep_eta(state, now_s)
    if left.cells:
        end_s = left.ends_by(now_s)
        by = f", done by {day_time(end_s, now_s)}" if end_s is not None else ""
        text = f"left: {many(left.cells, 'cell')}, {many(left.restarts, 'restart')}, {left.words}{by}"
    else:
        text = "Nothing is left to run."
    races = [line((race.words, "label")) for race in state.races[-1:]]
    return [line(*parts), line((text, "label")), *races, ()]


def plan_items(state: State) -> list[Item]:
    """One line a cell in running order, under a line for each restart."""
    out: list[Item] = []
    key: str | None = None
    for cell in state.plan_cells:
        if cell.spec.restart_key != key:
            key = cell.spec.restart_key
            out.append(Item(_start_line(state, cell)))
        out.append(Item(cell_line(cell), cell.id))
    hidden = [cell for cell in state.cells.values() if cell.hidden]
    if hidden:
        out.append(
            Item(
                line(
                    (
                        f"{many(len(hidden), 'cell')} from an earlier version of the plan; the results are kept",
                        "dim",
                    )
                )
            )
        )
    return out


def _start_line(state: State, cell: CellView) -> Line:
    spec = cell.spec
    parts: list[tuple[str, str]] = [(f"{spec.config} tp{spec.tp}", "title")]
    if spec.start:
        parts.append((f" start {spec.start + 1}", "label"))
    if spec.baseline:
        parts.append((" baseline", "accent"))
    mine = starts_of(state, spec)
    if mine:
        last = mine[-1]
        if last.stuck is not None:
            parts.append((f"  ✗ not started after {duration(last.failed_after_s)}", "bad"))
        elif last.outcome == "ready":
            parts.append((f"  ✓ ready in {duration(last.ready_s)}", "ok"))
        elif last.outcome == "failed":
            parts.append((f"  ✗ {last.verdict}: {last.cause}", "bad"))
        elif last.outcome == "running":
            parts.append(("  ▶ starting", "run"))
    return line(*parts)


def cell_line(cell: CellView) -> Line:
    """One cell with its state, result and reason."""
    spec = cell.spec
    what = f"{spec.workload}@{spec.output_tokens}"
    rest = f"{short_count(spec.context)} ctx" if spec.context else ""
    value = metric_value(cell.metrics, "output_tok_s") if cell.state == "done" else None
    tries = f" · {len(cell.attempts)} attempts" if len(cell.attempts) > 1 else ""
    why = cell.reason or cell.spec.skip_reason or ", ".join(cell.reasons)
    mark = f" {cell.validity}" if cell.validity not in (None, "VALID") else ""
    return line(
        (f"  {CELL_GLYPH[cell.state]} {cell.state:<12}", CELL_ROLE[cell.state]),
        (f"{what:<18}", "text"),
        (f"{rest:<9} {spec.load_name:<5}", "dim"),
        (f" #{spec.repeat} " if spec.repeat else "", "dim"),
        ("sentinel " if spec.sentinel else "", "dim"),
        (f"{rate(value):>8} tok/s" if value is not None else " " * 14, "value"),
        (mark, "warn"),
        (f"  {why}" if why else "", "label"),
        (tries, "dim"),
    )
