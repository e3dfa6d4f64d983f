"""A detached job's folder in the state folder, and the job's state as its files tell it.

STATE_DIR/jobs/ID/ holds: spec.json what to do; env.json its environment (0600, deleted once read); state.json who
runs it; pid.json its process; end.json how it ended; log; results/ (progress.json and one file a result). Each file
is written whole (tmp, fsync, rename), by one writer: job-start, the job's monitor, or ExecStopPost.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..errors import OpError
from ..host.facts import boot_identity, read_text, start_ticks_of
from ..host.state_folder import SCHEMA, read_json

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}\Z")
LAUNCH_S = 15.0
"""For so long after its start a job may have no process yet."""


def job_id(text: Any) -> str:
    """A job's id, checked: it becomes a folder's and a unit's name."""
    if not isinstance(text, str) or not _ID.match(text):
        raise OpError("bad-request", f"{text!r} is not a job id: use letters, digits, _ . - (at most 80)")
    return text


def unit_of(job: str) -> str:
    return "ddtop-job-%s.service" % job


def spec_hash(kind: str, spec: Dict[str, Any]) -> str:
    text = json.dumps([kind, spec], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def same_process(pid: Optional[int], ticks: Optional[int]) -> bool:
    """Whether the process with this pid and start time still runs (a zombie does not)."""
    stat = read_text("/proc/%d/stat" % pid) if pid and ticks is not None else None
    return (
        bool(stat)
        and start_ticks_of(stat or "") == ticks
        and (stat or "").rpartition(") ")[2][:1] not in "ZX"
    )


class Facts:
    """What is read of a job: its files, and whether its process lives."""

    def __init__(self, folder: str) -> None:
        self.state = read_json(os.path.join(folder, "state.json"))
        self.end = read_json(os.path.join(folder, "end.json"))
        self.pid = read_json(os.path.join(folder, "pid.json")) or {}
        self.progress = read_json(os.path.join(folder, "results", "progress.json")) or {}
        self.results = len(result_files(folder))
        self.alive = same_process(self.pid.get("pid"), self.pid.get("start_ticks"))


def judge(facts: Facts, *, boot: str, now_s: float, unit_alive: Optional[bool] = None) -> Dict[str, Any]:
    """The JOB of wire.py. Pure in its arguments. `unit_alive` is what systemd says, where it was asked.

    A running job whose process and unit are gone without an end, or whose boot is over, is "lost".
    """
    state = facts.state or {}
    job: Dict[str, Any] = {
        key: state[key]
        for key in ("job", "kind", "unit", "started_at_s", "boot", "run", "spec_hash", "schema", "mode")
        if key in state
    }
    if "pid" in facts.pid:
        job["pid"] = facts.pid["pid"]
    job["progress"] = facts.progress
    job["results"] = facts.results
    if facts.end is not None:
        for key in ("ended_at_s", "exit", "why"):
            if key in facts.end:
                job[key] = facts.end[key]
        job["state"] = facts.end.get("state", "failed")
    elif state.get("boot") != boot:
        job["state"], job["why"] = "lost", "the host was rebooted while it ran"
    elif facts.alive or unit_alive:
        job["state"] = "running"
    elif not facts.pid and now_s - float(state.get("started_at_s", 0)) < LAUNCH_S:
        job["state"] = "running"
    else:
        job["state"], job["why"] = "lost", "its process is gone and wrote no end state"
    return job


def result_files(folder: str) -> List[str]:
    """Names of the result files, oldest first."""
    try:
        with os.scandir(os.path.join(folder, "results")) as entries:
            found = [
                (entry.stat().st_mtime_ns, entry.name)
                for entry in entries
                if entry.name.endswith(".json") and entry.name != "progress.json" and entry.name[0] != "."
            ]
    except OSError:
        return []
    return [name for _, name in sorted(found)]


def result_id(name: str) -> str:
    """The cell's id in a result file's name.

    >>> result_id("cell-a1b2.json"), result_id("exec.json")
    ('a1b2', 'exec')
    """
    base = name[: -len(".json")]
    return base[len("cell-") :] if base.startswith("cell-") else base


def unknown_results(folder: str, known: Iterable[str]) -> List[Tuple[str, str]]:
    """(id, path) of results the client does not have yet."""
    have = set(known)
    names = [name for name in result_files(folder) if result_id(name) not in have]
    return [(result_id(name), os.path.join(folder, "results", name)) for name in names]


def new_state(job: str, kind: str, spec: Dict[str, Any], run: str, mode: str, now_s: float) -> Dict[str, Any]:
    """state.json of a job that is about to start."""
    return {
        "job": job,
        "kind": kind,
        "run": run,
        "spec_hash": spec_hash(kind, spec),
        "schema": SCHEMA,
        "mode": mode,
        "unit": unit_of(job) if mode != "setsid" else None,
        "started_at_s": now_s,
        "boot": boot_identity(),
    }
