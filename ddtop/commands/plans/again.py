"""`plan from`: the plan of a bundle or a recording, written so that it can be run again."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from ddtop.errors import UsageError
from ddtop.words import many

NO_SAME_IDS = 10
"""Exit code where the plan was written and its cells are not those of the run."""
MOST_B = 16 << 30


def plan_again(source: str, output: Path | None) -> tuple[str, int]:
    """(what was written, exit code). Raises JournalError, UsageError, PlanError."""
    with tempfile.TemporaryDirectory(prefix="ddtop-plan-") as folder:
        return _write(_recording(source, Path(folder)), source, output)


def _recording(source: str, folder: Path) -> Path:
    """The recording that `source` names, or the one in the bundle that it is."""
    from ddtop.journal.read.runs import resolve_run
    from ddtop.report.bundle.write import RECORDING

    path = Path(source)
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return resolve_run(source).path
    target = folder / RECORDING
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(RECORDING)
            if info.file_size > MOST_B:
                raise UsageError(
                    f"{path}: its {RECORDING} is larger than {MOST_B >> 30} GiB", do="name another bundle"
                )
            with archive.open(info) as read, target.open("wb") as write:
                while chunk := read.read(1 << 20):
                    write.write(chunk)
    except KeyError:
        raise UsageError(
            f"{path}: a ZIP without {RECORDING}: no bundle of ddtop",
            do="ddtop report RUN --bundle OUT.zip writes one",
        ) from None
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", do="copy it again: it may be cut") from error
    return target


def _write(path: Path, source: str, output: Path | None) -> tuple[str, int]:
    from ddtop.events import CellsPlanned, PlanSource, RunStarted
    from ddtop.journal.read.reader import JournalReader
    from ddtop.plan import as_begun, check_plan, expand, recorded_plan
    from ddtop.plan.again import plan_files, with_warm_up
    from ddtop.redact import HIDDEN

    with JournalReader(path) as reader:
        events = [e for _, e in reader.kinds(("run-started", "plan-source", "cells-planned"))]
    starts = [e for e in events if isinstance(e, RunStarted)]
    run = starts[-1] if starts else None
    if run is None or run.plan_toml is None:
        raise UsageError(
            f"{source}: the run had no plan", do="only a sweep can be run again: ddtop runs lists them"
        )
    later = events[events.index(run) :]
    wanted = next((e.cells for e in later if isinstance(e, CellsPlanned)), ())
    told = next((e for e in later if isinstance(e, PlanSource)), None)
    plan = recorded_plan(run.plan_toml, told, run.plan_path)
    target = output or Path(f"{plan.name}.toml")
    if target.exists():
        raise UsageError(f"{target} already exists", do="name another file: --output PLAN.toml")
    ids = [c.id for c in wanted if c.refines is None]  # the plan asks for these by itself again
    written = run.plan_toml
    if (begun := as_begun(plan, ids)) is not plan:  # its default was another when the run began
        written = with_warm_up(written, int(begun.bench.warmup))
    text, files = plan_files(written, plan.files, plan.env, f"{target.stem}-prompts")
    try:
        for name, content in files.items():
            place = target.parent / name
            place.parent.mkdir(exist_ok=True)
            place.write_text(content, encoding="utf-8")
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{error.filename or target}: cannot be written: {error.strerror}", do="name another file"
        ) from error
    again, _ = check_plan(target)
    now = [c.spec.id for c in expand(again)]
    other = len(set(now) ^ set(ids))
    head = f"wrote {target}" + (f" and {many(len(files), 'prompt file')}" if files else "")
    do = f"run it again: ddtop connect {again.host or 'HOST'} --plan {target}"
    if run.simulated:
        do = "its host was SIMULATED and is gone: ddtop demo runs such a sweep again"
    if not other:
        return f"{head}: {many(len(now), 'cell')}, with the ids that the run had\n  {do}", 0
    why = (
        "secrets were left out of it" if HIDDEN in text else "this version of ddtop reads the plan otherwise"
    )
    return (
        f"{head}: {other} of its {many(len(now), 'cell')} have other ids than in the run ({why})\n  {do}",
        NO_SAME_IDS,
    )
