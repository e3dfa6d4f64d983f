"""The best configuration of a load: from which it is chosen, which it is, and whether that is sure. Pure.

This is the one place that says it. Screens, `status`, `cells`, reports, charts and advice show what `matrix.py` had from
here. A result that is SUSPECT, or of unlike work, is the best only where nothing without a doubt was measured, or where
nothing without a doubt reads as good as a baseline in doubt: what loses to that wins nothing. Where a result in doubt reads
better than the best, it is named beside it, since it is better if it holds, and then nothing is sure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import DEFAULT_METRIC, Column, short_count
from ddtop.journal.results.field import SIMULATED, Doubted, MatrixCell, Place, Rank, Verdict
from ddtop.stats.differ import Comparison, differences
from ddtop.stats.spread import Spread, Starts

LATENCY = "e2e_ms.p50"
"""What a rate is judged by: all servers that keep up with it give the same tokens per second."""
NEAR = 0.03
"""Single runs this close say nothing of which is better: starts alone differ by as much."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How the results of one load stand to each other; the words are those of `Best`."""

    config: str
    verdict: Verdict
    sure: bool
    alike: tuple[str, ...]
    doubted: tuple[Doubted, ...]
    among: tuple[str, ...]

    @property
    def ranks(self) -> dict[str, Rank]:
        """The mark of each configuration; none where there is nothing to compare."""
        if self.verdict == "alone":
            return {}
        return {**dict.fromkeys(self.alike, "maybe"), self.config: "best" if self.sure else "maybe"}


def judged_by(load: Column, cells: Iterable[CellView]) -> str:
    """What a load is judged by: throughput; a search by its knee; a rate by its latency, where that was measured."""
    if load.search:
        return "knee"
    if load.rate is not None and any(isinstance(c.metrics.get("e2e_ms"), dict) for c in cells):
        return LATENCY
    return DEFAULT_METRIC


def standing(
    fields: Mapping[str, MatrixCell],
    results: Mapping[str, Starts],
    spread: Spread,
    floor: float,
    *,
    lower: bool,
    baseline: str | None,
) -> Standing | None:
    """How the configurations of one load stand. None where none has a result that counts.

    `fields` and `results`: of each configuration but the baseline's twin. `lower`: less is better.
    """
    counted = {c: f for c, f in fields.items() if f.n and f.value and SIMULATED not in f.reasons}
    if not counted:
        return None
    worth = {c: (f.value or 0.0) * (-1 if lower else 1) for c, f in counted.items()}
    among = [c for c, f in counted.items() if f.validity != "SUSPECT" and not f.unlike] or list(counted)
    top = max(worth[c] for c in among)
    if worth.get(baseline or "", top) > top:
        among = list(counted)
    leader = max(among, key=lambda config: worth[config])
    others = {c: results[c] for c in among if c != leader}
    found = differences(results[leader], others, spread, floor)
    doubted = tuple(
        Doubted(c, f.speedup, f.validity == "SUSPECT", f.reasons if f.validity == "SUSPECT" else (), f.unlike)
        for c, f in counted.items()
        if c not in among and worth[c] > worth[leader]
    )
    sound = counted[leader].validity != "SUSPECT" and not counted[leader].unlike
    sure = bool(others) and sound and not doubted and all(one.different for one in found.values())
    return Standing(
        leader,
        _verdict(counted[leader], fields.get(baseline or ""), leader == baseline, len(counted)),
        sure,
        tuple(c for c, one in found.items() if _alike(one, floor)),
        doubted,
        tuple(among),
    )


def _alike(one: Comparison, floor: float) -> bool:
    """Whether a result cannot be told apart from the leader's, which `one` compares it with."""
    if one.different is not None or one.ratio is None:
        return one.different is False
    within = one.low is not None and one.high is not None and one.low <= 1 <= one.high
    return within or abs(one.ratio - 1) <= max(NEAR, floor)


def _verdict(field: MatrixCell, base: MatrixCell | None, is_base: bool, count: int) -> Verdict:
    if count < 2:
        return "alone"
    against = field.against
    if base is None or not base.n or SIMULATED in base.reasons or against is None or against.ratio is None:
        return "no baseline"
    if is_base:
        return "baseline"
    if against.different is None:
        return "single"
    return "gain" if against.different else "not shown"


def load_words(place: Place, loads: Sequence[Column], all_places: Sequence[Place]) -> str:
    """The place in words, with what differs among `all_places` alone, and its loads: `fib@256 c1–c8`."""
    tokens = f"@{place.output_tokens}" if place.output_tokens else ""
    parts = [f"tp{place.tp}"] if len({p.tp for p in all_places}) > 1 else []
    parts.append(f"{place.workload}{tokens}")
    if len({p.context for p in all_places}) > 1:
        parts.append(f"{short_count(place.context)} ctx")
    names = [load.load_name for load in loads]
    return " ".join([*parts, names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}"])
