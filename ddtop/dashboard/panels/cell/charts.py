"""A measurement as pictures: latencies as histograms, and what was reported each second as strips on one time axis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ddtop.bench.figures.stats import CERTIFIED, shown_percentile
from ddtop.dashboard.draw.paint import Line, Span, line, width_of
from ddtop.dashboard.draw.series import axis, histogram, slots, strip, tall_strip, words_strip
from ddtop.dashboard.draw.text import ms, rate
from ddtop.events import CellProgress, LatencySeen
from ddtop.journal.fold.series import FigurePoint
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView

FRESH_S = 5.0
"""A figure that is older is not of this moment."""
LABEL = 9
INK = dict.fromkeys(("running", "KV cache", "accept", "TPOT"), "bar") | {"queued": "hot", "bound": "accent"}
"""Roles of strips, so that neighbours do not run into one another; the others are `spark`."""
LEAST_STRIP, WIDE = 8, 60
TALLEST = 4
"""Lines more that the strip of tok/s takes where there is room."""
HISTOGRAM = 24
DOTS = Span(" · ", "dim")
BOUND = {"unknown": "?", "memory-bound": "m", "compute-bound": "c", "latency-bound": "l"}
"""Letters of what limits the GPUs; of the others the first."""


def joined(parts: Iterable[Line], width: int) -> Line:
    """Parts with dots between them; those that do not fit are left out whole."""
    out: list[Span] = []
    for part in parts:
        if not part:
            continue
        gap = [DOTS] if out else []
        if width_of([*out, *gap, *part]) <= width:
            out.extend([*gap, *part])
    return tuple(out)


def latency_lines(attempt: AttemptView, width: int) -> list[Line]:
    """A line for each latency: its histogram, the range of it, percentiles, samples."""
    out: list[Line] = []
    size = max(4, min(HISTOGRAM, width // 3))
    for name, seen in (("TTFT", attempt.ttft), ("TPOT", attempt.tpot)):
        if seen is None:
            continue
        bars = histogram(seen.counts, size)
        mark, value = tail_of(seen)
        parts = [
            line(("p50 ", "label"), (ms(seen.p50), "value")),
            line((f"{mark} ", "label"), (ms(value), "value")),
            line((f"{ms(_edge(seen, 0))} to {ms(_edge(seen, len(seen.counts)))}", "dim")),
            line((f"n {seen.n:,}", "dim")),
        ]
        head = line((f"{name:<{LABEL}}", "label"), (bars.ljust(size), INK.get(name, "spark")), "  ")
        out.append((*head, *joined(parts, width - width_of(head))))
    return out


def _edge(seen: LatencySeen, at: int) -> float:
    return float(10 ** ((seen.first + at) / seen.per_decade))


class Strip(NamedTuple):
    """One figure over time. `rank`: which goes first where there is little room; `top`: the value of a full block."""

    rank: int
    name: str
    points: list[tuple[float, float | None]]
    top: float | None
    now: str


def chart_lines(
    state: State, attempt: AttemptView, progress: CellProgress, now_s: float, width: int, height: int
) -> list[Line]:
    """Strips over the cell's time, all on one axis, which is the last line; the most telling where there is little room."""
    span = span_s(attempt, now_s)
    if span is None or height < 1:
        return []
    begin, end = span
    rows = _strips(state, attempt, progress, now_s)
    bounds = attempt.live.bound
    word = bounds[-1] if bounds and width >= WIDE else ""
    tail = max(len(word), *(len(row.now) for row in rows))
    size = width - LABEL - 2 - tail
    if size < LEAST_STRIP:
        return []
    out = [
        (row.rank, _chart(row.name, drawn, row.now, tail))
        for row in rows
        if (drawn := strip(row.points, begin, end, size, row.top))
    ]
    moments = list(zip(attempt.live.at_s, bounds, strict=True))
    letters = words_strip(moments, begin, end, size, BOUND)
    if letters.strip():
        out.append((6, _chart("bound", letters, word, tail)))
    if out:
        out.append((4, line((" " * LABEL, "dim"), (axis(end - begin, size), "dim"))))
    kept = [out[at][1] for at in sorted(sorted(range(len(out)), key=lambda at: out[at][0])[:height])]
    free = min(TALLEST, height - len(kept)) if kept and rows[0].name == "tok/s" else 0
    if free < 1 or not any(value for _, value in rows[0].points):
        return kept
    return [*_tall(rows[0], begin, end, size, tail, 1 + free), *kept[1:]]


def _tall(row: Strip, begin_s: float, end_s: float, size: int, tail: int, height: int) -> list[Line]:
    """A strip of several lines, with its largest value beside its top."""
    top = max(value for _, value in row.points if value is not None)
    drawn = tall_strip(slots(row.points, begin_s, end_s, size), top, height)
    scale = f"max {top:.0f}" if top < 10_000 else f"max {top / 1000:.0f}k"
    names = [row.name, scale, *[""] * (height - 2)]
    said = [*[""] * (height - 1), row.now]
    return [_chart(name, text, now, tail) for name, text, now in zip(names, drawn, said, strict=True)]


def _chart(name: str, drawn: str, text: str, tail: int) -> Line:
    label = "dim" if name.startswith("max ") else "label"
    return line(
        (f"{name:<{LABEL}}", label), (drawn, INK.get(name, "spark")), ("  " + text.rjust(tail), "value")
    )


def _strips(state: State, attempt: AttemptView, progress: CellProgress, now_s: float) -> list[Strip]:
    live, now = attempt.live, server_now(attempt, now_s)
    about = "~" if progress.about else ""
    limits = [view.reading.power_limit_w for view in state.gpus.values()]
    watts = watts_now(attempt, now_s)

    def said(name: str, unit: str = "") -> str:
        value = getattr(now, name, None)
        return "" if value is None else f"{value:.0f}{unit}"

    def served(name: str) -> list[tuple[float, float | None]]:
        return attempt.figures.points(name)

    accept, speed = accepted_points(attempt), progress.now_tok_s
    length = next((value for _, value in reversed(accept) if value is not None), None)
    out = [
        Strip(1, "tok/s", list(live.points("tok_s")), None, "" if speed is None else about + rate(speed)),
        Strip(3, "running", served("running"), None, said("running")),
        Strip(7, "queued", served("queued"), None, said("queued")),
        Strip(5, "KV cache", served("kv_pct"), 100.0, said("kv_pct", "%")),
        Strip(
            2,
            "power",
            list(live.points("power_w")),
            limits[0] if len(limits) == 1 else None,
            "" if watts is None else f"{watts:.0f} W",
        ),
        Strip(8, "accept", accept, None, "" if length is None else f"{length:.2f}"),
    ]
    return [row for row in out if row.name != "queued" or any(value for _, value in row.points)]


def accepted_points(attempt: AttemptView) -> list[tuple[float, float | None]]:
    """Acceptance length over time: what the responses said, else the server's counters."""
    if attempt.live.last("accept") is not None:
        return list(attempt.live.points("accept"))
    return [
        (p.at_s, p.spec_tokens / p.spec_steps if p.spec_steps and p.spec_tokens else None)
        for p in attempt.figures
    ]


def counted_length(attempt: AttemptView, since_s: float) -> float | None:
    """Acceptance length by the server's counters from a wall time on; None where it counts no steps."""
    counted = [p for p in attempt.figures if p.at_s > since_s and p.spec_tokens and p.spec_steps]
    steps = sum(p.spec_steps or 0.0 for p in counted)
    return sum(p.spec_tokens or 0.0 for p in counted) / steps if steps else None


def watts_now(attempt: AttemptView, now_s: float) -> float | None:
    """Power of the server's GPUs now."""
    fresh = [value for at, value in attempt.live.points("power_w") if now_s - at <= FRESH_S]
    return fresh[-1] if fresh else None


def span_s(attempt: AttemptView, now_s: float) -> tuple[float, float] | None:
    """Wall times between which a try ran, the end being now while it runs; None where it never began."""
    if attempt.started_at_s is None:
        return None
    end = attempt.measured_at_s or attempt.ended_at_s or now_s
    return attempt.started_at_s, max(end, attempt.started_at_s + 1.0)


def server_now(attempt: AttemptView, now_s: float) -> FigurePoint | None:
    last = attempt.figures[-1] if attempt.figures else None
    return last if last is not None and now_s - last.at_s <= FRESH_S else None


def tail_of(seen: LatencySeen) -> tuple[str, float]:
    """(name, value) of the highest percentile that the requests so far can show, else the largest."""
    for name, value in (("p99", seen.p99), ("p90", seen.p90)):
        if value is not None:
            stats = {"n": seen.n, f"{name}_bound": value}
            shown = shown_percentile(stats, name) if seen.n < CERTIFIED[name] else ("", value)
            if shown is not None:
                return f"{name} {shown[0]}".strip(), shown[1]
    return "max", seen.most
