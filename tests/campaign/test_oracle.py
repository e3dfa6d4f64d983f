"""The campaign's judge sees each violation, and none in a clean run; the draw is that of the seed."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop import events as ev
from tests.campaign.draw import KINDS, trial
from tests.campaign.oracle import Seen, false_alarms, judge

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
