"""Opening a recording: for its runner, for a viewer, or read-only where it comes from elsewhere."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from ddtop.errors import DiskFullError, JournalError
from ddtop.journal.locks import is_live
from ddtop.journal.migrations import Migrations, file_application, file_version
from ddtop.journal.tables import APPLICATION_ID, RECORDING

BUSY_S = 5.0
"""How long a reader or viewer waits for another process's lock."""


PROBE_B = 1 << 16


def no_room(folder: Path) -> str | None:
    """Why nothing more can be written to `folder`, in words; None where there is room, or it fails for another reason."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_B))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return FULL_WORDS.get(error.errno or 0)
    return None


FULL_WORDS = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "your quota on the disk is used up"}


def fail(path: Path, error: Exception, doing: str = "read") -> NoReturn:
    """Raise the JournalError that says what `error` means for the recording at `path`."""
    text = str(error)
    low = text.lower()
    code = getattr(error, "sqlite_errorname", "") or ""
    if doing == "write" and ("IOERR" in code or "i/o error" in low) and (why := no_room(path.parent)):
        raise DiskFullError(  # SQLite knows ENOSPC alone: what a quota refuses is an I/O error to it
            f"{why}: {path} cannot be written",
            means="nothing that was committed is lost; nothing can be recorded until there is room",
            do=f"free space on the disk of {path.parent}, then resume: the run goes on where it was",
        ) from error
    if "FULL" in code or "disk is full" in low or getattr(error, "errno", None) == 28 or "SHMSIZE" in code:
        raise DiskFullError(
            f"the disk is full: {path} cannot be written",
            means="nothing that was committed is lost; nothing can be recorded until there is room",
            do=f"free space on the disk of {path.parent}, then resume: the run goes on where it was",
        ) from error
    if "IOERR" in code or "i/o error" in low:
        what = f"{path} cannot be {'written' if doing == 'write' else 'read'}: {text}"
        means = "the disk gave an error; what was committed before is still there"
        do = "look at the disk (dmesg), copy the recording, then resume"
    elif "NOTADB" in code or "not a database" in low:
        what = f"{path} is not a ddtop recording"
        means, do = "its first bytes are not those of an SQLite file", "ddtop runs lists the recordings here"
    elif "CORRUPT" in code or "malformed" in low:
        what, means = f"{path} is damaged: {text}", "it was cut off or overwritten while it was copied"
        do = "copy it again (a live run: ddtop runs export), or rescue it: sqlite3 FILE .recover"
    elif "CANTOPEN" in code or "unable to open" in low:
        what, means = f"{path} cannot be opened: {text}", "it is not there, or this user may not"
        do = "check the path and its permissions; ddtop runs lists the recordings here"
    elif "READONLY" in code or "readonly" in low:
        what = f"{path} cannot be written: {text}"
        means, do = "this user may not write it", "record elsewhere: --record FILE"
    elif "BUSY" in code or "LOCKED" in code or "locked" in low:
        what = f"{path} is locked by another program"
        means, do = "another program holds it open for writing", "close it there, then try again"
    else:
        what, means, do = f"{path}: {text}", "", "ddtop runs lists the recordings here"
    raise JournalError(what, means=means, do=do) from error


def connect(path: Path, mode: str, *, immutable: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode. `mode`: ro, rw or rwc. Raises sqlite3.Error."""
    uri = f"file:{quote(os.fspath(path.absolute()))}?mode={mode}{'&immutable=1' if immutable else ''}"
    db = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    db.execute("PRAGMA trusted_schema = OFF")
    return db


def check_is_recording(db: sqlite3.Connection, path: Path, form: Migrations = RECORDING) -> None:
    """Raise JournalError unless `db` is a recording of a version we know."""
    application, version = file_application(db), file_version(db)
    if application != APPLICATION_ID:
        empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        what = "an empty file" if empty else "an SQLite file of another program"
        raise JournalError(
            f"{path} is not a ddtop recording but {what}",
            means="it has no events of ddtop",
            do="ddtop runs lists the recordings here",
        )
    if version > form.version:
        raise JournalError(
            f"{path} was made by a newer ddtop (file version {version}; this one knows up to {form.version})",
            means="reading it with this one could show wrong things",
            do="upgrade: pip install --upgrade ddtop",
        )


def quick_check(db: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError where SQLite finds the file behind `db` damaged."""
    verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(f"database disk image is malformed ({verdict})")


def check_path(path: Path) -> None:
    """Raise JournalError unless there is a file at `path` that this user may read."""
    if path.is_dir():
        raise JournalError(
            f"{path} is a folder, not a recording",
            do="name a file in it; ddtop runs lists the recordings here",
        )
    if not path.exists():
        raise JournalError(f"{path} is not there", do="ddtop runs lists the recordings here")
    if not os.access(path, os.R_OK):
        raise JournalError(f"{path} may not be read by this user", do=f"chmod u+r {path}, or ask its owner")
    if path.stat().st_size == 0:
        raise JournalError(
            f"{path} is empty: not a ddtop recording",
            means="a run that never began leaves such a file, and so does a full disk",
            do="ddtop runs lists the recordings here",
        )


def open_for_reading(path: Path, *, check: bool, form: Migrations = RECORDING) -> sqlite3.Connection:
    """A read-only connection to a recording, live or ended, ours or from elsewhere.

    `check` runs SQLite's quick check first: for files that this machine may not have written. A file of an
    older version is brought up to date in memory, never on disk. Raises JournalError.
    """
    check_path(path)
    db: sqlite3.Connection | None = None
    try:
        # Where SQLite can create no helper files (read-only media, another user's folder), `immutable` must say that
        # there is no writer. With a `-wal` file beside it that would hide the newest events, so not then.
        wal = path.with_name(path.name + "-wal")
        alone = not wal.exists() and not os.access(path.parent, os.W_OK)
        db = connect(path, "ro", immutable=alone)
        check_is_recording(db, path, form)
        if check:
            quick_check(db)
        if file_version(db) < form.version:
            db = _updated_copy(db, form)
        return db
    except sqlite3.Error as error:
        if db is not None:
            db.close()
        fail(path, error)
    except JournalError:
        if db is not None:
            db.close()
        raise


def _updated_copy(db: sqlite3.Connection, form: Migrations) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    db.backup(copy)
    db.close()
    form.apply(copy)
    return copy


def leave_wal(db: sqlite3.Connection) -> bool:
    """Put everything into the one file and switch the log off; False where other readers still hold it."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    try:
        return str(db.execute("PRAGMA journal_mode = DELETE").fetchone()[0]) == "delete"
    except sqlite3.OperationalError:
        return False


def tidy(path: Path) -> bool:
    """Merge the `-wal` file that a killed runner left into its recording.

    Returns True where it is one now. Does nothing while a runner lives, or where we may not write. What was
    committed is kept: the log is merged, never dropped.
    """
    wal = path.with_name(path.name + "-wal")
    if not wal.exists():
        return True
    if is_live(path) or not os.access(path, os.W_OK):
        return False
    try:
        db = connect(path, "rw")
    except sqlite3.Error:
        return False
    try:
        return leave_wal(db)
    except sqlite3.Error:
        return False
    finally:
        db.close()
