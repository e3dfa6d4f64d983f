"""A report as Markdown: for an issue, a chat or a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ddtop.errors import plain
from ddtop.journal.act.allocation import report_words
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import tps
from ddtop.journal.results.matrix import matrix
from ddtop.report.advice import advice_of, advice_table
from ddtop.report.conclusion import conclude
from ddtop.report.conclusion.best import TITLE as BEST
from ddtop.report.conclusion.best import best_rows
from ddtop.report.recording import NOT_REAL, OUTCOMES, Recording, counts_words, engines, minute, second
from ddtop.report.rows import ROUNDS, round_rows
from ddtop.report.side_by_side import compared_table
from ddtop.report.starts import TITLE as STARTS
from ddtop.report.starts import start_rows
from ddtop.report.tables.ladder import ladders
from ddtop.report.tables.per_gpu import TITLE as PER_GPU
from ddtop.report.tables.per_gpu import gpu_notes, gpu_rows
from ddtop.report.tables.server import TITLE, server_rows
from ddtop.report.text import cells, folded, legend, pieces_of, table

FOLDED, MOST = 24, 120
"""Rows of a table: more are folded; still more are left out, because an issue on GitHub holds 65,536 characters."""


def report_markdown(recordings: Sequence[Recording], baseline: str | None = None) -> str:
    """The tables and alerts of each recording; of several also their comparison."""
    parts: list[str] = []
    for recording in recordings:
        parts += _recording(recording, baseline)
    if len(recordings) > 1:
        rows = compared_table(recordings)
        if rows:
            parts += ["# Side by side: output\\_tok\\_s", _table(rows)]
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
        ("Slurm", report_words(state)),
        ("engine", " ".join(x for x in (engine, version) if x)),
        ("driver", driver or ""),
        ("started", minute(run.started_at_s)),
        ("ended", f"{minute(run.ended.at_s)}, {OUTCOMES[run.ended.outcome]}" if run.ended else "not ended"),
        ("cells", f"{total}: {parts}" if parts else str(total)),
        ("baseline", run.baseline or ""),
        *(("dataset", words) for words in dataset_words(state)),
    ]
    if run.simulated:
        out.insert(0, ("SIMULATED", NOT_REAL))
    return [(name, value) for name, value in out if value]


def dataset_words(state: State) -> list[str]:
    """Each dataset that prompts were taken from: revision, hash and licence."""
    source = state.run.plan_source
    out = []
    for name, about in (source.datasets if source is not None else {}).items():
        parts = [
            name,
            f"revision {str(about['revision'])[:12]}" if about.get("revision") else "",
            f"SHA-256 {str(about.get('sha256', ''))[:12]}",
            str(about.get("licence") or "licence not named"),
            "" if about.get("shareable", True) else "its texts are not in the recording",
        ]
        out.append(", ".join(part for part in parts if part))
    return out


def _recording(recording: Recording, baseline: str | None) -> list[str]:
    state = recording.state
    found = conclude(state, baseline)
    parts = [f"# {escape(state.run.name or recording.name)}"]
    parts.append("\n".join(f"- {name}: {escape(value)}" for name, value in facts(recording)))
    parts += ["## Conclusion", "\n".join(f"{n}. {escape(line)}" for n, line in enumerate(found.sentences, 1))]
    if rows := best_rows(found.best):
        parts += [f"### {BEST}", _long(rows)]
    if gpus := gpu_rows(state, recording.usd_per_gpu_hour):
        parts += [f"## {PER_GPU}", _long(gpus), _notes(gpu_notes(state, recording.usd_per_gpu_hour))]
    for tp in tps(state):
        whole = matrix(state, tp, baseline=baseline)
        view, lost = folded(whole)
        parts.append(f"## tp{tp} · {escape(view.metric)}")
        rows = table(view, whole.columns)
        parts += [
            _table([[row[0], *(row[i + 1] for i in some)] for row in rows])
            for some in pieces_of(view.columns)
        ]
        notes = [*lost, *legend([whole]).splitlines()]
        parts += [_notes("\n".join(notes))] if notes else []
    for title, rows in ladders(state):
        parts += [f"## {escape(title)}", _table(rows)]
    if rounds := round_rows(state):
        parts += [f"## {ROUNDS}", _table(rounds)]
    if starts := start_rows(state, baseline):
        parts += [f"## {STARTS}", _table(starts)]
    if server := server_rows(state):
        parts += ["## Server", TITLE + ".", _long(server)]
    if advice := advice_table(advice_of(state, baseline)):
        parts += ["## What to run, by concurrency", _long(advice)]
    if state.alerts:
        rows = [["when (UTC)", "what", "verdict", "cause", "resolved"]]
        for alert in state.alerts.values():
            how = f"{alert.resolved.how} ({alert.resolved.by})" if alert.resolved else "open"
            what = alert.raised
            rows.append([second(alert.at_s), what.title, what.verdict, what.cause_text or what.cause, how])
        parts += ["## Alerts", _table(rows)]
    return parts


def _notes(text: str) -> str:
    """Lines below a table."""
    return escape(text).replace("\n", "  \n")


def escape(text: str) -> str:
    """Text that Markdown, and GitHub's kind of it, shows as it is: no markup, link, formula or mention comes of it."""
    out = plain(text).replace("\r", " ").replace("\t", " ")
    out = re.sub(r"[\\`*_\[\]<>|#~$&]", r"\\\g<0>", out)
    out = re.sub(r"(?<=:)//|(?<=www)\.", lambda found: "\\".join(["", *found[0]]), out)
    return re.sub(r"(?<![\w@])@(?=\w)", "@\u200b", out)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose source is aligned too; a column of numbers stands at the right."""
    fields = [[escape(" ".join(field.split())) for field in row] for row in rows]
    right = [n > 0 and _numbers(row[n] for row in rows[1:]) for n in range(len(rows[0]))]
    widths = [max(3, *(cells(row[n]) for row in fields)) for n in range(len(rows[0]))]
    lines = [" | ".join(_padded(*one) for one in zip(row, widths, right, strict=True)) for row in fields]
    rule = " | ".join("-" * (w - 1) + ":" if r else "-" * w for w, r in zip(widths, right, strict=True))
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def _long(rows: Sequence[Sequence[str]]) -> str:
    """A table that may be long: folded from FOLDED rows on; from MOST on left to the forms that hold it."""
    if len(rows) > MOST:
        return f"{len(rows) - 1} rows: they are in the HTML report and the CSV."
    if len(rows) > FOLDED:
        return f"<details><summary>{len(rows) - 1} rows</summary>\n\n{_table(rows)}\n\n</details>"
    return _table(rows)


def _padded(text: str, width: int, right: bool) -> str:
    room = " " * (width - cells(text))
    return room + text if right else text + room


def _numbers(column: Iterable[str]) -> bool:
    """Whether most fields that say something begin with a number."""
    said = [text for text in column if text and text not in ("–", "·", "not known")]
    return 2 * sum(bool(re.match(r"([★☆] )?[≤+-]?\d", text)) for text in said) > len(said)
