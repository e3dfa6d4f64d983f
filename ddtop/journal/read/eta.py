"""How long the rest of the sweep takes, from what was measured so far. Pure: time is an argument."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median
from typing import NamedTuple

import tomli

from ddtop.events import CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import key_of, remaining, tps
from ddtop.stats.spread import Spread

DEFAULT_LIMIT_S = 600.0
"""`[bench] time_limit_s` of a plan that says none."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What earlier runs taught, for cells and restarts of which this run has measured none. Seconds."""

    cell_s: Callable[[CellSpec], float | None] = lambda _spec: None
    restart_s: Callable[[str, int], float | None] = lambda _config, _tp: None
    """(config, tp) → seconds from the call to ready."""
    spread: Spread = field(default_factory=Spread)
    """Of tok/s between starts."""


@dataclass(frozen=True, slots=True)
class Eta:
    """Expected rest of the sweep. `total_s` is None where no similar cell or start was measured."""

    total_s: float | None
    cells: int
    """Cells left, the one in flight included."""
    restarts: int
    """Server starts left."""
    cell_s: float | None = None
    """The part of `total_s` spent measuring."""
    restart_s: float | None = None
    """The part of `total_s` spent waiting for starts."""
    at_most: bool = False
    """A race, or precision, will leave out some of them."""
    low_s: float = 0.0
    """No less than this is expected."""
    high_s: float | None = None
    """No more than this is expected while nothing goes wrong; None where not even a limit is known."""

    @property
    def words(self) -> str:
        """The time left: `1h40m to 2h10m`, `at most 2h10m`, `about 4m`, or that it is not known."""
        if self.high_s is None:
            return f"about {rough(self.total_s)}" if self.total_s is not None else "time unknown"
        low, high = rough(self.low_s), rough(self.high_s)
        if self.at_most or self.total_s is None:
            return f"at most {high}"
        return f"about {high}" if low == high else f"{low} to {high}"

    def ends_by(self, now_s: float) -> float | None:
        """Wall time at which all is done while nothing goes wrong; where no limit is known, the likeliest."""
        left = self.high_s if self.high_s is not None else self.total_s
        return None if left is None else now_s + left


def rough(seconds: float) -> str:
    """A time to come, no finer than it is known: `40s`, `3m`, `1h40m`, `5h`.

    >>> [rough(s) for s in (0, 44, 200, 6000, 17_000, 200_000)]
    ['10s', '50s', '4m', '1h40m', '4h50m', '55h']
    """
    if seconds < 90:
        return f"{max(10, math.ceil(seconds / 10) * 10)}s"
    minutes = math.ceil(seconds / 60)
    if minutes >= 60:
        minutes = math.ceil(minutes / 5) * 5
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours >= 10:
        return f"{hours + (minutes > 30)}h" if hours < 48 else f"{hours}h"
    return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"


class Span(NamedTuple):
    """How long something is expected to take, in seconds."""

    low: float
    mid: float
    high: float

    def less(self, spent: float) -> Span:
        """What is left of it after `spent` seconds."""
        return Span(*(max(0.0, each - spent) for each in self))


Sample = tuple[CellSpec, float]

AGAIN = (0.85, 1.2)
"""The same configuration under the same load takes between these shares of what it took."""
KNOWN_PACE = (0.6, 1.6)
"""… under a load that others have been measured under, where its pace beside theirs is known."""
OTHER = (0.3, 2.5)
"""… under a load that others have been measured under: configurations differ by as much."""
ENOUGH = 3
"""… or as much as these differ, from so many configurations on."""
EARLIER = (0.6, 1.8)
"""… in an earlier run."""
START_AGAIN, START_OTHER = (0.8, 1.3), (0.5, 2.0)
SLACK_S = 15.0
"""A cell may take this long, and a third of its limit (the warm-up), beside the time limit of its window."""


@lru_cache(maxsize=4)
def cell_limit_s(plan_toml: str | None) -> float | None:
    """The longest a cell with one load may take by the plan's limits; None where its plan is not recorded."""
    if plan_toml is None:
        return None
    try:
        bench = tomli.loads(plan_toml).get("bench", {})
        return float(bench.get("time_limit_s", DEFAULT_LIMIT_S)) * 4 / 3 + SLACK_S
    except (tomli.TOMLDecodeError, AttributeError, TypeError, ValueError):
        return None


def longest_s(spec: CellSpec, limit_s: float | None) -> float | None:
    """The longest this cell may take: a search at each load of its doublings and halvings, and at the confirmation."""
    search = spec.search
    if search is None or limit_s is None:
        return limit_s
    points = max(0, math.ceil(math.log2(search.most / search.start))) + 4
    return points * search.point_s + (limit_s if search.confirm_s else 0.0)


def _load(spec: CellSpec) -> tuple[Hashable, ...]:
    return (spec.output_tokens, spec.load_name, spec.context, spec.workload, spec.tp)


class Times:
    """How long the cells measured so far took, looked up by what they have in common with one to come."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)
        self._loads: dict[tuple[Hashable, ...], dict[str, list[float]]] = {}
        self._near: dict[tuple[Hashable, ...], list[float]] = {}
        """Leading part of (load, configuration) → seconds: what matters most comes first."""
        self._paces: dict[str, float | None] = {}
        self._scaled: dict[tuple[Hashable, ...], Span] = {}
        self._configs = dict.fromkeys(spec.config for spec, _ in self._samples)
        for spec, seconds in self._samples:
            self._loads.setdefault(_load(spec), {}).setdefault(spec.config, []).append(seconds)
            key = (*_load(spec), spec.config)
            for length in range(len(key) + 1):
                self._near.setdefault(key[:length], []).append(seconds)

    def span(self, spec: CellSpec, learned_s: float | None, limit_s: float | None) -> Span | None:
        """How long a cell takes, by those measured so far, else by earlier runs, and never more than its limit. None
        where nothing like it was measured; its limit is then all that is known."""
        same = self._loads.get(_load(spec), {})
        found: Span | None = None
        if spec.config in same:
            found = _around(median(same[spec.config]), AGAIN)
        elif learned_s is not None and not same:
            found = _around(learned_s, EARLIER)
        elif same:
            pace = self._pace(spec.config)
            likely = median(s for each in same.values() for s in each) * (pace or 1.0)
            found = _around(likely, self._strange if pace is None else KNOWN_PACE)
        elif self._samples:
            found = self._of_other_loads(spec)
        if found is None or limit_s is None:
            return found
        return Span(*(min(each, limit_s) for each in found))

    def _pace(self, config: str) -> float | None:
        """How long this configuration takes beside the others, over the loads that both were measured under."""
        if config not in self._paces:
            ratios = [
                median(mine[config])
                / median(s for name, each in mine.items() if name != config for s in each)
                for mine in self._loads.values()
                if config in mine and len(mine) > 1
            ]
            self._paces[config] = median(ratios) if ratios else None
        return self._paces[config]

    @property
    def _strange(self) -> tuple[float, float]:
        """Between which shares of the others' time a configuration may take that has not been met yet: as far as those
        met are apart, and some more."""
        paces = [p for config in self._configs if (p := self._pace(config)) is not None]
        if len(paces) < ENOUGH:
            return OTHER
        return max(OTHER[0], min(paces) * KNOWN_PACE[0]), min(OTHER[1], max(paces) * KNOWN_PACE[1])

    def _of_other_loads(self, spec: CellSpec) -> Span:
        """From the cells of other loads. More streams and more tokens take no more than in proportion; what a longer context
        or another workload takes is not known from them: only the limit is."""
        key = (*_load(spec), spec.config)
        if key not in self._scaled:
            near = next(n for n in range(len(key), -1, -1) if key[:n] in self._near)
            mid = median(self._near[key[:near]])
            bounds = [
                seconds
                * max(1.0, spec.concurrency / one.concurrency)
                * max(1.0, spec.output_tokens / max(1, one.output_tokens))
                for one, seconds in self._samples
                if one.concurrency
                and spec.concurrency
                and spec.context <= one.context
                and spec.workload == one.workload
            ]
            high = max(mid, min(bounds)) * OTHER[1] if bounds else math.inf
            low = min(seconds for _, seconds in self._samples) * OTHER[0]
            self._scaled[key] = Span(low, mid, high)
        return self._scaled[key]


def _around(seconds: float, shares: tuple[float, float]) -> Span:
    return Span(seconds * shares[0], seconds, seconds * shares[1])


def start_span(
    spec: CellSpec, samples: Sequence[tuple[int, str, float]], learned_s: float | None
) -> Span | None:
    """How long a start of the configuration takes; None where nothing like it was seen."""
    own = [s for tp, config, s in samples if (tp, config) == (spec.tp, spec.config)]
    if own:
        return _around(median(own), START_AGAIN)
    if learned_s is not None:
        return _around(learned_s, EARLIER)
    same = [s for tp, _, s in samples if tp == spec.tp] or [s for *_, s in samples]
    return _around(median(same), START_OTHER) if same else None


def sweep_eta(state: State, now_s: float, prior: Prior | None = None) -> Eta:
    """ETA of the cells left in the present plan at wall time `now_s`: the likeliest, and between which bounds.

    A cell is expected as `Times.span` says, a search as other searches, a start as `start_span` says; what earlier runs took
    is of `prior`, else of the recording. What was already spent on the cell or start in flight is taken off.
    """
    left = remaining(state)
    known, learned = prior, state.learned
    # A search takes as long as searches do, never as long as one load.
    samples: dict[bool, list[Sample]] = {True: [], False: []}
    for cell in state.cells.values():
        if cell.seconds is not None:
            samples[cell.spec.search is not None].append((cell.spec, cell.seconds))
    begun = [(r.tp, r.config, r.seconds) for r in state.restarts if r.outcome == "ready" and r.seconds]
    times = {search: Times(found) for search, found in samples.items()}
    limit_s = cell_limit_s(state.run.plan_toml)

    def past_cell_s(cell: CellView) -> float | None:
        if known is not None:
            return known.cell_s(cell.spec)
        return learned.cells.get(cell.id) if learned is not None else None

    def past_start_s(spec: CellSpec) -> float | None:
        if known is not None:
            return known.restart_s(spec.config, spec.tp)
        return learned.starts.get(spec.restart_key) if learned is not None else None

    parts: dict[str, list[Span]] = {}
    """Restart key → what is left of its start and cells: whatever makes one of them slow makes all of them slow."""
    unknown: list[float | None] = []
    """Of those of which no like was measured: the most they may take, None where there is no limit."""
    cells_s = starts_s = 0.0
    for cell in left:
        single = cell.spec.search is None
        most = longest_s(cell.spec, limit_s)
        span = times[not single].span(cell.spec, past_cell_s(cell), most)
        spent = 0.0
        if cell.state == "running" and cell.attempts and cell.attempts[-1].started_at_s is not None:
            spent = max(0.0, now_s - cell.attempts[-1].started_at_s)
        if span is None:
            unknown.append(None if most is None else max(0.0, most - spent))
            continue
        parts.setdefault(cell.spec.restart_key, []).append(span.less(spent))
        cells_s += span.less(spent).mid
    under_way = state.restarting
    starts = _starts_left(state, left)
    for spec in starts.values():
        past = past_start_s(spec)
        spent = 0.0
        if under_way is not None and (under_way.config, under_way.tp) == (spec.config, spec.tp):
            past = past if past is not None else under_way.expected_s
            spent = max(0.0, now_s - under_way.started_at_s)
        span = start_span(spec, begun, past)
        if span is None:
            unknown.append(None)
            continue
        parts.setdefault(spec.restart_key, []).append(span.less(spent))
        starts_s += span.less(spent).mid
    total, wide = cells_s + starts_s, sum(most for most in unknown if most is not None)
    low, high = _bounds(list(parts.values()))
    return Eta(
        total_s=total if not unknown else None,
        cells=len(left),
        restarts=len(starts),
        cell_s=cells_s if not unknown else None,
        restart_s=starts_s if not unknown else None,
        at_most=bool(state.run.rule) and {r.tp for r in state.races if r.ended} < set(tps(state)),
        low_s=max(0.0, total - low),
        high_s=None if None in unknown or math.isinf(high) else total + high + wide,
    )


def _bounds(parts: Sequence[Sequence[Span]]) -> tuple[float, float]:
    """How far below and above the likeliest the whole may be. Parts of one start are wrong together; those of several
    starts are not, so what they may be shorter adds up as squares. What they may be longer adds up in full: an end that was
    said should hold."""
    below = (math.fsum(span.mid - span.low for span in mine) for mine in parts)
    above = (math.fsum(span.high - span.mid for span in mine) for mine in parts)
    return math.hypot(*below), math.fsum(above)


def _starts_left(state: State, left: Sequence[CellView]) -> dict[str, CellSpec]:
    """Restart key → a cell of each start that is still to be made."""
    current = state.restart
    ready = current is not None and current.outcome == "ready"
    serving = key_of(state, current.cell_ids) if current is not None and ready else None
    starts: dict[str, CellSpec] = {}
    for cell in left:
        same = (cell.spec.config, cell.spec.tp)
        of_config = ready and current is not None and (current.config, current.tp) == same
        if not (of_config and serving in (None, cell.spec.restart_key)):
            starts.setdefault(cell.spec.restart_key, cell.spec)
    return starts
