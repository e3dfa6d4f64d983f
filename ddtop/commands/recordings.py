"""`report`, `runs`, `export`: what recordings hold, as text. They reach no host."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddtop.commands.options import chosen
from ddtop.commands.terminal import DUMB
from ddtop.errors import UsageError, plain
from ddtop.words import duration

if TYPE_CHECKING:
    from ddtop.bench.judge.cell import CellJudgement
    from ddtop.events import CellMeasured


def report(
    recordings: list[Path],
    *,
    html: Path | None,
    md: bool,
    csv: bool,
    by_group: bool = False,
    as_json: bool,
    baseline: str | None,
    usd: float | None = None,
    bundle: Path | None = None,
) -> str:
    """Text of the report in the form asked for. `html` names a file to write. Raises JournalError, UsageError."""
    from dataclasses import replace

    from ddtop.report import (
        group_csv,
        load,
        report_csv,
        report_html,
        report_json,
        report_markdown,
        report_text,
    )

    if sum((html is not None, bundle is not None, md, csv, as_json)) > 1:
        raise UsageError(
            "report: more than one output format given",
            do="choose one of --html, --bundle, --md, --csv, --json",
        )
    if by_group and not csv:
        raise UsageError("report: --by-group is a form of --csv", do="add --csv")
    if bundle is not None and len(recordings) > 1:
        raise UsageError("report: --bundle is of one recording", do="one bundle for each recording")
    named = [chosen(str(path), "report").path for path in recordings] or [chosen(None, "report").path]
    loaded = [replace(load(path), usd=usd) for path in named]
    configs = dict.fromkeys(cell.spec.config for one in loaded for cell in one.state.plan_cells)
    if baseline is not None and baseline not in configs:
        raise UsageError(
            f"report: there is no configuration `{baseline}`",
            do=f"--baseline is one of {', '.join(configs)}" if configs else "this recording has no sweep",
        )
    if bundle is not None:
        return _bundle(named[0], bundle, baseline, usd)
    if as_json:
        return json.dumps(report_json(loaded, baseline), indent=1, ensure_ascii=False)
    if by_group:
        return group_csv(loaded).rstrip("\n")
    if csv:
        return report_csv(loaded, baseline).rstrip("\n")
    if md:
        return report_markdown(loaded, baseline)
    if html is not None:
        try:
            html.write_text(report_html(loaded, baseline), encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{html}: cannot be written: {error.strerror}", do="name another file"
            ) from error
        return f"wrote {html}: open it in a browser"
    width, colour = _terminal()
    return report_text(loaded, baseline, width, colour=colour)


def _terminal() -> tuple[int | None, bool]:
    """Columns of the terminal that standard output is, and whether it may have colour; (None, False) for a pipe or a file."""
    if not sys.stdout.isatty():
        return None, False
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in DUMB
    return shutil.get_terminal_size().columns, colour


def _bundle(source: Path, target: Path, baseline: str | None, usd: float | None) -> str:
    """Writes the publication bundle; says what of the checklist is not met."""
    from ddtop.report.bundle.write import write_bundle
    from ddtop.words import many

    checks, removed = write_bundle(source, target, baseline=baseline, usd=usd)
    missing = [c for c in checks if c.met == "not met"]
    asked = sum(c.met != "n/a" for c in checks)
    lines = [f"wrote {target}: {asked - len(missing)} of {asked} points of the checklist are met"]
    lines += [f"  {check.id}: {check.why}" for check in missing]
    if removed:
        lines.append(f"{many(removed, 'secret')} left out")
    return plain("\n".join(lines))


def list_runs(*, as_json: bool) -> str:
    """What is recorded here, newest first."""
    from ddtop.journal.read.runs import list_runs as found

    runs = found(elsewhere=True)
    if as_json:
        rows = [
            {
                "schema": 1,
                "run": r.run_id,
                "path": str(r.path),
                "name": r.name,
                "host": r.host,
                "mode": r.mode,
                "state": r.state,
                "started_at_s": r.started_at_s,
                "size_b": r.size,
                "cells_total": r.counts.total,
                "cells_done": r.counts.done,
                "starts_ready": len(r.ready_s),
                "start_s_median": statistics.median(r.ready_s) if r.ready_s else None,
                "simulated": r.simulated,
                "problem": r.problem,
            }
            for r in runs
        ]
        return json.dumps(rows, indent=1)
    if not runs:
        return "No recordings yet. `ddtop connect HOST --plan PLAN` records a sweep."
    lines = [f"{'started':16}  {'host':12} {'plan':24} {'state':12} {'cells':>9} {'start':>7}  recording"]
    for r in runs:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(r.started_at_s)) if r.started_at_s else "?"
        cells = f"{r.counts.done}/{r.counts.total}" if r.counts.total else "-"
        start = duration(statistics.median(r.ready_s)) if r.ready_s else "-"
        lines.append(
            f"{began:16}  {r.host:12.12} {r.name or 'watch':24.24} {r.state:12} {cells:>9} {start:>7}  {_place(r.path)}"
        )
        if r.problem:
            lines.append(f"    {r.problem}")
    return "\n".join(lines)


def _place(path: Path) -> str:
    """The name of a recording where ddtop keeps them, the whole path of one elsewhere."""
    from ddtop.paths import runs_dir

    return path.name if path.parent == runs_dir() else str(path)


def export_run(run: str, target: Path) -> str:
    """Copies a recording, live or not, to one self-contained file."""
    from ddtop.journal.read.export import export
    from ddtop.journal.read.runs import resolve_run

    size = export(resolve_run(run).path, target)
    return f"wrote {target} ({size / 1e6:.1f} MB)"


def export_results(recording: Path, form: str) -> str:
    """The measured cells as another tool's result file, one a line: SGLang's, vLLM's, or rows of InferenceX."""
    from msgspec.structs import replace

    from ddtop.bench.exporters import to_sglang, to_vllm
    from ddtop.events import CellMeasured
    from ddtop.journal.read.reader import JournalReader
    from ddtop.journal.read.runs import resolve_run
    from ddtop.report import load
    from ddtop.report.tables.inferencex import inferencex_row

    writers = {"sglang": to_sglang, "vllm": to_vllm}
    if form not in (*writers, "inferencex"):
        raise UsageError(
            f"export: unknown format `{form}`", do="--format sglang, --format vllm or --format inferencex"
        )
    path = resolve_run(str(recording)).path
    state = load(path).state
    specs = {cell.spec.id: cell.spec for cell in state.plan_cells}
    latest: dict[str, CellMeasured] = {}
    with JournalReader(path) as reader:
        for _, event in reader.kinds(("cell-measured",)):
            if not isinstance(event, CellMeasured) or event.cell_id not in specs:
                continue
            before = latest.get(event.cell_id)
            if event.raw:
                latest[event.cell_id] = event
            elif (
                before is not None and before.attempt == event.attempt
            ):  # judged anew; the figures are the same
                latest[event.cell_id] = replace(event, raw=before.raw)
    rows = [
        {
            **(
                inferencex_row(state, specs[cell], event)
                if form == "inferencex"
                else writers[form](event.raw, _judged(event))
            ),
            "ddtop_config": specs[cell].config,
            "ddtop_tp": specs[cell].tp,
        }
        for cell, event in latest.items()
        if {"requests_ok", "requests_failed"}
        <= event.metrics.keys()  # a search without a knee has no figures
    ]
    if not rows:
        raise UsageError(
            f"{path}: no cell was measured by ddtop's own load generator",
            do=f"print what it holds: ddtop report {recording}",
        )
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def _judged(event: CellMeasured) -> CellJudgement:
    """The judgement as it was recorded: a recording keeps the figures, not every lag they were made from."""
    from dataclasses import replace

    from ddtop.bench.judge.cell import judgement

    again = judgement(dict.fromkeys(event.reasons, ""), dict(event.metrics))
    return replace(again, validity=event.validity)
