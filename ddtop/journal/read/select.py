"""What a view selects from a `State`: counts, cells left, the alert to answer first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ddtop.events import Action, CellSpec, CellState, name_load
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView, CellView, RestartView

REMAINING: frozenset[CellState] = frozenset({"planned", "running", "interrupted"})
"""States of cells that the sweep will still run by itself."""

DEFAULT_METRIC = "output_tok_s"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many cells of the present plan are in each state. `done` of `total` is the progress to show: what was skipped,
    failed or is broken has ended without a result, and is named beside it."""

    total: int = 0
    planned: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    broken: int = 0
    skipped: int = 0
    interrupted: int = 0
    suspect: int = 0
    """Of those done: in doubt."""
    invalid: int = 0
    """Of those done: they count for nothing."""

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.broken + self.skipped

    @property
    def remaining(self) -> int:
        return self.planned + self.running + self.interrupted

    @property
    def bad(self) -> str:
        """`3 failed or broken`, where there is room for one number alone; empty where none is."""
        word = "failed" if not self.broken else "broken" if not self.failed else "failed or broken"
        return f"{self.failed + self.broken} {word}" if self.failed or self.broken else ""

    @property
    def doubts(self) -> str:
        """` (2 SUSPECT)` behind those done; nothing where all are VALID."""
        named = [f"{n} {word}" for n, word in ((self.suspect, "SUSPECT"), (self.invalid, "INVALID")) if n]
        return f" ({', '.join(named)})" if named else ""

    def others(self, *, ended: bool = False) -> list[str]:
        """Those that are not done, each state with its number: what a run that has ended left, a run under way has open.

        >>> Counts(total=30, done=16, skipped=12, interrupted=2).others(ended=True)
        ['12 skipped', '2 not measured']
        """
        named = [
            (self.failed, "failed"),
            (self.broken, "broken"),
            (self.skipped, "skipped"),
            (self.remaining, "not measured" if ended else "open"),
        ]
        return [f"{n} {word}" for n, word in named if n]

    def in_words(self, *, ended: bool = False) -> str:
        """The counts as text, the same on every screen and in every report.

        >>> Counts(total=30, done=16, skipped=12, interrupted=2, suspect=11).in_words(ended=True)
        '16 done (11 SUSPECT), 12 skipped, 2 not measured'
        """
        return ", ".join([f"{self.done} done{self.doubts}", *self.others(ended=ended)])

    def of_total(self, *, ended: bool = False) -> str:
        """The same as a share.

        >>> Counts(total=3, done=2, planned=1).of_total()
        '2 of 3 cells done, 1 open'
        """
        whole = f"{self.total:,} cell" + ("" if self.total == 1 else "s")
        return ", ".join([f"{self.done} of {whole} done{self.doubts}", *self.others(ended=ended)])


class Column(NamedTuple):
    """One column of the matrix: the load that every configuration is measured under. Repeats share it."""

    workload: str
    output_tokens: int
    context: int
    concurrency: int
    rate: float | None = None
    search: str = ""
    """The objective of a search, in the words of a cell's name."""

    @classmethod
    def of(cls, spec: CellSpec) -> Column:
        """The column that a cell belongs to."""
        search = spec.search.short if spec.search is not None else ""
        return cls(spec.workload, spec.output_tokens, spec.context, spec.concurrency, spec.rate, search)

    @property
    def load_name(self) -> str:
        """The load in a word: `c8`, `4 req/s`."""
        return name_load(self.concurrency, self.rate, self.search)

    def label(self, columns: Sequence[Column]) -> str:
        """Short name among `columns`: `fib@256`, with context and concurrency where they differ."""
        parts = [f"{self.workload}@{self.output_tokens}"]
        if len({c.context for c in columns}) > 1:
            parts.append(f"{short_count(self.context)} ctx")
        if len({c.load_name for c in columns}) > 1:
            parts.append(self.load_name)
        return " ".join(parts)


def short_count(number: int) -> str:
    """8192 → `8k`, 1000 → `1000`, 0 → `0`."""
    return f"{number // 1024}k" if number and number % 1024 == 0 else str(number)


NO_GAP_MS, BURST_SHARE = 0.05, 0.25


def comes_in_bursts(metrics: dict[str, Any]) -> bool:
    """Whether the gaps between tokens (`itl_ms`) say nothing: the tokens of one step came as a burst of chunks, so most gaps
    are next to nothing, and their median is far below the time that a token takes."""
    gap, each = _at(metrics, "itl_ms.p50"), _at(metrics, "tpot_ms.p50")
    return gap is not None and (gap < NO_GAP_MS or (each is not None and gap < BURST_SHARE * each))


def metric_value(metrics: dict[str, Any], name: str) -> float | None:
    """The number at `name` (`output_tok_s`, `ttft_ms.p50`), or None where it is absent, is no number, or says nothing."""
    if name.startswith("itl_ms.") and comes_in_bursts(metrics):
        return None
    return _at(metrics, name)


def _at(metrics: dict[str, Any], name: str) -> float | None:
    value: Any = metrics
    if name in metrics:
        # Metrics of a user's own benchmark carry the names that the plan gave them, dots and all.
        return _number(metrics[name])
    for part in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return _number(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def counts(cells: Iterable[CellView]) -> Counts:
    """Counts of `cells`; pass `state.plan_cells` for the present plan."""
    kept = list(cells)
    tally: Counter[str] = Counter(cell.state for cell in kept)
    judged: Counter[str | None] = Counter(cell.validity for cell in kept if cell.state == "done")
    return Counts(total=len(kept), **dict(tally), suspect=judged["SUSPECT"], invalid=judged["INVALID"])


def remaining(state: State) -> list[CellView]:
    """Cells of the present plan that will still be run, in running order."""
    return [c for c in state.plan_cells if c.state in REMAINING]


def running_cell(state: State) -> CellView | None:
    """The cell being measured now, if one is."""
    return next((c for c in state.plan_cells if c.state == "running"), None)


def key_of(state: State, cell_ids: Iterable[str]) -> str | None:
    """The restart key of the first of `cell_ids` that is known."""
    return next((state.cells[i].spec.restart_key for i in cell_ids if i in state.cells), None)


def starts_of(state: State, spec: CellSpec) -> list[RestartView]:
    """The starts of the server that `spec` is measured on, in its round; where a start names no cell, those of its
    configuration."""
    return [
        r
        for r in state.restarts
        if (r.config, r.tp) == (spec.config, spec.tp)
        and key_of(state, r.cell_ids) in (None, spec.restart_key)
    ]


def tps(state: State) -> list[int]:
    """The TP values of the present plan, in order of first appearance."""
    return list(dict.fromkeys(c.spec.tp for c in state.plan_cells))


KEY_OF = {"retry": "r", "resume": "r", "restage": "s", "skip": "x", "mark-broken": "b", "wait": "w"}
"""Command of an alert's action → its key: a key does the same whatever went wrong. Older recordings gave `r` to
whatever was advised."""


def key_of_action(action: Action) -> str:
    """The key that does an alert's action."""
    return KEY_OF.get(action.command, action.key)


def questions(state: State) -> list[AlertView]:
    """Open alerts in the order in which they are to be looked at: a lost host, without which nothing else can be done; those
    that wait for a decision, the oldest first; those decided whose remedy is under way; those that ask nothing."""

    def rank(alert: AlertView) -> int:
        if alert.raised.verdict == "lost-host":
            return -1
        if not alert.raised.actions:
            return 2
        return 0 if alert.decided is None else 1

    return sorted(state.open_alerts, key=rank)


def advised_alert(state: State) -> AlertView | None:
    """The alert the bar shows unless another is chosen: the first of `questions`."""
    return next(iter(questions(state)), None)


def advised_action(alert: AlertView) -> Action | None:
    """What this alert advises: its first action."""
    return alert.raised.actions[0] if alert.raised.actions else None


def action_on(alert: AlertView, key: str) -> Action | None:
    """What `key` does about this alert; None where it offers nothing on it."""
    return next((a for a in alert.raised.actions if key_of_action(a) == key), None)


def asking(state: State, now_s: float) -> bool:
    """True while proposed steps wait for a person; else they are being done, or the policy decides."""
    proposed = state.proposed
    return proposed is not None and proposed.answer_by_s is not None and now_s < proposed.answer_by_s


def waits_for_answer(alert: AlertView, now_s: float) -> bool:
    """True while an alert waits for a person: nobody has decided it, and the policy does not yet."""
    by = alert.raised.answer_by_s
    return alert.open and alert.decided is None and by is not None and now_s < by


def busy(state: State) -> str | None:
    """Name of the configuration at work."""
    running = running_cell(state)
    if running is not None:
        return running.spec.config
    return state.restarting.config if state.restarting is not None else None
