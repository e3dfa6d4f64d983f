"""What a matrix of results holds, as frozen values. Nothing is decided here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ddtop.events import CellState, Validity
from ddtop.journal.read.select import Column
from ddtop.stats.differ import Comparison
from ddtop.stats.spread import Basis

Rank = Literal["", "best", "maybe"]
SIMULATED = "acceptance-simulated"
"""A reason with which a result says nothing of what speculation is worth."""

Verdict = Literal["gain", "single", "baseline", "not shown", "no baseline", "alone"]
"""Of the best of a load against the baseline. `gain`: its interval shows that it beats it. `single`: it reads better, and
there is no spread to judge by. `not shown`: it reads better and cannot be told apart. `no baseline`: there is nothing to
compare with. `alone`: no other configuration has a result."""


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
    """`best` of its load for sure; `maybe`: the best so far, or one that does not clearly differ from it (`best.py`)."""

    @property
    def speedup(self) -> float | None:
        """value ÷ the baseline's value in the same column (its inverse where less is better): above 1 is better."""
        return self.against.ratio if self.against is not None else None

    @property
    def differs(self) -> bool | None:
        """Whether it differs from the baseline's. None: unknown."""
        return self.against.different if self.against is not None else None


class Place(NamedTuple):
    """What is held equal along a row of loads."""

    tp: int
    workload: str
    output_tokens: int
    context: int


@dataclass(frozen=True, slots=True)
class Doubted:
    """A configuration that reads better than the best of a load, and whose result is SUSPECT or of unlike work: it is better
    if its result holds."""

    config: str
    ratio: float | None
    """To the baseline."""
    suspect: bool
    reasons: tuple[str, ...]
    """Why it is SUSPECT."""
    unlike: str = ""
    """In words, where its answers are not as long as the baseline's."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best configuration under one load."""

    place: Place
    load: Column
    metric: str
    """What it is the best by."""
    config: str
    field: MatrixCell
    verdict: Verdict
    sure: bool
    """Whether every other of `among` clearly differs from it, and none in doubt reads better."""
    alike: tuple[str, ...] = ()
    """Other configurations that cannot be told apart from it: by the interval, or, without one, within NEAR of it."""
    doubted: tuple[Doubted, ...] = ()
    among: tuple[str, ...] = ()
    """The configurations that it was chosen from: those without a doubt, where there are any."""

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
        """★ where it is the best for sure, ☆ where it is the best so far."""
        return "★" if self.sure else "☆"

    @property
    def suspect(self) -> tuple[str, ...]:
        """Why its own result is SUSPECT."""
        return self.field.reasons if self.field.validity == "SUSPECT" else ()


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
    bests: tuple[Best | None, ...] = ()
    """The best of each column; None without a result that counts."""
