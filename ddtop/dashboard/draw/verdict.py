"""What is known of a field of the matrix, in words: its value, how it compares, and whether that is sure. Pure."""

from __future__ import annotations

from functools import lru_cache

from ddtop.bench.judge.validity import TABLE
from ddtop.dashboard.draw.fields import BEST, GAIN_GLYPH, MAYBE, gain_role, half_width, kind_of
from ddtop.dashboard.draw.grid import Cursor, cell_at, load_name
from ddtop.dashboard.draw.metrics import metric_of
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, times
from ddtop.journal.read.matrix import Matrix, MatrixCell
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


def sure_words(cell: MatrixCell, baseline: str | None) -> str:
    """In a few words, whether a field differs from the baseline's."""
    kind = kind_of(cell)
    if kind in ("better", "worse"):
        return f"{kind}, sure"
    return f"no clear difference from {baseline}" if kind == "same" else "not sure: no spread"


def reason_words(reason: str) -> str:
    """Why a result is SUSPECT or INVALID, in words."""
    known = TABLE.get(reason)
    return known.meaning if known is not None else reason


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
    if cell.validity in ("SUSPECT", "INVALID"):
        out.append(_doubt(cell))
    elif cell.reason:
        out.append((cell.reason, "label"))
    if cell.n > 1:
        one = cell.basis != "starts" and cell.starts == 1
        out.append(
            (f"{many(cell.n, 'repeat')}, one start only" if one else many(cell.starts, "start"), "dim")
        )
    if cell.rank == "best":
        out.append((f"{BEST} best of its column, sure", "key"))
    elif cell.rank == "maybe":
        out.append((f"{MAYBE} {_maybe(matrix, cursor)}", "dim"))
    return out


def _doubt(cell: MatrixCell) -> tuple[str, str]:
    """Why a result is SUSPECT or INVALID: its first reason in words."""
    role = "warn" if cell.validity == "SUSPECT" else "bad"
    if not cell.reasons:
        return str(cell.validity), role
    more = f" (and {many(len(cell.reasons) - 1, 'more reason')})" if len(cell.reasons) > 1 else ""
    return f"{cell.validity}: {reason_words(cell.reasons[0])}{more}", role


def _maybe(matrix: Matrix, cursor: Cursor) -> str:
    """Why a field is not the best of its column for sure."""
    near = [
        row.config
        for n, row in enumerate(matrix.rows)
        if n != cursor.row and (cell := row.cells[cursor.column]) is not None and cell.rank
    ]
    if near:
        return f"no clear difference from {', '.join(near)}"
    return "best value of its column, not sure"


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
    kind = kind_of(cell)
    if kind in ("better", "worse"):
        out.append((f"{kind}, sure", role))
    elif kind == "same":
        more, of = samples_needed(against), "start" if against.basis == "starts" else "repeat"
        would = f": about {many(more, f'more {of}')} of each would show it" if more is not None else ""
        out.append((f"no clear difference from {name}{would}", "warn"))
    else:
        out += [("not sure: one measurement each", "warn"), ("[matrix] starts = 3 gives a spread", "label")]
    if cell.base_reasons:
        why = reason_words(cell.base_reasons[0]) if cell.base_reasons[0] else "it is SUSPECT"
        out.append((f"doubtful: {name} is SUSPECT there: {why}", "warn"))
    if cell.unlike:
        out.append((f"unlike work: {cell.unlike}", "warn"))
    if cell.mixed_versions:
        out.append(("another engine version than the baseline's", "warn"))
    return out
