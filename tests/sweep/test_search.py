"""A search as a cell of a sweep, on a SIMULATED host in virtual time: found, killed after any event, and gone on with."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddtop import events as ev
from ddtop.agent.loadgen.chance import clopper_pearson
from ddtop.commands.recordings import export_results
from ddtop.dashboard.draw.columns import layout
from ddtop.dashboard.draw.grid import ALL, Cursor
from ddtop.dashboard.draw.ladder import ladder_lines
from ddtop.dashboard.draw.verdict import detail
from ddtop.dashboard.panels.sweep import row_line
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.eta import sweep_eta
from ddtop.journal.read.ladder import trying, words
from ddtop.journal.results.matrix import matrix
from ddtop.journal.write.writer import JournalWriter
from ddtop.report.html import report_html
from ddtop.report.json_form import report_json
from ddtop.report.markdown import report_markdown
from ddtop.report.recording import Recording
from ddtop.report.rows import report_csv
from ddtop.report.tables.ladder import ladders
from ddtop.sweep.cell.search import found
from ddtop.sweep.tell.event_lines import event_line
from tests.sweep.fakehost import Job, World, result
from tests.sweep.test_controller import Dead, Rig

SEARCH = ev.Search(by="concurrency", slo={"ttft_ms": 50.0}, most=64)
KNEE = 11


class Slots(World):
    """A server that answers in time up to `knee` requests at once; what it is asked is kept."""

    def __init__(self, knee: float = KNEE, **more: Any) -> None:
        super().__init__(**more)
        self.knee = knee
        self.asked: list[tuple[float, bool]] = []
        self.spoil: set[float] = set()
        """Loads at which most requests fail."""
        self.silent: dict[float, int] = {}
        """Load → how often it is not answered at all."""

    def measured(self, job: Job, cell: str, tokens: int) -> dict[str, Any]:
        (spec,) = (c for c in job.spec["cells"] if c["id"] == cell)
        load = spec.get("concurrency") or spec.get("rate")
        if load is None:
            return result(cell, tokens)
        self.asked.append((load, "slo" not in spec))
        out = result(cell, tokens)
        slow = load > self.knee
        for request in out["requests"]:
            if slow and tokens:
                request["t"][0] += 60_000_000
                request["last_event"] += 60_000_000
                request["end"] += 60_000_000
            if load in self.spoil:
                request |= {"class": "http 503", "http": 503, "tokens": 0, "chunks": 0, "t": []}
            if self.silent.get(load, 0) > 0:
                request |= {"class": "unfinished", "tokens": 0, "chunks": 0, "t": []}
        self.silent[load] = self.silent.get(load, 0) - 1
        out["spec"] = {key: value for key, value in spec.items() if key != "prompts"}
        if "slo" in spec:
            n, attained = (16, 0) if slow else (104, 104)
            n, attained = (0, 0) if self.silent[load] >= 0 else (n, attained)
            low, high = clopper_pearson(attained, n)
            verdict = "undecided" if not n else "missed" if slow else "met"
            out["slo"] = {"verdict": verdict, "attained": attained, "n": n, "low": low, "high": high}
            out["window"]["stopped"] = "slo"
        return out


def rig_with(world: World, search: ev.Search = SEARCH, **policy: Any) -> Rig:
    """The rig's sweep, whose second cell of the first configuration is a search."""
    rig = Rig(world, **policy)
    cells = [
        msgspec.structs.replace(c, search=search, concurrency=0) if c.id == "a1" else c
        for c in rig.sweep.cells
    ]
    loads = {**rig.sweep.bench.cells, "a1": {"nonce": "n", "mode": "closed"}}
    bench = dataclasses.replace(rig.sweep.bench, cells=loads)
    rig.sweep = dataclasses.replace(rig.sweep, cells=tuple(cells), bench=bench)
    return rig


def searched(rig: Rig) -> CellView:
    return rig.state.cells["a1"]


LADDER = [(1, False), (2, False), (4, False), (8, False), (16, False), (12, False), (10, False), (11, False)]


def test_a_load_that_is_not_answered_is_measured_again_once() -> None:
    """Seed 9507 of the campaign: the server was suspended for 25 s, and the search took that for too many streams."""
    world = Slots()
    world.silent = {4: 1}
    rig = rig_with(world)
    assert rig.run().word == "done"
    assert world.asked == [*LADDER[:3], *LADDER[2:], (11, True)] and searched(rig).metrics["knee"] == 11.0
    assert rig.alerts() == [("measuring-failed", "server-stood-still")] and not rig.state.open_alerts


def test_a_load_that_is_never_answered_is_too_much() -> None:
    world = Slots()
    world.silent = dict.fromkeys((4, 3), 99)
    rig = rig_with(world)
    assert rig.run().word == "done" and searched(rig).metrics["knee"] == 2.0
    assert world.asked == [(1, False), (2, False), (4, False), (4, False), (3, False), (2, True)]


def test_a_search_is_one_cell_with_a_result_at_its_knee() -> None:
    world = Slots()
    rig = rig_with(world)
    assert rig.run().word == "done"
    assert world.asked == [*LADDER, (11, True)]
    cell = searched(rig)
    assert (cell.state, cell.metrics["knee"]) == ("done", 11.0)
    assert (cell.validity, cell.reasons) == (rig.state.cells["a0"].validity, rig.state.cells["a0"].reasons)
    about = cell.metrics["search"]
    assert (about["low"], about["high"], about["confirmed"], about["loads"]) == (11.0, 12.0, True, 9)
    assert cell.metrics["output_tok_s"] > 0 and cell.metrics["goodput_share"] == 1.0
    assert [s.number for s in cell.ladder] == list(range(9))
    assert [s.next for s in cell.ladder] == [2, 4, 8, 16, 12, 10, 11, 11, None]
    assert cell.ladder[4].verdict == "missed" and cell.ladder[-1].confirm
    assert len(cell.attempts) == 1 and cell.seconds is not None
    assert len(world.starts) == 3, "all its loads on one start, with the other cells of its configuration"
    assert rig.world.served.count("a0") == 1 and rig.alerts() == []


def test_killed_after_any_event_it_goes_on_with_the_same_loads() -> None:
    whole = rig_with(Slots())
    whole.run()
    own = [
        n
        for n, e in enumerate(whole.events, 1)
        if "a1" in (getattr(e, "cell_id", ""), getattr(e, "parent", ""))
    ]
    for place in range(own[0], own[-1] + 1):
        world = Slots()
        rig = rig_with(world)
        rig.die_after = place
        with pytest.raises(Dead):
            rig.run()
        assert rig.run().word == "done", place
        cell = searched(rig)
        assert (cell.state, cell.metrics["knee"], cell.metrics["search"]["confirmed"]) == ("done", 11.0, True)
        steps = [(s.tried, s.confirm) for s in cell.ladder]
        assert steps == [*LADDER, (11, True)], (place, steps)
        assert len(world.asked) <= len(LADDER) + 2, (place, "at most one load is measured twice", world.asked)
        recorded = [e for e in rig.events if isinstance(e, ev.SearchStep)]
        assert len(recorded) == len(LADDER) + 1, place


def test_a_cut_link_costs_no_load() -> None:
    world = Slots()
    rig = rig_with(world)
    cut: list[int] = []

    def on_event(event: ev.Event, _controller: Any) -> None:
        if isinstance(event, ev.CellProgress) and event.cell_id == "a1" and len(cut) < 3:
            cut.append(1)
            world.drop("cut")

    rig.on_event = on_event
    assert rig.run().word == "done"
    assert world.asked == [*LADDER, (11, True)] and len(cut) == 3


def test_on_another_start_of_the_server_it_begins_anew() -> None:
    world = Slots()
    rig = rig_with(world)
    done: list[int] = []

    def on_event(event: ev.Event, _controller: Any) -> None:
        if isinstance(event, ev.SearchStep) and event.tried == 8 and not done:
            done.append(1)
            world.reboot()

    rig.on_event = on_event
    assert rig.run().word == "done"
    assert [load for load, _ in world.asked].count(1) == 2
    assert [(s.tried, s.confirm) for s in searched(rig).ladder] == [*LADDER, (11, True)]
    assert len({s.generation.id for s in searched(rig).ladder if s.generation}) == 1


def test_a_load_under_which_most_requests_fail_is_missed_not_spoiled() -> None:
    world = Slots(knee=64)
    world.spoil = {16.0, 12.0}
    rig = rig_with(world)
    assert rig.run().word == "done"
    verdicts = {s.tried: s.verdict for s in searched(rig).ladder}
    assert verdicts[16.0] == verdicts[12.0] == "failed" and searched(rig).metrics["knee"] == 11.0
    assert rig.alerts() == []


def test_a_first_load_that_gives_nothing_is_the_servers_failure() -> None:
    world = Slots()
    world.spoil = {1.0}
    rig = rig_with(world)
    assert rig.run().word == "some-failed"
    assert searched(rig).state == "broken"
    assert rig.alerts() == [("no-tokens", "zero-tokens")]


def test_no_load_meets_the_levels() -> None:
    world = Slots(knee=0.5)
    rig = rig_with(world)
    rig.run()
    cell = searched(rig)
    assert world.asked == [(1, False)]
    assert (cell.state, cell.validity, cell.reasons) == ("done", "SUSPECT", ("slo-not-met",))
    assert "knee" not in cell.metrics and "output_tok_s" not in cell.metrics
    assert words(cell) == "no knee: c1 is too much"


def test_where_the_lowest_load_is_not_decided_that_is_said() -> None:
    """Seen with a real llama.cpp on a busy machine: 4 of 5 requests in time say neither yes nor no."""
    step = ev.SearchStep(
        at_s=1.0,
        mono_s=1.0,
        parent="a1",
        number=0,
        tried=1.0,
        verdict="undecided",
        high=1.0,
        metrics={"slo": {"attained": 4, "n": 5}},
    )
    judged = found(SEARCH, [step])
    assert (judged.validity, judged.reasons) == ("SUSPECT", ("slo-undecided",))
    spec = ev.CellSpec(
        id="a1",
        config="a",
        tp=1,
        workload="w",
        output_tokens=8,
        concurrency=0,
        context=0,
        restart_key="k",
        search=SEARCH,
    )
    assert words(CellView(spec, ladder=[step])) == "no knee: c1 is undecided"


def test_a_knee_above_the_highest_load_is_said_to_be_there() -> None:
    rig = rig_with(Slots(knee=1000))
    rig.run()
    cell = searched(rig)
    assert cell.metrics["knee"] == 64.0 and cell.metrics["search"]["high"] is None
    assert "knee-above-max" in cell.reasons and cell.validity == "SUSPECT"


def test_a_rate_is_searched_below_one_too() -> None:
    search = ev.Search(by="rate", slo={"ttft_ms": 50.0}, most=64.0, confirm_s=0)
    world = Slots(knee=0.3)
    rig = rig_with(world, search)
    rig.run()
    assert [load for load, _ in world.asked] == [1.0, 0.5, 0.25, 0.375, 0.3125, 0.28125]
    assert searched(rig).metrics["knee"] == 0.28125
    sent = {job.name: job.spec for job in rig.world.begun}
    first = sent[searched(rig).ladder[0].job]["cells"][0]
    assert (first["rate"], first["requests"], first["time_limit_s"]) == (1.0, 60, 120.0)


def test_paused_between_two_loads_it_does_not_run() -> None:
    world = Slots()
    rig = rig_with(world)
    seen: list[str] = []

    def on_event(event: ev.Event, _controller: Any) -> None:
        if isinstance(event, ev.CellProgress) and event.cell_id == "a1" and not seen:
            seen.append("asked")
            rig.give(ev.Pause)
        elif isinstance(event, ev.CellStateSet) and event.state == "interrupted" and len(seen) == 1:
            seen.append(rig.state.cells["a1"].state)
            rig.give(ev.GoOn)

    rig.on_event = on_event
    assert rig.run().word == "done"
    assert seen == ["asked", "interrupted"] and world.asked == [*LADDER, (11, True)]


# --------------------------------------------------------------------------- what is shown of it


def state_after(steps: int) -> State:
    """The state of a whole run, as it was right after so many loads."""
    rig = rig_with(Slots())
    rig.run()
    place = [n for n, e in enumerate(rig.events, 1) if isinstance(e, ev.SearchStep)][steps - 1]
    return fold(rig.events[:place])


def text_of(lines: Sequence[Any]) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines)


def test_while_it_runs_the_screen_shows_the_loads_tried_and_the_next() -> None:
    state = state_after(5)
    cell = state.cells["a1"]
    assert trying(cell) == "c12" and words(cell) == "at least c8, below c16"
    shown = text_of(ladder_lines(cell, 100))
    assert "95% with TTFT ≤ 50 ms" in shown and "✓ met" in shown and "104 of 104" in shown
    assert "✗ missed" in shown and "0 of 16" in shown and "c12   ▶ running" in shown
    view = matrix(state)
    fields = [field for field in view.rows[0].cells if field is not None and field.trying]
    assert [field.trying for field in fields] == ["c12"]
    column = view.rows[0].cells.index(fields[0])
    assert "c12" in text_of([row_line(view, 0, layout(view, 200, Cursor()), ALL, None, 0.0, None)])
    assert "at least c8, below c16" in " · ".join(text for text, _ in detail(view, Cursor(0, column)))


def test_at_the_end_every_form_of_report_has_the_ladder() -> None:
    state = state_after(9)
    cell = state.cells["a1"]
    assert trying(cell) == "" and words(cell) == "knee c11: c12 is too much"
    ((title, rows),) = ladders(state)
    assert title == "Search · a w@32 tp1 knee c ttft≤50 #1 (95% with TTFT ≤ 50 ms): knee c11: c12 is too much"
    assert rows[1][:4] == ["c1", "met", "104 of 104", "95.0–100.0%"] and rows[-1][:2] == ["c11", "confirmed"]
    report = report_json([state])
    (entry,) = (c for c in report["cells"] if c["id"] == "a1")
    assert entry["search"]["most"] == 64.0 and entry["concurrency"] is None
    assert [step["load"] for step in entry["ladder"]] == [*(load for load, _ in LADDER), 11]
    assert entry["ladder"][0]["slo"]["n"] == 104 and entry["ladder"][-1]["next"] is None
    recording = Recording("r", state)
    assert "knee c11" in report_markdown([recording]) and "knee c11" in report_html([recording])


def test_the_csv_has_the_knee() -> None:
    rig = rig_with(Slots())
    rig.run()
    rows = list(csv.DictReader(io.StringIO(report_csv([Recording("r", rig.state)]))))
    row = next(row for row in rows if row["id"] == "a1")
    assert (row["knee"], row["search.low"], row["search.high"], row["search.loads"]) == (
        "11",
        "11",
        "12",
        "9",
    )
    assert row["search"] == "knee c ttft≤50" and row["concurrency"] == ""
    lines = [line for e in rig.events if (line := event_line(e, rig.state)) is not None]
    assert any("knee c11: c12 is too much" in line for line in lines)


def test_no_single_load_says_how_long_a_search_takes() -> None:
    state = state_after(5)
    assert state.cells["a0"].seconds is not None and sweep_eta(state, state.at_s).total_s is None
    rig = rig_with(Slots())
    rig.run()
    assert rig.state.cells["a1"].seconds is not None and sweep_eta(rig.state, 0.0).total_s == 0.0


@pytest.mark.parametrize("form", ["sglang", "vllm"])
def test_other_tools_forms_have_the_knee_and_leave_out_a_search_without_one(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path / "home"))
    for knee, rows in ((KNEE, 6), (0.5, 5)):
        rig = rig_with(Slots(knee=knee))
        rig.run()
        path = tmp_path / f"{knee}.ddtop"
        with JournalWriter.open(path) as journal:
            journal.extend(rig.events)
        exported = [json.loads(row) for row in export_results(path, form).splitlines()]
        assert len(exported) == rows
        if knee == KNEE:
            assert [row["max_concurrency"] for row in exported].count(KNEE) == 1
