"""The accuracy guard: a cell's outputs compared with the baseline's for the same prompts. Pure.

The load generator keeps the outputs of cells at temperature 0. Request i of a cell carries the same prompt and nonce
in every configuration, so its output is compared with the baseline's for request i of the same cell. How far the
baseline agrees with itself is measured too: its first requests are sent once more, in another batch.
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
"""Requests of a baseline's cell that are sent once more."""
SHOWN = 3
"""Differences that are recorded with the metrics."""


def load_options(load: Mapping[str, Any], spec: CellSpec) -> dict[str, Any]:
    """Options of a cell's load for the guard; none where sampling is random and outputs differ anyway."""
    if float(load.get("temperature", 0.0)) > 0:
        return {}
    return {"keep_texts": True, "again": AGAIN} if spec.baseline else {"keep_texts": True}


@dataclass(frozen=True, slots=True)
class Outputs:
    """Complete outputs of one cell: `texts` by request index, and `again` of the requests sent twice."""

    texts: Texts
    again: Texts | None = None

    def packed(self) -> dict[str, Any]:
        """The fields `texts` and `again` of CellOutputs."""
        return {"texts": pack_value(self.texts), "again": pack_value(self.again) if self.again else None}


def outputs_in(raw: Mapping[str, Any]) -> Outputs | None:
    """The complete outputs in a result of the load generator; None where it kept none. Raises ValueError on damage."""
    result = unpack(dict(raw))
    whole = {str(r.get("i")) for r in result.get("requests") or () if r.get("class") == "ok"}
    texts = {index: parts for index, parts in (result.get("texts") or {}).items() if index in whole}
    return Outputs(texts, result.get("texts_again") or None) if texts else None


def outputs_of(outputs: CellOutputs) -> Outputs:
    """The recorded outputs. Raises ValueError on damage."""
    again = unpack_value(outputs.again) if outputs.again is not None else None
    return Outputs(unpack_value(outputs.texts), again)


def reference(cells: Iterable[CellView], spec: CellSpec) -> CellView | None:
    """The baseline's finished cell with the same prompts at the same TP; None for a cell of the baseline itself."""
    if spec.baseline:
        return None
    return next(
        (c for c in cells if c.state == "done" and c.outputs is not None and c.spec.load == spec.load), None
    )


def compare(baseline: Outputs, other: Outputs) -> AccuracyReport:
    """Both outputs for the same prompts, judged by how far the baseline agrees with itself."""
    return compare_outputs(baseline.texts, other.texts, baseline.again)


def compare_groups(baseline: Outputs, other: Outputs, groups: Mapping[str, str]) -> dict[str, AccuracyReport]:
    """The same for each group of prompts: a fault in one of them is lost among the outputs of all. `groups`: request index
    → group."""
    out: dict[str, AccuracyReport] = {}
    for group in dict.fromkeys(groups.values()):
        mine = {index for index, one in groups.items() if one == group}
        parts = [
            {index: texts for index, texts in found.items() if index in mine}
            for found in (baseline.texts, other.texts)
        ]
        report = compare_outputs(parts[0], parts[1], baseline.again)
        if report.compared:
            out[group] = report
    return out


def suspicion(report: AccuracyReport, groups: Mapping[str, AccuracyReport]) -> str:
    """Why the outputs are in doubt, as a whole or in one group; empty where they are not."""
    if report.suspect:
        return report.why
    return next((f"in {group}: {one.why}" for group, one in groups.items() if one.suspect), "")


def groups_in(raw: Mapping[str, Any]) -> dict[str, str]:
    """Request index → group of its prompt, of a result that is unpacked; {} where prompts have none."""
    return {str(r["i"]): str(r["group"]) for r in raw.get("requests") or () if r.get("group")}


def as_metrics(
    report: AccuracyReport, baseline: str, groups: Mapping[str, AccuracyReport] | None = None
) -> dict[str, Any]:
    """The `accuracy` metric of a cell."""
    out: dict[str, Any] = {"baseline": baseline, "compared": report.compared, "why": report.why}
    if report.compared:
        out["equal_share"] = report.equal_share
    if report.expected_share is not None:
        out["expected_share"] = report.expected_share
    if report.first_divergence is not None:
        out["first_divergence_chars"] = report.first_divergence
    if report.differences:
        out["differences"] = _shown(report)
    if groups:
        out["by_group"] = {
            group: {"compared": one.compared, "equal_share": one.equal_share, "suspect": one.suspect}
            for group, one in groups.items()
        }
    return out


def _shown(report: AccuracyReport) -> list[dict[str, Any]]:
    """The first differences."""
    return [
        {"request": d.index, "at": d.at, "baseline": d.baseline, "other": d.other}
        for d in report.differences[:SHOWN]
    ]
