"""Several recordings side by side: the same cell in each, and its ratio to the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtop.events import CellSpec
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import DEFAULT_METRIC, Column, short_count
from ddtop.journal.results.matrix import starts_in
from ddtop.report.recording import Recording
from ddtop.report.text import number
from ddtop.stats.spread import mean
from ddtop.words import many

Shape = tuple[str, int, Column]


@dataclass(frozen=True, slots=True)
class Compared:
    """One cell (its repeats together) in each recording; None where it has no result."""

    label: str
    values: tuple[float | None, ...]

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Each value ÷ the first recording's."""
        first = self.values[0]
        return tuple(v / first if v is not None and first else None for v in self.values)


def compare(recordings: Sequence[Recording], metric: str = DEFAULT_METRIC) -> list[Compared]:
    """Cells that at least two recordings have measured, in the order of the first that has them.

    Cells are the same if configuration, TP, workload, tokens, context and load are equal. Ids would not match:
    two hosts rarely start exactly the same command.
    """
    found: dict[Shape, list[list[CellView]]] = {}
    specs: dict[Shape, CellSpec] = {}
    for index, recording in enumerate(recordings):
        for cell in recording.state.cells.values():
            spec = cell.spec
            shape = (spec.config, spec.tp, Column.of(spec))
            specs.setdefault(shape, spec)
            found.setdefault(shape, [[] for _ in recordings])[index].append(cell)
    out: list[Compared] = []
    for shape, lists in found.items():
        results = [starts_in(cells, metric) for cells in lists]
        values = tuple(mean(result) if result else None for result in results)
        if sum(v is not None for v in values) > 1:
            out.append(Compared(_label(specs[shape]), values))
    return out


def _label(spec: CellSpec) -> str:
    name = f"{spec.workload}@{spec.output_tokens}" if spec.output_tokens else spec.workload
    return f"{spec.config} · tp{spec.tp} · {name} · {short_count(spec.context)} ctx · {spec.load_name}"


def compared_table(recordings: Sequence[Recording], metric: str = DEFAULT_METRIC) -> list[list[str]]:
    """Header and rows as text; empty where nothing can be compared."""
    rows = compare(recordings, metric)
    if not rows:
        return []
    out = [["", *(r.name for r in recordings)]]
    for row in rows:
        fields = [
            ("–" if value is None else number(value))
            + (f" ({ratio:.2f}×)" if index and ratio is not None else "")
            for index, (value, ratio) in enumerate(zip(row.values, row.ratios, strict=True))
        ]
        out.append([row.label, *fields])
    return out


def compared_words(recordings: Sequence[Recording], metric: str = DEFAULT_METRIC) -> str:
    """The comparison in a sentence: over how many cells, and by how much each recording differs from the first."""
    rows = compare(recordings, metric)
    first = recordings[0].name if recordings else ""
    said: list[str] = []
    for index, recording in enumerate(recordings[1:], 1):
        ratios = sorted(r for row in rows if (r := row.ratios[index]) is not None)
        if not ratios:
            said.append(f"{recording.name} and {first} have no measured cell in common")
            continue
        middle = f"{ratios[len(ratios) // 2]:.2f}× {first}"
        span = f" ({ratios[0]:.2f}× to {ratios[-1]:.2f}×)" if len(ratios) > 1 else ""
        said.append(f"{recording.name} has {middle} in the median of {many(len(ratios), 'cell')}{span}")
    return f"{'; '.join(said)}. Ratios of {metric}, without an interval: starts of different recordings are not pooled."
