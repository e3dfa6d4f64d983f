"""`history.db`: what must outlive a run. Derived from the recordings, and rebuildable from them.

Learned durations of phases, starts and cells; the longest silences of starts that came up; broken cells with
their engine version; causes met on a host, and what ended them.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple

from ddtop import paths
from ddtop.errors import DdtopError
from ddtop.events import CellSpec
from ddtop.journal.database import connect, fail
from ddtop.journal.fold.state import State
from ddtop.journal.history.learn import Lessons, lessons
from ddtop.journal.migrations import Migrations
from ddtop.journal.read.eta import Prior
from ddtop.journal.read.reader import read_state
from ddtop.journal.read.runs import SUFFIX
from ddtop.stats.spread import Spread, combined

APPLICATION_ID = 0x64647468
"""`ddth` in ASCII."""

HISTORY = Migrations(APPLICATION_ID)
RECENT = 5
"""How many of the latest durations decide: drivers and engines change."""


@HISTORY.step
def _first(db: sqlite3.Connection) -> None:
    start = "host TEXT, model TEXT, tp INTEGER, engine TEXT"
    for statement in (
        "CREATE TABLE runs (run_id TEXT PRIMARY KEY, host TEXT, at_s REAL)",
        f"CREATE TABLE phases (run_id TEXT, {start}, config TEXT, phase TEXT, seconds REAL, quiet_s REAL, at_s REAL)",
        f"CREATE TABLE starts (run_id TEXT, {start}, config TEXT, seconds REAL, at_s REAL)",
        "CREATE TABLE cells (run_id TEXT, host TEXT, model TEXT, engine TEXT, config TEXT, tp INTEGER, "
        "workload TEXT, output_tokens INTEGER, concurrency INTEGER, context INTEGER, seconds REAL, at_s REAL)",
        "CREATE TABLE broken (run_id TEXT, host TEXT, cell_id TEXT, config TEXT, reason TEXT, cause TEXT, "
        "signature_id TEXT, engine_version TEXT, at_s REAL)",
        "CREATE TABLE causes (run_id TEXT, host TEXT, alert_id TEXT, cause TEXT, verdict TEXT, how TEXT, "
        "worked INTEGER, at_s REAL)",
        "CREATE INDEX phases_by ON phases (host, model, phase)",
        "CREATE INDEX causes_by ON causes (host, cause)",
    ):
        db.execute(statement)


@HISTORY.step
def _versions_of_causes(db: sqlite3.Connection) -> None:
    for column in ("engine TEXT", "engine_version TEXT", "driver TEXT"):
        db.execute(f"ALTER TABLE causes ADD COLUMN {column}")


@HISTORY.step
def _loads(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE cells ADD COLUMN load TEXT")


@HISTORY.step
def _spreads(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE spreads (run_id TEXT, host TEXT, model TEXT, engine TEXT, sd REAL, freedom INTEGER, at_s REAL)"
    )


class Broken(NamedTuple):
    """A cell known to be broken on a host. A new engine version reopens it."""

    cell_id: str
    config: str
    reason: str
    cause: str | None
    signature_id: str | None
    engine_version: str | None
    at_s: float


class CauseSeen(NamedTuple):
    """How often a cause was met on a host, and what ended it last time."""

    times: int
    last_how: str | None
    """What the last resolution was that let the sweep go on; None where none did."""
    engine: str = ""
    """Engine and version when it was last met, such as `sglang 0.5.16`; empty where not known."""
    driver: str = ""

    @property
    def sentence(self) -> str:
        """For AlertRaised.seen_before: `seen twice on this host (last with sglang 0.5.16, driver 580.95.05); last time
        fixed by re-staging the model`."""
        often = {1: "once", 2: "twice"}.get(self.times, f"{self.times} times")
        told = [word for word in (self.engine, f"driver {self.driver}" if self.driver else "") if word]
        versions = f" ({'last ' if self.times > 1 else ''}with {', '.join(told)})" if told else ""
        fixed = f"; last time fixed by {self.last_how}" if self.last_how else ""
        return f"seen {often} on this host{versions}{fixed}"


class History:
    """The history file. Times are wall time, durations seconds."""

    def __init__(self, path: Path | None = None) -> None:
        """Open it, or make it. Raises JournalError."""
        self.path = path if path is not None else paths.data_dir() / "history.db"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = connect(self.path, "rwc")
            HISTORY.apply(self._db)
        except (sqlite3.Error, OSError) as error:
            fail(self.path, error, "write")

    def learn(self, state: State) -> None:
        """Take in what `state` teaches; again for the same run replaces it. Raises JournalError."""
        found = lessons(state)
        if not found.run_id:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._forget(found.run_id)
            self._store(found)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            fail(self.path, error, "write")

    def rebuild(self, folder: Path | None = None) -> list[str]:
        """Learn all recordings of `folder` anew; returns a sentence for each that could not be read."""
        where = folder if folder is not None else paths.runs_dir()
        for (run_id,) in self._db.execute("SELECT run_id FROM runs").fetchall():
            self._forget(run_id)
        problems: list[str] = []
        for path in sorted(where.glob(f"*{SUFFIX}")):
            try:
                self.learn(read_state(path, check=False))
            except DdtopError as error:
                problems.append(str(error))
        return problems

    def _forget(self, run_id: str) -> None:
        for table in ("runs", "phases", "starts", "cells", "broken", "causes", "spreads"):
            self._db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))

    def _store(self, found: Lessons) -> None:
        run = found.run_id
        self._db.execute("INSERT INTO runs VALUES (?, ?, ?)", (run, found.host, found.at_s))
        for table, rows in found.tables().items():
            if rows:
                marks = ", ".join("?" * (len(rows[0]) + 1))
                self._db.executemany(f"INSERT INTO {table} VALUES ({marks})", [(run, *r) for r in rows])

    def _recent(self, column: str, table: str, **where: str | int) -> list[float]:
        clause = " AND ".join(f"{name} = ?" for name in where)
        rows = self._db.execute(
            f"SELECT {column} FROM {table} WHERE {clause} AND {column} IS NOT NULL "
            "ORDER BY at_s DESC LIMIT ?",
            (*where.values(), RECENT),
        )
        return [float(value) for (value,) in rows]

    def expected_phase_s(self, phase: str, *, host: str, model: str, tp: int, engine: str) -> float | None:
        """Median of the last durations of a phase here: of this TP, else of any; None where never seen."""
        narrow = self._recent("seconds", "phases", phase=phase, host=host, model=model, engine=engine, tp=tp)
        values = narrow or self._recent(
            "seconds", "phases", phase=phase, host=host, model=model, engine=engine
        )
        return median(values) if values else None

    def longest_quiet_s(self, phase: str, *, host: str, model: str, tp: int, engine: str) -> float | None:
        """Longest silence ever in this phase of a start that did come up: of this TP, else of any, in the whole history
        (a rare cold start teaches more than many quick ones); None where never seen."""
        for extra in ("AND tp = ?", "AND ? IS NOT NULL"):
            row = self._db.execute(
                "SELECT MAX(quiet_s) FROM phases WHERE phase = ? AND host = ? AND model = ? AND engine = ? "
                + extra,
                (phase, host, model, engine, tp),
            ).fetchone()
            if row[0] is not None:
                return float(row[0])
        return None

    def expected_start_s(
        self, *, host: str, model: str, tp: int, engine: str, config: str | None = None
    ) -> float | None:
        """Median of the last starts: of this configuration, else of this TP, else of this model."""
        base: dict[str, str | int] = {"host": host, "model": model, "engine": engine}
        for extra in ({"tp": tp, "config": config or ""}, {"tp": tp}, {}):
            values = self._recent("seconds", "starts", **base, **extra)
            if values:
                return median(values)
        return None

    def expected_cell_s(self, spec: CellSpec, *, host: str, model: str, engine: str) -> float | None:
        """Median of the last cells like `spec` (the same load; first of its configuration and TP)."""
        load: dict[str, str | int] = {
            "output_tokens": spec.output_tokens,
            "concurrency": spec.concurrency,
            "context": spec.context,
        }
        if not spec.concurrency:  # rates and searches are told apart by their words
            load["load"] = spec.load_name
        base: dict[str, str | int] = {"host": host, "model": model, "engine": engine}
        for extra in ({"config": spec.config, "tp": spec.tp}, {"tp": spec.tp}, {}):
            values = self._recent("seconds", "cells", **base, **load, **extra)
            if values:
                return median(values)
        return None

    def spread(self, *, host: str, model: str, engine: str) -> Spread:
        """Relative spread of tok/s between starts, pooled over the latest runs with several starts; none where never seen."""
        rows = self._db.execute(
            "SELECT sd, freedom FROM spreads WHERE host = ? AND model = ? AND engine = ? ORDER BY at_s DESC LIMIT ?",
            (host, model, engine, RECENT),
        )
        return combined(Spread("starts", sd, freedom) for sd, freedom in rows)

    def prior(self, *, host: str, model: str, engine: str) -> Prior:
        """What is known before a run has measured anything, for `sweep_eta` and `plan show`."""
        return Prior(
            cell_s=lambda spec: self.expected_cell_s(spec, host=host, model=model, engine=engine),
            restart_s=lambda config, tp: self.expected_start_s(
                host=host, model=model, tp=tp, engine=engine, config=config
            ),
            spread=self.spread(host=host, model=model, engine=engine),
        )

    def broken(self, host: str) -> dict[str, Broken]:
        """Cells known to be broken on `host`, by id, as of the latest run that says so."""
        rows = self._db.execute(
            "SELECT cell_id, config, reason, cause, signature_id, engine_version, at_s FROM broken "
            "WHERE host = ? ORDER BY at_s",
            (host,),
        )
        return {row[0]: Broken(*row) for row in rows}

    def cause_seen(self, host: str, cause: str) -> CauseSeen | None:
        """How often `cause` raised an alert on `host`; None where never."""
        return self.causes_seen(host).get(cause)

    def causes_seen(self, host: str) -> dict[str, CauseSeen]:
        """Every cause that raised an alert on `host`, with how often and what ended it last."""
        rows = self._db.execute(
            "SELECT cause, how, worked, engine, engine_version, driver FROM causes WHERE host = ? ORDER BY at_s DESC",
            (host,),
        ).fetchall()
        found: dict[str, list[tuple[Any, ...]]] = {}
        for cause, *rest in rows:
            found.setdefault(cause, []).append(tuple(rest))
        return {cause: _seen(times) for cause, times in found.items()}

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _seen(times: list[tuple[Any, ...]]) -> CauseSeen:
    """From rows (how, worked, engine, version, driver), the newest first."""
    how = next((how for how, worked, *_ in times if worked and how), None)
    engine = next((f"{name or ''} {version}".strip() for _, _, name, version, _ in times if version), "")
    driver = next((driver for *_, driver in times if driver), "")
    return CauseSeen(len(times), how, engine, driver)
