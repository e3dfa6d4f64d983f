"""`ddtop report RUN --bundle OUT.zip`: plan, recording without secrets, reports, and the checklist of what a reviewer asks."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtop.errors import UsageError
from ddtop.events import CellMeasured
from ddtop.journal.read.export import export
from ddtop.journal.read.reader import JournalReader
from ddtop.report.bundle.checklist import Check, checklist, checklist_json
from ddtop.report.bundle.seen import see
from ddtop.report.html import report_html
from ddtop.report.json_form import report_json
from ddtop.report.markdown import escape, report_markdown
from ddtop.report.recording import NOT_REAL, Recording, load, outcome_words
from ddtop.words import many

RECORDING = "recording.ddtop"
STAMP = (1980, 1, 1, 0, 0, 0)
"""Of every file in the archive: the same run gives the same archive."""
MARKS = {"met": "yes", "not met": "**no**", "n/a": "n/a"}


def write_bundle(
    source: Path, target: Path, *, baseline: str | None = None, usd: float | None = None
) -> tuple[list[Check], int]:
    """Writes the bundle of the recording at `source`; returns its checklist and how many secrets were left out.

    Raises JournalError where the recording cannot be read, UsageError where `target` cannot be written.
    """
    if target.exists():
        raise UsageError(f"{target} already exists", do="name a new file, or remove that one first")
    with tempfile.TemporaryDirectory(prefix="ddtop-bundle-") as folder:
        copy = Path(folder) / RECORDING
        removed: set[str] = set()
        export(source, copy, removed=removed)
        recording = replace(load(copy), name=source.stem, usd=usd)
        with JournalReader(copy) as reader:
            measured = [e for _, e in reader.kinds(("cell-measured",)) if isinstance(e, CellMeasured)]
        checks = checklist(see(recording.state, measured, recording.state.selftest))
        files = texts_of(recording, checks, len(removed), baseline)
        try:
            _zip(target, files, copy)
        except OSError as error:
            target.unlink(missing_ok=True)
            raise UsageError(
                f"{target}: cannot be written: {error.strerror}", do="name another file"
            ) from error
    return checks, len(removed)


def texts_of(
    recording: Recording, checks: Sequence[Check], removed: int, baseline: str | None
) -> dict[str, str]:
    """Every text of the bundle by its name. Pure."""
    state = recording.state
    source = state.run.plan_source
    files = {
        "README.md": _readme(recording, checks, removed),
        "CHECKLIST.md": checklist_markdown(recording, checks),
        "checklist.json": _json(checklist_json(list(checks))),
        "report.html": report_html([recording], baseline),
        "report.md": report_markdown([recording], baseline),
        "report.json": _json(report_json([replace(recording, path=None)], baseline)),
    }
    if state.run.plan_toml:
        files["plan.toml"] = state.run.plan_toml
    for index, (name, text) in enumerate((source.files if source is not None else {}).items()):
        files[f"prompts/{index}-{Path(name).name.replace(':', '-')}"] = text
    if state.selftest is not None:
        files["selftest.json"] = _json(state.selftest)
    return files


def checklist_markdown(recording: Recording, checks: Sequence[Check]) -> str:
    """The checklist as a table."""
    found = checklist_json(list(checks))
    rows = [f"| {MARKS[c.met]} | {escape(c.asked)} | {escape(c.why)} |".replace("\n", " ") for c in checks]
    head = f"# Checklist: {escape(recording.state.run.name or recording.name)}"
    return "\n".join(
        [
            head,
            "",
            f"{found['met']} of {found['of']} met. What is not recorded is not met: it cannot be shown.",
            "",
            "| met | asked | reason |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _readme(recording: Recording, checks: Sequence[Check], removed: int) -> str:
    state = recording.state
    found = checklist_json(list(checks))
    lines = [
        f"# {state.run.name or recording.name} on {state.host.name or '?'}",
        "",
        f"{outcome_words(state)}.",
        "",
    ]
    if state.run.simulated:
        lines += [f"**SIMULATED**: {NOT_REAL}.", ""]
    lines += [
        f"Written by ddtop {state.run.ddtop_version}. {found['met']} of {found['of']} points of the checklist are met: CHECKLIST.md.",
        "",
        "| file | holds |",
        "|---|---|",
        "| CHECKLIST.md, checklist.json | what a reviewer asks, each met or not, with the reason |",
        "| report.html, report.md, report.json | the results |",
        "| plan.toml, prompts/ | the plan as it was run, and its prompt files |",
        f"| {RECORDING} | every event of the run (SQLite); `ddtop replay {RECORDING}` shows it |",
        "| selftest.json | the load generator's own error on this host, where it was measured |",
        "| SHA256SUMS | of all of these |",
        "",
        "Run it again: `ddtop plan from BUNDLE.zip`, then `ddtop connect HOST --plan PLAN.toml`.",
        "",
    ]
    if removed:
        lines += [
            f"{many(removed, 'secret')} {'was' if removed == 1 else 'were'} left out (`[removed]`). A plan that held one has other cell ids now.",
            "",
        ]
    return "\n".join(lines)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=False) + "\n"


def _zip(target: Path, files: Mapping[str, str], recording: Path) -> None:
    sums: list[str] = []
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            data = text.encode("utf-8", "replace")
            sums.append(f"{hashlib.sha256(data).hexdigest()}  {name}")
            archive.writestr(_entry(name), data)
        digest = hashlib.sha256()
        with (
            recording.open("rb") as read,
            archive.open(_entry(recording.name), "w", force_zip64=True) as write,
        ):
            while chunk := read.read(1 << 20):
                digest.update(chunk)
                write.write(chunk)
        sums.append(f"{digest.hexdigest()}  {recording.name}")
        archive.writestr(_entry("SHA256SUMS"), "\n".join([*sums, ""]))


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, STAMP)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info
