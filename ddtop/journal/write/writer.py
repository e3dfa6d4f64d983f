"""The runner's end of a recording: events are written down before anyone sees them.

An event of `DURABLE` is committed at once with synchronous=FULL; when `append` returns, a power cut cannot
take it away, nor anything appended before it. Others are batched and committed within 100 ms (the runner
awaits `keep_flushed` in its task group); a crash may cost those of the last moment, never a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import msgspec

from ddtop.errors import DdtopError, JournalError
from ddtop.events import DURABLE, AnyCommand, CommandSeen, Event, decode_command
from ddtop.journal.database import check_is_recording, check_path, connect, fail, leave_wal, quick_check
from ddtop.journal.locks import Lock, host_lock, recording_lock
from ddtop.journal.network_disks import refuse_network
from ddtop.journal.tables import RECORDING, Rows, last_seq
from ddtop.journal.write.thin import LOG_BYTES_SQL, thin

FLUSH_S = 0.1
BATCH = 1000
"""Events waiting that are written without waiting for the clock."""
CLOSE_TRIES = 20


class JournalWriter:
    """Writes one recording; holds its lock, and that of the host. Use `JournalWriter.open`."""

    def __init__(self, path: Path, db: sqlite3.Connection, locks: list[Lock], log_mib: float) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = db
        self._locks = locks
        self._rows = Rows(db)
        self._seq = last_seq(db)
        self._waiting: list[tuple[int, Event]] = []
        self._last_flush = time.monotonic()
        self._log_limit = log_mib * 1024 * 1024
        self._log_bytes = float(db.execute(LOG_BYTES_SQL).fetchone()[0])
        self._thin_at = max(self._log_limit, self._log_bytes)
        self._command_n = 0

    @classmethod
    def open(cls, path: Path, *, host: str = "", log_mib: float = 512.0) -> JournalWriter:
        """Create the recording at `path`, or take up an existing one at its end.

        Raises RefusedError where a runner lives on this recording or this host already, JournalError where
        the file is something else, damaged, of a newer version, on a network file system, or not writable.
        """
        path = path.absolute()
        refuse_network(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(
                f"{path.parent} cannot be made: {error.strerror}", do="record elsewhere: --record FILE"
            ) from error
        locks: list[Lock] = []
        db: sqlite3.Connection | None = None
        try:
            if host:
                locks.append(Lock.take(host_lock(host), host=host, recording=str(path)))
            locks.append(Lock.take(recording_lock(path), host=host, recording=str(path)))
            if path.is_dir():
                check_path(path)
            fresh = not path.exists() or path.stat().st_size == 0
            db = connect(path, "rwc")
            if not fresh:
                check_is_recording(db, path)
                quick_check(db)
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise sqlite3.OperationalError(f"this file system cannot hold a write-ahead log (got {mode})")
            db.execute("PRAGMA synchronous = FULL")
            RECORDING.apply(db)
            # Signs of life of viewers of an earlier runner mean nothing to this one.
            db.execute("DELETE FROM commands WHERE kind = 'attend'")
            db.execute("PRAGMA synchronous = NORMAL")
            return cls(path, db, locks, log_mib)
        except BaseException as error:
            if db is not None:
                db.close()
            for lock in locks:
                lock.release()
            if isinstance(error, sqlite3.Error):
                fail(path, error, "write")
            raise

    @property
    def seq(self) -> int:
        """Seq of the last event appended."""
        return self._seq

    @property
    def waiting(self) -> int:
        """Events appended and not yet committed."""
        return len(self._waiting)

    def append(self, event: Event) -> int:
        """Write `event` down; returns its seq. A durable one is on disk when this returns.

        Raises JournalError (disk full, I/O error): the event then stays waiting with all others, and the next
        `append` or `flush` tries again; what was committed before is untouched.
        """
        self._seq += 1
        self._waiting.append((self._seq, event))
        if isinstance(event, DURABLE):
            self._commit(durable=True)
        elif len(self._waiting) >= BATCH or time.monotonic() - self._last_flush >= FLUSH_S:
            self._commit(durable=False)
        return self._seq

    def extend(self, events: Iterable[Event]) -> int:
        """Append several events in one transaction; returns the seq of the last. Raises as `append` does."""
        durable = False
        for event in events:
            self._seq += 1
            self._waiting.append((self._seq, event))
            durable = durable or isinstance(event, DURABLE)
        self._commit(durable=durable)
        return self._seq

    def flush(self) -> None:
        """Commit what waits. Raises JournalError as `append` does."""
        self._commit(durable=False)

    async def keep_flushed(self) -> None:
        """Commit what waits, every 100 ms, until cancelled. Raises JournalError as `append` does."""
        while True:
            await asyncio.sleep(FLUSH_S)
            self.flush()

    def _commit(self, *, durable: bool) -> None:
        self._last_flush = time.monotonic()
        if not self._waiting:
            return
        db = self._open_db()
        try:
            # Cannot be changed inside a transaction. A FULL commit syncs the whole log, so that everything
            # committed before with NORMAL is safe with it.
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            db.execute("BEGIN IMMEDIATE")
            logged = 0
            for seq, event in self._waiting:
                logged += self._rows.insert(seq, event)
                if isinstance(event, CommandSeen):
                    db.execute("UPDATE commands SET answered_seq = ? WHERE id = ?", (seq, event.command_id))
            db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback(db)
            fail(self.path, error, "write")
        except BaseException:
            self._rollback(db)
            raise
        self._waiting.clear()
        self._log_bytes += logged
        if self._log_bytes > self._thin_at:
            self._thin(db)

    def _rollback(self, db: sqlite3.Connection) -> None:
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
            self._rows.reload()
        except sqlite3.Error:
            # The disk is worse than full; the open transaction dies with the connection.
            return

    def _thin(self, db: sqlite3.Connection) -> None:
        try:
            self._log_bytes = thin(db, self._log_limit, self._log_limit / 1024 / 1024)
        except sqlite3.Error as error:
            self._rollback(db)
            fail(self.path, error, "write")
        # Where the kept parts alone are more than the limit, do not look again at every line.
        self._thin_at = max(self._log_limit, self._log_bytes * 1.25)

    def pending_commands(self) -> list[AnyCommand]:
        """Commands that viewers gave since the last call, the oldest first; each is given out once.

        Those that a dead runner never answered come first, so that they can be refused as late. One that
        cannot be understood is dropped. Raises JournalError.
        """
        db = self._open_db()
        try:
            rows = db.execute(
                "SELECT n, kind, body FROM commands WHERE n > ? AND answered_seq IS NULL ORDER BY n",
                (self._command_n,),
            ).fetchall()
            if rows:
                self._command_n = rows[-1][0]
        except sqlite3.Error as error:
            fail(self.path, error, "write")
        if any(kind == "attend" for _n, kind, _body in rows):
            with contextlib.suppress(sqlite3.Error):  # signs of life take room; on a full disk they stay
                db.execute("DELETE FROM commands WHERE kind = 'attend' AND n < ?", (self._command_n,))
        out: list[AnyCommand] = []
        for _n, _kind, body in rows:
            try:
                out.append(decode_command(body))
            except msgspec.DecodeError:
                continue
        return out

    def _open_db(self) -> sqlite3.Connection:
        if self._db is None:
            raise JournalError(f"{self.path} is closed", means="nothing can be written to it any more")
        return self._db

    def close(self) -> None:
        """Commit what waits, make the recording one file, and give the locks back.

        Viewers that follow close their end when the run has ended; for those that do not, the last one to
        look (or `tidy`) merges the log. Raises JournalError where what waits cannot be written.
        """
        if self._db is None:
            return
        db = self._db
        problem: DdtopError | None = None
        try:
            self._commit(durable=True)
        except DdtopError as error:
            problem = error
        try:
            for _ in range(CLOSE_TRIES):
                if leave_wal(db):
                    break
                time.sleep(0.05)
        except sqlite3.Error:
            # Everything committed is in the log beside the file, and found there.
            pass
        db.close()
        self._db = None
        for lock in self._locks:
            lock.release()
        if problem is not None:
            raise problem

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
