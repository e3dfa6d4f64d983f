"""What there is to choose from in one recording, and the errors of a choice that is not there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtop.charts.axes import METRICS, PLACES, SPLITS, measured
from ddtop.charts.fields import everywhere, variables_of
from ddtop.charts.held import NONE
from ddtop.charts.kinds import LOADS
from ddtop.errors import UsageError
from ddtop.events import CellSpec
from ddtop.journal.fold.state import State


@dataclass(frozen=True, slots=True)
class Names:
    """What there is to choose from in one recording."""

    x: tuple[str, ...] = ()
    y: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()
    """Of `by`, what really differs between the cells."""
    others: tuple[str, ...] = ()
    """Numbers of results that have no entry in METRICS: they can be named too."""


def names_of(state: State) -> Names:
    """The axes and splits of a recording: what its plan varies, and what was measured."""
    found, own = measured(state), variables_of(state)
    others = tuple(name for name in found if name not in METRICS)
    metrics = [name for name in found if name in METRICS] or list(others)
    specs = [cell.spec for cell in state.plan_cells]
    varied = [name for name in PLACES if len({_set(spec, name) for spec in specs} - {0, None}) > 1]
    places = [name for name in LOADS if name not in varied and any(_set(s, name) for s in specs)]
    splits = [*SPLITS, *own, NONE]
    return Names(
        (*varied, *places, *own, *metrics), tuple(metrics), tuple(splits), _varied(state, splits), others
    )


def _varied(state: State, splits: Sequence[str]) -> tuple[str, ...]:
    found = everywhere(state)
    return (*(name for name in splits if len({f.where(name) for f in found}) > 1), NONE)


def _set(spec: CellSpec, name: str) -> float | None:
    if name == "concurrency" and (spec.rate is not None or spec.search is not None):
        return None
    value = getattr(spec, name)
    return float(value) if value is not None else None


def check_choice(known: Names, x: str | None, y: str | None, by: str | None, held: Sequence[str]) -> None:
    """Raises UsageError for a name that the recording does not have; says which there are."""
    for split in held:
        if split not in SPLITS:
            raise UsageError(f"nothing is held still by `{split}`", do=f"name one of: {', '.join(SPLITS)}")
    for kind, name, names in (("x", x, known.x), ("y", y, known.y), ("by", by, known.by)):
        if name is None or name in names or (kind != "by" and name in known.others):
            continue
        more = f", or another of the {len(known.others)} numbers of a result in report --json"
        raise UsageError(
            f"this recording has nothing named `{name}` for {kind}",
            do=f"{kind} is one of: {', '.join(names)}" + (more if kind != "by" and known.others else "")
            if names
            else "no cell has a result yet",
        )
