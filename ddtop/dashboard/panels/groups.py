"""Results by group of prompts: configurations × groups, speed-up with the acceptance length beneath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddtop.bench.worth.groups import NOTE, GroupField, GroupTable, group_tables, long_rows, pays_words
from ddtop.dashboard.draw.fields import gain_role, gain_text
from ddtop.dashboard.draw.paint import Item, Line, fit_text, line, wrap_text
from ddtop.dashboard.draw.text import UNKNOWN
from ddtop.journal.fold.state import State

NONE = "No result has groups yet: the first finished cell of a workload with a dataset brings them."
LEAST, MOST = 9, 20
"""Width of a group's column."""


def groups_items(state: State, baseline: str | None, width: int) -> list[Item]:
    """All tables, one below the other; groups that do not fit beside each other make another band."""
    out: list[Item] = []
    tables = group_tables(state, baseline)
    for table in tables:
        out += [Item(())] if out else []
        out.append(Item(line(("  ", "label"), (table.place.label, "title"), (_how(table), "dim"))))
        name = max(10, min(24, max(len(row.config) for row in table.rows) + 2))
        each = max(LEAST, min(MOST, max(map(len, table.groups)) + 2))
        beside = max(1, (width - name - 2) // each)
        for first in range(0, len(table.groups), beside):
            band = range(first, min(first + beside, len(table.groups)))
            out.append(Item(_head(table, band, name, each)))
            for row in table.rows:
                fields = [row.fields[place] for place in band]
                key = next((f.cell.ids[0] for f in fields if f is not None and f.cell.ids), None)
                title = (fit_text(row.config, name), "accent" if row.baseline else "value")
                out.append(Item(line("  ", title, *(_speed(f, row.baseline, each) for f in fields)), key))
                out.append(Item(line("  ", fit_text("", name), *(_length(f, each) for f in fields))))
        if table.unsaid:
            out.append(Item(line((f"  {NOTE}", "dim"))))
    for text in pays_words(tables):
        head = not text.startswith(" ")
        out += [Item(())] if head else []
        for number, part in enumerate(wrap_text(text, width - 8, 4)):
            indent = "  " if head and not number else "    " if head or not number else "      "
            out.append(Item(line(indent, (part, "label" if head else "value"))))
    return out or [Item(line((NONE, "dim")))]


def _how(table: GroupTable) -> str:
    base = f"tok/s of a request, × {table.baseline}" if table.baseline else "tok/s of a request"
    return f"   {base}; beneath: acceptance length"


def _head(table: GroupTable, band: Sequence[int], name: int, each: int) -> Line:
    cells = [(fit_text(table.groups[place], each - 1, right=True) + " ", "label") for place in band]
    return line(("  " + " " * name, "label"), *cells)


def _speed(field: GroupField | None, baseline: bool, each: int) -> tuple[str, str]:
    if field is None or field.cell.value is None:
        return fit_text(UNKNOWN, each - 1, right=True) + " ", "dim"
    gain = "" if baseline else gain_text(field.cell, 2)
    text, role = (gain, gain_role(field.cell)) if gain else (f"{field.cell.value:.1f}", "dim")
    doubt = "?" if field.cell.validity == "SUSPECT" else " "
    return fit_text(text, each - 1, right=True) + doubt, role


def _length(field: GroupField | None, each: int) -> tuple[str, str]:
    text = "" if field is None else "n/a" if field.unsaid else UNKNOWN  # without speculation there is none
    if field is not None and field.acceptance is not None:
        text = f"{field.acceptance:.2f}"
    return fit_text(text, each - 1, right=True) + " ", "dim"


def groups_tsv(state: State) -> str:
    """One row for each cell and group, as tab-separated values."""
    rows: list[dict[str, Any]] = long_rows(state.plan_cells)
    head = list(rows[0]) if rows else []
    lines = ["\t".join("" if row[name] is None else str(row[name]) for name in head) for row in rows]
    return "\n".join(["\t".join(head), *lines])
