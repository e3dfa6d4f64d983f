"""How long servers took to start, by configuration, cold and warm apart, as a table."""

from __future__ import annotations

from ddtop.journal.fold.state import State
from ddtop.journal.read.starts import StartTime, start_times
from ddtop.report.text import number

TITLE = "Start times (from the call to ready)"
WIDE = 10.0
"""An interval over so large a factor says only that too few starts were seen."""
HEAD = (
    "configuration",
    "model files",
    "compile cache",
    "starts",
    "ready, s",
    "against the baseline",
    "phases, s",
)


def start_rows(state: State, baseline: str | None = None) -> list[list[str]]:
    """Header and a row for each configuration and class of starts; empty where no start was ready."""
    rows = [_row(one) for one in start_times(state, baseline)]
    return [list(HEAD), *rows] if rows else []


def _row(one: StartTime) -> list[str]:
    seconds = number(one.seconds)
    if one.low is not None and one.high is not None:
        wide = one.high > WIDE * one.low
        seconds += " [very wide]" if wide else f" [{number(one.low)}–{number(one.high)}]"
    against = ""
    if one.against is not None and one.against.ratio is not None:
        against = f"{one.against.ratio:.2f}× ({one.against.why})"
    phases = ", ".join(f"{phase} {taken:.{1 if taken < 10 else 0}f}" for phase, taken in one.phases)
    return [
        f"{one.config} tp{one.tp}",
        one.kind.files,
        one.kind.compiled,
        str(one.n),
        seconds,
        against,
        phases,
    ]
