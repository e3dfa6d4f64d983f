"""Results as a matrix of configurations × loads: whose value counts, what it is, and whether it differs. Pure.

This is the one place that says what the value of a field is: screens, reports and programs ask it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ddtop.events import CellState, Validity
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.ladder import trying, words
from ddtop.journal.read.select import DEFAULT_METRIC, Column, metric_value, tps
from ddtop.stats.differ import FLOOR, Comparison, differences
from ddtop.stats.spread import Basis, Spread, Starts, mean, pooled, value_of

Fields = dict[tuple[str, Column], list[CellView]]
"""(configuration, load) → its cells: all starts and repeats."""
Rank = Literal["", "best", "maybe"]
Tokens = tuple[float, int]
"""Output tokens of a request, on average over so many requests."""
UNLIKE = 0.05
"""Answers longer or shorter than the baseline's by more than this share are other work."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One field of the matrix: the starts and repeats of one cell together. Values are in the metric's unit."""

    ids: tuple[str, ...]
    state: CellState
    """Of the cell that matters most: running, then failed, then done, then planned."""
    value: float | None = None
    """Mean of the starts' means."""
    low: float | None = None
    high: float | None = None
    """The 95% interval of `value`, by the spread pooled over the configurations of this load."""
    n: int = 0
    """Measurements that count."""
    starts: int = 0
    """Server starts that they are from."""
    basis: Basis | None = None
    """What the interval is by: the spread between starts, or that inside one start only. None: no interval."""
    against: Comparison | None = None
    """Compared with the baseline's field; None where there is no baseline."""
    mixed_versions: bool = False
    """True where the engine's version is not the baseline's, so that the speed-up mixes two things."""
    validity: Validity | None = None
    reasons: tuple[str, ...] = ()
    reason: str = ""
    """Why it is broken, failed or skipped."""
    trying: str = ""
    """The load that its search measures now."""
    knee: str = ""
    """Where the knee of its search is, in words."""
    base_reasons: tuple[str, ...] = ()
    """Why the baseline's field is SUSPECT, which makes the speed-up doubtful; empty where it is not."""
    unlike: str = ""
    """In words, where its answers are not as long as the baseline's: the speed-up compares unlike work."""
    rank: Rank = ""
    """`best` of its column for sure; `maybe`: the best value so far, or one that does not clearly differ from it."""

    @property
    def speedup(self) -> float | None:
        """value ÷ the baseline's value in the same column (its inverse where less is better): above 1 is better."""
        return self.against.ratio if self.against is not None else None

    @property
    def differs(self) -> bool | None:
        """Whether it differs from the baseline's. None: unknown."""
        return self.against.different if self.against is not None else None


@dataclass(frozen=True, slots=True)
class Row:
    config: str
    baseline: bool
    cells: tuple[MatrixCell | None, ...]
    """One for each column; None where the plan has no such cell."""


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Results of one TP: rows are configurations in running order, columns are loads. One is made for each change of the
    results, so two of them are the same where they are one object; what is drawn of it is kept by that."""

    tp: int
    metric: str
    baseline: str | None
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    aa: Comparison | None = None
    """The baseline against itself, where the plan measures it twice: of all columns the one that differs most."""
    lower_is_better: bool = False


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
    """Results of one TP (the first of the plan if None), against `baseline` (else the plan's)."""
    all_tps = tps(state)
    chosen = tp if tp is not None else (all_tps[0] if all_tps else 0)
    against = baseline if baseline is not None else state.run.baseline
    fields, configs, columns = fields_of(state, chosen)
    judged, aa = _judged(fields, columns, metric, against, lower_is_better)
    if any(cell.spec.start or cell.spec.sentinel for cells in fields.values() for cell in cells):
        columns = in_order(columns)
    rows = tuple(
        Row(config, config == against, tuple(judged.get((config, column)) for column in columns))
        for config in configs
    )
    return Matrix(chosen, metric, against, tuple(columns), rows, aa, lower_is_better)


def best_of(view: Matrix, column: int) -> tuple[Row, MatrixCell] | None:
    """The best of a load by its rank; where nothing is compared, the best value that counts. None without one."""
    known = [(row, cell) for row in view.rows if (cell := row.cells[column]) is not None and cell.n]
    ranked = [pair for pair in known if pair[1].rank] or known
    sign = 1 if view.lower_is_better else -1
    return min(ranked, key=lambda pair: sign * (pair[1].value or 0.0), default=None)


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
) -> tuple[dict[tuple[str, Column], MatrixCell], Comparison | None]:
    """Every field with its value and how it compares, and the baseline compared with itself."""
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
    for column, mine in results.items():
        ranked = {c: (out[c, column], r) for c, r in mine.items() if r and c not in twins}
        for config, rank in _ranks(ranked, spreads[column], floor, lower).items():
            out[config, column] = replace(out[config, column], rank=rank)
    return out, aa


def _ranks(
    known: Mapping[str, tuple[MatrixCell, Starts]], spread: Spread, floor: float, lower: bool
) -> dict[str, Rank]:
    """Which of the results of one load is the best by the rule of `differences`: sure only where all others differ from it.
    Without a spread to judge by, the best value is no more than that. A result that is SUSPECT is only the best where
    nothing without a doubt was measured, and where one reads better, nothing is sure."""
    sound = {c: r for c, (cell, r) in known.items() if cell.validity != "SUSPECT"} or {
        c: r for c, (_, r) in known.items()
    }
    if len(sound) < 2:
        return {}
    values = {c: mean(r) * (-1 if lower else 1) for c, (_, r) in known.items()}
    leader = max(sound, key=lambda config: values[config])
    found = differences(sound[leader], {c: r for c, r in sound.items() if c != leader}, spread, floor)
    out: dict[str, Rank] = {c: "maybe" for c, one in found.items() if one.different is False}
    sure = all(one.different for one in found.values())
    sure = sure and known[leader][0].validity != "SUSPECT" and values[leader] == max(values.values())
    out[leader] = "best" if sure else "maybe"
    return out


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
