"""The judge of a trial: the server's ledger and the host's own state against what the recording claims. Pure.

Every ledger line is known by its number, not by its time: clocks jump in a trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtop.events import (
    AlertRaised,
    AlertResolved,
    CellMeasured,
    CellsPlanned,
    CellStateSet,
    Event,
    Generation,
    RestartReady,
    RunEnded,
    SearchStep,
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
                start = start_of(event.generation)
                self.ready[start] = start in said_ready
                if start not in said_ready:
                    self._bad("false-ready", f"start {start[:12]} was called ready; it never said so")
            if isinstance(event, CellStateSet):
                if event.cell_id in self.finished_at_line and event.state != "done":
                    self._bad("lost", f"cell {event.cell_id}: finished, then {event.state} ({event.reason})")
                elif event.state == "done":
                    self.finished_at_line.setdefault(event.cell_id, len(ledger))
            if isinstance(event, CellMeasured):
                finished = event.cell_id in self.finished_at_line
                if finished and event.raw:  # without: the same attempt, judged again
                    self._bad("repeated", f"cell {event.cell_id}: measured again after it was finished")
                elif finished and event.metrics != self.results.get(event.cell_id):
                    self._bad("lost", f"cell {event.cell_id}: its figures were changed after its end")
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


@dataclass(frozen=True)
class Claim:
    """What a result says of itself: on which start of the server, when by the host's clock (s), requests and tokens."""

    cell_id: str
    start: str
    began_s: float
    ended_s: float
    requests: int
    tokens: int
    longest_s: float
    reasons: tuple[str, ...] = ()

    def has(self, line: Mapping[str, Any]) -> bool:
        """Whether a request of the ledger is one of this result's."""
        begun, ended = line.get("start_ns", 0) / 1e9, line.get("end_ns", 0) / 1e9
        inside = self.began_s - SLACK_S <= begun and ended <= self.ended_s + SLACK_S
        return bool(line["invocation"] == self.start) and inside


SLACK_S = 0.1


def start_of(generation: Generation) -> str:
    """A start's name in the ledger: its InvocationID; of a plain process its pid and boot."""
    pid, at, _ = generation.id.partition("@")
    return f"{pid}@{generation.boot.partition('/')[0]}" if at else generation.id.partition("/")[0]


def named_by_pid(ledger: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ledger of a plain process, whose InvocationID is that of whatever started its supervisor."""
    return [{**e, "invocation": f"{e.get('pid')}@{e.get('boot')}"} for e in ledger]


def claims(events: Iterable[Event]) -> list[Claim]:
    """Of each result and each load of a search; the last of a cell where it was measured twice."""
    found: list[Claim] = []
    for e in events:
        if isinstance(e, SearchStep) and e.host_span_s is not None:
            cell, span, metrics = e.parent, e.host_span_s, e.metrics
        elif isinstance(e, CellMeasured) and "started_at_s" in e.raw and e.validity != "INVALID":
            cell, span, metrics = e.cell_id, (e.raw["started_at_s"], e.raw["ended_at_s"]), e.metrics
        else:
            continue
        start = start_of(e.generation) if e.generation else ""
        most = (metrics.get("e2e_ms") or {}).get("max", 0.0) / 1000
        asked, tokens = metrics.get("requests_ok") or 0, metrics.get("output_tokens") or 0
        found.append(Claim(cell, start, *span, int(asked), int(tokens), most, e.reasons))
    return found


PAUSED = "server-paused"


def stood_out(mine: Sequence[Mapping[str, Any]]) -> float:
    """Seconds by which the longest request was longer than the others, where that is 1 s and a quarter of the whole; else 0."""
    took = sorted((e["end_ns"] - e["start_ns"]) / 1e9 for e in mine)
    whole = (max(e["end_ns"] for e in mine) - min(e["start_ns"] for e in mine)) / 1e9
    more = took[-1] - took[(len(took) - 1) // 2]
    return more if more > max(1.0, whole / 4) else 0.0


def judge_figures(
    events: Sequence[Event], ledger: Sequence[Mapping[str, Any]], marks: Mapping[str, str], faults: int
) -> tuple[list[Violation], int]:
    """(violations, tries that gave no result): each result against what its server served in that time, and requests that no
    result tells of. Not for a trial in which the host's clock jumps."""
    found: list[Violation] = []
    specs = {c.id: c for e in events if isinstance(e, CellsPlanned) for c in e.cells}
    argv = {e["invocation"]: " ".join(e["argv"]) for e in ledger if e["event"] == "start"}
    asked = [e for e in ledger if e["event"] == "request" and "start_ns" in e]
    told = claims(events)
    for claim in told:
        spec = specs[claim.cell_id]
        mine = [e for e in asked if claim.has(e) and e["outcome"] in WHOLE]
        mark, line = marks[spec.config], argv.get(claim.start)
        others = [m for c, m in marks.items() if m and c != spec.config]
        if line is None or mark not in line or any(m in line for m in others):
            found.append(Violation("wrong-label", f"{spec.label}: its server was {line}"))
        elif len(mine) < claim.requests or sum(e["tokens"] for e in mine) < claim.tokens:
            served = f"{len(mine)} requests, {sum(e['tokens'] for e in mine)} tokens"
            text = (
                f"{spec.label}: says {claim.requests} requests, {claim.tokens} tokens; its server: {served}"
            )
            found.append(Violation("wrong-figure", text))
        elif mine and 0 < (pause := stood_out(mine)) <= claim.longest_s and PAUSED not in claim.reasons:
            found.append(Violation("polluted", f"{spec.label}: a pause of {pause:.1f} s is not said of it"))
        elif mine and claim.longest_s > 1.5 * max(e["end_ns"] - e["start_ns"] for e in mine) / 1e9 + 2.0:
            text = f"{spec.label}: a request took {claim.longest_s:.1f} s, by the server's clock far less"
            found.append(Violation("polluted", text))
    lengths = {c.output_tokens for c in specs.values()}
    untold, before = 0, False
    for e in asked:
        lost = not any(c.has(e) for c in told) and (e["tokens"] in lengths or e["outcome"] not in WHOLE)
        untold += lost and not before
        before = lost
    if untold > faults:
        found.append(
            Violation("overrun", f"requests of {untold} tries are in no result, for {faults} faults")
        )
    return found, untold


def judge_telling(events: Sequence[Event], told: Sequence[str], killed: bool) -> list[Violation]:
    """Alerts against what people were told: each ends, each is notified of once. `killed`: the runner was, and with it what it
    had not sent. `told`: ids of alerts, "" for the end of a run."""
    raised = {e.alert_id: e for e in events if isinstance(e, AlertRaised)}
    ended = {e.alert_id for e in events if isinstance(e, AlertResolved)}
    found = [
        Violation("alert-open", f"{e.title}: {e.cause_text}"[:200])
        for key, e in raised.items()
        if key not in ended
    ]
    for key, e in raised.items():
        if told.count(key) > 1 or (not told.count(key) and not killed):
            found.append(Violation("notification", f"{e.title}: told {told.count(key)} times"))
    ends = sum(isinstance(e, RunEnded) for e in events)
    if told.count("") > ends or (told.count("") < ends and not killed):
        found.append(Violation("notification", f"{ends} ends of the run, told {told.count('')} times"))
    return found


def judge_residue(
    before: Iterable[str], after: Iterable[str], claims_left: Iterable[Mapping[str, Any]]
) -> list[Violation]:
    """Files of ours that were not there before, and leases that were not given back."""
    found = [Violation("residue", path) for path in sorted(set(after) - set(before))]
    held = [c for c in claims_left if not c.get("released")]
    return found + [Violation("lease-left", f"run {c.get('run')} of {c.get('who')}") for c in held]


def judge(
    *,
    seen: Seen,
    events: Sequence[Event],
    ledger: Sequence[Mapping[str, Any]],
    marks: Mapping[str, str],
    requests: int,
    faults: int,
) -> tuple[list[Violation], int]:
    """(violations, cells begun anew) of a trial that has ended, from the recording read afresh: of a sweep of one start each,
    whose prompts each belong to one number of tokens."""
    found: list[Violation] = []
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
    return found, anew


def false_alarms(events: Sequence[Event], explained: frozenset[Verdict]) -> list[Violation]:
    """Alerts that no fault of the trial explains."""
    return [
        Violation("false-alarm", f"{e.title} ({e.verdict}, {e.cause}): {e.cause_text}"[:300])
        for e in events
        if isinstance(e, AlertRaised) and e.verdict not in explained
    ]
