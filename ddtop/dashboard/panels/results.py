"""Results as a list that can be sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtop.bench.worth.advice import advise
from ddtop.bench.worth.curves import all_curves, load_of
from ddtop.dashboard.draw.fields import BEST, MAYBE, gain_role, gain_text
from ddtop.dashboard.draw.metrics import COLUMNS, TOK_S, Metric
from ddtop.dashboard.draw.paint import Item, Line, fit_text, line
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, UNKNOWN, times
from ddtop.events import CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import short_count, tps
from ddtop.journal.results.field import MatrixCell
from ddtop.journal.results.matrix import matrix, starts_in, usable
from ddtop.journal.results.per_gpu import GpuPoint
from ddtop.stats.spread import mean


@dataclass(frozen=True)
class Sort:
    """How the list is sorted: by plan order (`plan`), by speed-up (`speedup`) or by a metric's key."""

    by: str = "plan"
    reverse: bool = False


def sort_keys() -> list[str]:
    """What `o` goes through."""
    return ["plan", "speedup", *(metric.key for metric in COLUMNS)]


def sort_label(by: str) -> str:
    """A sort key in words."""
    if by == "plan":
        return "plan order"
    if by == "speedup":
        return "speed-up"
    return next((metric.label for metric in COLUMNS if metric.key == by), by)


def baseline_values(state: State, baseline: str | None) -> dict[tuple[object, ...], float]:
    """tok/s of the baseline by (tp, workload, tokens, context, load), over its starts and repeats."""
    found: dict[tuple[object, ...], list[CellView]] = {}
    for cell in state.plan_cells:
        if cell.spec.config == baseline:
            found.setdefault(point(cell), []).append(cell)
    results = {key: starts_in(cells, TOK_S.key) for key, cells in found.items()}
    return {key: mean(result) for key, result in results.items() if result}


def point(cell: CellView) -> tuple[object, ...]:
    """What a cell measures, whatever its configuration: the key for comparing it with the baseline."""
    spec = cell.spec
    return (spec.tp, spec.workload, spec.output_tokens, spec.context, spec.load_name)


def speedup(cell: CellView, base: dict[tuple[object, ...], float]) -> float | None:
    """tok/s against the baseline's in the same place."""
    value, against = TOK_S.value(cell.metrics), base.get(point(cell))
    if value is None or not against or not usable(cell):
        return None
    return value / against


def sorted_cells(state: State, sort: Sort, base: dict[tuple[object, ...], float]) -> list[CellView]:
    """The plan's cells in the order asked for; those without a value come last."""
    cells = state.plan_cells
    if sort.by == "plan":
        return list(reversed(cells)) if sort.reverse else cells
    metric = next((m for m in COLUMNS if m.key == sort.by), TOK_S)

    def value(cell: CellView) -> float | None:
        return speedup(cell, base) if sort.by == "speedup" else metric.value(cell.metrics)

    best_first = not metric.lower_is_better or sort.by == "speedup"
    descending = best_first != sort.reverse
    known = [cell for cell in cells if value(cell) is not None]
    known.sort(key=lambda cell: value(cell) or 0.0, reverse=descending)
    known.sort(key=lambda cell: not usable(cell))  # what counts for nothing is the best of nothing
    return known + [cell for cell in cells if value(cell) is None]


def fields_by_cell(state: State, baseline: str | None) -> dict[str, tuple[MatrixCell, bool]]:
    """Cell id → its field of the matrix of tok/s, which says whether its speed-up is sure, and whether it is a baseline's."""
    return {
        ident: (field, row.baseline)
        for tp in tps(state)
        for row in matrix(state, tp, TOK_S.key, baseline).rows
        for field in row.cells
        if field is not None
        for ident in field.ids
    }


def name_width(width: int) -> int:
    """Width of the two columns that name a cell: what is asked for most must fit beside them."""
    return 11 if width < 70 else 14 if width < 90 else 18 if width < 150 else 26


def columns_for(width: int) -> list[Metric]:
    """Metrics that fit beside the cell's name."""
    room = width - 2 * name_width(width) - 13 - 10
    return list(COLUMNS[: max(1, min(len(COLUMNS), room // 11))])


def advice_line(state: State, cell: CellView | None, baseline: str | None, width: int) -> list[Line]:
    """What to run by concurrency, under the load of `cell` (else of the plan's first); none where nothing is compared."""
    like = cell or next(iter(state.plan_cells), None)
    for curves in all_curves(state, baseline=baseline):
        if like is not None and curves.load == load_of(like) and any(c.found.fit for c in curves.curves):
            found = advise(curves)
            return [
                line(
                    ("  run ", "label"),
                    (fit_text(f"{found.words}   ({curves.load.label})", width - 6), "value"),
                )
            ]
    return []


def front_line(found: Sequence[GpuPoint], width: int) -> list[Line]:
    """The configurations that no other beats both per GPU and per user; none where one point or none is known."""
    points = [p for p in found if p.tok_s_user is not None]
    front = sorted((p for p in points if p.front), key=lambda p: -p.tok_s_gpu)
    if len(points) < 2:
        return []
    words = " · ".join(f"{p.label} {p.tok_s_gpu:.0f} | {p.tok_s_user:.0f}" for p in front)
    text = f"{words}   (tok/s per GPU | per user)"
    return [line(("  front ", "label"), (fit_text(text, width - 8), "value"))]


def results_head(width: int, sort: Sort, baseline: str | None) -> list[Line]:
    """Column names, the sorted one marked."""
    arrow = "▲" if sort.reverse else "▼"
    name = name_width(width)
    spans = [(f"  {'configuration':<{name}}{'workload':<{name}}{'ctx':>5}{'c':>5} ", "label")]
    for metric in columns_for(width):
        label = metric.label + (arrow if metric.key == sort.by else "")
        spans.append((fit_text(label, 11, right=True), "key" if metric.key == sort.by else "label"))
    label = "×" + (baseline or "") + (arrow if sort.by == "speedup" else "")
    spans.append((fit_text(label, 10, right=True), "key" if sort.by == "speedup" else "label"))
    return [line(*spans)]


def results_items(state: State, sort: Sort, baseline: str | None, width: int) -> list[Item]:
    """One line a cell."""
    base, fields = baseline_values(state, baseline), fields_by_cell(state, baseline)
    return [
        Item(_row(cell, base, width, baseline, fields.get(cell.id)), cell.id)
        for cell in sorted_cells(state, sort, base)
    ]


def load_mark(spec: CellSpec) -> str:
    """The load in five columns: streams, a rate, or that the knee is searched for."""
    if spec.search is not None:
        return "knee"
    return str(spec.concurrency) if spec.rate is None else fit_text(f"{spec.rate:.3g}/s", 5, right=True)


def _gain(
    cell: CellView, base: dict[tuple[object, ...], float], field: tuple[MatrixCell, bool] | None
) -> tuple[str, str]:
    """The cell's own speed-up with the signs of its field: whether it is sure, doubtful, and the best of its load."""
    ratio = speedup(cell, base)
    if ratio is None or field is None:
        return (cell.state if cell.state != "done" else UNKNOWN), "dim"
    shown, of_baseline = field
    mark = {"best": BEST, "maybe": MAYBE}.get(shown.rank, " ")
    if of_baseline:
        return times(ratio) + mark, "dim"
    return gain_text(shown, 2, ratio) + mark, gain_role(shown)


def _row(
    cell: CellView,
    base: dict[tuple[object, ...], float],
    width: int,
    baseline: str | None,
    field: tuple[MatrixCell, bool] | None,
) -> Line:
    spec, name, metrics = cell.spec, name_width(width), columns_for(width)
    glyph = CELL_GLYPH[cell.state]
    round_ = (
        (f" s{spec.start + 1}" if spec.start else "")
        + (f" #{spec.repeat}" if spec.repeat else "")
        + (" again" if spec.sentinel else "")
    )
    if cell.validity == "SUSPECT" and cell.state == "done":
        glyph = "?"
    spans: list[tuple[str, str]] = [
        (f"{glyph} ", "warn" if glyph == "?" else CELL_ROLE[cell.state]),
        (
            fit_text(f"{spec.config} tp{spec.tp}{round_}", name - 1) + " ",
            "accent" if spec.config == baseline else "value",
        ),
        (fit_text(f"{spec.workload}@{spec.output_tokens}", name), "text"),
        (f"{short_count(spec.context) if spec.context else UNKNOWN:>5}{load_mark(spec):>5} ", "dim"),
    ]
    if cell.state in ("done", "broken", "failed") and cell.metrics:
        role = "value" if cell.validity == "VALID" else "warn" if cell.validity == "SUSPECT" else "dim"
        spans.extend((fit_text(metric.shown(cell.metrics), 11, right=True), role) for metric in metrics)
        word, role = _gain(cell, base, field)
        spans.append((fit_text(word, 10, right=True), role))
        return line(*spans)
    why = cell.reason or spec.skip_reason or ""
    spans.append((f"  {cell.state}" + (f": {why}" if why else ""), CELL_ROLE[cell.state]))
    return line(*spans)


def results_tsv(state: State, sort: Sort, baseline: str | None) -> str:
    """The list as tab-separated values, every metric with its unit."""
    base = baseline_values(state, baseline)
    head = [
        "config",
        "tp",
        "workload",
        "output_tokens",
        "context",
        "concurrency",
        "repeat",
        "start",
        "state",
        "validity",
    ]
    rows = ["\t".join([*head, *(f"{m.label} [{m.unit}]" for m in COLUMNS), f"x {baseline or ''}".strip()])]
    for cell in sorted_cells(state, sort, base):
        spec = cell.spec
        fields: list[object] = [
            spec.config,
            spec.tp,
            spec.workload,
            spec.output_tokens,
            spec.context,
            spec.concurrency or spec.load_name,
            spec.repeat,
            spec.start,
            cell.state,
            cell.validity or "",
        ]
        fields.extend("" if (value := metric.value(cell.metrics)) is None else value for metric in COLUMNS)
        gain = speedup(cell, base)
        fields.append("" if gain is None else f"{gain:.3f}")
        rows.append("\t".join(str(field) for field in fields))
    return "\n".join(rows)
