"""One recording as every form of report reads it, and the facts that all of them state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView, RestartView
from ddtop.journal.read.reader import read_state

NOT_REAL = "the GPUs and the engine are not real, so these are not measurements"
"""What a SIMULATED recording says of itself."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording, read and folded."""

    name: str
    """As shown where several are compared."""
    state: State
    path: Path | None = None


def load(path: Path) -> Recording:
    """Read the recording at `path`. Raises JournalError."""
    return Recording(path.stem, read_state(path), path)


def iso(at_s: float | None) -> str | None:
    """Wall time as ISO 8601 in UTC, to the millisecond; None for None, and for a number that is not a time."""
    if at_s is None:
        return None
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def engines(state: State) -> tuple[str | None, str | None, str | None]:
    """(engine, its version, driver) of the run: of the last cell that says so, else of the last start."""
    measured = [c for c in state.cells.values() if c.engine or c.engine_version]
    ready = [r for r in state.restarts if r.outcome == "ready"]
    source: CellView | RestartView | None = measured[-1] if measured else (ready[-1] if ready else None)
    drivers = [c.driver for c in state.cells.values() if c.driver]
    return (
        (source.engine or None) if source is not None else None,
        source.engine_version if source is not None else None,
        drivers[-1] if drivers else None,
    )
