"""A report as one HTML file that opens anywhere: no script, nothing from the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from ddtop.journal.read.matrix import matrix
from ddtop.journal.read.select import tps
from ddtop.report.advice import advice_of, advice_table
from ddtop.report.charts import charts
from ddtop.report.markdown import facts
from ddtop.report.recording import NOT_REAL, Recording, iso
from ddtop.report.rows import ROUNDS, has_metric, round_rows
from ddtop.report.side_by_side import compared_table
from ddtop.report.starts import start_rows
from ddtop.report.tables.ladder import ladders
from ddtop.report.tables.per_gpu import TITLE as PER_GPU
from ddtop.report.tables.per_gpu import gpu_charts, gpu_notes, gpu_rows
from ddtop.report.tables.server import TITLE, server_rows
from ddtop.report.text import legend, table

METRICS = (
    ("output_tok_s", "Throughput (tok/s, all streams together)"),
    ("ttft_ms.p50", "Time to first token (ms, median)"),
    ("itl_ms.p50", "Time between tokens (ms, median)"),
    ("acceptance_length", "Acceptance length (tokens a verification step)"),
    (
        "acceptance.drafted_share",
        "Share of the tokens from steps with a draft (what the acceptance length is about)",
    ),
    ("j_per_token", "Energy (J/token)"),
    ("knee", "Knee (the highest load that meets the service levels)"),
)
"""Tables of the report, each shown where there is such a number."""


def report_html(recordings: Sequence[Recording], baseline: str | None = None) -> str:
    """The whole report: of each recording its tables, charts, starts, alerts and steps; several compared."""
    template = jinja2.Environment(
        loader=jinja2.PackageLoader("ddtop.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("report.html")
    return template.render(
        title=", ".join(dict.fromkeys(r.state.run.name or r.name for r in recordings)) or "ddtop",
        not_real=NOT_REAL,
        simulated=any(r.state.run.simulated for r in recordings),
        recordings=[_recording(r, baseline) for r in recordings],
        compared=compared_table(recordings) if len(recordings) > 1 else [],
    )


def _recording(recording: Recording, baseline: str | None) -> dict[str, Any]:
    state = recording.state
    tables: list[dict[str, Any]] = []
    for metric, title in METRICS:
        if not has_metric(state, metric) and metric != "output_tok_s":
            continue
        for tp in tps(state):
            rows = table(matrix(state, tp, metric, baseline))
            tables.append(
                {"title": f"{title} · tp{tp}", "rows": rows, "notes": legend(state, [tp], metric, baseline)}
            )
    tables += [{"title": title, "rows": rows, "notes": ""} for title, rows in ladders(state)]
    usd = recording.usd_per_gpu_hour
    if gpus := gpu_rows(state, usd):
        tables.append({"title": PER_GPU, "rows": gpus, "notes": gpu_notes(state, usd)})
    if server := server_rows(state):
        tables.append({"title": TITLE, "rows": server, "notes": ""})
    if rounds := round_rows(state):
        tables.append({"title": ROUNDS, "rows": rounds, "notes": ""})
    return {
        "name": state.run.name or recording.name,
        "file": recording.name,
        "facts": facts(recording),
        "tables": tables,
        "advice": advice_table(advice_of(state, baseline)),
        # Our own SVG, every text in it escaped by svg.py.
        "pictures": [
            *((title, note, Markup(svg)) for title, note, svg in gpu_charts(state)),
            *((p.title, p.note, Markup(p.svg)) for p in charts(state, baseline)),
        ],
        "start_times": start_rows(state, baseline),
        "restarts": [
            {
                "what": f"{r.config} tp{r.tp}",
                "unit": r.unit,
                "phases": ", ".join(
                    f"{p.phase} {p.elapsed_s:.0f} s" for p in r.phases.values() if p.elapsed_s
                ),
                "outcome": f"ready in {r.ready_s:.1f} s"
                if r.ready_s is not None
                else (r.verdict or r.outcome),
                "cause": r.cause or "",
            }
            for r in state.restarts
        ],
        "alerts": [
            {
                "at": iso(a.at_s),
                "title": a.raised.title,
                "verdict": a.raised.verdict,
                "cause": a.raised.cause_text or a.raised.cause,
                "advice": a.raised.advice,
                "seen": a.raised.fault_seen_s,
                "resolved": f"{a.resolved.how} ({a.resolved.by})" if a.resolved else "open",
                "evidence": [f"{e.source}: {e.text}" for e in a.raised.evidence],
            }
            for a in state.alerts.values()
        ],
        "steps": [
            {"at": iso(s.at_s), "title": s.title, "reason": s.reason, "by": s.by, "state": s.state}
            for s in state.steps.values()
        ],
    }
