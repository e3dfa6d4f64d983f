"""What speculation is worth by group of prompts: configurations × groups, speed-up with acceptance. Pure.

The figures are those of `by_group` (bench/figures/groups.py): of one cell for all groups, or of a cell for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ddtop.bench.worth.break_even import BreakEven, Point, break_even
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import short_count
from ddtop.journal.results.field import SIMULATED, MatrixCell
from ddtop.journal.results.matrix import starts_in, usable
from ddtop.stats.differ import Comparison, differences
from ddtop.stats.spread import Spread, Starts, mean, pooled, value_of

SPEED, LENGTH = "decode_tok_s.mean", "acceptance_length"


class Place(NamedTuple):
    """What is held equal in one table."""

    tp: int
    workload: str
    """Its name in the plan."""
    output_tokens: int
    context: int
    load: str
    streams: int
    """Of a closed loop; 0 at a rate and of a search."""

    @property
    def load_label(self) -> str:
        """`tp1 · c8`, with the context where there is one."""
        context = f" · {short_count(self.context)} ctx" if self.context else ""
        return f"tp{self.tp}{context} · {self.load}"

    @property
    def curve(self) -> str:
        """`mixed@1024 · tp1`: what is held equal while the concurrency rises."""
        context = f" · {short_count(self.context)} ctx" if self.context else ""
        return f"{self.workload}@{self.output_tokens} · tp{self.tp}{context}"

    @property
    def label(self) -> str:
        """`mixed@1024 · tp1 · c8`."""
        return f"{self.workload}@{self.output_tokens} · {self.load_label}"


@dataclass(frozen=True, slots=True)
class GroupField:
    """One configuration in one group. `cell`: its decode rate (tok/s of a request) with interval and comparison."""

    cell: MatrixCell
    acceptance: float | None
    """Tokens a verification step; None: not known."""
    requests: int

    @property
    def unsaid(self) -> bool:
        """Whether it has an acceptance length that its server says of all its requests together only."""
        return self.acceptance is None and self.cell.reason == UNSAID


@dataclass(frozen=True, slots=True)
class GroupRow:
    config: str
    baseline: bool
    fields: tuple[GroupField | None, ...]
    """One for each group; None where nothing was measured."""


@dataclass(frozen=True, slots=True)
class GroupTable:
    """All configurations at one load."""

    place: Place
    baseline: str | None
    groups: tuple[str, ...]
    rows: tuple[GroupRow, ...]

    @property
    def unsaid(self) -> bool:
        """Whether a server has an acceptance length for all its requests together only."""
        return any(f is not None and f.unsaid for r in self.rows for f in r.fields)


UNSAID = "its server does not say the acceptance of each response"
NOTE = (
    "n/a: the server does not say the acceptance of each response. group_cells = true in [[workload]] measures each group "
    "in a cell of its own."
)


def place_of(cell: CellView) -> Place:
    """The table that a cell belongs to."""
    spec = cell.spec
    name = spec.workload.removesuffix(f":{spec.group}") if spec.group else spec.workload
    return Place(spec.tp, name, spec.output_tokens, spec.context, spec.load_name, spec.concurrency)


def group_tables(state: State, baseline: str | None = None) -> list[GroupTable]:
    """One for each load of a workload with groups, in running order; none where no result has any."""
    against = baseline if baseline is not None else state.run.baseline
    found: dict[Place, list[CellView]] = {}
    for cell in state.plan_cells:
        if _groups(cell):
            found.setdefault(place_of(cell), []).append(cell)
    return [_table(place, cells, against) for place, cells in found.items()]


def pays(tables: Iterable[GroupTable]) -> list[tuple[str, dict[str, dict[str, BreakEven]]]]:
    """For each workload that was measured at several concurrencies: its name, and configuration → group → up to which
    concurrency its requests decode faster than the baseline's."""
    points: dict[str, dict[int, GroupTable]] = {}
    for table in tables:
        if table.place.streams:
            points.setdefault(table.place.curve, {})[table.place.streams] = table
    out = []
    for name, mine in points.items():
        found: dict[str, dict[str, BreakEven]] = {}
        for config in dict.fromkeys(row.config for t in mine.values() for row in t.rows if not row.baseline):
            for group in dict.fromkeys(group for t in mine.values() for group in t.groups):
                line = [p for c, t in mine.items() if (p := _point(t, config, group, c)) is not None]
                if len(line) > 1:
                    found.setdefault(config, {})[group] = break_even(line)
        if found:
            out.append((name, found))
    return out


def pays_words(tables: Iterable[GroupTable]) -> list[str]:
    """`pays` in lines: a workload with the baseline, then each configuration with its groups."""
    tables = list(tables)
    base = next((t.baseline for t in tables if t.baseline), "")
    lines = []
    for name, found in pays(tables):
        lines.append(f"{name}: up to which concurrency a request decodes faster than {base}'s")
        lines += [
            f"  {config}: " + " · ".join(f"{group} {even.words}" for group, even in by_group.items())
            for config, by_group in found.items()
        ]
    return lines


def _point(table: GroupTable, config: str, group: str, streams: int) -> Point | None:
    row = next((r for r in table.rows if r.config == config), None)
    if row is None or group not in table.groups:
        return None
    field = row.fields[table.groups.index(group)]
    if field is None or field.cell.against is None or SIMULATED in field.cell.reasons:
        return None
    one = field.cell.against
    return Point(streams, one.ratio, one.low, one.high) if one.ratio is not None else None


def _groups(cell: CellView) -> dict[str, Any]:
    by_group = cell.metrics.get("by_group")
    return by_group if isinstance(by_group, dict) else {}


def _table(place: Place, cells: list[CellView], baseline: str | None) -> GroupTable:
    groups = tuple(dict.fromkeys(name for cell in cells for name in _groups(cell)))
    by_config: dict[str, list[CellView]] = {}
    for cell in cells:
        if not cell.spec.aa:
            by_config.setdefault(cell.spec.config, []).append(cell)
    columns = [_column(name, by_config, baseline) for name in groups]
    rows = tuple(
        GroupRow(config, config == baseline, tuple(column.get(config) for column in columns))
        for config in by_config
    )
    return GroupTable(place, baseline, groups, rows)


def _column(group: str, by_config: dict[str, list[CellView]], baseline: str | None) -> dict[str, GroupField]:
    mine = {config: [c for c in cells if group in _groups(c)] for config, cells in by_config.items()}
    results = {config: starts_in(cells, f"by_group.{group}.{SPEED}") for config, cells in mine.items()}
    spread = pooled(results.values())
    reference: Starts = results.get(baseline or "", ())
    found = differences(reference, {c: r for c, r in results.items() if c != baseline}, spread)
    if reference and baseline is not None:
        found[baseline] = Comparison(None, 1.0, why="the baseline itself")
    return {
        config: _field(group, cells, results[config], spread, found.get(config))
        for config, cells in mine.items()
        if cells
    }


def _field(
    group: str, cells: list[CellView], result: Starts, spread: Spread, against: Comparison | None
) -> GroupField:
    value = value_of(result, spread)
    lengths = starts_in(cells, f"by_group.{group}.{LENGTH}")
    counting = [c for c in cells if usable(c)]
    verdicts = {c.validity for c in counting}
    unsaid = not lengths and any("acceptance_length" in c.metrics for c in counting)
    return GroupField(
        MatrixCell(
            ids=tuple(c.id for c in cells),
            state=cells[0].state,
            value=value.value if value is not None else None,
            low=value.low if value is not None else None,
            high=value.high if value is not None else None,
            n=value.n if value is not None else 0,
            starts=value.starts if value is not None else 0,
            basis=spread.basis if value is not None else None,
            against=against,
            validity="SUSPECT" if "SUSPECT" in verdicts else next(iter(verdicts), None),
            reasons=tuple(dict.fromkeys(r for c in counting for r in c.reasons)),
            reason=UNSAID if unsaid else "",
        ),
        mean(lengths) if lengths else None,
        sum(int(_groups(c)[group].get("n") or 0) for c in counting),
    )


LONG = (
    *(
        "config",
        "tp",
        "workload",
        "output_tokens",
        "context",
        "load",
        "group",
        "start",
        "repeat",
        "id",
        "validity",
    ),
    *("requests", "acceptance_length", "acceptance_source", "decode_tok_s", "tpot_ms", "output_tokens_made"),
)


def long_rows(cells: Iterable[CellView]) -> list[dict[str, Any]]:
    """One row for each cell and group, with the names of LONG: what notebooks pivot. What is not known is None."""
    out = []
    for cell in cells:
        place, spec = place_of(cell), cell.spec
        for group, found in _groups(cell).items():
            values = (
                *(spec.config, spec.tp, place.workload, spec.output_tokens, spec.context, place.load, group),
                *(spec.start, spec.repeat, cell.id, cell.validity, found.get("n")),
                *(found.get("acceptance_length"), found.get("acceptance_source")),
                *((found.get(name) or {}).get("mean") for name in ("decode_tok_s", "tpot_ms")),
                found.get("output_tokens"),
            )
            out.append(dict(zip(LONG, values, strict=True)))
    return out
