"""A report as one HTML file that opens anywhere: no script, nothing from the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup, escape

from ddtop.errors import plain
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import tps
from ddtop.journal.results.matrix import each_made_once, matrix
from ddtop.report.advice import advice_of, advice_table
from ddtop.report.bundle.checklist import checklist, checklist_json
from ddtop.report.bundle.seen import see
from ddtop.report.charts import charts
from ddtop.report.conclusion import conclude
from ddtop.report.conclusion.best import TITLE as BEST
from ddtop.report.conclusion.best import best_rows
from ddtop.report.markdown import facts
from ddtop.report.page.cells import anchor, details
from ddtop.report.page.grid import grids
from ddtop.report.page.timeline import timeline
from ddtop.report.recording import NOT_REAL, Recording, second, uncollected
from ddtop.report.rows import ROUNDS, has_metric, round_rows
from ddtop.report.side_by_side import compared_table, compared_words
from ddtop.report.starts import start_rows
from ddtop.report.tables.groups import group_grids
from ddtop.report.tables.ladder import ladders
from ddtop.report.tables.per_gpu import TITLE as PER_GPU
from ddtop.report.tables.per_gpu import gpu_charts, gpu_notes, gpu_rows
from ddtop.report.tables.server import TITLE, server_rows
from ddtop.report.text import folded, legend

METRICS = (
    ("output_tok_s", "Throughput (tok/s, all streams together)", False),
    ("ttft_ms.p50", "Time to first token (ms, median)", True),
    ("tpot_ms.p50", "Time per output token (ms, median)", True),
    ("itl_ms.p50", "Time between tokens (ms, median)", True),
    ("acceptance_length", "Acceptance length (tokens a verification step)", False),
    (
        "acceptance.drafted_share",
        "Share of the tokens from steps with a draft (what the acceptance length is about)",
        False,
    ),
    ("j_per_token", "Energy (J/token)", True),
    ("knee", "Knee (the highest load that meets the service levels)", False),
)
"""Tables of the report, each shown where there is such a number; True: less is better."""


MAIN = ("output_tok_s", "knee")
"""Tables that stand open, and lead to the cells."""


def report_html(recordings: Sequence[Recording], baseline: str | None = None) -> str:
    """The whole report: of each recording its conclusion, tables, charts, timeline, starts and cells; several compared."""
    with each_made_once(), uncollected():
        return _rendered(recordings, baseline)


def _rendered(recordings: Sequence[Recording], baseline: str | None) -> str:
    template = jinja2.Environment(
        loader=jinja2.PackageLoader("ddtop.report", "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("report.html")
    rows = compared_table(recordings) if len(recordings) > 1 else []
    return template.render(
        title=", ".join(dict.fromkeys(r.state.run.name or r.name for r in recordings)) or "ddtop",
        not_real=NOT_REAL,
        simulated=any(r.state.run.simulated for r in recordings),
        anchor=anchor,
        recordings=[_recording(r, baseline) for r in recordings],
        compared={"rows": rows, "words": compared_words(recordings)} if rows else None,
    )


def _shown(value: Any) -> Any:
    """Text of hosts without control characters: no HTML may hold them."""
    return plain(value) if isinstance(value, str) and not value.isprintable() else value


def _recording(recording: Recording, baseline: str | None) -> dict[str, Any]:
    state = recording.state
    found = conclude(state, baseline)
    usd = recording.usd_per_gpu_hour
    run: dict[str, Any] = {
        "name": state.run.name or recording.name,
        "file": recording.name,
        "facts": facts(recording),
        "conclusion": found.sentences,
        "best_title": BEST,
        "best": best_rows(found.best),
        # Our own SVG, every text in it escaped by what draws it.
        "pareto": [(title, note, Markup(svg)) for title, note, svg in gpu_charts(state)],
        "gpus": gpu_rows(state, usd),
        "gpu_notes": gpu_notes(state, usd),
        "tables": [*_tables(state, baseline), *group_grids(state, baseline)],
        "ladders": ladders(state),
        "rounds_title": ROUNDS,
        "rounds": round_rows(state),
        "pictures": [
            (p.title, "" if str(escape(p.note)) in p.svg else p.note, Markup(p.svg))
            for p in charts(state, baseline)
        ],
        "timeline": timeline(state, recording.trace),
        "alerts": _alerts(state),
        "start_times": start_rows(state, baseline),
        "restarts": _restarts(state),
        "server_title": TITLE,
        "server": server_rows(state),
        "advice": advice_table(advice_of(state, baseline)),
        "steps": [
            {"at": second(s.at_s), "title": s.title, "reason": s.reason, "by": s.by, "state": s.state}
            for s in state.steps.values()
        ],
        "checklist": _checklist(recording),
        "cells": details(state, recording.trace, [matrix(state, tp, baseline=baseline) for tp in tps(state)]),
        "cell_count": len(state.plan_cells),
    }
    parts = (
        *((PER_GPU, "gpus"), ("Results", "tables"), ("Charts", "pictures"), ("Timeline", "timeline")),
        *(("Alerts", "alerts"), ("Server starts", "restarts"), ("Server load", "server")),
        *(
            ("What to run", "advice"),
            ("Steps taken", "steps"),
            ("Before you publish", "checklist"),
            ("Cells", "cells"),
        ),
    )
    return {**run, "parts": [(name, bool(run[key])) for name, key in parts]}


def _tables(state: State, baseline: str | None) -> list[dict[str, Any]]:
    tables: list[dict[str, Any]] = []
    for metric, title, lower in METRICS:
        if not has_metric(state, metric) and metric != "output_tok_s":
            continue
        for tp in tps(state):
            whole = matrix(state, tp, metric, baseline, lower_is_better=lower)
            view, lost = folded(whole)
            notes = [*lost, *legend([whole]).splitlines()]
            against = f", × {view.baseline}" if view.baseline else ""
            tables.append(
                {
                    "title": f"{title} · tp{tp}{against}",
                    "open": metric in MAIN,
                    "grids": grids(view, whole.columns, brief=metric not in MAIN),
                    "notes": "\n".join(notes),
                }
            )
    return tables


def _restarts(state: State) -> list[dict[str, str]]:
    return [
        {
            "what": f"{r.config} tp{r.tp}",
            "unit": r.unit,
            "phases": ", ".join(
                f"{p.phase} {p.elapsed_s:.{1 if p.elapsed_s < 10 else 0}f} s"
                for p in r.phases.values()
                if p.elapsed_s
            ),
            "outcome": f"ready in {r.ready_s:.1f} s" if r.ready_s is not None else (r.verdict or r.outcome),
            "cause": r.cause or "",
        }
        for r in state.restarts
    ]


def _alerts(state: State) -> list[dict[str, Any]]:
    return [
        {
            "at": second(a.at_s),
            "title": a.raised.title,
            "verdict": a.raised.verdict,
            "cause": a.raised.cause_text or a.raised.cause,
            "advice": a.raised.advice,
            "seen": a.raised.fault_seen_s,
            "resolved": f"{a.resolved.how} ({a.resolved.by})" if a.resolved else "open",
            "evidence": [f"{e.source}: {e.text}" for e in a.raised.evidence],
        }
        for a in state.alerts.values()
    ]


def _checklist(recording: Recording) -> dict[str, Any] | None:
    """How much of what a reviewer asks is met; None for a run without a plan."""
    if not recording.state.plan_cells:
        return None
    checks = checklist(see(recording.state, recording.measured, recording.state.selftest))
    values = checklist_json(checks)
    return {"met": values["met"], "of": values["of"], "missing": [c for c in checks if c.met == "not met"]}
