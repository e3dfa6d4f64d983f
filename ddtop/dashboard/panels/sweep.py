"""The sweep matrix: configurations × loads, with the speed-up against the baseline, and what is known of the field at the
cursor. Which part of it is in sight is decided in `draw/grid.py`, what a field says in `draw/fields.py`."""

from __future__ import annotations

from dataclasses import replace

from ddtop.bench.worth.sure import compared, if_it_holds
from ddtop.dashboard.draw.columns import HEAD_MAX, View, column_head, layout
from ddtop.dashboard.draw.fields import BEST, MAYBE, columns_of, gain_role, running_line, second_texts
from ddtop.dashboard.draw.grid import (
    ALL,
    AXIS_WORDS,
    Cursor,
    Shape,
    Sight,
    fixed_words,
    in_sight,
    load_name,
)
from ddtop.dashboard.draw.metrics import SECOND, metric_of
from ddtop.dashboard.draw.paint import Line, Span, crop, fit_text, flow, line, selected
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, bar, times
from ddtop.dashboard.draw.verdict import detail, legend
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import remaining, running_cell
from ddtop.journal.results.field import Matrix
from ddtop.words import many

HOME = Cursor()
FOOT_MOST = 3
"""Lines at most about the field under the cursor."""


def matrix_lines(
    matrix: Matrix,
    cursor: Cursor | None,
    width: int,
    height: int,
    now_s: float,
    busy: str | None = None,
    shape: Shape = ALL,
    second: Matrix | None = None,
    tail: Line = (),
    progress: str = "",
) -> list[Line]:
    """Header, rows in sight and lines about the field under the cursor. `busy` is the configuration at work, `second` the
    matrix of the metric in each row's second line, `tail` a last line where there is room, `progress` how far the cell in
    flight is."""
    if not matrix.rows:
        return [line(("No plan: this host is only watched.", "dim"))]
    place = cursor or Cursor(0, 0)
    sight = in_sight(matrix, place, shape)
    view = layout(matrix, width, place, shape, sight)
    header = header_lines(matrix, view, shape, place if cursor else None, busy)
    down = sight.columns if shape.swapped else sight.rows
    tall = 2 if shape.second else 1
    foot: list[Line] = []
    if height >= len(header) + tall + 2:
        least = 1 if height < 7 else 2
        most = max(least, min(FOOT_MOST, height - len(header) - len(down) * tall))
        foot = flow(detail(matrix, place), width, most)
    room = max(1, (height - len(header) - len(foot)) // tall)
    at = place.at if shape.swapped else place.row
    spot = down.index(at) if at in down else 0
    first = max(0, min(spot - room + 2, len(down) - room)) if len(down) > room else 0
    lines = list(header)
    seconds = second_texts(matrix, second) if shape.second else {}
    for number in down[first : first + room]:
        lines.append(row_line(matrix, number, view, shape, place if cursor else None, now_s, busy, progress))
        if shape.second:
            lines.append(second_line(seconds, number, view, shape))
    if hidden := len(down) - len(down[first : first + room]):
        lines[0] = (Span(fit_text(f"↕ {hidden} more", view.head), "dim"), *lines[0][1:])
    if not foot:
        return lines[:height]
    spare = height - len(lines) - len(foot)
    if spare > 0 and tail:
        spare -= 1
        foot.append(crop(tail, width))
    below = _bars(matrix, place, shape, sight, width, spare)
    signs = [] if below or spare < 1 else flow(legend(matrix), width, min(2, spare))
    lines.extend(below)
    lines.extend([()] * (height - len(lines) - len(foot) - len(signs)))
    return [*lines, *signs, *foot]


def height_wanted(matrix: Matrix, cursor: Cursor, shape: Shape) -> int:
    """Lines that show the whole matrix: names, rows, and what is said of the field under the cursor."""
    if not matrix.rows:
        return 8
    sight = in_sight(matrix, cursor, shape)
    down = sight.columns if shape.swapped else sight.rows
    return len(down) * (2 if shape.second else 1) + 4


def header_lines(
    matrix: Matrix, view: View, shape: Shape, cursor: Cursor | None = None, busy: str | None = None
) -> list[Line]:
    """One or two lines of column names: workload@tokens, then context and concurrency where they differ; in a slice what
    differs alone, and configurations where the matrix is swapped."""
    heads = [column_head(matrix, n, shape) for n in view.columns]
    top: list[Span] = [Span(("‹ " if view.left else "").ljust(view.head), "dim")]
    low: list[Span] = [Span(" " * view.head)]
    before = ""
    for place, (name, rest), size in zip(view.columns, heads, view.widths, strict=True):
        if shape.swapped:
            row = matrix.rows[place]
            role = "run" if row.config == busy else "accent" if row.baseline else "value"
            span = Span(" " + fit_text(name, size - 1, right=True), role, f"{place},-1")
            here = cursor is not None and (cursor.row, cursor.column) == (place, -1)
            top.extend(selected((span,)) if here else (span,))
            continue
        shown = name if name != before else ""
        before = name
        top.append(Span(" " + _short_name(shown, size - 1), "label"))
        low.append(Span(" " + fit_text(rest, size - 1), "dim"))
    if view.right:
        top.append(Span(" ›", "dim"))
    return [tuple(top), tuple(low)] if any(rest for _, rest in heads) else [tuple(top)]


def _short_name(name: str, width: int) -> str:
    """`a-long-workload@1024` in `width` cells: the workload is cut, its tokens are not."""
    word, at, tokens = name.rpartition("@")
    if len(name) <= width or not at:
        return fit_text(name, width)
    return fit_text(fit_text(word, max(2, width - len(tokens) - 1)) + at + tokens, width)


def row_line(
    matrix: Matrix,
    number: int,
    view: View,
    shape: Shape,
    cursor: Cursor | None,
    now_s: float,
    busy: str | None,
    progress: str = "",
) -> Line:
    """One row on the screen: a configuration, or a load where the matrix is swapped."""
    if shape.swapped:
        head: Line = (
            Span(fit_text(load_name(matrix, number, shape.axis), view.head), "label", f"0,{number}"),
        )
    else:
        row = matrix.rows[number]
        role = "run" if row.config == busy else "value" if not row.baseline else "accent"
        head = (
            Span("▶ " if row.config == busy else "  ", "run", f"{number},-1"),
            Span(fit_text(row.config, view.head - 2), role, f"{number},-1"),
        )
        if cursor is not None and (cursor.row, cursor.column) == (number, -1):
            head = selected(head)
    spans: list[Span] = list(head)
    fields = columns_of(matrix, view.form, shape.swapped)
    for place, size in zip(view.columns, view.widths, strict=True):
        r, c = (place, number) if shape.swapped else (number, place)
        cell, target = matrix.rows[r].cells[c], f"{r},{c}"
        if cell is not None and cell.state == "running":
            field = running_line(progress or cell.trying or "running", size - 1, now_s, target)
        else:
            field = fields[place].line(number, size - 1, target)
        if cursor is not None and (cursor.row, cursor.column) == (r, c):
            field = selected(field)
        spans.append(Span(" "))
        spans.extend(field)
    return tuple(spans)


def second_line(texts: dict[tuple[int, int], str], number: int, view: View, shape: Shape) -> Line:
    """The second line of a row: the metric's name, and its values under the first ones."""
    name = next((m.short for m in SECOND if m.key == shape.second), "± n")
    spans = [Span(fit_text("  " + name, view.head), "dim")]
    for place, size in zip(view.columns, view.widths, strict=True):
        at = (place, number) if shape.swapped else (number, place)
        spans.append(Span(" " + fit_text("  " + texts.get(at, ""), size - 1), "label"))
    return tuple(spans)


def _bars(matrix: Matrix, cursor: Cursor, shape: Shape, sight: Sight, width: int, room: int) -> list[Line]:
    """Where there is room below the matrix: the load under the cursor as bars, one a configuration, with what is sure."""
    if room < len(sight.rows) + 3 or not matrix.columns:
        return []
    metric = metric_of(matrix.metric)
    cells = [(matrix.rows[r], matrix.rows[r].cells[cursor.at]) for r in sight.rows]
    top = max((c.value for _, c in cells if c is not None and c.value is not None), default=None)
    if not top:
        return []
    less = ", less is better" if matrix.lower_is_better else ""
    title = f"  {load_name(matrix, cursor.at)} · {metric.label}{less}"
    out: list[Line] = [(), line((title, "label"))]
    head = min(HEAD_MAX, max(len(row.config) for row, _ in cells) + 3)
    for row, cell in cells:
        label = (fit_text("  " + row.config, head), "accent" if row.baseline else "text")
        if cell is None or cell.value is None or cell.state == "broken":
            word = f"{CELL_GLYPH[cell.state]} {cell.state}" if cell is not None else ""
            out.append(line(label, (word, CELL_ROLE[cell.state] if cell is not None else "dim")))
            continue
        filled, _ = bar(cell.value / top, max(8, width - head - 40))
        mark = (f" {BEST if cell.rank == 'best' else MAYBE}" if cell.rank else "", "key")
        gain = ("", "dim")
        if cell.speedup is not None and not row.baseline:
            said = compared(cell, matrix.baseline)
            words = said.brief if said is not None else ""
            room = width - head - len(filled) - len(metric.text(cell.value)) - len(times(cell.speedup)) - 6
            if said is not None and len(words) > room:  # the lines below say why
                words = replace(said, why="").brief
            gain = (f"  {times(cell.speedup)} {words}", gain_role(cell))
        ink = "accent" if row.baseline else "bar"
        value = (f" {metric.text(cell.value)}", "value")
        out.append(crop(line(label, (filled, ink), value, mark, gain), width))
    return out


def sweep_title(
    matrix: Matrix,
    state: State,
    others: list[int],
    cursor: Cursor = HOME,
    shape: Shape = ALL,
    width: int = 200,
) -> str:
    """Title of the panel in `width` cells: TP shown (and that there are others), metric, baseline, what a slice holds still,
    and what is folded away. A shorter one leaves out first what the columns say too."""
    if not matrix.rows:
        return "Found on this host" if state.probe or state.services else "Sweep"
    metric = metric_of(matrix.metric)
    tp = f"tp{matrix.tp}" + (f" of {','.join(str(o) for o in others)}" if len(others) > 1 else "")
    less = (", less is better", " ↓") if matrix.lower_is_better else ("", "")
    against = f" (× {matrix.baseline})" if matrix.baseline else ""
    long, short = (f"{metric.label}{word}{against}" for word in less)
    slice_ = AXIS_WORDS[shape.axis] if shape.axis != "all" else ""
    fixed = fixed_words(matrix, cursor, shape)
    folded = folded_words(in_sight(matrix, cursor, shape))
    few = folded_words(in_sight(matrix, cursor, shape), brief=True)
    forms = (
        ("Sweep", tp, long, slice_, fixed, folded),
        ("Sweep", tp, short, slice_, fixed, few),
        (tp, short, fixed or slice_, few),
        (tp, short, fixed or slice_),
        (short, fixed),
    )
    titles = [" · ".join(part for part in form if part) for form in forms]
    return next((title for title in titles if len(title) <= width), titles[-1])


def folded_words(sight: Sight, key: str = "z", *, brief: bool = False) -> str:
    """`3 skipped columns, 1 skipped row (z)`, `4 skipped (z)`; nothing where none is folded away."""
    if brief:
        n = sight.folded_columns + sight.folded_rows
        return f"{n} skipped ({key})" if n else ""
    counted = ((sight.folded_columns, "skipped column"), (sight.folded_rows, "skipped row"))
    words = ", ".join(many(n, word) for n, word in counted if n)
    return f"{words} ({key})" if words else ""


def progress_line(state: State, matrix: Matrix, cursor: Cursor) -> Line:
    """The best so far in the column of the cursor, and the configuration that comes next."""
    parts: list[tuple[str, str]] = []
    if matrix.columns:
        metric = metric_of(matrix.metric)
        best = matrix.bests[cursor.at] if cursor.at < len(matrix.bests) else None
        if best is not None and best.verdict != "alone":
            row = next(row for row in matrix.rows if row.config == best.config)
            cell = row.cells[cursor.at]
            where = f" at {load_name(matrix, cursor.at)}" if len(matrix.columns) > 1 else ""
            value = metric.text(cell.value if cell is not None else None)
            parts.append((f"best{where}: {best.config} {value} {best.star}", "label"))
            holds = [if_it_holds(one, times(one.ratio), brief=True) for one in best.doubted]
            parts += [("; ".join(holds), "warn")] if holds else []
    if following := next_config(state):
        parts.append((f"next: {following}", "label"))
    return line(*[part for n, p in enumerate(parts) for part in ((" · ", "dim"), p)[0 if n else 1 :]])


def next_config(state: State) -> str:
    """The configuration after the one at work, in running order, with its TP where the plan has several."""
    if state.run.ended is not None:
        return ""
    running, restarting = running_cell(state), state.restarting
    at_work = (running.spec.config, running.spec.tp) if running is not None else None
    if at_work is None and restarting is not None:
        at_work = (restarting.config, restarting.tp)
    several = len({c.spec.tp for c in state.plan_cells}) > 1
    for cell in remaining(state):
        if (cell.spec.config, cell.spec.tp) != at_work:
            return cell.spec.config + (f" tp{cell.spec.tp}" if several else "")
    return ""
