"""The loads that a search tried, as lines: each with its verdict and the share of requests within the limits."""

from __future__ import annotations

from ddtop.dashboard.draw.paint import Line, fit_text, line, width_of
from ddtop.dashboard.draw.text import UNKNOWN, bar, rate
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.ladder import Rung, rungs, trying, words
from ddtop.words import many

VERDICT = 15


def ladder_lines(cell: CellView, width: int) -> list[Line]:
    """Title, one line a load, the one that is measured now, and where the knee is; empty for any other cell."""
    search = cell.spec.search
    tried = rungs(cell)
    now = trying(cell)
    if search is None or not (tried or now):
        return []
    head = max(6, *(len(name) + 1 for name in (now, *(rung.load for rung in tried))))
    out: list[Line] = [(), line(("Search", "title"), (f"  {search.limits}", "dim"))]
    out.extend(_rung_line(rung, head, width) for rung in tried)
    if now:
        done = cell.progress.requests_done if cell.progress is not None else None
        count = many(done, "request") + " so far" if done is not None else "begins"
        out.append(
            line((f"  {now:<{head}}", "value"), (fit_text("▶ running", VERDICT), "run"), (count, "label"))
        )
    where = words(cell)
    return [*out, line(("  " + where, "value"))] if where else out


def _rung_line(rung: Rung, head: int, width: int) -> Line:
    share = rung.attained / rung.n if rung.n and rung.attained is not None else None
    glyph, role = ("✓", "ok") if rung.met else ("✗", "warn")
    filled, empty = bar(share or 0.0, max(6, min(20, width - head - VERDICT - 48)))
    counted = f"{rung.attained} of {rung.n}" if rung.n else UNKNOWN
    out = line(
        (f"  {rung.load:<{head}}", "value"),
        (fit_text(f"{glyph} {rung.verdict}", VERDICT), role),
        (filled, "bar"),
        (empty, "track"),
        (f" {counted:>12}", "text"),
    )
    for more in (
        (f"  {rate(rung.output_tok_s):>8} tok/s", "value"),
        (f"  TTFT {rung.ttft_ms:,.0f} ms" if rung.ttft_ms is not None else "", "dim"),
    ):
        if width_of(out) + len(more[0]) <= width:  # a number is never cut
            out = (*out, *line(more))
    return out
