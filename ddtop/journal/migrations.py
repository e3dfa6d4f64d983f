"""Versions of a SQLite file, as a list of functions: each runs in a transaction of its own.

Modelled on sqlite-utils' migrations: a registry filled by a decorator, and a number in the file
(`PRAGMA user_version`) that says which have been applied.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

Step = Callable[[sqlite3.Connection], None]


class Migrations:
    """The steps that lead from an empty file to the present form."""

    def __init__(self, application_id: int) -> None:
        self.application_id = application_id
        """Marks the file as ours (`PRAGMA application_id`), for `file(1)` and for us."""
        self._steps: list[Step] = []

    def step(self, function: Step) -> Step:
        """Decorator: the next version of the file."""
        self._steps.append(function)
        return function

    @property
    def version(self) -> int:
        """The version this program writes."""
        return len(self._steps)

    def apply(self, db: sqlite3.Connection) -> int:
        """Bring the file behind `db` (autocommit mode) to the present version; returns how many steps ran.

        Raises sqlite3.Error; a step that fails leaves the file at the version before it.
        """
        ran = 0
        while (have := file_version(db)) < self.version:
            db.execute("BEGIN IMMEDIATE")
            try:
                # Another process may have been quicker between the look and the lock.
                if file_version(db) == have:
                    self._steps[have](db)
                    db.execute(f"PRAGMA user_version = {have + 1}")
                    db.execute(f"PRAGMA application_id = {self.application_id}")
                    ran += 1
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
        return ran


def file_version(db: sqlite3.Connection) -> int:
    """Version of the file behind `db`; 0 where it is empty."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def file_application(db: sqlite3.Connection) -> int:
    """Application id of the file behind `db`; 0 where none is set."""
    return int(db.execute("PRAGMA application_id").fetchone()[0])
