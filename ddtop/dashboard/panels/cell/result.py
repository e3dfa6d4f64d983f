"""The result of a cell: figures, latencies, how they were measured, its responses beside the baseline's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.bench.figures.stats import shown_percentile
from ddtop.bench.render import TURN_COLUMNS, burst_words, cache_words, length_words, turn_rows
from ddtop.dashboard.draw.metrics import COLUMNS, metric_of
from ddtop.dashboard.draw.paint import Line, line, wrap_text
from ddtop.dashboard.draw.text import bar, whole
from ddtop.dashboard.draw.verdict import gain_phrases
from ddtop.dashboard.panels.cell.title import cell_title
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import Column, comes_in_bursts, metric_value
from ddtop.journal.results.field import Matrix
from ddtop.journal.results.per_gpu import GpuPoint
from ddtop.words import many

QUANTILES = ("p50", "p90", "p99", "max")
DISTRIBUTIONS = (
    ("ttft_ms", "TTFT"),
    ("tpot_ms", "TPOT"),
    ("itl_ms", "ITL"),
    ("icl_ms", "ICL"),
    ("e2e_ms", "E2E"),
)


def result_lines(cell: CellView, shown: Matrix, per_gpu: Sequence[GpuPoint]) -> list[Line]:
    out = [line(("Result", "title"))]
    for metric in COLUMNS:
        value = metric.value(cell.metrics)
        if value is None:
            continue
        parts: list[tuple[str, str]] = [
            (f"  {metric.label:<12}", "label"),
            (f"{metric.shown(cell.metrics):>10}", "value"),
            (f" {metric.unit}", "dim"),
        ]
        out.append(line(*parts))
    out.extend(_speed_up_lines(cell, shown))
    out.extend(_per_gpu_lines(cell, per_gpu))
    for name, label in (("requests_ok", "requests ok"), ("requests_failed", "failed")):
        value = metric_value(cell.metrics, name)
        if value is not None:
            role = "bad" if name == "requests_failed" and value else "value"
            out.append(line((f"  {label:<12}", "label"), (f"{whole(value):>10}", role)))
    failures = cell.metrics.get("failures")
    if isinstance(failures, dict) and failures:
        text = ", ".join(f"{kind}: {number}" for kind, number in failures.items())
        out.append(line(("  failures    ", "label"), (text, "bad")))
    return out


def _speed_up_lines(cell: CellView, shown: Matrix) -> list[Line]:
    """The speed-up of its field in the metric of the matrix, and whether it is sure."""
    field = next((f for r in shown.rows if not r.baseline for f in r.cells if f and cell.id in f.ids), None)
    phrases = gain_phrases(shown, field) if field is not None else []
    metric = (f" in {metric_of(shown.metric).label}", "dim")
    return [
        line(("  speed-up    " if not n else " " * 14, "label"), phrase, metric if not n else "")
        for n, phrase in enumerate(phrases)
    ]


def _per_gpu_lines(cell: CellView, points: Sequence[GpuPoint]) -> list[Line]:
    """The figures of its field per GPU and per user, and whether another is better in both."""
    spec = cell.spec
    mine = (spec.config, spec.tp, Column.of(spec))
    found = next((p for p in points if (p.config, p.tp, p.load) == mine), None)
    if found is None:
        return []
    where = "on the front" if found.front else f"dominated by {found.dominated_by}"
    rows = [("per GPU", found.tok_s_gpu, f" tok/s on {many(found.gpus, 'GPU')}")]
    if found.tok_s_user is not None:
        rows.append(("per user", found.tok_s_user, f" tok/s, {where}"))
    return [
        line((f"  {label:<12}", "label"), (f"{value:>10.4g}", "value"), (unit, "dim"))
        for label, value, unit in rows
    ]


def distribution_lines(metrics: dict[str, Any], width: int) -> list[Line]:
    """Quantiles of each latency with a bar on the metric's own scale."""
    out: list[Line] = []
    for name, label in DISTRIBUTIONS:
        number = metric_value(metrics, f"{name}.n")
        if name == "itl_ms" and comes_in_bursts(metrics):
            words = (
                "not shown: the tokens of a step come in a burst of chunks, so the gaps say nothing; see TPOT"
            )
            out.extend([(), line((f"Latency · {label} · ", "title"), (words, "dim"))])
            continue
        values = _quantiles(metrics.get(name), {q: metric_value(metrics, f"{name}.{q}") for q in QUANTILES})
        if len(values) < 2:
            continue
        head = f"Latency · {label}" + (f" · {number:.0f} samples" if number is not None else "")
        out.extend([(), line((head, "title"))])
        top = max(v for _, _, v in values)
        size = max(8, min(48, width - 28))
        for quantile, mark, value in values:
            filled, empty = bar(value / top if top else 0.0, size)
            out.append(
                line(
                    (f"  {quantile:<5}", "label"),
                    (filled, "bar"),
                    (empty, "track"),
                    (f" {mark}{value:,.1f} ms", "value"),
                )
            )
    return out


def _quantiles(stats: Any, known: Mapping[str, float | None]) -> list[tuple[str, str, float]]:
    """(name, "" or "≤ ", value): a percentile that its samples do not certify stands as its bound."""
    if isinstance(stats, dict) and "n" in stats:
        shown = {q: shown_percentile(stats, q) for q in known}
        # A p99 of fewer than a hundred samples is the maximum by another name.
        few = [q for q, one in shown.items() if q == "p99" and one and not one[0] and stats["n"] < 100]
        return [(q, *one) for q, one in shown.items() if one is not None and q not in few]
    return [(q, "", value) for q, value in known.items() if value is not None]


QUALITY = (
    ("steady_tok_s", "steady", "tok/s while all streams ran"),
    ("peak_tok_s", "peak", "tok/s over the best second"),
    ("in_flight_mean", "in flight", "requests, mean"),
    ("start_lag_ms.p99", "start lag", "ms after its time, p99"),
    ("requests_unfinished", "unfinished", "requests cut by the time limit"),
    ("cached_share", "cached", "share of prompt tokens"),
    ("energy_j", "energy", "J"),
    ("tok_s_per_w", "efficiency", "tok/s per W"),
)


def quality_lines(metrics: dict[str, Any], width: int) -> list[Line]:
    """How the numbers came about: steady state, energy, acceptance by position, the load generator's own quality."""
    out: list[Line] = []
    for name, label, unit in QUALITY:
        value = metric_value(metrics, name)
        if value is not None:
            out.append(line((f"  {label:<12}", "label"), (f"{value:>10.4g}", "value"), (f" {unit}", "dim")))
    for name, label in (("burst", "burst"), ("acceptance", "acceptance"), ("client", "client")):
        table = metrics.get(name)
        if isinstance(table, dict) and table:
            words = ", ".join(f"{key.replace('_', ' ')} {_short(value)}" for key, value in table.items())
            if name == "burst":
                words = burst_words(table)
            for at, row in enumerate(wrap_text(words, max(20, width - 16), 3)):
                out.append(line((f"  {label:<12}" if at == 0 else " " * 14, "label"), (row, "text")))
    facts = [("tokens", words) for words in length_words(metrics)]
    if words := cache_words(metrics.get("prefix_cache") or {}):
        facts.append(("prefix cache", words))
    for label, words in facts:
        for at, row in enumerate(wrap_text(words, max(20, width - 16), 3)):
            out.append(line((f"  {label if at == 0 else '':<12}", "label"), (f" {row}", "text")))
    return [(), line(("How it was measured", "title")), *out] if out else []


def turn_lines(metrics: dict[str, Any]) -> list[Line]:
    """The turns of the cell's conversations, one a line; times in ms."""
    rows = turn_rows(metrics)
    if not rows:
        return []
    head = "".join(f"{name:>10}" for name in TURN_COLUMNS)
    out: list[Line] = [(), line(("Turns of a conversation", "title"), (" · ms", "dim"))]
    out.append(line((f"{'':<12}{head}", "label")))
    return out + [
        line((f"  {row[0]:<10}", "label"), ("".join(f"{text:>10}" for text in row[1:]), "value"))
        for row in rows
    ]


def response_lines(state: State, cell: CellView, width: int) -> list[Line]:
    """The responses compared with the baseline's to the same prompts, and where they differ."""
    accuracy = cell.metrics.get("accuracy")
    if not isinstance(accuracy, dict):
        return []
    base = state.cells.get(str(accuracy.get("baseline")))
    head = f"Responses · compared with {cell_title(base)}" if base is not None else "Responses"
    role = "warn" if "answers-differ" in cell.reasons else "text"
    out: list[Line] = [(), line((head, "title"))]
    out.extend(
        line("  ", (row, role)) for row in wrap_text(str(accuracy.get("why", "")), max(20, width - 2), 3)
    )
    if (at := accuracy.get("first_divergence_chars")) is not None:
        out.append(
            line(("  first difference at character ", "label"), (f"{at}", "value"), (" (median)", "dim"))
        )
    for found in accuracy.get("differences") or ():
        where = f"request {found['request']} from character {found['at']}"
        out.append(line("  ", (where, "label")))
        for name, key in (("baseline", "baseline"), (cell.spec.config, "other")):
            rows = wrap_text(found[key] or "(ends here)", max(20, width - 18), 2)
            out.extend(
                line((f"    {name if n == 0 else '':<12}  ", "dim"), (row, "text"))
                for n, row in enumerate(rows)
            )
    return out


def _short(value: Any) -> str:
    """A value of a metric in words; never Python's own form of it."""
    if value is None:
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{str(k).replace('_', ' ')} {_short(v)}" for k, v in value.items()) + ")"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(_short(item) for item in value[:8]) + (" …]" if len(value) > 8 else "]")
    return str(value)
