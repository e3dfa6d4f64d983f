"""Results as a matrix of configurations × loads: whose value counts, what it is, and whether it differs. Pure.

This is the one place that says what the value of a field is: screens, reports and programs ask it. Which configuration is
the best of a load is decided in `best.py` beside it, and written into the matrix.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from ddtop.events import CellState, Validity
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.ladder import trying, words
from ddtop.journal.read.select import DEFAULT_METRIC, Column, metric_value, tps
from ddtop.journal.results.best import LATENCY, Standing, judged_by, standing
from ddtop.journal.results.field import Best, Matrix, MatrixCell, Place, Row
from ddtop.stats.differ import FLOOR, Comparison, differences
from ddtop.stats.spread import Spread, Starts, pooled, value_of

Fields = dict[tuple[str, Column], list[CellView]]
"""(configuration, load) → its cells: all starts and repeats."""
Tokens = tuple[float, int]
"""Output tokens of a request, on average over so many requests."""
UNLIKE = 0.05
"""Answers longer or shorter than the baseline's by more than this share are other work."""


def usable(cell: CellView) -> bool:
    """Whether a cell's figures count: it is done, not INVALID, and no sentinel."""
    return cell.state == "done" and cell.validity != "INVALID" and not cell.spec.sentinel


def starts_in(cells: Iterable[CellView], metric: str) -> Starts:
    """The figures of `cells` that count, of each start those of its repeats.

    A start is a round of the plan; where a server had to be started again within it, each of its servers is one.
    """
    found: dict[tuple[int, str], list[float]] = {}
    for cell in cells:
        value = metric_value(cell.metrics, metric) if usable(cell) else None
        if value is not None:
            server = cell.generation.id if cell.generation is not None else ""
            found.setdefault((cell.spec.start, server), []).append(value)
    return tuple(tuple(values) for values in found.values())


def matrix(
    state: State,
    tp: int | None = None,
    metric: str = DEFAULT_METRIC,
    baseline: str | None = None,
    *,
    lower_is_better: bool = False,
) -> Matrix:
    """Results of one TP (the first of the plan if None), against `baseline` (else the plan's).

    In the matrix of throughput each load has the best by what that load is judged by; in any other, by its own metric.
    """
    kept, key = _kept.get(), (id(state), tp, metric, baseline, lower_is_better)
    if kept is None:
        return _made(state, tp, metric, baseline, lower_is_better)
    if key not in kept:
        kept[key] = _made(state, tp, metric, baseline, lower_is_better)
    return kept[key]


_kept: ContextVar[dict[Hashable, Matrix] | None] = ContextVar("kept", default=None)


@contextmanager
def each_made_once() -> Iterator[None]:
    """While no state changes: a report asks for the same matrix in many places."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def _made(state: State, tp: int | None, metric: str, baseline: str | None, lower_is_better: bool) -> Matrix:
    all_tps = tps(state)
    chosen = tp if tp is not None else (all_tps[0] if all_tps else 0)
    against = baseline if baseline is not None else state.run.baseline
    shown = _view(state, chosen, metric, against, lower_is_better)
    if metric != DEFAULT_METRIC:
        return shown
    cells = [cell for cell in state.plan_cells if cell.spec.tp == chosen]
    own = [judged_by(load, (c for c in cells if Column.of(c.spec) == load)) for load in shown.columns]
    others = {
        name: _view(state, chosen, name, against, name == LATENCY)
        for name in dict.fromkeys(own)
        if name != metric
    }
    return _marked(shown, [others.get(name, shown) for name in own]) if others else shown


def bests(state: State, baseline: str | None = None) -> list[Best]:
    """The best of every load of the present plan that has a result, in the plan's order."""
    return [one for tp in tps(state) for one in matrix(state, tp, baseline=baseline).bests if one is not None]


def _view(state: State, tp: int, metric: str, baseline: str | None, lower: bool) -> Matrix:
    """The matrix of one metric, the best of each load by that."""
    fields, configs, columns = fields_of(state, tp)
    judged, standings, aa = _judged(fields, columns, metric, baseline, lower)
    if any(cell.spec.start or cell.spec.sentinel for cells in fields.values() for cell in cells):
        columns = in_order(columns)
    rows = tuple(
        Row(config, config == baseline, tuple(judged.get((config, column)) for column in columns))
        for config in configs
    )
    bests = tuple(_best(tp, column, metric, standings.get(column), judged) for column in columns)
    return Matrix(tp, metric, baseline, tuple(columns), rows, aa, lower, bests)


def _best(
    tp: int,
    load: Column,
    metric: str,
    found: Standing | None,
    judged: Mapping[tuple[str, Column], MatrixCell],
) -> Best | None:
    if found is None:
        return None
    place = Place(tp, load.workload, load.output_tokens, load.context)
    return Best(
        *(place, load, metric, found.config, judged[found.config, load]),
        *(found.verdict, found.sure, found.alike, found.doubted, found.among),
    )


def _marked(shown: Matrix, by: Sequence[Matrix]) -> Matrix:
    """`shown` with the best of each of its loads as that of `by`, which has the same rows and loads."""
    rows = tuple(
        replace(
            row,
            cells=tuple(
                replace(cell, rank=other.rank)
                if cell is not None and (other := view.rows[r].cells[c]) is not None
                else cell
                for c, (cell, view) in enumerate(zip(row.cells, by, strict=True))
            ),
        )
        for r, row in enumerate(shown.rows)
    )
    return replace(shown, rows=rows, bests=tuple(view.bests[c] for c, view in enumerate(by)))


def fields_of(state: State, tp: int) -> tuple[Fields, list[str], list[Column]]:
    """The plan's cells of one TP by configuration and load; configurations and loads in running order."""
    fields: Fields = {}
    for cell in state.plan_cells:
        if cell.spec.tp == tp:
            fields.setdefault((cell.spec.config, Column.of(cell.spec)), []).append(cell)
    return fields, list(dict.fromkeys(c for c, _ in fields)), list(dict.fromkeys(c for _, c in fields))


def in_order(columns: Sequence[Column]) -> list[Column]:
    """Columns as they are read: workloads as planned, then by size: with several starts the running order is a hash's."""
    workloads = list(dict.fromkeys(c.workload for c in columns))
    return sorted(
        columns,
        key=lambda c: (
            *(workloads.index(c.workload), c.output_tokens, c.context),
            *(bool(c.search), c.rate or 0.0, c.concurrency, c.search),
        ),
    )


def _judged(
    fields: Fields, columns: Sequence[Column], metric: str, baseline: str | None, lower: bool
) -> tuple[dict[tuple[str, Column], MatrixCell], dict[Column, Standing], Comparison | None]:
    """Every field with its value and how it compares, how each load stands, and the baseline compared with itself."""
    twins = {config for (config, _), cells in fields.items() if cells[0].spec.aa}
    results: dict[Column, dict[str, Starts]] = {column: {} for column in columns}
    for (config, column), cells in fields.items():
        results[column][config] = starts_in(cells, metric)
    spreads = {column: pooled(mine.values()) for column, mine in results.items()}
    reference = {column: mine.get(baseline or "", ()) for column, mine in results.items()}
    again = {
        (config, column): differences(reference[column], {config: result}, spreads[column])[config]
        for column, mine in results.items()
        for config, result in mine.items()
        if config in twins
    }
    known = [(abs(one.ratio - 1), one) for one in again.values() if one.ratio is not None]
    aa = max(known, key=lambda pair: pair[0])[1] if known else None
    floor = max(known, key=lambda pair: pair[0])[0] if known else FLOOR
    against: dict[tuple[str, Column], Comparison] = dict(again)
    for column, mine in results.items():
        others = {c: r for c, r in mine.items() if c not in twins and c != baseline}
        found = differences(reference[column], others, spreads[column], floor)
        against |= {(config, column): one for config, one in found.items()}
        if baseline is not None and reference[column]:
            against[baseline, column] = Comparison(None, 1.0, why="the baseline itself")
    if lower:
        against = {place: one.turned() for place, one in against.items()}
    each = {place: tokens_each(cells) for place, cells in fields.items()}
    out = {
        (config, column): _field(
            cells,
            fields.get((baseline or "", column), []),
            (each[config, column], each.get((baseline or "", column))),
            results[column][config],
            spreads[column],
            against.get((config, column)),
            metric,
        )
        for (config, column), cells in fields.items()
    }
    standings: dict[Column, Standing] = {}
    for column, mine in results.items():
        ones = {c: out[c, column] for c, r in mine.items() if r and c not in twins}
        found_here = standing(ones, mine, spreads[column], floor, lower=lower, baseline=baseline)
        if found_here is not None:
            standings[column] = found_here
            for config, rank in found_here.ranks.items():
                out[config, column] = replace(out[config, column], rank=rank)
    return out, standings, aa


_RANK: tuple[CellState, ...] = ("running", "broken", "failed", "interrupted", "done", "planned", "skipped")
_WORST: tuple[Validity, ...] = ("INVALID", "SUSPECT", "VALID")


def _field(
    cells: list[CellView],
    base: list[CellView],
    tokens: tuple[Tokens | None, Tokens | None],
    result: Starts,
    spread: Spread,
    against: Comparison | None,
    metric: str,
) -> MatrixCell:
    shown = min(cells, key=lambda c: _RANK.index(c.state))
    counting = [c for c in cells if usable(c) or (c.spec.sentinel and c.state == "done")] if result else cells
    verdicts = [c.validity for c in counting if c.validity is not None]
    found = value_of(result, spread)
    value = found.value if found is not None else _unusable(cells, metric)
    versions = {c.engine_version for c in cells if c.engine_version}
    base_versions = {c.engine_version for c in base if c.engine_version}
    validity = min(verdicts, key=_WORST.index) if verdicts else None
    return MatrixCell(
        ids=tuple(c.id for c in cells),
        state=shown.state,
        value=value,
        low=found.low if found is not None else None,
        high=found.high if found is not None else None,
        n=found.n if found is not None else 0,
        starts=found.starts if found is not None else 0,
        basis=spread.basis if found is not None else None,
        against=against,
        mixed_versions=bool(versions and base_versions and versions != base_versions),
        validity=validity,
        reasons=tuple(dict.fromkeys(r for c in counting for r in c.reasons)),
        reason=shown.reason,
        trying=next((load for c in cells if (load := trying(c))), ""),
        knee=words(shown),
        base_reasons=_doubts(base) if base is not cells else (),
        unlike=_unlike(cells, base, *tokens) if base is not cells else "",
    )


def _doubts(cells: Iterable[CellView]) -> tuple[str, ...]:
    """Reasons of the results that count and are SUSPECT."""
    return tuple(
        dict.fromkeys(r for c in cells if usable(c) and c.validity == "SUSPECT" for r in c.reasons or ("",))
    )


def tokens_each(cells: Iterable[CellView]) -> Tokens | None:
    """(output tokens of a request, requests) over the results that count; None where they are not known, and of searches,
    whose figures are of several loads."""
    tokens = requests = 0.0
    for cell in cells:
        served, made = (metric_value(cell.metrics, name) for name in ("requests_ok", "output_tokens"))
        if usable(cell) and cell.spec.search is None and served and made is not None:
            tokens, requests = tokens + made, requests + served
    return (tokens / requests, int(requests)) if requests else None


def _unlike(
    cells: Sequence[CellView], base: Sequence[CellView], mine: Tokens | None, theirs: Tokens | None
) -> str:
    """Where answers have not as many tokens as the baseline's. A window that was handed over begins and ends within
    requests, so each stream may be off by one request's tokens."""
    if mine is None or theirs is None or not theirs[0]:
        return ""
    streams = cells[0].spec.concurrency if any("burst" in c.metrics for c in (*cells, *base)) else 0
    slack = UNLIKE + streams / mine[1] + streams / theirs[1]
    if abs(mine[0] / theirs[0] - 1) <= slack:
        return ""
    return f"its answers have {mine[0]:.0f} tokens, the baseline's {theirs[0]:.0f}"


def _unusable(cells: list[CellView], metric: str) -> float | None:
    """A figure that counts for nothing, shown with its mark: of a cell that is INVALID or not finished."""
    values = [metric_value(c.metrics, metric) for c in cells if c.state != "broken" and not c.spec.sentinel]
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def progress_pct(cell: CellView) -> float | None:
    """How much of the cell in flight is done. It changes every second, so it is no part of a matrix."""
    running = cell.progress
    if running is None or running.pct is not None:
        return running.pct if running is not None else None
    if running.requests_done is not None and running.requests_total:
        return 100.0 * running.requests_done / running.requests_total
    return None
