"""The recordings on this machine: list them, find the one to go on with, name a new one."""

from __future__ import annotations

import contextlib
import difflib
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ddtop import paths
from ddtop.errors import DdtopError, JournalError, RefusedError, UsageError
from ddtop.events import RunEnded
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.locks import holder, live_recording, live_recordings, recording_lock
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.read.select import Counts, counts

SUFFIX = ".ddtop"
_KINDS = (
    *("run-started", "run-ended", "cells-planned", "cell-state", "host-connected", "host-connecting"),
    *("restart-started", "restart-ready", "restart-failed"),
)

LETS_GO_S = 15.0
"""How long the runner of an ended run is waited for: longer than it waits for its last messages (`sweep/tell/notify.py`)."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One recording, as a list shows it."""

    path: Path
    size: int
    """Bytes, its log included."""
    run_id: str = ""
    name: str = ""
    """Of the plan; empty for a run that only watched."""
    host: str = ""
    mode: Literal["sweep", "monitor"] = "monitor"
    segments: int = 0
    simulated: bool = False
    started_at_s: float | None = None
    ended: RunEnded | None = None
    live: bool = False
    pid: int | None = None
    """Process of the living runner."""
    counts: Counts = field(default_factory=Counts)
    ready_s: tuple[float, ...] = ()
    """Of each start that became ready: seconds from the call to ready."""
    problem: str | None = None
    """Why it cannot be read, in a sentence; then all else is empty."""

    @property
    def state(self) -> str:
        """One word: `running`, how it ended, or `interrupted` where its runner died."""
        if self.problem is not None:
            return "unreadable"
        if self.live:
            return "running"
        return self.ended.outcome if self.ended is not None else "interrupted"


def run_info(path: Path) -> RunInfo:
    """What the recording at `path` is; one that cannot be read says so in `problem`. Never raises."""
    try:
        size = sum(p.stat().st_size for p in (path, path.with_name(path.name + "-wal")) if p.exists())
        state = State()
        with JournalReader(path, check=False) as reader:
            for seq, event in reader.kinds(_KINDS):
                apply(state, event, seq)
    except DdtopError as error:
        return RunInfo(path, path.stat().st_size if path.is_file() else 0, problem=error.what)
    except OSError as error:
        return RunInfo(path, 0, problem=f"{path} cannot be read: {error.strerror}")
    facts = holder(recording_lock(path))
    run = state.run
    return RunInfo(
        path=path,
        size=size,
        run_id=run.run_id,
        name=run.name,
        host=state.host.name,
        mode=run.mode,
        segments=run.segment + 1 if run.started_at_s is not None else 0,
        simulated=run.simulated,
        started_at_s=run.started_at_s,
        ended=run.ended,
        live=facts is not None,
        pid=int(facts["pid"]) if facts and isinstance(facts.get("pid"), int) else None,
        counts=counts(state.plan_cells),
        ready_s=tuple(r.ready_s for r in state.restarts if r.ready_s is not None),
    )


def remember(path: Path) -> None:
    """Note a recording that lies elsewhere, so that the list of recordings has it when its run is over. Never raises: a list
    that lacks one is no reason to end a run."""
    whole = path.resolve()
    if whole.parent == paths.runs_dir().resolve() or "\n" in str(whole) or whole in remembered():
        return
    with contextlib.suppress(OSError):
        _elsewhere().parent.mkdir(parents=True, exist_ok=True)
        with _elsewhere().open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{whole}\n")


def remembered() -> list[Path]:
    """The recordings elsewhere that were noted, as far as they are there."""
    try:
        text = _elsewhere().read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return [path for line in dict.fromkeys(text.splitlines()) if (path := Path(line)).is_file()]


def _elsewhere() -> Path:
    return paths.state_dir() / "recordings-elsewhere"


def list_runs(folder: Path | None = None, *, elsewhere: bool = False) -> list[RunInfo]:
    """All recordings in `folder`, the newest first; by default where ddtop keeps them, and those that a runner of this machine
    writes elsewhere. `elsewhere`: those too that one wrote there before."""
    where = folder if folder is not None else paths.runs_dir()
    files = [path for path in where.glob(f"*{SUFFIX}") if path.is_file()]
    if folder is None:
        here = {path.resolve() for path in files}
        others = [*live_recordings(), *(remembered() if elsewhere else ())]
        files += dict.fromkeys(path for path in others if path.resolve() not in here)
    found = [run_info(path) for path in files]
    return sorted(found, key=lambda r: (r.started_at_s or 0.0, r.path.name), reverse=True)


def find_run(host: str, name: str, folder: Path | None = None) -> RunInfo | None:
    """The recording to continue for this host and plan name: the living one, else the newest."""
    alive = live_recording(host)
    if alive is not None:
        info = run_info(alive)
        if info.name == name:
            return info
    fitting = [r for r in list_runs(folder) if r.problem is None and (r.host, r.name) == (host, name)]
    return next(iter(sorted(fitting, key=lambda r: not r.live)), None)


def live_run(host: str) -> Path | None:
    """The recording that a runner writes for `host` now. One whose run has ended is waited for: its runner delivers its
    last messages, obeys nothing any more, and lets go of the recording within seconds."""
    until = time.monotonic() + LETS_GO_S
    while (alive := live_recording(host)) is not None and time.monotonic() < until:
        if run_info(alive).ended is None:
            break
        time.sleep(0.2)
    return alive


def resolve_run(text: str, folder: Path | None = None) -> RunInfo:
    """The recording a person means: a file, a run's id or file name, its host or plan, or the beginning of one. Those that
    a runner is writing count wherever they lie, others where ddtop keeps them.

    Raises UsageError, with the nearest known names, where it is none or more than one.
    """
    as_path = Path(text).expanduser()
    if as_path.is_file():
        return run_info(as_path)
    runs = list_runs(folder)
    if folder is None and not any(_names(run, text) for run in runs):
        runs = list_runs(elsewhere=True)
    exact = [r for r in runs if text in (r.run_id, r.path.name, r.path.stem)]
    alive = [r for r in runs if r.live and text in (r.host, r.name)]
    named = [r for r in runs if text in (r.host, r.name)]
    begun = [r for r in runs if r.run_id.startswith(text) or r.path.name.startswith(text)]
    near = exact or alive or named or begun
    if len(near) == 1:
        return near[0]
    if near:
        names = ", ".join(r.path.stem for r in near[:5])
        raise UsageError(f"`{text}` matches {len(near)} recordings: {names}", do="give one name in full")
    if Path(text).is_dir():
        raise UsageError(
            f"{text} is a folder, not a recording",
            do="name a file in it; ddtop runs lists the recordings here",
        )
    known = [r.path.stem for r in runs]
    close = difflib.get_close_matches(text, known, 3, 0.4) or known[:3]
    raise UsageError(
        f"there is no recording `{text}`",
        means=f"recordings here: {', '.join(close)}" if close else "there are no recordings here yet",
        do="list recordings: ddtop runs",
    )


def _names(run: RunInfo, text: str) -> bool:
    return text in (run.run_id, run.path.name, run.path.stem, run.host, run.name) or any(
        word.startswith(text) for word in (run.run_id, run.path.name)
    )


def newest_run(command: str) -> RunInfo:
    """The recording that was begun last. Raises UsageError where there is none: `command` needs one."""
    found = next((r for r in list_runs(elsewhere=True) if r.problem is None), None)
    if found is None:
        raise UsageError(
            f"{command}: no recording is named, and there are none here yet",
            do="record a sweep: ddtop connect HOST --plan PLAN; or try one: ddtop demo --record demo.ddtop",
        )
    return found


def resolve_path(text: str) -> Path:
    """The file of `resolve_run`, without reading it where `text` names it. Raises UsageError."""
    as_path = Path(text).expanduser()
    return as_path if as_path.is_file() else resolve_run(text).path


def new_path(host: str, name: str, at_s: float | None = None, folder: Path | None = None) -> Path:
    """A path for a new recording that does not exist yet: `ct200-ct200-qwen3.6-27b-20261130-085000.ddtop`."""
    where = folder if folder is not None else paths.runs_dir()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(at_s))
    parts = [host, *([name] if name and name != host else []), stamp]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts)).lstrip(".-")
    path = where / f"{stem}{SUFFIX}"
    number = 2
    while path.exists():
        path = where / f"{stem}-{number}{SUFFIX}"
        number += 1
    return path


def check_continues(path: Path, host: str, name: str | None) -> RunInfo | None:
    """Whether a runner for `host` and the plan `name` (None: no plan) may write to `path`.

    Returns None for a new file, the recording to go on with otherwise. Raises RefusedError where the file is
    a recording of something else, JournalError where it is no recording at all.
    """
    if not path.exists() or path.stat().st_size == 0:
        return None
    JournalReader(path, check=False).close()
    info = run_info(path)
    if info.problem is not None:
        raise JournalError(info.problem)
    wanted = name or ""
    if info.started_at_s is None or (info.host in ("", host) and info.name == wanted):
        return info
    what = f"plan {info.name}" if info.name else "a run without a plan"
    raise RefusedError(
        f"{path} is a recording of {what} on {info.host}, not of "
        f"{f'plan {wanted}' if wanted else 'a run without a plan'} on {host}",
        means="continuing it would mix two runs",
        do=f"name another file: --record {new_path(host, wanted, folder=path.parent)}",
        host=host,
    )
