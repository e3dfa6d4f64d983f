"""The judge of a trial: the server's ledger and the host's own state against what the recording claims. Pure.

Every ledger line is known by its number, not by its time: clocks jump in a trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtop.events import (
    AlertRaised,
    CellMeasured,
    CellsPlanned,
    CellStateSet,
    Event,
    RestartReady,
    Verdict,
)

WHOLE = ("length", "stop")
BASELINE = "a"
"""Its first requests are asked for twice in its own job: how far the server agrees with itself."""


@dataclass(frozen=True)
class Violation:
    """What may never happen, and where it did."""

    kind: str
    text: str


@dataclass
class Seen:
    """What was claimed so far, and how far the ledger was when a claim was first seen."""

    finished_at_line: dict[str, int] = field(default_factory=dict)
    results: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ready: dict[str, bool] = field(default_factory=dict)
    """Start (InvocationID) → whether the server itself had said that it was ready."""
    violations: list[Violation] = field(default_factory=list)

    def take(self, events: Iterable[Event], ledger: Sequence[Mapping[str, Any]]) -> None:
        """The recording's new events, with the ledger as read after them."""
        said_ready = {e["invocation"] for e in ledger if e["event"] == "ready"}
        for event in events:
            if isinstance(event, RestartReady):
                start = event.generation.id.partition("/")[0]
                self.ready[start] = start in said_ready
                if start not in said_ready:
                    self._bad("false-ready", f"start {start[:12]} was called ready; it never said so")
            if isinstance(event, CellStateSet):
                if event.cell_id in self.finished_at_line and event.state != "done":
                    self._bad("lost", f"cell {event.cell_id}: finished, then {event.state} ({event.reason})")
                elif event.state == "done":
                    self.finished_at_line.setdefault(event.cell_id, len(ledger))
            if isinstance(event, CellMeasured):
                if event.cell_id in self.finished_at_line:
                    self._bad("repeated", f"cell {event.cell_id}: measured again after it was finished")
                self.results[event.cell_id] = event.metrics

    def _bad(self, kind: str, text: str) -> None:
        self.violations.append(Violation(kind, text))


@dataclass(frozen=True)
class Served:
    """The measuring requests of one cell in the ledger: line numbers, by request."""

    whole: Mapping[str, tuple[int, ...]]
    """Prompt → lines of whole answers, in the order in which the prompts were first asked for."""
    any: Mapping[str, tuple[int, ...]]

    @property
    def begun(self) -> int:
        """How often the cell was begun: its first prompt is asked for first."""
        first = next(iter(self.any), None)
        return len(self.any[first]) if first is not None else 0


def served(
    ledger: Sequence[Mapping[str, Any]], marks: Mapping[str, str], tokens: Iterable[int]
) -> dict[tuple[str, int], Served]:
    """(configuration, output tokens) → what was asked for. Each prompt belongs to one number of tokens; those that were never
    answered whole are known by the whole answers of other configurations."""
    argv = {(e["boot"], e["pid"]): " ".join(e["argv"]) for e in ledger if e["event"] == "start"}
    lengths = set(tokens)
    of_prompt = {
        e["prompt_sha"]: e["tokens"]
        for e in ledger
        if e["event"] == "request" and e["outcome"] in WHOLE and e["tokens"] in lengths
    }
    lines: dict[tuple[str, int], tuple[dict[str, list[int]], dict[str, list[int]]]] = {}
    for number, e in enumerate(ledger):
        if e["event"] != "request" or e["prompt_sha"] not in of_prompt:
            continue
        line = argv.get((e["boot"], e["pid"]), "")
        config = next((c for c, mark in marks.items() if mark and mark in line), None)
        config = config or next(c for c, mark in marks.items() if not mark)
        whole, anyhow = lines.setdefault((config, of_prompt[e["prompt_sha"]]), ({}, {}))
        anyhow.setdefault(e["prompt_sha"], []).append(number)
        if e["outcome"] in WHOLE:
            whole.setdefault(e["prompt_sha"], []).append(number)
    return {
        key: Served(
            whole={k: tuple(v) for k, v in whole.items()}, any={k: tuple(v) for k, v in anyhow.items()}
        )
        for key, (whole, anyhow) in lines.items()
    }


def judge(
    *,
    seen: Seen,
    events: Sequence[Event],
    ledger: Sequence[Mapping[str, Any]],
    marks: Mapping[str, str],
    requests: int,
    faults: int,
    explained: frozenset[Verdict],
) -> tuple[list[Violation], int]:
    """(violations, cells begun anew) of a trial that has ended, from the recording read afresh."""
    found = list(seen.violations)
    specs = {c.id: c for e in events if isinstance(e, CellsPlanned) for c in e.cells}
    done: set[str] = set()
    for event in events:
        if isinstance(event, CellStateSet):
            done = done | {event.cell_id} if event.state == "done" else done - {event.cell_id}
    results = {e.cell_id: e.metrics for e in events if isinstance(e, CellMeasured)}
    asked = served(ledger, marks, {c.output_tokens for c in specs.values()})
    for cell_id, line in seen.finished_at_line.items():
        spec, name = specs[cell_id], f"{specs[cell_id].config}@{specs[cell_id].output_tokens}"
        if cell_id not in done or results.get(cell_id) != seen.results.get(cell_id):
            found.append(Violation("lost", f"{name}: was finished; the recording at the end says otherwise"))
        of_cell = asked.get((spec.config, spec.output_tokens), Served({}, {}))
        twice = 2 if spec.config == BASELINE else 1
        late = [k for k, at in of_cell.any.items() if len(at) > twice and at[-1] >= line]
        if late:
            found.append(Violation("repeated", f"{name}: {len(late)} prompts were asked for after its end"))
        if len(of_cell.whole) < requests:
            text = f"{name}: a server of that configuration gave {len(of_cell.whole)} of {requests} answers"
            found.append(Violation("wrong-label", text))
    anew = sum(
        -(-s.begun // (2 if config == BASELINE else 1)) - 1 for (config, _), s in asked.items() if s.begun
    )
    if anew > faults:
        found.append(Violation("overrun", f"{anew} cells were begun anew for {faults} faults"))
    for event in events:
        if isinstance(event, AlertRaised) and event.verdict not in explained:
            text = f"{event.title} ({event.verdict}, {event.cause}): {event.cause_text}"
            found.append(Violation("false-alarm", text[:300]))
    return found, anew
