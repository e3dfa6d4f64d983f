"""A measurement under way: what comes out, how long requests take, what the server and the GPUs do meanwhile.

Most telling first, so that three lines say most of it; nothing is ever cut in the middle of a number.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.dashboard.draw.ladder import ladder_lines
from ddtop.dashboard.draw.paint import Line, line, width_of
from ddtop.dashboard.draw.text import duration, ms, rate, whole
from ddtop.dashboard.panels.cell.charts import (
    FRESH_S,
    chart_lines,
    counted_length,
    joined,
    latency_lines,
    server_now,
    tail_of,
    watts_now,
)
from ddtop.events import CellProgress
from ddtop.journal.fold.series import FigurePoint
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView, CellView
from ddtop.journal.read.ladder import rungs, trying, words
from ddtop.words import many

TALL = 8
"""From so many lines on, latencies are drawn as histograms."""
LATELY_S = 5.0
"""The server's counters over so long are its acceptance length now."""
WIDE = 80
"""From so many columns on, each load of a search has a line."""

PHASES = {
    "preparing": "preparing",
    "context": "fitting the context to its length",
    "warming up": "warm-up request",
    "running": "load begins",
    "settling": "settling",
    "window": "window without a hand-over",
    "draining": "last responses come in",
    "asking again": "accuracy guard asks again",
}
"""Phase of CellProgress → in words."""
BEGAN = {
    "settled": ("settled", "ok"),
    "requests": ("not settled after so many requests", "warn"),
    "time": ("not settled in time", "warn"),
}
"""What began the window → in words, and their role."""


def live_lines(
    state: State, cell: CellView, now_s: float, width: int, height: int, *, ladder: bool = True
) -> list[Line]:
    """How a cell's measurement goes, in at most `height` lines of `width`."""
    attempt = cell.attempts[-1] if cell.attempts else AttemptView(1)
    progress = cell.progress or CellProgress(at_s=now_s, mono_s=0.0, cell_id=cell.id)
    gpu = _gpu(state, attempt, now_s)
    head = joined(_head(progress, now_s), width)
    facts = joined(_requests(cell, progress), width)
    facts = joined([facts, _server(server_now(attempt, now_s), width - width_of(facts) - 3)], width)
    brief = _brief(attempt, progress, gpu, width)
    found = search_line(cell, width) if ladder else ()
    if height < TALL:
        rows = [row for row in (head, facts, brief, found) if row]
        return [*rows, *chart_lines(state, attempt, progress, now_s, width, height - len(rows))][:height]
    rows = [head, facts, joined([*_accepted(attempt, progress), *gpu], width), *latency_lines(attempt, width)]
    rows = [row for row in rows if row]
    tried = ladder_lines(cell, width)[1:] if ladder else []
    if len(tried) > height - len(rows) - 4 or width < WIDE:
        tried = [found] if found else []
    rows.extend(tried)
    return [*rows, *chart_lines(state, attempt, progress, now_s, width, height - len(rows))][:height]


# ------------------------------------------------------------------------------------------ facts


def _head(progress: CellProgress, now_s: float) -> list[Line]:
    about = "~" if progress.about else ""
    so_far, now = progress.tok_s, progress.now_tok_s
    phase = _phase(progress)
    parts: list[Line] = []
    if progress.tokens == 0:
        parts.append(line(("▶ ", "run"), ("no token yet", "label")))
        so_far = now = None
    if now is not None:
        parts.append(line(("▶ ", "run"), (f"{about}{rate(now)} tok/s", "value"), (" now", "label")))
    if so_far is not None:
        mark = "" if parts else "▶ "
        unit = "" if parts else " tok/s"
        parts.append(line((mark, "run"), (f"{about}{rate(so_far)}{unit}", "value"), (" so far", "label")))
    if not parts:
        parts, phase = [line(("▶ ", "run"), *phase)] if phase else [line(("▶ measuring", "run"))], ()
    if progress.phase not in ("settling", "running"):
        if progress.pct is not None:
            parts.append(line((f"{progress.pct:.0f}%", "value")))
        if progress.left_s is not None:
            parts.append(line((f"{duration(progress.left_s)} left", "value")))
    age = now_s - progress.at_s
    if age > FRESH_S:
        parts.append(line((f"! no report for {duration(age)}", "warn")))
    return [*parts, phase]


def _phase(progress: CellProgress) -> Line:
    """Settled or not, in words; where the cell is, before and after that."""
    if progress.phase == "window" and progress.settled:
        return line(BEGAN.get(progress.settled, (progress.settled, "label")))
    word = PHASES.get(progress.phase, progress.phase)
    return line((word, "run" if progress.phase == "settling" else "label"))


def _requests(cell: CellView, progress: CellProgress) -> list[Line]:
    parts: list[Line] = []
    done, total = progress.requests_done, progress.requests_total
    if progress.phase == "settling" and progress.burst is not None:
        ended, most = progress.burst
        of = f" of at most {many(most, 'request')} before the window"
        parts.append(line((f"{ended:,}", "value"), (of, "label")))
    elif done:
        of = f" of {total:,} requests" if total else f" {'request' if done == 1 else 'requests'}"
        parts.append(line((f"{done:,}", "value"), (of, "label")))
    elif total is not None and cell.spec.search is None:
        parts.append(line((many(total, "request"), "label")))
    if progress.in_flight is not None:
        parts.append(line((f"{progress.in_flight:,}", "value"), (" in flight", "label")))
    if progress.failed is not None:
        role = "bad" if progress.failed else "label"
        parts.append(line((f"{'✗ ' if progress.failed else ''}{progress.failed:,} failed", role)))
    return parts


def _server(server: FigurePoint | None, width: int) -> Line:
    """What the server says of its load, as much as fits."""
    out: Line = ()
    for name, said in (("running", "{} running"), ("queued", "{} queued"), ("kv_pct", "KV {}%")):
        value = getattr(server, name, None)
        if value is None:
            continue
        before, after = said.split("{}")
        longer = (
            *out,
            *line(
                (", " if out else "server ", "label"),
                (before, "label"),
                (whole(value), "value"),
                (after, "label"),
            ),
        )
        if width_of(longer) > width:
            break
        out = longer
    return out


def _brief(attempt: AttemptView, progress: CellProgress, gpu: Sequence[Line], width: int) -> Line:
    """Both latencies and the acceptance length in one line, without their tails where it is short."""
    rest = [*_accepted(attempt, progress)[:1], *gpu]
    latencies = [(name, seen) for name, seen in (("TTFT", attempt.ttft), ("TPOT", attempt.tpot)) if seen]
    short = [line((f"{name} p50 ", "label"), (ms(seen.p50), "value")) for name, seen in latencies]
    long = [
        (*part, *line((f", {tail_of(seen)[0]} ", "label"), (ms(tail_of(seen)[1]), "value")))
        for part, (_, seen) in zip(short, latencies, strict=True)
    ]
    for parts in ([*long, *rest], long):
        if width_of(whole_line := joined(parts, 10_000)) <= width:
            return joined([*parts, *rest], width) if parts is long else whole_line
    return joined([*short, *rest], width)


def search_line(cell: CellView, width: int) -> Line:
    """The loads of a search in one line, and where its knee must be; empty for any other cell."""
    tried = [
        line((f"{rung.load} ", "value"), ("✓" if rung.met else "✗", "ok" if rung.met else "warn"))
        for rung in rungs(cell)
    ]
    now = trying(cell)
    if now:
        tried.append(line((f"{now} ", "value"), ("▶", "run")))
    where = words(cell)
    tail = line((where, "label")) if where else ()
    while tried and width_of(joined([line(("search", "label")), *tried, tail], 10_000)) > width:
        tried = tried[1:]
    return joined([line(("search", "label")), *tried, tail], width) if tried else ()


def _accepted(attempt: AttemptView, progress: CellProgress) -> list[Line]:
    """Acceptance length in the window and at last, by the responses; where they do not say it, by the server's counters."""
    if progress.spec_steps and progress.spec_tokens:
        whole_window: float | None = progress.spec_tokens / progress.spec_steps
        last = attempt.live.last("accept")
    else:
        span_s = progress.tokens / progress.tok_s if progress.tokens and progress.tok_s else 0.0
        whole_window = counted_length(attempt, progress.at_s - span_s)
        last = counted_length(attempt, progress.at_s - LATELY_S)
    if whole_window is None:
        return []
    parts = [line(("accept ", "label"), (f"{whole_window:.2f}", "value"))]
    if last is not None:
        parts.append(line(("now ", "label"), (f"{last:.2f}", "value")))
    return parts


def _gpu(state: State, attempt: AttemptView, now_s: float) -> list[Line]:
    watts = watts_now(attempt, now_s)
    parts = []
    if watts is not None:
        parts.append(line((whole(watts), "value"), (" W", "label")))
    if state.bound is not None:
        parts.append(line((state.bound.verdict, "accent")))
    return parts
