"""The campaign's judge sees each violation, and none in a clean run; the draw is that of the seed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ddtop import events as ev
from tests.campaign.draw import KINDS, trial
from tests.campaign.oracle import (
    Seen,
    false_alarms,
    judge,
    judge_figures,
    judge_residue,
    judge_telling,
)
from tests.campaign.shapes import CAPACITY, undecided

MARKS = {"a": "", "b": "--context-length 8192"}
AT: dict[str, Any] = {"at_s": 1.0, "mono_s": 1.0, "host": "h"}
CELLS = (("a", 24), ("b", 24), ("b", 40))
REQUESTS = 2


def spec(config: str, tokens: int) -> ev.CellSpec:
    return ev.CellSpec(
        id=f"{config}{tokens}",
        config=config,
        tp=1,
        workload="w",
        output_tokens=tokens,
        concurrency=1,
        context=0,
        restart_key=config,
    )


def server(pid: int, mark: str) -> list[dict[str, Any]]:
    who = {"boot": "x", "pid": pid, "invocation": f"start{pid}"}
    return [{"event": "start", "argv": ["server", *mark.split()], **who}, {"event": "ready", **who}]


def asked(pid: int, tokens: int, outcome: str = "length") -> list[dict[str, Any]]:
    """The requests of one cell."""
    row = {"event": "request", "boot": "x", "pid": pid, "outcome": outcome}
    return [{**row, "prompt_sha": f"{tokens}-{n}", "tokens": tokens} for n in range(REQUESTS)]


class Run:
    """A sweep of three cells, played into the judge line by line."""

    def __init__(self) -> None:
        self.seen, self.ledger, self.events = Seen(), list[dict[str, Any]](), list[ev.Event]()
        self.tell(ev.CellsPlanned(cells=tuple(spec(*c) for c in CELLS), **AT))

    def tell(self, *events: ev.Event) -> None:
        self.events += events
        self.seen.take(events, self.ledger)

    def ready(self, pid: int) -> None:
        generation = ev.Generation(boot="x", id=f"start{pid}", main_pid=pid)
        self.tell(ev.RestartReady(attempt_id=str(pid), generation=generation, ready_s=1.0, **AT))

    def finish(self, cell: str, tok_s: float = 1.0) -> None:
        self.tell(
            ev.CellMeasured(
                cell_id=cell, attempt=1, validity="VALID", metrics={"tok_s": tok_s}, raw={"cell": cell}, **AT
            ),
            ev.CellStateSet(cell_id=cell, state="done", **AT),
        )

    def clean(self) -> None:
        self.ledger += server(1, "")
        self.ready(1)
        self.ledger += asked(1, 24) * 2  # the baseline is asked twice
        self.finish("a24")
        self.ledger += server(2, MARKS["b"])
        self.ready(2)
        for tokens in (24, 40):
            self.ledger += asked(2, tokens)
            self.finish(f"b{tokens}")

    def verdicts(self, faults: int = 1) -> tuple[set[str], int]:
        found, anew = judge(
            seen=self.seen,
            events=self.events,
            ledger=self.ledger,
            marks=MARKS,
            requests=REQUESTS,
            faults=faults,
        )
        alarms = false_alarms(self.events, frozenset({"failed"}))
        return {v.kind for v in [*self.seen.violations, *found, *alarms]}, anew


def test_a_clean_run_has_no_violation() -> None:
    run = Run()
    run.clean()
    assert run.verdicts() == (set(), 0)


def test_a_cell_in_flight_that_is_begun_anew_is_counted_and_allowed_once_a_fault() -> None:
    run = Run()
    run.ledger += server(2, MARKS["b"]) + asked(2, 24, "killed")
    run.clean()
    assert run.verdicts(1) == (set(), 1) and run.verdicts(0)[0] == {"overrun"}


def lost(run: Run) -> None:
    run.tell(ev.CellStateSet(cell_id="b24", state="planned", **AT))


def gone(run: Run) -> None:
    run.events = [e for e in run.events if getattr(e, "cell_id", "") != "b40"]


def changed(run: Run) -> None:
    run.finish("b40", 2.0)


def asked_again(run: Run) -> None:
    run.ledger += asked(2, 40)


def other_server(run: Run) -> None:
    run.ledger = [e | {"argv": ["server"]} if e["event"] == "start" else e for e in run.ledger]


def never_ready(run: Run) -> None:
    run.ready(9)


def alarm(run: Run) -> None:
    text: dict[str, Any] = {
        "title": "STALLED",
        "cause": "hang-asleep",
        "cause_text": "x",
        "kind": "transient",
        "advice": "",
    }
    run.tell(ev.AlertRaised(alert_id="1", verdict="stalled", **text, **AT))


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lost, "lost"),
        (gone, "lost"),
        (changed, "repeated"),
        (asked_again, "repeated"),
        (other_server, "wrong-label"),
        (never_ready, "false-ready"),
        (alarm, "false-alarm"),
    ],
)
def test_each_violation_is_seen(spoil: Any, kind: str) -> None:
    run = Run()
    run.clean()
    spoil(run)
    assert kind in run.verdicts(9)[0]


def test_a_seed_draws_the_same_and_all_kinds_are_drawn() -> None:
    trials = [trial(seed) for seed in range(300)]
    assert trials == [trial(seed) for seed in range(300)]
    assert {f.kind for t in trials for f in t.faults} == set(KINDS)
    for t in trials:
        assert 1 <= len(t.faults) <= 5
        assert all(not t.kinds & set(KINDS[k].not_with) for k in t.kinds)
    assert {f.kind for f in trial(1, ["cut"], 4).faults} == {"cut"}


# ---- what a result says of itself, against the ledger's times


def line(
    pid: int, begun_s: float, took_s: float = 0.5, tokens: int = 24, outcome: str = "length"
) -> dict[str, Any]:
    begun = int(begun_s * 1e9)
    who = {"event": "request", "boot": "x", "pid": pid, "invocation": f"start{pid}", "prompt_sha": "p"}
    return {
        **who,
        "outcome": outcome,
        "tokens": tokens,
        "start_ns": begun,
        "end_ns": begun + int(took_s * 1e9),
    }


def result(cell: str, pid: int, **metrics: Any) -> ev.CellMeasured:
    """Of two requests of 24 tokens, from second 10 to 12."""
    return ev.CellMeasured(
        cell_id=cell,
        attempt=1,
        validity="VALID",
        raw={"started_at_s": 10.0, "ended_at_s": 12.0},
        metrics={"requests_ok": 2, "output_tokens": 48, "e2e_ms": {"max": 600.0}, **metrics},
        generation=ev.Generation(boot="x", id=f"start{pid}/x", main_pid=pid),
        **AT,
    )


LEDGER = [*server(1, ""), *server(2, MARKS["b"]), line(2, 10.1), line(2, 10.7)]
PLANNED = ev.CellsPlanned(cells=tuple(spec(*c) for c in CELLS), **AT)
PAUSE = [line(2, 10.1, 0.1), line(2, 10.3, 1.5)]
KILLED = [line(2, at, outcome="killed") for at in (3.0, 4.0)]


@pytest.mark.parametrize(
    ("told", "ledger", "kinds"),
    [
        (result("b24", 2), LEDGER, []),
        (result("b24", 2), [*LEDGER[:4], *KILLED, *LEDGER[4:]], []),  # one try begun anew, for one fault
        (result("a24", 2), LEDGER, ["wrong-label"]),
        (result("b24", 1), LEDGER, ["wrong-label", "overrun"]),
        (result("b24", 2, requests_ok=3), LEDGER, ["wrong-figure"]),
        (result("b24", 2, output_tokens=50), LEDGER, ["wrong-figure"]),
        (result("b24", 2), [e | {"outcome": "killed"} for e in LEDGER], ["wrong-figure"]),
        (result("b24", 2, e2e_ms={"max": 9000.0}), LEDGER, ["polluted"]),
        (result("b24", 2, e2e_ms={"max": 1500.0}), [*LEDGER[:4], *PAUSE], ["polluted"]),
        (result("b24", 2), [*LEDGER[:4], *PAUSE], []),  # of a request after the window
        (result("b24", 2), [*KILLED, *LEDGER, *KILLED], ["overrun"]),
    ],
)
def test_a_result_is_held_against_what_its_server_served(
    told: ev.CellMeasured, ledger: list[dict[str, Any]], kinds: list[str]
) -> None:
    found, _ = judge_figures([PLANNED, told], ledger, MARKS, faults=1 if "overrun" not in kinds else 0)
    assert [v.kind for v in found] == kinds


def raised(key: str) -> ev.AlertRaised:
    words: dict[str, Any] = {"cause": "c", "cause_text": "x", "kind": "host", "advice": ""}
    return ev.AlertRaised(alert_id=key, title="HOST LOST", verdict="lost-host", **words, **AT)


RESOLVED = ev.AlertResolved(alert_id="1", how="connected again", by="link", **AT)
END = ev.RunEnded(outcome="done", exit_code=0, **AT)


@pytest.mark.parametrize(
    ("events", "told", "killed", "kinds"),
    [
        ([raised("1"), RESOLVED, END], ["1", ""], False, []),
        ([raised("1"), RESOLVED, END], [], True, []),
        ([raised("1"), END], ["1", ""], False, ["alert-open"]),
        ([raised("1"), RESOLVED, END], [""], False, ["notification"]),
        ([raised("1"), RESOLVED, END], ["1", "1", ""], True, ["notification"]),
        ([raised("1"), RESOLVED, END], ["1"], False, ["notification"]),
    ],
)
def test_alerts_that_stay_open_and_notifications_lost_or_doubled_are_seen(
    events: list[ev.Event], told: list[str], killed: bool, kinds: list[str]
) -> None:
    assert [v.kind for v in judge_telling(events, told, killed)] == kinds


def test_files_and_leases_left_on_the_host_are_seen() -> None:
    mine = {"run": "r", "who": "me", "released": True}
    assert judge_residue(["/tmp/old"], ["/tmp/old"], [mine]) == []
    found = judge_residue([], ["/tmp/ddtop-x"], [mine, {**mine, "released": False}])
    assert [v.kind for v in found] == ["residue", "lease-left"]


# ---- decisions


def race_round(start: int, left: dict[str, str], ended: str) -> ev.RaceRound:
    return ev.RaceRound(start=start, tp=1, rule="race", left=left, ended=ended, **AT)


def search_cell(knee: float, jobs: tuple[str, ...] = ("j0", "j1")) -> list[ev.Event]:
    """A search whose two steps came from `jobs`."""
    find = ev.Search(by="concurrency", slo={"e2e_ms": 1.0})
    cells = (msgspec.structs.replace(spec("a", 40), concurrency=0, search=find),)
    gen = ev.Generation(boot="x", id="start1/x", main_pid=1)
    steps = [
        ev.SearchStep(parent="a40", number=n, tried=3.0, verdict="met", job=job, generation=gen, **AT)
        for n, job in enumerate(jobs)
    ]
    ends = [
        ev.CellMeasured(
            cell_id="a40", attempt=1, validity="VALID", metrics={"knee": knee}, raw={"x": 1}, **AT
        ),
        ev.CellStateSet(cell_id="a40", state="done", **AT),
    ]
    return [ev.CellsPlanned(cells=cells, **AT), ev.CellStarted(cell_id="a40", attempt=1, **AT), *steps, *ends]


@pytest.mark.parametrize(
    ("shape", "events", "words"),
    [
        ("race", [PLANNED], "no end"),
        ("race", [PLANNED, race_round(0, {}, "one is left")], "was not left"),
        ("race", [PLANNED, race_round(1, {}, "one is left")], "rounds decided"),
        ("search", search_cell(float(CAPACITY)), ""),
        ("search", search_cell(2.0), "knee 2.0"),
        ("search", search_cell(float(CAPACITY), ("j0", "j0")), "recorded twice"),
        ("refine", [PLANNED], "planned"),
        ("plain", [PLANNED], ""),
    ],
)
def test_decisions_that_a_fault_changed_are_seen(shape: str, events: list[ev.Event], words: str) -> None:
    said = "; ".join(v.text for v in undecided(shape, events))
    assert (words in said) if words else said == ""
