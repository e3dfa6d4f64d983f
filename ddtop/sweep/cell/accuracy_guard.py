"""The accuracy guard in the sweep: a cell's answers beside the baseline's to the same prompts. Pure.

The load generator keeps the answers of cells at temperature 0. Request i of a cell carries the same prompt and nonce
in every configuration, so its answer is compared with the baseline's answer to request i of the same cell. How far
the baseline agrees with itself is measured too: its first requests are asked once more, in another batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ddtop.agent.loadgen.records import pack_value, unpack, unpack_value
from ddtop.bench.judge.accuracy import AccuracyReport, Texts, compare_outputs
from ddtop.events import CellOutputs, CellSpec
from ddtop.journal.fold.views import CellView

AGAIN = 8
"""Requests of a baseline's cell that are asked once more."""
SHOWN = 3
"""Differences that are kept beside the figures, to be read."""


def wanted(load: Mapping[str, Any], spec: CellSpec) -> dict[str, Any]:
    """What a cell's load asks for the guard's sake; nothing where sampling is random and answers differ anyway."""
    if float(load.get("temperature", 0.0)) > 0:
        return {}
    return {"keep_texts": True, "again": AGAIN} if spec.baseline else {"keep_texts": True}


@dataclass(frozen=True, slots=True)
class Outputs:
    """Whole answers of one cell: `texts` by request index, and `again` of those asked twice."""

    texts: Texts
    again: Texts | None = None

    def packed(self) -> dict[str, Any]:
        """The fields `texts` and `again` of CellOutputs."""
        return {"texts": pack_value(self.texts), "again": pack_value(self.again) if self.again else None}


def outputs_in(raw: Mapping[str, Any]) -> Outputs | None:
    """The whole answers in a result of the load generator; None where none were kept. Raises ValueError on damage."""
    result = unpack(dict(raw))
    whole = {str(r.get("i")) for r in result.get("requests") or () if r.get("class") == "ok"}
    texts = {index: parts for index, parts in (result.get("texts") or {}).items() if index in whole}
    return Outputs(texts, result.get("texts_again") or None) if texts else None


def outputs_of(outputs: CellOutputs) -> Outputs:
    """What the journal kept. Raises ValueError on damage."""
    again = unpack_value(outputs.again) if outputs.again is not None else None
    return Outputs(unpack_value(outputs.texts), again)


def reference(cells: Iterable[CellView], spec: CellSpec) -> CellView | None:
    """The baseline's finished cell with the same prompts at the same TP; None for a cell of the baseline itself."""
    if spec.baseline:
        return None
    return next(
        (c for c in cells if c.state == "done" and c.outputs is not None and _shape(c.spec) == _shape(spec)),
        None,
    )


def _shape(spec: CellSpec) -> tuple[object, ...]:
    return (spec.tp, spec.workload, spec.output_tokens, spec.context, spec.concurrency, spec.repeat)


def compare(baseline: Outputs, other: Outputs) -> AccuracyReport:
    """Both answers to the same prompts, judged by how far the baseline agrees with itself."""
    return compare_outputs(baseline.texts, other.texts, baseline.again)


def as_metrics(report: AccuracyReport, baseline: str) -> dict[str, Any]:
    """The `accuracy` metric of a cell."""
    out: dict[str, Any] = {"baseline": baseline, "compared": report.compared, "why": report.why}
    if report.compared:
        out["equal_share"] = report.equal_share
    if report.expected_share is not None:
        out["expected_share"] = report.expected_share
    if report.first_divergence is not None:
        out["first_divergence_chars"] = report.first_divergence
    if report.differences:
        out["differences"] = shown(report)
    return out


def shown(report: AccuracyReport) -> list[dict[str, Any]]:
    """The first differences, to be read by people."""
    return [
        {"request": d.index, "at": d.at, "baseline": d.baseline, "other": d.other}
        for d in report.differences[:SHOWN]
    ]
