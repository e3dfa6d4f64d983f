"""What a view shows of a search: the loads it tried, with their verdicts, and where its knee is. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from ddtop.events import Search, SearchStep, name_load
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import metric_value


class Rung(NamedTuple):
    """One load that was tried, as figures; None where not known."""

    load: str
    """In a word: `c8`, `4 req/s`."""
    verdict: str
    """`confirmed` or `not confirmed` where the knee was measured again."""
    met: bool
    """Whether the verdict is one that lets the search go higher."""
    attained: int | None
    n: int | None
    share_low: float | None
    share_high: float | None
    """The 99% interval of the share that met the limits."""
    output_tok_s: float | None
    ttft_ms: float | None
    requests_s: float | None


def rungs(cell: CellView) -> list[Rung]:
    """The loads of a search, in the order tried."""
    search = cell.spec.search
    return [_rung(search, step) for step in cell.ladder] if search is not None else []


def _rung(search: Search, step: SearchStep) -> Rung:
    slo = step.metrics.get("slo")
    slo = slo if isinstance(slo, dict) else {}
    met = step.low is not None and step.low >= step.tried
    word: str = step.verdict
    if step.confirm:
        word = "confirmed" if met else "not confirmed"
    return Rung(
        load_of(search, step.tried),
        word,
        met,
        slo.get("attained"),
        slo.get("n"),
        slo.get("low"),
        slo.get("high"),
        metric_value(step.metrics, "output_tok_s"),
        metric_value(step.metrics, "ttft_ms.p50"),
        metric_value(step.metrics, "requests_s"),
    )


def load_of(search: Search, load: float) -> str:
    """A load of the search in a word."""
    return name_load(int(load)) if search.by == "concurrency" else name_load(0, load)


def trying(cell: CellView) -> str:
    """The load that a running search measures now; empty for any other cell."""
    search = cell.spec.search
    if search is None or cell.state != "running":
        return ""
    load = cell.ladder[-1].next if cell.ladder and not cell.searched else search.start
    return load_of(search, load) if load is not None else ""


def words(cell: CellView) -> str:
    """Where the knee is, in words, or where it must be so far; empty for any other cell, and before the first load."""
    search = cell.spec.search
    if search is None or not cell.ladder:
        return ""
    last = cell.ladder[-1]
    if last.low is None:
        lowest = min(cell.ladder, key=lambda step: step.tried)
        load = load_of(search, lowest.tried)
        if last.next is not None:
            return f"{load} is too much"
        return f"no knee: {load} is {'undecided' if lowest.verdict == 'undecided' else 'too much'}"
    if last.next is not None:
        return f"at least {load_of(search, last.low)}" + (
            f", below {load_of(search, last.high)}" if last.high is not None else ""
        )
    above = f"{load_of(search, last.high)} is too much" if last.high is not None else "none higher was tried"
    sure = "" if last.confirm else ", not confirmed"
    return f"knee {load_of(search, last.low)}: {above}{sure}"


def as_values(cell: CellView) -> list[dict[str, Any]]:
    """The ladder for programs: one object for each load."""
    return [
        {
            "load": step.tried,
            "confirm": step.confirm,
            "verdict": step.verdict,
            "low": step.low,
            "high": step.high,
            "next": step.next,
            "validity": step.validity,
            "reasons": list(step.reasons),
            "slo": step.metrics.get("slo"),
            **{
                name: metric_value(step.metrics, path)
                for name, path in (
                    ("output_tok_s", "output_tok_s"),
                    ("requests_s", "requests_s"),
                    ("ttft_ms_p50", "ttft_ms.p50"),
                    ("tpot_ms_p50", "tpot_ms.p50"),
                )
            },
        }
        for step in cell.ladder
    ]
