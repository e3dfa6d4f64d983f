"""Results by group of prompts: a heat table for the page, and rows in long form for notebooks."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from ddtop.bench.worth.groups import LONG, NOTE, GroupField, GroupTable, group_tables, long_rows, pays_words
from ddtop.journal.fold.state import State
from ddtop.report.conclusion.words import times
from ddtop.report.page.grid import Field, Grid, kind_of_field, words_of
from ddtop.report.recording import Recording
from ddtop.report.rows import plain_value
from ddtop.report.text import number

TITLE = "By group of prompts"
HOW = (
    "tok/s of a request (mean), its ratio to the baseline's, and tokens a verification step. Each group's figures are of whole "
    "passes through its prompts."
)


def group_grids(state: State, baseline: str | None) -> list[dict[str, Any]]:
    """Tables as the page takes them; none where no result has groups."""
    by_workload: dict[str, list[GroupTable]] = {}
    for table in group_tables(state, baseline):
        name = f"{TITLE} · {table.place.workload}@{table.place.output_tokens}"
        by_workload.setdefault(name + (f", × {table.baseline}" if table.baseline else ""), []).append(table)
    return [
        {
            "title": title,
            "open": True,
            "grids": [_grid(table) for table in tables],
            "notes": "\n".join(
                [HOW, *([NOTE] if any(table.unsaid for table in tables) else []), *pays_words(tables)]
            ),
        }
        for title, tables in by_workload.items()
    ]


def _grid(table: GroupTable) -> Grid:
    rows = tuple(
        (row.config, row.baseline, tuple(_field(field, baseline=row.baseline) for field in row.fields))
        for row in table.rows
    )
    return Grid(table.place.load_label, table.groups, rows)


def _field(field: GroupField | None, *, baseline: bool) -> Field:
    if field is None or field.cell.value is None:
        return Field("n/a", kind="none")
    cell = field.cell
    gain = "" if baseline else times(cell.against)
    length = "acceptance n/a" if field.unsaid else ""
    if field.acceptance is not None:
        length = f"{field.acceptance:.2f} tok/step"
    mark = "≈" if cell.differs is False and not baseline else ""
    mark = f"{mark} ? SUSPECT".strip() if cell.validity == "SUSPECT" else mark
    words = f"{field.requests} requests\n{words_of(cell)}".strip()
    return Field(
        gain or number(field.cell.value),
        length,
        mark,
        kind_of_field(cell, baseline),
        words=words,
        cell=cell.ids[0],
    )


def group_csv(recordings: Sequence[Recording]) -> str:
    """One row for each cell and group."""
    out = io.StringIO()
    writer = csv.DictWriter(out, ["recording", *LONG], lineterminator="\n", restval="")
    writer.writeheader()
    for recording in recordings:
        for row in long_rows(recording.state.cells.values()):
            named = {"recording": recording.name, **row}
            writer.writerow({name: plain_value(value) for name, value in named.items()})
    return out.getvalue()
