"""Everything about one cell: its workload, result, latency, power and attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.bench.figures.stats import shown_percentile
from ddtop.bench.render import burst_words
from ddtop.dashboard.draw.ladder import ladder_lines
from ddtop.dashboard.draw.metrics import COLUMNS, metric_of
from ddtop.dashboard.draw.paint import Line, line, wrap_text
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE, bar, clock, duration, sparkline, whole
from ddtop.dashboard.panels.gpus import bucketed
from ddtop.events import CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView, CellView
from ddtop.journal.read.matrix import Matrix
from ddtop.journal.read.per_gpu import GpuPoint
from ddtop.journal.read.select import Column, metric_value, remaining, short_count
from ddtop.journal.read.server_figures import SHOWN, load_over, measured_attempt, window_points
from ddtop.words import many

QUANTILES = ("p50", "p90", "p99", "max")
DISTRIBUTIONS = (
    ("ttft_ms", "TTFT"),
    ("itl_ms", "ITL"),
    ("tpot_ms", "TPOT"),
    ("icl_ms", "ICL"),
    ("e2e_ms", "E2E"),
)
VALIDITY_ROLE = {"VALID": "ok", "SUSPECT": "warn", "INVALID": "bad"}


def cell_title(cell: CellView) -> str:
    """`b15 · tp1 · fib@256 · 8k ctx · c8`."""
    spec = cell.spec
    parts = [spec.config, f"tp{spec.tp}", f"{spec.workload}@{spec.output_tokens}"]
    if spec.context:
        parts.append(f"{short_count(spec.context)} ctx")
    parts.append(f"concurrency {spec.concurrency}" if spec.concurrency else spec.load_name)
    if spec.repeat:
        parts.append(f"repeat {spec.repeat}")
    if spec.start:
        parts.append(f"start {spec.start + 1}")
    if spec.sentinel:
        parts.append("sentinel")
    return " · ".join(parts)


def load_fact(spec: CellSpec) -> tuple[str, str]:
    """The load in words, with its name."""
    search = spec.search
    if search is not None:
        what = "streams" if search.by == "concurrency" else "rate"
        return "search", f"the highest {what} up to {search.most:g} {search.unit} at {search.limits}"
    if spec.rate is not None:
        return "rate", f"{spec.rate:g} requests/s, whether or not earlier ones are answered"
    return "concurrency", many(spec.concurrency, "request") + " at a time"


def cell_lines(
    state: State, cell: CellView, shown: Matrix, width: int, per_gpu: Sequence[GpuPoint] = ()
) -> list[Line]:
    """All of it, as lines."""
    out = [_state_line(cell)]
    out.extend(_reason_lines(cell, width))
    out.extend(_workload_lines(state, cell))
    out.extend(ladder_lines(cell, width))
    if cell.metrics:
        out.extend([(), *_result_lines(cell, shown, per_gpu)])
        out.extend(_distribution_lines(cell.metrics, width))
        out.extend(_quality_lines(cell.metrics, width))
        out.extend(_response_lines(state, cell, width))
    out.extend(_load_lines(state, cell, width))
    out.extend(_power_lines(state, cell, width))
    out.extend(_attempt_lines(cell, width))
    out.extend(_server_lines(cell, width))
    return out


def _state_line(cell: CellView) -> Line:
    parts: list[tuple[str, str]] = [(f"{CELL_GLYPH[cell.state]} {cell.state}", CELL_ROLE[cell.state])]
    if cell.validity is not None:
        parts.append((f"  {cell.validity}", VALIDITY_ROLE[cell.validity]))
    if cell.state == "running" and cell.progress is not None:
        progress = cell.progress
        if progress.pct is not None:
            parts.append((f"  {progress.pct:.0f} %", "value"))
        if progress.requests_total:
            parts.append((f"  {progress.requests_done or 0} of {progress.requests_total} requests", "label"))
        if progress.tok_s is not None:
            parts.append((f"  {progress.tok_s:.1f} tok/s so far", "label"))
    if cell.state_at_s is not None:
        parts.append((f"  since {clock(cell.state_at_s)} by {cell.by}", "dim"))
    if cell.seconds is not None:
        parts.append((f"  took {duration(cell.seconds)}", "dim"))
    return line(*parts)


def _workload_lines(state: State, cell: CellView) -> list[Line]:
    """The cell's workload, and when it runs where it has not run yet."""
    spec = cell.spec
    facts = [
        ("prompts", f"{spec.workload}, {many(spec.output_tokens, 'output token')} per request"),
        ("context", f"{many(spec.context, 'token')} before the prompt" if spec.context else "none"),
        load_fact(spec),
    ]
    if cell.state in ("planned", "interrupted"):
        left = [c.id for c in remaining(state)]
        before = left.index(cell.id) if cell.id in left else 0
        facts.append(("runs", f"after {many(before, 'other cell')}" if before else "next"))
    out: list[Line] = [(), line(("Workload", "title"))]
    out.extend(line((f"  {name:<12}", "label"), (value, "text")) for name, value in facts)
    return out


def _reason_lines(cell: CellView, width: int) -> list[Line]:
    texts = [text for text in (cell.reason, *cell.reasons) if text]
    return [
        line("  ", (row, "label")) for text in dict.fromkeys(texts) for row in wrap_text(text, width - 2, 3)
    ]


def _result_lines(cell: CellView, shown: Matrix, per_gpu: Sequence[GpuPoint]) -> list[Line]:
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
    gain = next(
        (f.speedup for r in shown.rows if not r.baseline for f in r.cells if f and cell.id in f.ids), None
    )
    if gain is not None:
        metric = metric_of(shown.metric)
        less = " (above 1 is better)" if shown.lower_is_better else ""
        against = (f" against {shown.baseline} in {metric.label}{less}", "dim")
        out.append(line(("  speed-up    ", "label"), (f"{gain:>10.2f}", "value"), ("×", "dim"), against))
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


def _distribution_lines(metrics: dict[str, Any], width: int) -> list[Line]:
    """Quantiles of each latency with a bar on the metric's own scale."""
    out: list[Line] = []
    for name, label in DISTRIBUTIONS:
        number = metric_value(metrics, f"{name}.n")
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
    ("requests_unfinished", "unfinished", "requests cut by the time limit"),
    ("cached_share", "cached", "share of prompt tokens"),
    ("energy_j", "energy", "J"),
    ("tok_s_per_w", "efficiency", "tok/s per W"),
)


def _quality_lines(metrics: dict[str, Any], width: int) -> list[Line]:
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
    return [(), line(("How it was measured", "title")), *out] if out else []


def _response_lines(state: State, cell: CellView, width: int) -> list[Line]:
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
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(_short(item) for item in value[:8]) + (" …]" if len(value) > 8 else "]")
    return str(value)


def _span(state: State, attempt: AttemptView | None) -> tuple[float, float] | None:
    """Wall times between which a try ran, the end being now while it runs."""
    if attempt is None or attempt.started_at_s is None:
        return None
    end = attempt.measured_at_s or attempt.ended_at_s or state.at_s
    return attempt.started_at_s, max(end, attempt.started_at_s + 1.0)


def _load_lines(state: State, cell: CellView, width: int) -> list[Line]:
    """What the server said of its load, each figure on a scale of its own, percentages on theirs."""
    attempt = measured_attempt(cell)
    span = _span(state, attempt)
    if attempt is None or span is None or not attempt.figures:
        return []
    size = max(10, min(80, width - 42))
    load = load_over(window_points(attempt)) or load_over(attempt.figures)
    out: list[Line] = [(), line((f"Server · {duration(span[1] - span[0])}", "title"))]
    for name, label, unit in SHOWN[:4]:
        points = [(p.at_s, getattr(p, name)) for p in attempt.figures]
        values = [v for _, v in points if v is not None]
        if not values:
            continue
        top = 100.0 if unit == "%" else max(values)
        strip = sparkline(bucketed(points, span[1], size, span_s=span[1] - span[0]), top)
        told = load.get(name)
        if isinstance(told, dict):
            words = [(f"  mean {told['mean']:.3g}", "value"), (f" max {told['max']:.3g} {unit}", "dim")]
        else:
            words = [(f"  {told:.3g}", "value"), (f" {unit}", "dim")] if told is not None else []
        out.append(line((f"  {label:<12}", "label"), (strip, "spark"), *words))
    return out


def _power_lines(state: State, cell: CellView, width: int) -> list[Line]:
    between = _span(state, measured_attempt(cell))
    if between is None:
        return []
    start, end = between
    span = end - start
    size = max(10, min(80, width - 30))
    out: list[Line] = []
    for view in state.gpus.values():
        points = [(p.at_s, p.power_w) for p in view.history if start <= p.at_s <= end]
        watts = [w for _, w in points if w is not None]
        if not watts:
            continue
        strip = sparkline(bucketed(points, end, size, span_s=span), view.reading.power_limit_w)
        mean = sum(watts) / len(watts)
        out.append(
            line(
                (f"  {view.index:>2} ", "label"),
                (strip, "spark"),
                (f"  mean {mean:.0f} W", "value"),
                (f" max {max(watts):.0f}", "dim"),
            )
        )
    if not out:
        return []
    return [(), line((f"Power · {duration(span)}", "title")), *out]


def _attempt_lines(cell: CellView, width: int) -> list[Line]:
    if not cell.attempts:
        return []
    out: list[Line] = [(), line(("Attempts", "title"))]
    for attempt in cell.attempts:
        word = attempt.state or "running"
        why = attempt.reason or ", ".join(attempt.reasons)
        head = f"  {attempt.number}  {clock(attempt.started_at_s)}  {duration(attempt.seconds):>7}  "
        rows = wrap_text(why, max(10, width - len(head) - 14), 2) or [""]
        out.append(
            line((head, "dim"), (f"{CELL_GLYPH[word]} {word:<12}", CELL_ROLE[word]), (rows[0], "label"))
        )
        out.extend(line(" " * (len(head) + 14), (row, "label")) for row in rows[1:])
    return out


def _server_lines(cell: CellView, width: int) -> list[Line]:
    facts = [
        ("engine", f"{cell.engine} {cell.engine_version or ''}".strip()),
        ("driver", cell.driver or ""),
        ("generation", cell.generation.id if cell.generation is not None else ""),
        ("cell id", cell.id),
    ]
    out: list[Line] = [(), line(("Server", "title"))]
    out.extend(line((f"  {name:<12}", "label"), (value, "text")) for name, value in facts if value)
    return out


def excerpt_bounds(cell: CellView, slack_s: float = 2.0) -> tuple[float, float] | None:
    """Wall times between which the cell's log lines lie; None where it never began."""
    starts = [a.started_at_s for a in cell.attempts if a.started_at_s is not None]
    if not starts:
        return None
    last = cell.attempts[-1]
    end = last.measured_at_s or last.ended_at_s
    return starts[-1] - slack_s, end + slack_s if end is not None else float("inf")


def metrics_rows(cell: CellView) -> Sequence[str]:
    """The cell's metrics as tab-separated lines, for copying."""
    rows = [f"cell\t{cell_title(cell)}", f"state\t{cell.state}", f"validity\t{cell.validity or ''}"]

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        else:
            rows.append(f"{prefix}\t{value}")

    walk("", cell.metrics)
    return rows
