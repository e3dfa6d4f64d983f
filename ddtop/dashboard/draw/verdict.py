"""What is known of a field of the matrix, in words: its value, how it compares, and whether that is sure. Pure."""

from __future__ import annotations

from functools import lru_cache

from ddtop.bench.worth.sure import because, compared, if_it_holds, standing_of
from ddtop.dashboard.draw.fields import BEST, GAIN_GLYPH, MAYBE, gain_role, half_width, kind_of
from ddtop.dashboard.draw.grid import Cursor, cell_at, load_name
from ddtop.dashboard.draw.metrics import metric_of
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, times
from ddtop.journal.results.field import Matrix, MatrixCell
from ddtop.stats.differ import samples_needed
from ddtop.words import many

LEGEND = (
    ("▲", "gain", "better"),
    ("▼", "bad", "worse"),
    ("≈", "dim", "no clear difference"),
    ("△▽", "dim", "not sure: nothing to judge by"),
    (BEST, "key", "best, sure"),
    (MAYBE, "label", "best or as good, not sure"),
    ("?", "warn", "SUSPECT"),
)


@lru_cache(maxsize=4)
def legend(matrix: Matrix) -> tuple[tuple[str, str], ...]:
    """What the glyphs of this matrix mean; only those that are in it."""
    cells = [cell for row in matrix.rows for cell in row.cells if cell is not None and cell.n]
    kinds = {GAIN_GLYPH[kind] for c in cells if (kind := kind_of(c)) is not None}
    marks = {BEST if c.rank == "best" else MAYBE for c in cells if c.rank}
    doubts = {"?"} if any(c.validity == "SUSPECT" for c in cells) else set()
    seen = kinds | marks | doubts
    return tuple((f"{glyph} {word}", "dim") for glyph, _, word in LEGEND if seen & set(glyph))


def detail(matrix: Matrix, cursor: Cursor) -> list[tuple[str, str]]:
    """What the field under the cursor is and how sure it is, as phrases, the most asked for first."""
    if not 0 <= cursor.row < len(matrix.rows):
        return []
    row = matrix.rows[cursor.row]
    if cursor.column < 0:
        return [(row.config, "value"), ("the whole configuration", "dim")]
    cell = cell_at(matrix, cursor)
    name = (f"{row.config} {load_name(matrix, cursor.column)}", "value")
    if cell is None:
        return [name, ("not in the plan", "dim")]
    out = [name]
    metric = metric_of(matrix.metric)
    if cell.state != "done" or cell.value is None:
        glyph = "" if cell.state == "planned" else CELL_GLYPH[cell.state] + " "
        out.append((glyph + cell.state, CELL_ROLE[cell.state]))
    if cell.value is not None:
        half = half_width(cell)
        bounds = f" ±{metric.text(half)}" if half is not None else ""
        out.append((f"{metric.text(cell.value)}{bounds} {metric.unit}".rstrip(), "text"))
        if row.baseline:
            out.append(("the baseline", "accent"))
        elif cell.validity != "INVALID":
            out.extend(gain_phrases(matrix, cell))
    if cell.knee:
        out.append((cell.knee, "label"))
    said = (
        not row.baseline and cell.speedup is not None
    )  # whether it is SUSPECT is said with its speed-up then
    if cell.validity == "INVALID" or (cell.validity == "SUSPECT" and not said):
        out.append(_doubt(cell))
    elif cell.reason:
        out.append((cell.reason, "label"))
    if cell.n > 1:
        one = cell.basis != "starts" and cell.starts == 1
        out.append(
            (f"{many(cell.n, 'repeat')}, one start only" if one else many(cell.starts, "start"), "dim")
        )
    best = matrix.bests[cursor.column] if cursor.column < len(matrix.bests) else None
    if best is not None and cell.rank:
        if best.config == row.config:
            out.append((f"{best.star} {standing_of(best).words}", "key" if best.sure else "dim"))
            out += [(if_it_holds(one, times(one.ratio)), "warn") for one in best.doubted]
        else:
            out.append((f"{MAYBE} no clear difference from the best, {best.config}", "dim"))
    elif best is not None:
        held = next((one for one in best.doubted if one.config == row.config), None)
        if held is not None:
            out.append((f"better than {best.config} if it holds", "warn"))
    return out


def _doubt(cell: MatrixCell) -> tuple[str, str]:
    """Why a result is SUSPECT or INVALID: its first reason in words."""
    role = "warn" if cell.validity == "SUSPECT" else "bad"
    return f"{cell.validity}: {because(cell.reasons)}" if cell.reasons else str(cell.validity), role


def gain_phrases(matrix: Matrix, cell: MatrixCell) -> list[tuple[str, str]]:
    """The speed-up with its interval, and whether that is sure; where not, what would make it so."""
    against = cell.against
    if against is None or against.ratio is None:
        return []
    between = (
        f" [{times(against.low).rstrip('×')}–{times(against.high).rstrip('×')}]"
        if against.low is not None and against.high is not None
        else ""
    )
    name = matrix.baseline or "the baseline"
    ratio = (
        f"{times(against.ratio)} better than {name}"
        if matrix.lower_is_better and against.ratio >= 1
        else f"{times(against.ratio)} {name}{' (below 1 is worse)' if matrix.lower_is_better else ''}"
    )
    role = gain_role(cell)
    out = [(ratio + between, role)]
    said = compared(cell, name)
    if said is None:
        return out
    if said.sure == "sure":
        return [*out, (said.words, role)]
    more, of = samples_needed(against), "start" if against.basis == "starts" else "repeat"
    would = (
        f": about {many(more, f'more {of}')} of each would show it"
        if more is not None and not said.sure
        else ""
    )
    out.append((said.words + would, "warn"))
    if said.sure == "not sure":
        out.append(("[matrix] starts = 3 gives a spread", "label"))
    return out
