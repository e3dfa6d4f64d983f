"""Running a list of cells, each committed by itself: what a detached job on the host does.

`run_cells(spec, out_dir)` takes {"schema": 1, "defaults": {...}, "cells": [{"id": ..., ...}]}; every cell is a LoadSpec
over the defaults. Prompts that cells share stand once, packed, in "prompts_z"; a cell then names their key as `prompts`. A finished cell is `cell-<id>.json`, written to a temporary name, fsynced and renamed; an existing
one is not run again. `progress.json` says at any time where it is.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .measure import run_cell
from .records import pack, unpack_value
from .spec import SCHEMA, SpecError
from .warm_up import Tell


def run_cells(spec: dict[str, Any], out_dir: str, tell: Tell | None = None) -> dict[str, Any]:
    """Run every cell that has no result yet; returns {"done": [...], "failed": [...], "kept": [...]} (ids).

    A cell that cannot be run at all leaves a result with `error` too, and the next one is tried. Raises SpecError if
    the job itself is wrong, OSError if a result cannot be written (a full disk must not look like a finished job).
    """
    cells = spec.get("cells")
    if spec.get("schema", SCHEMA) != SCHEMA or not isinstance(cells, list) or not cells:
        raise SpecError('a job is {"schema": 1, "defaults": {...}, "cells": [{"id": ...}, ...]}')
    ids = [str(cell.get("id", "")) for cell in cells]
    for name in ids:
        if (
            not name
            or len(set(ids)) != len(ids)
            or not name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        ):
            raise SpecError("cell ids must be unique words of letters, digits, - _ . (found %r)" % name)
    os.makedirs(out_dir, exist_ok=True)
    summary: dict[str, Any] = {"done": [], "failed": [], "kept": []}
    progress_at = [0.0]
    for number, cell in enumerate(cells):
        path = os.path.join(out_dir, "cell-%s.json" % cell["id"])
        if os.path.exists(path):
            summary["kept"].append(cell["id"])
            continue
        state = {"cell": cell["id"], "number": number, "cells": len(cells), "phase": "preparing"}

        def report(more: dict[str, Any], state: dict[str, Any] = state) -> None:
            changed = more.get("phase", state.get("phase")) != state.get("phase")
            live = more.get("live") is not state.get("live")  # the window's figures come once a second
            state.update(more)
            waited_s = time.monotonic() - progress_at[0]
            if changed or waited_s > 1.2 or (live and waited_s > 0.5):
                progress_at[0] = time.monotonic()
                state["at_s"] = time.time()
                write_atomically(os.path.join(out_dir, "progress.json"), state, sync=False)
                if tell is not None:
                    tell(dict(state))

        report({"requests": int(cell.get("requests") or spec.get("defaults", {}).get("requests") or 1)})
        result = run_cell(
            with_prompts({**spec.get("defaults", {}), **cell}, spec.get("prompts_z") or {}), report
        )
        write_atomically(path, pack(result), sync=True)
        summary["failed" if result.get("error") else "done"].append(cell["id"])
        report({"phase": "committed", "last": cell["id"]})
    return summary


def with_prompts(load: dict[str, Any], packed: dict[str, str]) -> dict[str, Any]:
    """The load with its prompts in place of their key. Raises SpecError where they are missing or damaged."""
    key = load.get("prompts")
    if not isinstance(key, str):
        return load
    try:
        return {**load, "prompts": unpack_value(packed[key])}
    except (KeyError, ImportError, ValueError) as error:
        raise SpecError("prompts: those named %r cannot be read: %s" % (key, error)) from None


def write_atomically(path: str, value: Any, sync: bool) -> None:
    """JSON to a temporary name beside `path`, fsynced (file and folder) if `sync`, then renamed over it."""
    temporary = "%s.tmp.%d" % (path, os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, separators=(",", ":"))
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if sync:
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
