"""What a viewer may write to a recording: commands, and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ddtop.errors import NobodyError
from ddtop.events import Command, encode
from ddtop.journal.database import check_is_recording, check_path, connect, fail
from ddtop.journal.locks import is_live


def append_command(path: Path, command: Command) -> None:
    """Put `command` into the recording at `path` for its runner; the same id twice counts once.

    Raises NobodyError where no runner holds it, JournalError where it cannot be written.
    """
    if not is_live(path):
        raise NobodyError(
            f"nothing is running {path.name}",
            means="the command would never be read",
            do="start a runner: ddtop connect HOST (it resumes where this run stopped)",
        )
    check_path(path)
    try:
        db = connect(path, "rw")
        try:
            check_is_recording(db, path)
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(
                "INSERT OR IGNORE INTO commands (id, kind, viewer, at_s, body) VALUES (?, ?, ?, ?, ?)",
                (
                    command.id,
                    str(type(command).__struct_config__.tag),
                    command.viewer,
                    command.at_s,
                    encode(command).decode(),
                ),
            )
        finally:
            db.close()
    except sqlite3.Error as error:
        fail(path, error, "write")
