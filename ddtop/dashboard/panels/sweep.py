"""The sweep matrix: configurations × workloads, with the speed-up against the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.dashboard.draw.paint import Line, Span, crop, fit_text, line, pad, selected, width_of
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, SPINNER, bar, rate, times
from ddtop.journal.fold.state import State
from ddtop.journal.read.matrix import Matrix, MatrixCell, Row
from ddtop.journal.read.select import Column, short_count
from ddtop.words import many

CONFIG_MAX = 18
WIDE, NARROW = 15, 11


@dataclass(frozen=True)
class Cursor:
    """Where the cursor stands in a matrix: row and column; column −1 is the configuration itself."""

    row: int = 0
    column: int = 0

    def moved(self, matrix: Matrix, down: int, right: int) -> Cursor:
        """The cursor moved within `matrix`."""
        row = min(max(0, self.row + down), max(0, len(matrix.rows) - 1))
        column = min(max(-1, self.column + right), max(0, len(matrix.columns) - 1))
        return Cursor(row, column)


def cell_at(matrix: Matrix, cursor: Cursor) -> MatrixCell | None:
    """The field under the cursor, or None where there is none."""
    if not 0 <= cursor.row < len(matrix.rows) or not 0 <= cursor.column < len(matrix.columns):
        return None
    return matrix.rows[cursor.row].cells[cursor.column]


def find(matrix: Matrix, cell_id: str) -> Cursor | None:
    """Where a cell stands in a matrix."""
    for row_number, row in enumerate(matrix.rows):
        for column_number, cell in enumerate(row.cells):
            if cell is not None and cell_id in cell.ids:
                return Cursor(row_number, column_number)
    return None


@dataclass(frozen=True)
class View:
    """How a matrix is laid out in a width: which columns are in sight and how wide each is."""

    head: int
    each: int
    first: int
    count: int


def layout(matrix: Matrix, width: int, cursor: Cursor) -> View:
    """Columns in sight, so that the cursor's is among them; wide ones where all fit."""
    head = min(CONFIG_MAX, max([len(row.config) for row in matrix.rows], default=6) + 3)
    room = max(NARROW, width - head)
    total = len(matrix.columns)
    each = WIDE if total * WIDE <= room else NARROW
    count = max(1, min(total, room // each))
    wanted = max(0, cursor.column)
    first = (
        max(0, min(wanted - count + 1 + min(1, total - 1 - wanted), total - count)) if wanted >= count else 0
    )
    return View(head, each, first, count)


def sweep_wants(matrix: Matrix) -> int:
    """Columns that the whole matrix takes."""
    head = min(CONFIG_MAX, max([len(row.config) for row in matrix.rows], default=6) + 3)
    return head + WIDE * len(matrix.columns)


def matrix_lines(
    matrix: Matrix, cursor: Cursor | None, width: int, height: int, now_s: float, busy: str | None = None
) -> list[Line]:
    """Header, rows in sight and a line about the cell under the cursor. `busy` is the configuration at work."""
    if not matrix.rows:
        return [line(("No plan: this host is only watched.", "dim"))]
    place = cursor or Cursor(0, 0)
    view = layout(matrix, width, place)
    header = header_lines(matrix, view, width)
    foot = 1 if height >= len(header) + 3 else 0
    room = max(1, height - len(header) - foot)
    first = max(0, min(place.row - room + 2, len(matrix.rows) - room)) if len(matrix.rows) > room else 0
    rows = [
        row_line(matrix, number, row, view, place if cursor else None, width, now_s, busy)
        for number, row in list(enumerate(matrix.rows))[first : first + room]
    ]
    hidden = len(matrix.rows) - room
    lines = [*header, *rows]
    if foot:
        lines.extend(_bars(matrix, place, width, height - foot - len(lines)))
        lines.extend([()] * (height - foot - len(lines)))
        more = f"  ({hidden} more rows)" if hidden > 0 else ""
        lines.append(crop(line(*detail_line(matrix, place), (more, "dim")), width))
    return lines


def _bars(matrix: Matrix, cursor: Cursor, width: int, room: int) -> list[Line]:
    """Where there is room below the matrix: the column under the cursor as bars, one a configuration."""
    column = max(0, cursor.column)
    if room < len(matrix.rows) + 3 or not matrix.columns:
        return []
    cells = [(row, row.cells[column]) for row in matrix.rows]
    top = max((c.value for _, c in cells if c is not None and c.value is not None), default=None)
    if not top:
        return []
    name = " ".join(word for word in column_words(matrix.columns[column], matrix.columns) if word)
    out: list[Line] = [(), line(("  " + name, "label"))]
    head = min(CONFIG_MAX, max(len(row.config) for row in matrix.rows) + 3)
    for row, cell in cells:
        label = (fit_text("  " + row.config, head), "accent" if row.baseline else "text")
        if cell is None or cell.value is None or cell.state == "broken":
            word = f"{CELL_GLYPH[cell.state]} {cell.state}" if cell is not None else ""
            out.append(line(label, (word, CELL_ROLE[cell.state] if cell is not None else "dim")))
            continue
        filled, _ = bar(cell.value / top, max(8, width - head - 16))
        gain = f" {times(cell.speedup)}" if cell.speedup is not None and not row.baseline else ""
        ink = "accent" if row.baseline else "bar"
        out.append(line(label, (filled, ink), (f" {rate(cell.value)}", "value"), (gain, "ok")))
    return out


def header_lines(matrix: Matrix, view: View, width: int) -> list[Line]:
    """One or two lines of column names: workload@tokens, then context and concurrency where they differ."""
    columns = matrix.columns[view.first : view.first + view.count]
    more = view.first + view.count < len(matrix.columns)
    top: list[Span] = [Span(fit_text("‹ " if view.first else "", view.head), "dim")]
    low: list[Span] = [Span(" " * view.head)]
    varied = len({(c.context, c.load_name) for c in matrix.columns}) > 1
    before = ""
    for column in columns:
        name, rest = column_words(column, matrix.columns)
        shown = name if name != before else ""
        before = name
        top.append(Span(fit_text(" " + shown, view.each), "label"))
        low.append(Span(fit_text(" " + rest, view.each), "dim"))
    if more:
        top.append(Span("›", "dim"))
    lines = [crop(tuple(top), width)]
    if varied:
        lines.append(crop(tuple(low), width))
    return lines


def column_words(column: Column, columns: tuple[Column, ...]) -> tuple[str, str]:
    """(`fib@256`, `8k ctx c8`): the second part holds only what differs among the columns."""
    parts = []
    if len({c.context for c in columns}) > 1 and column.context:
        parts.append(f"{short_count(column.context)} ctx")
    if len({c.load_name for c in columns}) > 1:
        parts.append(column.load_name)
    return f"{column.workload}@{column.output_tokens}", " ".join(parts)


def row_line(
    matrix: Matrix,
    number: int,
    row: Row,
    view: View,
    cursor: Cursor | None,
    width: int,
    now_s: float,
    busy: str | None,
) -> Line:
    """One configuration's row."""
    mark = "▶ " if row.config == busy else "  "
    role = "run" if row.config == busy else "value" if not row.baseline else "accent"
    head: Line = (
        Span(mark, "run", f"{number},-1"),
        Span(fit_text(row.config, view.head - 2), role, f"{number},-1"),
    )
    if cursor is not None and cursor.row == number and cursor.column == -1:
        head = selected(head)
    spans: list[Span] = list(head)
    for column in range(view.first, view.first + view.count):
        field = field_line(row.cells[column], row.baseline, view.each - 1, now_s, f"{number},{column}")
        if cursor is not None and (cursor.row, cursor.column) == (number, column):
            field = selected(field)
        spans.extend((Span(" "), *field))
    return crop(tuple(spans), width)


def field_line(cell: MatrixCell | None, baseline: bool, width: int, now_s: float, target: str) -> Line:
    """One field in exactly `width` cells: a result with its speed-up, or the state in glyph and word."""
    if cell is None:
        return (Span(" " * width, "dim"),)
    parts: Line
    if cell.state == "running":
        turn = SPINNER[int(now_s * 2) % len(SPINNER)]
        done = f"{cell.progress_pct:.0f} %" if cell.progress_pct is not None else cell.trying or "running"
        parts = line((f"{turn} {done}", "run"))
    elif cell.value is not None and (cell.state == "done" or cell.n):
        # another start or repeat of it may have gone wrong: its glyph stands behind the value
        glyph = (f" {CELL_GLYPH[cell.state]}", CELL_ROLE[cell.state]) if cell.state != "done" else ("", "dim")
        forms = (_result(cell, baseline), _result(cell, baseline, short=True), _result(cell, True))
        parts = next((f for f in forms if width_of(f) + len(glyph[0]) <= width), forms[-1]) + line(glyph)
    elif cell.state == "planned":
        parts = line(("·", "dim"))
    else:
        parts = line((f"{CELL_GLYPH[cell.state]} {cell.state}", CELL_ROLE[cell.state]))
    return tuple(span._replace(target=target) for span in pad(parts, width))


def _result(cell: MatrixCell, baseline: bool, *, short: bool = False) -> Line:
    """The value with its speed-up (not of a baseline); `short`: without digits after the point."""
    value = f"{cell.value:.0f}" if short and cell.value is not None else rate(cell.value)
    if cell.validity == "INVALID":
        return line((f"{value} ", "dim"), ("✗inval", "bad"))
    mark = "?" if cell.validity == "SUSPECT" else ""
    number = (f"{value}{mark}", "warn" if mark else "value")
    if baseline or cell.speedup is None:
        return line(number)
    if cell.differs is False:
        return line(number, (" (≈)", "dim"))
    mixed = "~" if cell.mixed_versions else ""
    role = "ok" if cell.speedup >= 1.05 else "bad" if cell.speedup < 0.95 else "dim"
    return line(number, (f" {mixed}{times(cell.speedup)}", role))


def detail_line(matrix: Matrix, cursor: Cursor) -> Line:
    """What the field under the cursor is, and why it is as it is."""
    if not 0 <= cursor.row < len(matrix.rows):
        return ()
    row = matrix.rows[cursor.row]
    if cursor.column < 0:
        return line((row.config, "value"), (" · the whole configuration", "dim"))
    cell = cell_at(matrix, cursor)
    name = " ".join(word for word in column_words(matrix.columns[cursor.column], matrix.columns) if word)
    head = (f"{row.config} {name}", "value")
    if cell is None:
        return line(head, (" · not in the plan", "dim"))
    spread = ""
    if cell.low is not None and cell.high is not None:
        of = (
            many(cell.starts, "start")
            if cell.basis == "starts"
            else f"{many(cell.n, 'repeat')}, one start only"
        )
        spread = f" ±{(cell.high - cell.low) / 2:.1f} ({of})"
    why = " · ".join(word for word in (cell.knee, cell.reason or ", ".join(cell.reasons)) if word)
    state_word = cell.validity if cell.state == "done" and cell.validity else cell.state
    role = CELL_ROLE[cell.state] if cell.validity != "SUSPECT" else "warn"
    glyph = "" if cell.state in ("done", "planned") else CELL_GLYPH[cell.state] + " "
    return line(head, (f" · {glyph}{state_word}{spread}", role), (f" · {why}" if why else "", "label"))


def sweep_title(state: State, matrix: Matrix, metric_label: str, others: list[int]) -> str:
    """Title of the panel: TP shown (and that there are others), metric, baseline."""
    if not matrix.rows:
        return "Found on this host" if state.probe or state.services else "Sweep"
    tp = f"tp{matrix.tp}" + (f" of {','.join(str(o) for o in others)}" if len(others) > 1 else "")
    against = f" (× {matrix.baseline})" if matrix.baseline else ""
    return f"Sweep · {tp} · {metric_label}{against}"
