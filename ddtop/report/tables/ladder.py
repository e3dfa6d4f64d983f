"""The loads that each search tried, as tables."""

from __future__ import annotations

from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.ladder import Rung, rungs, words
from ddtop.report.text import number

HEAD = (
    "load",
    "verdict",
    "within the limits",
    "their share, 99% interval",
    "tok/s",
    "requests/s",
    "TTFT ms",
)


def ladders(state: State) -> list[tuple[str, list[list[str]]]]:
    """(title, header and rows) for each search with a load that was tried."""
    return [
        (_title(cell), [list(HEAD), *(_row(rung) for rung in rungs(cell))])
        for cell in state.cells.values()
        if cell.ladder
    ]


def _title(cell: CellView) -> str:
    search = cell.spec.search
    objective = f" ({search.limits})" if search is not None else ""
    return f"Search · {cell.spec.label}{objective}: {words(cell)}"


def _row(rung: Rung) -> list[str]:
    share = (
        f"{100 * rung.share_low:.1f}–{100 * rung.share_high:.1f}%"
        if rung.n and rung.share_low is not None and rung.share_high is not None
        else "not known"
    )
    return [
        rung.load,
        rung.verdict,
        f"{rung.attained} of {rung.n}" if rung.n else "not known",
        share,
        *(
            number(value) if value is not None else "not known"
            for value in (rung.output_tok_s, rung.requests_s, rung.ttft_ms)
        ),
    ]
