"""A report as Markdown: for an issue, a chat or a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.journal.read.matrix import matrix
from ddtop.journal.read.select import tps
from ddtop.report.advice import advice_of, advice_table
from ddtop.report.recording import NOT_REAL, OUTCOMES, Recording, counts_words, engines, iso
from ddtop.report.rows import ROUNDS, round_rows
from ddtop.report.side_by_side import compared_table
from ddtop.report.starts import TITLE as STARTS
from ddtop.report.starts import start_rows
from ddtop.report.tables.ladder import ladders
from ddtop.report.tables.per_gpu import TITLE as PER_GPU
from ddtop.report.tables.per_gpu import gpu_notes, gpu_rows
from ddtop.report.tables.server import TITLE, server_rows
from ddtop.report.text import legend, table


def report_markdown(recordings: Sequence[Recording], baseline: str | None = None) -> str:
    """The tables and alerts of each recording; of several also their comparison."""
    parts: list[str] = []
    for recording in recordings:
        parts += _recording(recording, baseline)
    if len(recordings) > 1:
        rows = compared_table(recordings)
        if rows:
            parts += ["## Side by side · output_tok_s", _table(rows)]
    return "\n\n".join(parts) + "\n"


def facts(recording: Recording) -> list[tuple[str, str]]:
    """The facts at the head of a report: name → value."""
    state = recording.state
    run = state.run
    engine, version, driver = engines(state)
    gpus = [g.reading.name or "GPU" for g in state.gpus.values()]
    kinds = ", ".join(f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus))
    parts, total = counts_words(state), len(state.plan_cells)
    out = [
        ("host", state.host.name),
        ("GPUs", kinds),
        ("engine", " ".join(x for x in (engine, version) if x)),
        ("driver", driver or ""),
        ("started", iso(run.started_at_s) or ""),
        ("ended", f"{iso(run.ended.at_s)} · {OUTCOMES[run.ended.outcome]}" if run.ended else "not ended"),
        ("cells", f"{total}: {parts}" if parts else str(total)),
        ("baseline", run.baseline or ""),
    ]
    if run.simulated:
        out.insert(0, ("SIMULATED", NOT_REAL))
    return [(name, value) for name, value in out if value]


def _recording(recording: Recording, baseline: str | None) -> list[str]:
    state = recording.state
    parts = [f"# {escape(state.run.name or recording.name)}"]
    parts.append("\n".join(f"- {name}: {escape(value)}" for name, value in facts(recording)))
    for tp in tps(state):
        view = matrix(state, tp, baseline=baseline)
        parts += [f"## tp{tp} · output_tok_s", _table(table(view))]
        notes = legend(state, [tp], view.metric, baseline)
        if notes:
            parts.append(escape(notes).replace("\n", "  \n"))
    for title, rows in ladders(state):
        parts += [f"## {escape(title)}", _table(rows)]
    if rounds := round_rows(state):
        parts += [f"## {ROUNDS}", _table(rounds, numbers=False)]
    if gpus := gpu_rows(state, recording.usd_per_gpu_hour):
        notes = escape(gpu_notes(state, recording.usd_per_gpu_hour)).replace("\n", "  \n")
        parts += [f"## {PER_GPU}", _table(gpus), notes]
    if server := server_rows(state):
        parts += ["## Server", TITLE + ".", _table(server)]
    if advice := advice_table(advice_of(state, baseline)):
        parts += ["## What to run, by concurrency", _table(advice, numbers=False)]
    if starts := start_rows(state, baseline):
        parts += [f"## {STARTS}", _table(starts, numbers=False)]
    if state.alerts:
        rows = [["when", "what", "verdict", "cause", "resolved"]]
        for alert in state.alerts.values():
            how = f"{alert.resolved.how} ({alert.resolved.by})" if alert.resolved else "open"
            what = alert.raised
            rows.append([iso(alert.at_s) or "", what.title, what.verdict, what.cause_text or what.cause, how])
        parts += ["## Alerts", _table(rows, numbers=False)]
    return parts


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    out = text.replace("\\", "\\\\").replace("\r", " ")
    for mark in "`*_[]<>|#":
        out = out.replace(mark, f"\\{mark}")
    return out


def _table(rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    head, *body = [[escape(field).replace("\n", " ") or " " for field in row] for row in rows]
    rule = ["---", *["---:" if numbers else "---" for _ in head[1:]]]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))
