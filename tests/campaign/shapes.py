"""The sweeps that faults befall: plans on a SIMULATED server whose right end is known, and what must be decided in each.

A search, a race and a refinement decide from results, so a fault in the middle of one must not change what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddtop.events import Event, RaceRound, SearchStep
from ddtop.journal.fold.apply import fold
from ddtop.stats.race import Rules
from ddtop.sweep.configuration.rounds import due, to_skip
from tests.campaign.oracle import Violation
from tests.stories.harness import THREE, plan_text

POLICY = (
    'transient = "retry-twice"\nbug = "retry-twice"\nforeign = "wait-2min-then-stop"\nhost_lost_wait_min = 5'
)
NOTIFY = '[notify]\ncommand = ["sh", "-c", "echo \\"$0 $1\\" >> {file}", "{{alert}}", "{{title}}"]\n'
TIMES = ("SPEED=10", "LOAD_S=20", "WARM_S=5", "STOP_S=4")
MARKS = {"a": "", "b": "--context-length 8192", "c": "--context-length 4096"}
ROUNDS = 2
SLOW = "STEP_MS=120"
CAPACITY = 3
"""Requests that the server of the search runs at once; it refuses the next."""


@dataclass(frozen=True)
class Shape:
    """One kind of plan. `marks`: what stands in the argument line of a configuration's server;
    `requests`: whole answers that each finished cell must have had; `cells`: those that must be done at the end."""

    cells: int
    plain: bool = False
    """One start of each configuration, each cell known by its number of tokens: the ledger alone tells its cells apart."""
    marks: Mapping[str, str] = None  # type: ignore[assignment]
    configs: str = THREE
    tokens: str = "24, 40"
    requests: int = 4
    edit: Callable[[str], str] = str
    faults: tuple[str, ...] = TIMES
    decided: Callable[[Sequence[Event]], list[str]] = lambda events: []
    """What is wrong with the decisions of the whole run, in words."""


def _matrix(line: str) -> Callable[[str], str]:
    return lambda text: text.replace('baseline = "a"\n', f'baseline = "a"\n{line}\n')


def _searches(text: str) -> str:
    load = 'load = [{ concurrency = 1 }, { search = "concurrency", slo = { e2e_ms = 60000 }, max = 8, point_s = 3, confirm_s = 2 }]'
    return _matrix(load)(text)


def _as_process(text: str) -> str:
    return text.replace('kind = "systemd"', 'kind = "process"').replace("sglang-bench.service", "sglang")


def _hands_over(text: str) -> str:
    return text.replace("warmup = 0\n", "min_window_s = 2\n")


def _race(events: Sequence[Event]) -> list[str]:
    """Each round is decided once, in order, as the results before it say; nothing that was left is begun again."""
    rules = Rules(rule="race", most=ROUNDS)
    rounds = [(at, e) for at, e in enumerate(events) if isinstance(e, RaceRound)]
    wrong = [] if rounds and rounds[-1][1].ended else ["the race has no end"]
    if [e.start for _, e in rounds] != list(range(len(rounds))):
        wrong.append(f"rounds decided: {[e.start for _, e in rounds]}")
    for at, e in rounds:
        again = due(fold(events[:at]), rules, e.tp)
        said = (e.start, e.go_on, dict(e.left), e.ended)
        if again is None or said != (again["start"], again["go_on"], dict(again["left"]), again["ended"]):
            wrong.append(f"after round {e.start}: {said}; the results before it say {again}")
        if e.start == 0 and not {"b"} <= set(e.left):
            wrong.append(f"b is three times slower and was not left: {e.left}")
    state = fold(events)
    if rest := list(to_skip(state)):
        wrong.append(f"left, and not skipped: {[c.spec.label for c, _ in rest]}")
    begun = [c.spec.label for c in state.plan_cells if c.state == "skipped" and c.attempts]
    return wrong + ([f"skipped, and begun: {begun}"] if begun else [])


def _search(events: Sequence[Event]) -> list[str]:
    """The knee is the server's capacity, all steps that count are of one start, numbered without a gap."""
    wrong = []
    for cell in fold(events).plan_cells:
        if cell.spec.search is None or cell.state != "done":
            continue
        steps = [(s.tried, s.confirm, s.verdict) for s in cell.ladder]
        if cell.metrics.get("knee") != float(CAPACITY):
            wrong.append(f"{cell.spec.config}: knee {cell.metrics.get('knee')}, not {CAPACITY}: {steps}")
        if len({s.generation.id for s in cell.ladder if s.generation}) != 1:
            wrong.append(f"{cell.spec.config}: its loads were measured on several starts")
        if [s.number for s in cell.ladder] != list(range(len(cell.ladder))):
            wrong.append(f"{cell.spec.config}: steps {[s.number for s in cell.ladder]}")
    jobs = [e.job for e in events if isinstance(e, SearchStep)]
    if len(jobs) != len(set(jobs)):
        wrong.append("a load was recorded twice")
    return wrong


def _refined(events: Sequence[Event]) -> list[str]:
    """`b` wins at 1 and loses at 4: 2 and 3 are measured too, of both, and nothing else."""
    have = {(c.spec.config, c.spec.concurrency) for c in fold(events).plan_cells}
    want = {(config, n) for config in "ab" for n in (1, 2, 3, 4)}
    return [] if have == want else [f"planned {sorted(have)}, not {sorted(want)}"]


CAPPED = f'"--max-running-requests", "{CAPACITY}", "--max-queued-requests", "0"'
SHAPES: Mapping[str, Shape] = {
    "plain": Shape(cells=6, plain=True, marks=MARKS),
    "race": Shape(
        cells=0,
        marks=MARKS,
        requests=3,
        edit=_matrix(f"race = true\nmax_starts = {ROUNDS}"),
        faults=(*TIMES, "STEP_MS=40", "WHEN=--context-length 8192", SLOW),
        decided=_race,
    ),
    "search": Shape(
        cells=4,
        marks={"a": "", "b": MARKS["b"]},
        configs=f'a = {{ args = [{CAPPED}] }}\nb = {{ args = ["--context-length", "8192", {CAPPED}] }}',
        tokens="40",
        edit=_searches,
        decided=_search,
    ),
    "rounds": Shape(cells=27, marks=MARKS, requests=3, edit=_matrix("starts = 3")),
    "process": Shape(cells=6, plain=True, marks=MARKS, edit=_as_process),
    "handover": Shape(cells=6, marks=MARKS, edit=_hands_over),
    "refine": Shape(
        cells=8,
        marks={"a": "", "b": "--max-running-requests 1"},
        configs='a = {}\nb = { args = ["--max-running-requests", "1"] }',
        tokens="40",
        requests=2,
        edit=_matrix('concurrency = [1, 4]\nrefine = "break-even"'),
        faults=(*TIMES, "STEP_MS=120", "WHEN=--max-running-requests 1", "STEP_MS=40"),
        decided=_refined,
    ),
}


def plan_of(name: str, shape: str, host: str, told: Path) -> str:
    """The plan's text; notifications are appended to the file `told`, a line each."""
    s = SHAPES[shape]
    text = plan_text(name, host=host, configs=s.configs, tokens=s.tokens, requests=s.requests, policy=POLICY)
    return s.edit(text) + NOTIFY.format(file=told)


def undecided(shape: str, events: Sequence[Event]) -> list[Violation]:
    """Decisions that a fault has changed."""
    return [Violation("decided-otherwise", text[:400]) for text in SHAPES[shape].decided(events)]
