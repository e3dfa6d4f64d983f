"""Everything about one cell: its workload, its measurement under way, its result, what happened over time, its tries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddtop.bench.worth.sure import meaning
from ddtop.dashboard.draw.ladder import ladder_lines
from ddtop.dashboard.draw.paint import Line, line, wrap_text
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, clock, duration
from ddtop.dashboard.panels.cell.live import live_lines
from ddtop.dashboard.panels.cell.over_time import over_time_lines, power_lines
from ddtop.dashboard.panels.cell.result import (
    distribution_lines,
    quality_lines,
    response_lines,
    result_lines,
    turn_lines,
)
from ddtop.dashboard.panels.cell.title import cell_title, load_fact
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import remaining
from ddtop.journal.results.field import Matrix
from ddtop.journal.results.per_gpu import GpuPoint
from ddtop.words import many

VALIDITY_ROLE = {"VALID": "ok", "SUSPECT": "warn", "INVALID": "bad"}


LIVE_HEIGHT = 20
"""Lines of the measurement under way, at most."""


def cell_lines(
    state: State,
    cell: CellView,
    shown: Matrix,
    width: int,
    per_gpu: Sequence[GpuPoint] = (),
    now_s: float | None = None,
) -> list[Line]:
    """All of it, as lines. `now_s`: wall time of what is shown; None: that of the last event."""
    out = [_state_line(cell)]
    running = cell.state == "running" and not (cell.attempts and cell.attempts[-1].measured_at_s)
    if running:
        now = now_s if now_s is not None else state.at_s
        live = live_lines(state, cell, now, width - 2, LIVE_HEIGHT, ladder=False)
        out.extend([(), line(("Measuring", "title")), *((*line("  "), *row) for row in live)])
    out.extend(_reason_lines(cell, width))
    out.extend(_workload_lines(state, cell))
    out.extend(ladder_lines(cell, width))
    if cell.metrics:
        out.extend([(), *result_lines(cell, shown, per_gpu)])
    if not running:
        out.extend(over_time_lines(state, cell, width))
    if cell.metrics:
        out.extend(distribution_lines(cell.metrics, width))
        out.extend(turn_lines(cell.metrics))
        out.extend(quality_lines(cell.metrics, width))
        out.extend(response_lines(state, cell, width))
    out.extend(power_lines(state, cell, width))
    out.extend(_attempt_lines(cell, width))
    out.extend(_server_lines(cell, width))
    return out


def _state_line(cell: CellView) -> Line:
    parts: list[tuple[str, str]] = [(f"{CELL_GLYPH[cell.state]} {cell.state}", CELL_ROLE[cell.state])]
    if cell.validity is not None:
        parts.append((f"  {cell.validity}", VALIDITY_ROLE[cell.validity]))
    if cell.state_at_s is not None:
        parts.append((f"  since {clock(cell.state_at_s)} by {cell.by}", "dim"))
    if cell.seconds is not None:
        parts.append((f"  took {duration(cell.seconds)}", "dim"))
    return line(*parts)


def _workload_lines(state: State, cell: CellView) -> list[Line]:
    """The cell's workload, and when it runs where it has not run yet."""
    spec = cell.spec
    facts = [
        ("prompts", f"{spec.workload}, {many(spec.output_tokens, 'output token')} per request"),
        ("context", f"{many(spec.context, 'token')} before the prompt" if spec.context else "none"),
        load_fact(spec),
    ]
    if spec.shape:
        facts.insert(1, ("shape", spec.shape))
    if cell.state in ("planned", "interrupted"):
        left = [c.id for c in remaining(state)]
        before = left.index(cell.id) if cell.id in left else 0
        facts.append(("runs", f"after {many(before, 'other cell')}" if before else "next"))
    out: list[Line] = [(), line(("Workload", "title"))]
    out.extend(line((f"  {name:<12}", "label"), (value, "text")) for name, value in facts)
    return out


def _reason_lines(cell: CellView, width: int) -> list[Line]:
    """Why it is in its state, and each doubt about its result in words."""
    texts = [cell.reason] if cell.reason != "; ".join(cell.reasons) else []
    for name in cell.reasons:
        words = meaning(name)
        texts.append(f"{name}: {words}" if words != name else name)
    return [
        line("  ", (row, "label"))
        for text in dict.fromkeys(texts)
        if text
        for row in wrap_text(text, width - 2, 3)
    ]


def _attempt_lines(cell: CellView, width: int) -> list[Line]:
    if not cell.attempts:
        return []
    out: list[Line] = [(), line(("Attempts", "title"))]
    for attempt in cell.attempts:
        word = attempt.state or "running"
        why = attempt.reason or ", ".join(attempt.reasons)
        head = f"  {attempt.number}  {clock(attempt.started_at_s)}  {duration(attempt.seconds):>7}  "
        rows = wrap_text(why, max(10, width - len(head) - 14), 2) or [""]
        out.append(
            line((head, "dim"), (f"{CELL_GLYPH[word]} {word:<12}", CELL_ROLE[word]), (rows[0], "label"))
        )
        out.extend(line(" " * (len(head) + 14), (row, "label")) for row in rows[1:])
    return out


def _server_lines(cell: CellView, width: int) -> list[Line]:
    facts = [
        ("engine", f"{cell.engine} {cell.engine_version or ''}".strip()),
        ("driver", cell.driver or ""),
        ("generation", cell.generation.id if cell.generation is not None else ""),
        ("cell id", cell.id),
    ]
    out: list[Line] = [(), line(("Server", "title"))]
    out.extend(line((f"  {name:<12}", "label"), (value, "text")) for name, value in facts if value)
    return out


def metrics_rows(cell: CellView) -> Sequence[str]:
    """The cell's metrics as tab-separated lines, for copying."""
    rows = [f"cell\t{cell_title(cell)}", f"state\t{cell.state}", f"validity\t{cell.validity or ''}"]

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        else:
            rows.append(f"{prefix}\t{value}")

    walk("", cell.metrics)
    return rows
