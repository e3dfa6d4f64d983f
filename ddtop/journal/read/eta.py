"""How long the rest of the sweep takes, from what was measured so far. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from statistics import median

from ddtop.events import CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import key_of, remaining, tps
from ddtop.stats.spread import Spread


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


def _best(samples: Iterable[tuple[Hashable, ...]], wanted: tuple[Hashable, ...]) -> float | None:
    """Median of the samples that share the longest leading part of `wanted` with it.

    Each sample is its key followed by its seconds; keys go from what matters most to what matters least.
    """
    pool = list(samples)
    for length in range(len(wanted), -1, -1):
        near = [s[-1] for s in pool if s[:length] == wanted[:length]]
        numbers = [n for n in near if isinstance(n, float)]
        if numbers:
            return float(median(numbers))
    return None


def _cell_key(spec: CellSpec) -> tuple[Hashable, ...]:
    return (spec.output_tokens, spec.load_name, spec.context, spec.workload, spec.tp, spec.config)


def sweep_eta(state: State, now_s: float, prior: Prior | None = None) -> Eta:
    """ETA of the cells left in the present plan at wall time `now_s`.

    A cell is taken to last as long as the measured ones most like it (same output tokens first, then
    load, context, workload, TP, configuration), a search as other searches; a start as long as the ones of the same TP and
    configuration. What was already spent on the cell or start in flight is taken off.
    """
    left = remaining(state)
    known = prior if prior is not None else Prior()
    # A search takes as long as searches do, never as long as one load.
    cell_samples: dict[bool, list[tuple[Hashable, ...]]] = {True: [], False: []}
    for cell in state.cells.values():
        if cell.seconds is not None:
            cell_samples[cell.spec.search is not None].append((*_cell_key(cell.spec), cell.seconds))
    start_samples = [
        (r.tp, r.config, r.seconds) for r in state.restarts if r.outcome == "ready" and r.seconds
    ]

    current = state.restart
    ready = current is not None and current.outcome == "ready"
    serving = key_of(state, current.cell_ids) if current is not None and ready else None
    starts: dict[str, CellSpec] = {}
    for cell in left:
        same = (cell.spec.config, cell.spec.tp)
        of_config = ready and current is not None and (current.config, current.tp) == same
        if not (of_config and serving in (None, cell.spec.restart_key)):
            starts.setdefault(cell.spec.restart_key, cell.spec)

    cells_s, starts_s = 0.0, 0.0
    unknown = False
    for cell in left:
        each = _best(cell_samples[cell.spec.search is not None], _cell_key(cell.spec))
        each = each if each is not None else known.cell_s(cell.spec)
        if each is None:
            unknown = True
            continue
        spent = 0.0
        if cell.state == "running" and cell.attempts and cell.attempts[-1].started_at_s is not None:
            spent = max(0.0, now_s - cell.attempts[-1].started_at_s)
        cells_s += max(0.0, each - spent)
    for spec in starts.values():
        each = _best(start_samples, (spec.tp, spec.config))
        each = each if each is not None else known.restart_s(spec.config, spec.tp)
        under_way = state.restarting
        spent = 0.0
        if under_way is not None and (under_way.config, under_way.tp) == (spec.config, spec.tp):
            each = each if each is not None else under_way.expected_s
            spent = max(0.0, now_s - under_way.started_at_s)
        if each is None:
            unknown = True
            continue
        starts_s += max(0.0, each - spent)
    total = None if unknown else cells_s + starts_s
    return Eta(
        total_s=total,
        cells=len(left),
        restarts=len(starts),
        cell_s=cells_s if not unknown else None,
        restart_s=starts_s if not unknown else None,
        at_most=bool(state.run.rule) and {r.tp for r in state.races if r.ended} < set(tps(state)),
    )
