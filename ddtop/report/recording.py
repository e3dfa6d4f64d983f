"""One recording as every form of report reads it, and the facts that all of them state."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import tomli
from msgspec.structs import replace

from ddtop.events import CellMeasured
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView, RestartView
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.read.select import counts
from ddtop.report.page.trace import Trace, read_trace

NOT_REAL = "the GPUs and the engine are not real, so these are not measurements"
"""What a SIMULATED recording says of itself."""
OUTCOMES = {
    "done": "finished",
    "some-failed": "finished",
    "host-lost": "ended, host lost",
    "refused": "refused",
    "stopped": "stopped",
    "interrupted": "interrupted",
    "crashed": "crashed",
}
"""Outcome of a `RunEnded` → its word in a report for people."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording, read and folded."""

    name: str
    """As shown where several are compared."""
    state: State
    path: Path | None = None
    trace: Trace = field(default_factory=Trace)
    """Power and logs along the run; empty where the state alone is known."""
    measured: tuple[CellMeasured, ...] = ()
    """The last result of each cell with what the load generator was given, for the checklist."""
    usd: float | None = None
    """Dollars for an hour of a GPU, as asked for; else the plan's."""

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """The price that figures in dollars are by; None where nobody gave one."""
        return self.usd if self.usd is not None else planned_price(self.state.run.plan_toml)


def planned_price(plan_toml: str | None) -> float | None:
    """`[report] usd_per_gpu_hour` of a plan's text; None where it has none, or cannot be read.

    >>> planned_price("[report]\\nusd_per_gpu_hour = 2.5")
    2.5
    """
    try:
        table = tomli.loads(plan_toml or "").get("report")
    except (tomli.TOMLDecodeError, RecursionError):
        return None
    price = table.get("usd_per_gpu_hour") if isinstance(table, dict) else None
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 < price < math.inf:
        return None
    return float(price)


def outcome_words(state: State) -> str:
    """How the run ended, in words: `stopped: 16 of 30 cells done, 12 skipped, 2 not measured`; a run without a plan has the word alone."""
    ended = state.run.ended
    word = OUTCOMES[ended.outcome] if ended is not None else "not ended"
    tally = counts(state.plan_cells)
    return f"{word}: {tally.of_total(ended=ended is not None)}" if tally.total else word


def counts_words(state: State) -> str:
    """Cells of the present plan by state: `3 done, 4 failed, 2 broken`; empty for a run without a plan."""
    tally = counts(state.plan_cells)
    return tally.in_words(ended=state.run.ended is not None) if tally.total else ""


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's collector: what a report reads stays to its end, and looking through it again and again takes a sixth
    of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def load(path: Path) -> Recording:
    """Read the recording at `path`. Raises JournalError."""
    state = State()
    measured: dict[str, CellMeasured] = {}
    with uncollected(), JournalReader(path) as reader:
        events = reader.short()
        trace = read_trace(reader, events)
        for seq, event in events:
            apply(state, event, seq)
            if isinstance(event, CellMeasured) and event.raw:
                measured[event.cell_id] = replace(event, raw={"spec": event.raw.get("spec")})
    return Recording(path.stem, state, path, trace, tuple(measured.values()))


def iso(at_s: float | None) -> str | None:
    """Wall time as ISO 8601 in UTC, to the millisecond; None for None, and for a number that is not a time."""
    if at_s is None:
        return None
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def minute(at_s: float | None) -> str:
    """Wall time to the minute, for people: `2026-11-30 22:24 UTC`; empty where it is not known."""
    text = iso(at_s)
    return f"{text[:10]} {text[11:16]} UTC" if text is not None else ""


def second(at_s: float | None) -> str:
    """Wall time to the second, for people: `2026-11-30 22:24:41`, in UTC; empty where it is not known."""
    text = iso(at_s)
    return f"{text[:10]} {text[11:19]}" if text is not None else ""


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
