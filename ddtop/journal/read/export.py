"""Copying a recording, live or ended, into one file that can be sent away."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ddtop.errors import JournalError
from ddtop.journal.database import fail, leave_wal, open_for_reading


def export(source: Path, target: Path) -> int:
    """Copy the recording `source` to the new file `target` by SQLite's backup API; returns its bytes.

    A live run is copied as of one moment. Commands of viewers are left out: they name users and machines.
    Raises JournalError; `target` then is as it was.
    """
    if target.exists():
        raise JournalError(f"{target} already exists", do="name a new file, or remove that one first")
    if not target.absolute().parent.is_dir():
        raise JournalError(f"{target.parent} is not a folder", do="create it first, or name another folder")
    part = target.with_name(target.name + ".part")
    db = open_for_reading(source, check=False)
    try:
        copy = sqlite3.connect(part, isolation_level=None)
        try:
            db.backup(copy)
            leave_wal(copy)
            copy.execute("DELETE FROM commands")
            copy.execute("VACUUM")
        finally:
            copy.close()
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(target)
    except (sqlite3.Error, OSError) as error:
        fail(target, error, "write")
    finally:
        db.close()
        for leftover in (part, part.with_name(part.name + "-journal"), part.with_name(part.name + "-wal")):
            leftover.unlink(missing_ok=True)
    return target.stat().st_size
