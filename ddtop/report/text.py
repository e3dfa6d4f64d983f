"""Matrices of results as plain text. Every form of report writes its fields by `field`."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from ddtop.events import CellState
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import DEFAULT_METRIC, Column, tps
from ddtop.journal.results.field import Matrix, MatrixCell, Rank
from ddtop.journal.results.matrix import matrix
from ddtop.stats.spread import Basis

WORDS: dict[CellState, str] = {
    "planned": "·",
    "running": "▶ running",
    "failed": "✗ failed",
    "broken": "✗ broken",
    "skipped": "– skipped",
    "interrupted": "‖ interrupted",
    "done": "no value",
}
"""Shown where there is no number: glyph and word, never colour alone."""
STARS: dict[Rank, str] = {"best": "★", "maybe": "☆", "": ""}
BASIS: dict[Basis, str] = {
    "starts": "between starts",
    "inside": "inside one start only: other starts may differ more",
}
REASON = 24
"""Characters of a reason that a field has room for; a longer one stands below the table."""
WIDEST = 8
"""Loads beside each other that a page of 1,280 px and a sheet of paper hold."""
NAMED = 6
"""Configurations that the legend names for one reason."""


def number(value: float) -> str:
    """A number with about three figures: 143, 26.3, 0.451."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def field(cell: MatrixCell | None, *, baseline: bool = False) -> str:
    """One field: `143 (5.5×)` with its marks, or the cell's state where there is no number."""
    if cell is None:
        return ""
    if cell.value is None or (cell.state in ("broken", "failed") and not cell.n):
        reason = " ".join(cell.reason.split())
        told = reason and cell.state in ("broken", "failed", "skipped") and len(reason) <= REASON
        return f"{WORDS[cell.state]}{f': {reason}' if told else ''}"
    text = number(cell.value)
    if cell.low is not None and cell.high is not None:
        text += f" [{number(cell.low)}–{number(cell.high)}]"
    if cell.speedup is not None and not baseline:
        alike = " ≈" if cell.differs is False else ""
        text += f" ({cell.speedup:.2f}×{alike})" if cell.speedup < 2 else f" ({cell.speedup:.1f}×{alike})"
    if cell.validity in ("SUSPECT", "INVALID"):
        text += f" {'?' if cell.validity == 'SUSPECT' else '!'} {cell.validity}"
    if cell.mixed_versions:
        text += " other version"
    if cell.state in ("broken", "failed"):  # in one of its starts or repeats; the value is of the others
        text += f" {WORDS[cell.state]} once"
    return text


def table(view: Matrix, loads: Sequence[Column] = ()) -> list[list[str]]:
    """Header and rows of a matrix as text; the first column is the configuration. `loads`: all loads among which a column's
    name must be clear."""
    head = [f"tp{view.tp}", *(column.label(loads or view.columns) for column in view.columns)]
    rows = [
        [f"{row.config} (baseline)" if row.baseline else row.config]
        + [
            f"{STARS[cell.rank] if cell is not None else ''} {field(cell, baseline=row.baseline)}".strip()
            for cell in row.cells
        ]
        for row in view.rows
    ]
    return [head, *rows]


def pieces_of(columns: Sequence[Column]) -> list[list[int]]:
    """The columns in groups of at most WIDEST: all of them, else by workload, else by context too."""
    groups: list[list[int]] = [list(range(len(columns)))]
    for keys in (2, 3):
        if all(len(group) <= WIDEST for group in groups):
            break
        by: dict[tuple[object, ...], list[int]] = {}
        for index, column in enumerate(columns):
            by.setdefault(column[:keys], []).append(index)
        groups = list(by.values())
    return [group[i : i + WIDEST] for group in groups for i in range(0, len(group), WIDEST)]


def folded(view: Matrix) -> tuple[Matrix, list[str]]:
    """The matrix without loads and configurations of which nothing was measured or tried, and a line on each reason."""
    cells = {
        (row.config, column): cell
        for row in view.rows
        for column, cell in zip(view.columns, row.cells, strict=True)
        if cell is not None
    }
    tried = {
        place for place, c in cells.items() if c.value is not None or c.state not in ("skipped", "planned")
    }
    columns = [c for c in view.columns if any(column == c for _, column in tried)]
    rows = [r for r in view.rows if any(config == r.config for config, _ in tried)]
    kept = tuple(
        replace(r, cells=tuple(c for c, col in zip(r.cells, view.columns, strict=True) if col in columns))
        for r in rows
    )
    whys: dict[str, dict[str, None]] = {}
    lost = [c for c in view.columns if c not in columns]
    names = [(c.label(view.columns), [cell for (_, col), cell in cells.items() if col == c]) for c in lost]
    names += [
        (r.config, [cell for (n, _), cell in cells.items() if n == r.config])
        for r in view.rows
        if r not in rows
    ]
    for name, mine in names:
        said = dict.fromkeys(f"skipped: {c.reason}" if c.reason else c.state for c in mine)
        whys.setdefault(", ".join(said).replace("planned", "not measured"), {})[name] = None
    lines = [f"Nothing measured ({why}): {', '.join(mine)}" for why, mine in whys.items()]
    return replace(view, columns=tuple(columns), rows=kept), lines


def render_table(
    state: State,
    tp: int | None = None,
    metric: str = DEFAULT_METRIC,
    baseline: str | None = None,
    width: int | None = None,
) -> str:
    """The results for a terminal: one table for each TP (or one). Where `width` columns do not hold it, the loads go on
    below: no field is cut."""
    wanted = [tp] if tp is not None else tps(state)
    parts: list[str] = []
    views = [matrix(state, each, metric, baseline) for each in wanted]
    for each, whole in zip(wanted, views, strict=True):
        view, lost = folded(whole)
        against = f", × {view.baseline}" if view.baseline else ""
        blocks = (
            ["\n".join(aligned(rows)) for rows in split(table(view, whole.columns), width)]
            if view.columns
            else []
        )
        parts.append("\n\n".join([f"{metric} · tp{each}{against}", *blocks]).replace("\n\n", "\n", 1))
        parts += ["\n".join(wrapped(line, width) for line in lost)] if lost else []
    notes = legend(views)
    if notes:
        parts.append("\n".join(wrapped(line, width) for line in notes.splitlines()))
    return "\n\n".join(parts) or "no cells: nothing was planned in this run"


def split(rows: Sequence[Sequence[str]], width: int | None) -> list[list[list[str]]]:
    """The table as tables of at most `width` columns of a terminal, each with the first column; a wider field stays whole."""
    if width is None or not rows:
        return [[list(row) for row in rows]]
    sizes = [max(cells(row[i]) for row in rows) for i in range(len(rows[0]))]
    groups: list[list[int]] = []
    room = 0
    for index in range(1, len(sizes)):
        if not groups or room < sizes[index] + 2:
            groups.append([])
            room = width - sizes[0]
        groups[-1].append(index)
        room -= sizes[index] + 2
    return [[[row[i] for i in (0, *group)] for row in rows] for group in groups or [[]]]


def wrapped(line: str, width: int | None) -> str:
    """A sentence broken at spaces, its further lines indented."""
    return (
        line
        if width is None
        else "\n".join(textwrap.wrap(line, max(20, width), subsequent_indent="  ") or [""])
    )


def legend(views: Sequence[Matrix]) -> str:
    """Words for the marks that occur in these tables, and the reasons behind them."""
    named = [
        (row.config, cell) for view in views for row in view.rows for cell in row.cells if cell is not None
    ]
    cells = [cell for _, cell in named]
    lines: list[str] = []
    bases = {c.basis for c in cells if c.low is not None}
    if not bases and any(c.n for c in cells):
        lines.append("no intervals: one measurement of each, so the spread is not known")
    if bases:
        lines.append("[…]: 95% interval by the spread " + " or ".join(BASIS[b] for b in BASIS if b in bases))
    if any(c.rank == "best" for c in cells):
        lines.append("★ the best of its load, sure: every other clearly differs from it")
    if any(c.rank == "maybe" for c in cells):
        lines.append("☆ the best of its load, or not clearly different from it: not sure")
    unlike = {config: cell.unlike for config, cell in named if cell.unlike}
    lines += [f"{config}: {words}, so × compares unlike work" for config, words in unlike.items()]
    if any(c.differs is False for c in cells):
        lines.append("≈ not different from the baseline")
    lines += [aa_words(view) for view in views if view.aa is not None]
    for validity, mark in (("SUSPECT", "?"), ("INVALID", "!")):
        whose: dict[str, dict[str, None]] = {}
        for config, cell in named:
            for reason in cell.reasons if cell.validity == validity else ():
                whose.setdefault(reason, {})[config] = None
        if whose:
            every = len(dict.fromkeys(config for config, _ in named))
            lines.append(
                f"{mark} {validity}: {', '.join(_whose(r, list(c), every) for r, c in whose.items())}"
            )
    long: dict[str, dict[str, None]] = {}
    for config, cell in named:
        if cell.state in ("broken", "failed", "skipped") and len(cell.reason) > REASON:
            long.setdefault(f"{WORDS[cell.state]}: {' '.join(cell.reason.split())}", {})[config] = None
    lines += [f"{', '.join(configs)} {why}" for why, configs in long.items()]
    if any(c.mixed_versions for c in cells):
        lines.append("other version: the engine was not of the baseline's version")
    return "\n".join(lines)


def aa_words(view: Matrix) -> str:
    """What the baseline differs from itself by, where the plan measures it twice."""
    if view.aa is None or view.aa.ratio is None:
        return ""
    floor = f"{100 * abs(view.aa.ratio - 1):.1f}%"
    interval = ""
    if view.aa.low is not None and view.aa.high is not None:
        interval = f" (95% interval {100 * view.aa.low - 100:+.1f} to {100 * view.aa.high - 100:+.1f}%)"
    itself = f"A/A: {view.baseline} differs from itself by up to {floor}{interval}"
    return f"{itself}: less than that counts as no difference"


def _whose(reason: str, configs: Sequence[str], every: int) -> str:
    """`answers-differ (b15, b16)`: the configurations with this reason, where not all have it."""
    if len(configs) == every > 1:
        return f"{reason} (all)"
    more = f" and {len(configs) - NAMED} more" if len(configs) > NAMED else ""
    return f"{reason} ({', '.join(configs[:NAMED])}{more})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with their columns under each other."""
    widths = [max(cells(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        "  ".join(
            text + " " * (width - cells(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def cells(text: str) -> int:
    """Columns of a terminal that `text` takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
