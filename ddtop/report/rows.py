"""Results as flat rows, one for each cell: CSV for spreadsheets and notebooks, and what the charts draw."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from ddtop.errors import plain
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import DEFAULT_METRIC, Column, metric_value, tps
from ddtop.journal.read.server_figures import load_of
from ddtop.journal.results.field import MatrixCell
from ddtop.journal.results.matrix import matrix
from ddtop.journal.results.per_gpu import GpuPoint, per_gpu
from ddtop.report.recording import Recording, iso
from ddtop.stats.differ import Comparison

KEYS = (
    "recording",
    "host",
    "plan",
    "config",
    "tp",
    "workload",
    "output_tokens",
    "context",
    "concurrency",
    "rate",
    "search",
    "repeat",
    "start",
    "sentinel",
    "id",
    "state",
    "validity",
    "reasons",
    "reason",
    "cause",
    "attempts",
    "seconds",
    "engine",
    "engine_version",
    "measured",
)
COMPARED = ("speedup", "speedup_low", "speedup_high", "different")
"""Against the baseline, with the 95% interval."""
FIRST = (
    "knee",
    "output_tok_s",
    "decode_tok_s.p50",
    "ttft_ms.p50",
    "ttft_ms.p99",
    "tpot_ms.p50",
    "itl_ms.p50",
    "e2e_ms.p50",
    "acceptance_length",
    "j_per_token",
    "tok_s_per_w",
    "requests_ok",
    "requests_failed",
)
"""Metrics that come first in a CSV; all other numbers follow by name."""


def flatten(metrics: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of `metrics` by dotted names: `ttft_ms.p50`."""
    out: dict[str, float] = {}
    for name, value in metrics.items():
        full = f"{prefix}{name}"
        if isinstance(value, dict):
            out |= flatten(value, f"{full}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            out[full] = float(value)
    return out


def report_csv(recordings: Sequence[Recording], baseline: str | None = None) -> str:
    """CSV with a header: one row for each cell of each recording. `speedup` (with its 95% interval, and whether it is
    `different`) is that of the cell's starts and repeats together against `baseline`."""
    rows: list[dict[str, Any]] = []
    for recording in recordings:
        compared = comparisons_of(recording.state, baseline)
        points = {(p.config, p.tp, p.load): p for p in per_gpu(recording.state, recording.usd_per_gpu_hour)}
        rows.extend(
            _row(recording, cell_id, compared.get(cell_id), points) for cell_id in recording.state.cells
        )
    numbers = dict.fromkeys(name for row in rows for name in row if name not in (*KEYS, *COMPARED))
    names = [*(n for n in FIRST if n in numbers), *sorted(n for n in numbers if n not in FIRST)]
    out = io.StringIO()
    writer = csv.DictWriter(out, [*KEYS, *COMPARED, *names], lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({key: plain_value(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def _row(
    recording: Recording,
    cell_id: str,
    compared: Comparison | None,
    points: dict[tuple[str, int, Column], GpuPoint],
) -> dict[str, Any]:
    state = recording.state
    cell = state.cells[cell_id]
    spec = cell.spec
    measured = [a.measured_at_s for a in cell.attempts if a.measured_at_s is not None]
    return {
        "recording": recording.name,
        "host": state.host.name,
        "plan": state.run.name,
        "config": spec.config,
        "tp": spec.tp,
        "workload": spec.workload,
        "output_tokens": spec.output_tokens,
        "context": spec.context,
        "concurrency": spec.concurrency or None,
        "rate": spec.rate,
        "search": spec.search.short if spec.search is not None else None,
        "repeat": spec.repeat,
        "start": spec.start,
        "sentinel": spec.sentinel,
        "id": spec.id,
        "state": cell.state,
        "validity": cell.validity,
        "reasons": " ".join(cell.reasons),
        "reason": cell.reason,
        "cause": cell.cause,
        "attempts": len(cell.attempts),
        "seconds": cell.seconds,
        "engine": cell.engine,
        "engine_version": cell.engine_version,
        "measured": iso(measured[-1]) if measured else None,
        **_compared(compared),
        **flatten({name: value for name, value in cell.metrics.items() if name != "by_group"}),
        **flatten(load_of(cell), "server."),
        **_per_gpu(points.get((spec.config, spec.tp, Column.of(spec)))),
    }


def _per_gpu(point: GpuPoint | None) -> dict[str, float]:
    """The figures of its field per GPU and user: of all its starts and repeats together, as `speedup` is."""
    if point is None:
        return {}
    named = {
        "gpus": point.gpus,
        "tok_s_gpu": point.tok_s_gpu,
        "tok_s_user": point.tok_s_user,
        "usd_per_mtok": point.usd_per_mtok,
        "pareto_front": int(point.front) if point.tok_s_user is not None else None,
    }
    return {name: value for name, value in named.items() if value is not None}


def plain_value(value: Any) -> Any:
    """Text without control characters (a bare carriage return would break the row), and what a spreadsheet would take for a
    formula made text; None is an empty field."""
    if isinstance(value, str):
        value = plain(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    if isinstance(value, float) and abs(value) < 1e15 and value == int(value):
        return int(value)
    return "" if value is None else value


def comparisons_of(state: State, baseline: str | None = None) -> dict[str, Comparison]:
    """Cell id → its field of the matrix (starts and repeats together) compared with the baseline's."""
    found: dict[str, Comparison] = {}
    for cell in _fields(state, baseline, DEFAULT_METRIC):
        if cell.against is not None:
            found |= dict.fromkeys(cell.ids, cell.against)
    return found


def _compared(found: Comparison | None) -> dict[str, Any]:
    """The columns of `COMPARED`; `different` is 1, 0, or empty where it is not known."""
    if found is None:
        return dict.fromkeys(COMPARED)
    different = None if found.different is None else int(found.different)
    return dict(zip(COMPARED, (found.ratio, found.low, found.high, different), strict=True))


def _fields(state: State, baseline: str | None, metric: str) -> Iterable[MatrixCell]:
    for tp in tps(state):
        for row in matrix(state, tp, metric, baseline).rows:
            yield from (cell for cell in row.cells if cell is not None)


ROUNDS = "Which configurations were started again"
"""Title of the table of `round_rows`."""


def round_rows(state: State) -> list[list[str]]:
    """Header and rows: what followed each round of starts, by a race or for precision. Empty without such rounds."""
    rows = []
    for race in state.races:
        left = "; ".join(f"{config}: {why}" for config, why in race.left.items())
        again = ", ".join(race.go_on) or f"none: {race.ended}"
        leaders = ", ".join(f"{load}: {config}" for load, config in race.leaders.items())
        rows.append([f"{race.start + 1} · tp{race.tp}", leaders, again, left])
    return [["after start", "leads", "started again", "started no more"], *rows] if rows else []


def has_metric(state: State, metric: str) -> bool:
    """Whether any cell of the present plan has a number by this name."""
    return any(metric_value(c.metrics, metric) is not None for c in state.plan_cells)
