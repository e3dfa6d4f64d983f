"""The best configuration under each load, how sure that is, and what it gains over the baseline. Pure.

Values, comparisons and ranks are the matrix's. A result that is SUSPECT is the best only where nothing without a doubt was
measured, or nothing that reads as good as a SUSPECT baseline; where it reads better than the best, that is said beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ddtop.bench.worth.curves import SIMULATED
from ddtop.journal.fold.state import State
from ddtop.journal.read.matrix import Matrix, MatrixCell, matrix
from ddtop.journal.read.select import DEFAULT_METRIC, Column, short_count, tps
from ddtop.report.conclusion.words import times, two
from ddtop.report.text import number
from ddtop.stats.differ import Comparison

LATENCY = "e2e_ms.p50"
"""What a rate is judged by: all servers that keep up with it give the same tokens per second."""
TITLE = "Best configuration for each load"

NEAR = 0.03
"""Single runs this close say nothing of which is better: starts alone differ by as much."""

Verdict = Literal["gain", "single", "baseline", "not shown", "no baseline", "alone"]
"""`gain`: its interval shows that it beats the baseline. `single`: it reads better, without a spread to judge by.
`not shown`: it reads better and cannot be told apart. `no baseline`: there is nothing to compare with. `alone`: no other
configuration has a result."""
VERDICTS: dict[Verdict, str] = {
    "gain": "better than the baseline",
    "single": "reads better; no spread to judge by",
    "baseline": "the baseline",
    "not shown": "not told apart from the baseline",
    "no baseline": "the baseline is not measured",
    "alone": "the only one measured",
}


class Place(NamedTuple):
    """What is held equal along a row of loads."""

    tp: int
    workload: str
    output_tokens: int
    context: int


@dataclass(frozen=True, slots=True)
class Doubted:
    """A configuration that reads better than the best, and whose result is SUSPECT or of unlike work."""

    config: str
    ratio: float | None
    """To the baseline."""
    reasons: tuple[str, ...]
    """Why it is SUSPECT; empty where it is not."""
    unlike: str = ""
    """In words, where its answers are not as long as the baseline's."""

    @property
    def why(self) -> str:
        """`is SUSPECT`, or how its answers differ."""
        return "is SUSPECT" if self.reasons else self.unlike or "is SUSPECT"


@dataclass(frozen=True, slots=True)
class Best:
    """The best configuration under one load."""

    place: Place
    load: Column
    metric: str
    config: str
    field: MatrixCell
    verdict: Verdict
    alike: tuple[str, ...] = ()
    """Other configurations that cannot be told apart from it: by the interval, or, without a spread, within NEAR of it."""
    doubted: tuple[Doubted, ...] = ()

    @property
    def gain(self) -> Comparison | None:
        """Compared with the baseline; None for the baseline itself, and where that is not measured."""
        return self.field.against if self.verdict in ("gain", "single", "not shown") else None

    @property
    def compared(self) -> bool:
        """Whether it is known how it compares with the baseline, with or without an interval."""
        return self.verdict in ("gain", "single", "baseline", "not shown")

    @property
    def star(self) -> str:
        """★ where it is the best for sure, ☆ where it reads best."""
        return "★" if self.field.rank == "best" else "☆"

    @property
    def suspect(self) -> tuple[str, ...]:
        """Why its own result is SUSPECT."""
        return self.field.reasons if self.field.validity == "SUSPECT" else ()


def metric_of(state: State, load: Column) -> str:
    """What a load is judged by: throughput; of a search its knee; of a rate the latency, where it was measured."""
    if load.search:
        return "knee"
    if load.rate is not None and any(
        isinstance(c.metrics.get("e2e_ms"), dict) for c in state.plan_cells if Column.of(c.spec) == load
    ):
        return LATENCY
    return DEFAULT_METRIC


def bests(state: State, baseline: str | None = None) -> list[Best]:
    """The best of every load of the present plan that has a result, in the plan's order."""
    out: list[Best] = []
    for tp in tps(state):
        views: dict[str, Matrix] = {}
        columns = matrix(state, tp, baseline=baseline).columns
        for load in columns:
            metric = metric_of(state, load)
            if metric not in views:
                views[metric] = matrix(state, tp, metric, baseline, lower_is_better=metric == LATENCY)
            found = _best(state, views[metric], load)
            if found is not None:
                out.append(found)
    return out


def _best(state: State, view: Matrix, load: Column) -> Best | None:
    column = view.columns.index(load)
    twins = {cell.spec.config for cell in state.plan_cells if cell.spec.aa}
    mine = {
        row.config: cell
        for row in view.rows
        if (cell := row.cells[column]) is not None and cell.n and cell.value and row.config not in twins
    }
    mine = {name: cell for name, cell in mine.items() if SIMULATED not in cell.reasons}
    if not mine:
        return None
    rank = {name: (cell.value or 0.0) * (-1 if view.lower_is_better else 1) for name, cell in mine.items()}
    sound = [name for name, cell in mine.items() if cell.validity != "SUSPECT" and not cell.unlike] or list(
        mine
    )
    best_sound = max(rank[name] for name in sound)
    if rank.get(view.baseline or "", best_sound) > best_sound:
        sound = list(mine)  # what loses to a doubtful baseline wins nothing
    config = max(sound, key=lambda name: rank[name])
    field = mine[config]
    return Best(
        Place(view.tp, load.workload, load.output_tokens, load.context),
        load,
        view.metric,
        config,
        field,
        _verdict(view, column, config, field, len(mine)),
        tuple(name for name in sound if name != config and _alike(mine[name], field)),
        tuple(
            Doubted(name, cell.speedup, cell.reasons if cell.validity == "SUSPECT" else (), cell.unlike)
            for name, cell in mine.items()
            if name not in sound and rank[name] > rank[config]
        ),
    )


def _alike(other: MatrixCell, best: MatrixCell) -> bool:
    if other.basis is None or best.basis is None:
        return abs((other.value or 0.0) / (best.value or 1.0) - 1) <= NEAR
    return other.rank == "maybe"


def _verdict(view: Matrix, column: int, config: str, field: MatrixCell, count: int) -> Verdict:
    base = next((row.cells[column] for row in view.rows if row.baseline), None)
    if count < 2:
        return "alone"
    if (
        base is None
        or not base.n
        or SIMULATED in base.reasons
        or field.against is None
        or field.against.ratio is None
    ):
        return "no baseline"
    if config == view.baseline:
        return "baseline"
    if field.against.different is None:
        return "single"
    return "gain" if field.against.different else "not shown"


def load_words(place: Place, loads: Sequence[Column], all_places: Sequence[Place]) -> str:
    """The place in words, with what differs among `all_places` alone, and its loads: `fib@256 c1–c8`."""
    tokens = f"@{place.output_tokens}" if place.output_tokens else ""
    parts = [f"tp{place.tp}"] if len({p.tp for p in all_places}) > 1 else []
    parts.append(f"{place.workload}{tokens}")
    if len({p.context for p in all_places}) > 1:
        parts.append(f"{short_count(place.context)} ctx")
    names = [load.load_name for load in loads]
    return " ".join([*parts, names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}"])


def stars(found: Sequence[Best]) -> dict[tuple[str, Column], str]:
    """(configuration, load) → the mark of its field, where there is another to compare with."""
    return {(one.config, one.load): one.star for one in found if one.verdict != "alone"}


def best_rows(found: Sequence[Best]) -> list[list[str]]:
    """Header and a row for each load; empty without a result to compare."""
    if not any(one.verdict != "alone" for one in found):
        return []
    places = [one.place for one in found]
    head = [
        "load",
        "best",
        "value",
        "× baseline [95% interval]",
        "verdict",
        "not told apart from it",
        "in doubt",
    ]
    rows = [head, *(_row(one, places) for one in found)]
    used = [n for n in range(len(head)) if any(row[n] for row in rows[1:])]
    return [[row[n] for n in used] for row in rows]


def _row(one: Best, places: Sequence[Place]) -> list[str]:
    unit = {LATENCY: "ms median latency", "knee": "highest load within the limits"}.get(one.metric, "tok/s")
    doubts = [f"it is SUSPECT: {', '.join(one.suspect)}"] if one.suspect else []
    doubts += [
        f"{d.config} reads {f'{two(d.ratio)}×' if d.ratio is not None else 'better'}, "
        + (f"SUSPECT: {', '.join(d.reasons)}" if d.reasons else f"but {d.unlike}")
        for d in one.doubted
    ]
    return [
        load_words(one.place, [one.load], places),
        one.config,
        f"{number(one.field.value or 0.0)} {unit}",
        times(one.gain),
        VERDICTS[one.verdict],
        ", ".join(one.alike),
        "; ".join(doubts),
    ]


def best_json(found: Sequence[Best]) -> list[dict[str, Any]]:
    """For programs; what is not known is null. A ratio above 1 is better, of latencies too."""
    return [
        {
            **one.place._asdict(),
            "load": one.load.load_name,
            "metric": one.metric,
            "config": one.config,
            "value": one.field.value,
            "verdict": one.verdict,
            **_ratio(one.gain),
            "spread": one.field.basis,
            "n": one.field.n,
            "starts": one.field.starts,
            "alike": list(one.alike),
            "suspect": list(one.suspect),
            "doubted": [
                {"config": d.config, "ratio": d.ratio, "suspect": list(d.reasons), "unlike": d.unlike or None}
                for d in one.doubted
            ],
        }
        for one in found
    ]


def _ratio(one: Comparison | None) -> Mapping[str, float | None]:
    if one is None:
        return dict.fromkeys(("ratio", "low", "high"))
    return {"ratio": one.ratio, "low": one.low, "high": one.high}
