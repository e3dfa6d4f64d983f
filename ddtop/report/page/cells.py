"""All that is known of each cell, for the file's own details: figures, doubts in words, server and power over it, its log. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ddtop.bench.figures.stats import shown_percentile
from ddtop.bench.judge.validity import TABLE
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView, CellView
from ddtop.journal.read.select import comes_in_bursts, metric_value
from ddtop.journal.read.server_figures import SHOWN, load_over, measured_attempt
from ddtop.journal.results.field import Matrix
from ddtop.report.conclusion.words import times
from ddtop.report.page.trace import Trace
from ddtop.report.recording import second
from ddtop.report.text import number
from ddtop.words import duration

LATENCIES = (
    ("ttft_ms", "TTFT"),
    ("tpot_ms", "TPOT"),
    ("itl_ms", "ITL"),
    ("e2e_ms", "end to end"),
)
FIGURES = (
    ("output_tok_s", "output", "tok/s"),
    ("decode_tok_s.p50", "decode of a request, median", "tok/s"),
    ("input_tok_s", "input", "tok/s"),
    ("requests_s", "requests", "/s"),
    ("knee", "knee", ""),
    ("acceptance_length", "acceptance length", "tokens/step"),
    ("requests_ok", "requests ok", ""),
    ("requests_failed", "requests failed", ""),
    ("requests_unfinished", "requests unfinished", ""),
    ("in_flight_mean", "in flight, mean", ""),
    ("cached_share", "prompt tokens cached, share", ""),
    ("prefix_cache.rate", "prefix cache hits by the server's counters, share", ""),
    ("j_per_token", "energy", "J/token"),
    ("power_mean_w", "power, mean", "W"),
    ("power_max_w", "power, largest", "W"),
    ("wall_s", "window", "s"),
    ("client.utilisation", "load generator busy, share", ""),
)
PERCENTILES = ("p50", "p90", "p99")
GLYPHS = {
    "done": "✓",
    "failed": "✗",
    "broken": "✗",
    "skipped": "–",
    "interrupted": "‖",
    "planned": "·",
    "running": "▶",
}
FEW = 3
"""Lines of the log of a cell that nothing speaks against."""
POINTS = 40
"""Points of a line over a cell."""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure over a cell, drawn, with its mean and largest in words."""

    name: str
    words: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Detail:
    """One cell."""

    id: str
    glyph: str
    title: str
    summary: str
    doubts: tuple[tuple[str, str, str], ...]
    """(reason, what it means, what to do)."""
    facts: tuple[tuple[str, str], ...]
    latencies: tuple[tuple[str, ...], ...]
    figures: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    log: str
    attempts: tuple[tuple[str, ...], ...]


def details(state: State, trace: Trace, views: Sequence[Matrix]) -> list[tuple[str, list[Detail]]]:
    """(configuration and TP, its cells) in the plan's order."""
    ratios = {
        cell_id: times(cell.against)
        for view in views
        for row in view.rows
        for cell in row.cells
        if cell is not None and not row.baseline
        for cell_id in cell.ids
    }
    groups: dict[str, list[Detail]] = {}
    for cell in state.plan_cells:
        name = f"{cell.spec.config} tp{cell.spec.tp}"
        groups.setdefault(name, []).append(_detail(cell, trace, ratios.get(cell.id, "")))
    return list(groups.items())


def anchor(cell_id: str) -> str:
    """The id of a cell's details in the page.

    >>> anchor('b15-8"0')
    'c-b15-8_22_0'
    """
    return "c-" + "".join(
        c if c.isascii() and (c.isalnum() or c in "-.") else f"_{ord(c):x}_" for c in cell_id
    )


def _detail(cell: CellView, trace: Trace, ratio: str) -> Detail:
    speed = metric_value(cell.metrics, "output_tok_s")
    parts: list[str] = [cell.state, cell.validity or ""]
    if speed is not None and cell.state == "done":
        parts.append(f"{number(speed)} tok/s {ratio}".strip())
    attempt = cell.attempts[-1] if cell.attempts else None
    lines = list(trace.logs.get((cell.id, attempt.number), ())) if attempt is not None else []
    sound = cell.state == "done" and cell.validity == "VALID"
    return Detail(
        anchor(cell.id),
        GLYPHS[cell.state],
        cell.spec.label,
        " · ".join(p for p in parts if p),
        tuple((r, TABLE[r].meaning, TABLE[r].advice) if r in TABLE else (r, "", "") for r in cell.reasons),
        tuple(_facts(cell)),
        tuple(_latencies(cell.metrics)),
        tuple(_figures(cell.metrics)),
        tuple(_lines(measured_attempt(cell), trace)),
        "\n".join(lines[-FEW:] if sound else lines),
        tuple(_attempt(a) for a in cell.attempts) if len(cell.attempts) > 1 or cell.state != "done" else (),
    )


def _facts(cell: CellView) -> Iterable[tuple[str, str]]:
    if cell.reason:
        yield "why", cell.reason
    if isinstance(why := cell.metrics.get("bound_why"), str):
        yield "bound", f"{cell.metrics.get('bound', '')} over the window: {why}"
    if isinstance(accuracy := cell.metrics.get("accuracy"), dict) and accuracy.get("why"):
        yield "answers", str(accuracy["why"])
    if cell.seconds is not None:
        yield "took", duration(cell.seconds)
    began = next((a.started_at_s for a in reversed(cell.attempts) if a.started_at_s is not None), None)
    if began is not None:
        yield "began", f"{second(began)} UTC"
    if cell.engine:
        yield "engine", f"{cell.engine} {cell.engine_version or ''}".strip()
    yield "cell id", cell.id


def _latencies(metrics: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, label in LATENCIES:
        stats = metrics.get(name)
        if not isinstance(stats, dict) or metric_value(stats, "p50") is None:
            continue
        if name == "itl_ms" and comes_in_bursts(metrics):
            continue
        known = {k: v for k, v in stats.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        found = [shown_percentile({"n": 0, **known}, p) for p in PERCENTILES]
        fields = [f"{one[0]}{number(one[1])}" if one is not None else "n/a" for one in found]
        most, n = known.get("max"), known.get("n")
        yield (
            label,
            *fields,
            number(most) if most is not None else "n/a",
            f"{n:.0f}" if n is not None else "n/a",
        )


def _figures(metrics: dict[str, Any]) -> Iterable[tuple[str, str]]:
    for path, label, unit in FIGURES:
        value = metric_value(metrics, path)
        if value is not None and math.isfinite(value):
            shown = f"{value:,.0f}" if value == int(value) else number(value)
            yield label, f"{shown} {unit}".strip()


def _lines(attempt: AttemptView | None, trace: Trace) -> Iterable[Line]:
    """What the server said of its load, and the power of its GPUs, over the try; figures are of the window. Where it said
    nothing, the power of all GPUs."""
    if attempt is None:
        return
    if not attempt.figures:
        yield from _all_power(attempt, trace)
        return
    told = load_over(attempt.figures, attempt.window_mono_s) or load_over(attempt.figures)
    for name, label, unit in SHOWN:
        values = attempt.figures.column(name)
        known = [v for v in values if v is not None and math.isfinite(v)]
        if not known:
            continue
        one = told.get(name)
        if isinstance(one, dict):
            words = f"mean {number(one['mean']) if one['mean'] else '0'}, largest {number(one['max']) if one['max'] else '0'} {unit}"
        else:
            words = f"{number(one) if one else '0'} {unit}" if one is not None else ""
        top = 100.0 if unit == "%" else max(known)
        yield Line(label, words, _spark(values, top))


def _all_power(attempt: AttemptView, trace: Trace) -> Iterable[Line]:
    begin, end = attempt.started_at_s, attempt.measured_at_s or attempt.ended_at_s
    if begin is None or end is None:
        return
    spans = [w for w in trace.power if w.begin_s <= end and w.end_s >= begin]
    if len(spans) > 1:
        mean, most = sum(w.total for w in spans) / sum(w.n for w in spans), max(w.most for w in spans)
        words = f"mean {number(mean)}, largest {number(most)} W"
        yield Line("power, all GPUs", words, _spark([w.mean for w in spans], most))


def _spark(values: Sequence[float | None], top: float) -> Markup:
    """A line of at most POINTS means, each of its span of readings; a gap stays a gap."""
    size = max(1, math.ceil(len(values) / POINTS))
    spans = [values[i : i + size] for i in range(0, len(values), size)]
    way, pen = [], "M"
    for x, span in enumerate(spans):
        known = [v for v in span if v is not None and math.isfinite(v)]
        if not known:
            pen = "M"
            continue
        mean = sum(known) / len(known)
        way.append(f"{pen}{x * 4} {20 - 18 * min(1.0, max(0.0, mean / top if top > 0 else 0.0)):.0f}")
        pen = "L"
    return Markup(
        f'<svg class="spark" viewBox="0 0 {max(4, 4 * (len(spans) - 1))} 22" preserveAspectRatio="none" aria-hidden="true"><path d="{"".join(way)}"/></svg>'
    )


def _attempt(attempt: AttemptView) -> tuple[str, ...]:
    return (
        str(attempt.number),
        second(attempt.started_at_s) or "n/a",
        duration(attempt.seconds) if attempt.seconds is not None else "n/a",
        attempt.state or "running",
        attempt.validity or "",
        attempt.reason or ", ".join(attempt.reasons),
    )
