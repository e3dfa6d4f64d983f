"""Copying a recording, live or ended, into one file that can be sent away."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from ddtop.errors import JournalError
from ddtop.journal.database import fail, leave_wal, open_for_reading
from ddtop.redact import HIDDEN, replaced, secrets_in


def export(source: Path, target: Path, *, removed: set[str] | None = None) -> int:
    """Copy the recording `source` to the new file `target` by SQLite's backup API; returns its bytes.

    A live run is copied as of one moment. Commands of viewers are left out: they name users and machines. With `removed`,
    secrets are left out too, and the set gets them. Raises JournalError; `target` then is as it was.
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
            if removed is not None:
                removed |= _without_secrets(copy)
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


def _without_secrets(db: sqlite3.Connection) -> set[str]:
    """Replaces every secret in the events and log lines, wherever it stands; returns them. Raises sqlite3.Error."""
    secrets: set[str] = set()
    for (body,) in db.execute("SELECT body FROM events"):
        secrets |= secrets_in(_parsed(body))
    for (text,) in db.execute("SELECT text FROM log"):
        secrets |= secrets_in(text)
    if not secrets:
        return secrets
    db.execute("BEGIN")
    for (seq,) in db.execute("SELECT seq FROM events").fetchall():
        ((body,),) = db.execute("SELECT body FROM events WHERE seq = ?", (seq,))
        clean = msgspec.json.encode(replaced(_parsed(body), secrets)).decode()
        if HIDDEN in clean:
            db.execute("UPDATE events SET body = ? WHERE seq = ?", (clean, seq))
    for one in sorted(secrets, key=len, reverse=True):
        db.execute("UPDATE log SET text = replace(text, ?, ?) WHERE instr(text, ?)", (one, HIDDEN, one))
    db.execute("COMMIT")
    return secrets


def _parsed(body: str | None) -> Any:
    try:
        return msgspec.json.decode(body or "null")
    except msgspec.DecodeError:
        return body
