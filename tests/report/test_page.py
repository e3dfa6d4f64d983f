"""The HTML page: the timeline, the matrix in pieces, each cell's details, its size, and text that would break out of it."""

from __future__ import annotations

import doctest
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from ddtop import events as ev
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.results.matrix import matrix
from ddtop.journal.write.writer import JournalWriter
from ddtop.report import Recording, load, report_html, report_json, report_markdown
from ddtop.report.advice import advice_of, advice_table
from ddtop.report.page import cells, grid
from ddtop.report.page.timeline import timeline
from ddtop.report.page.trace import MOST, Trace, Watts
from tests.journal.made import Clock, measured, restart, spec
from tests.report.test_report import full, read_html

GPU = ev.GpuReading(index=0, name="H200", power_w=400.0, power_limit_w=700.0)


def drawn(state: State, trace: Trace | None = None) -> ET.Element:
    return ET.fromstring(str(timeline(state, trace or Trace())))


def titles(tree: ET.Element) -> list[str]:
    return [e.text or "" for e in tree.iter("title")]


def events() -> list[ev.Event]:
    """A run with a cut, a reboot, a resume after an hour, an alert, and a cell of each outcome."""
    clock = Clock()
    names = ("a1", "a2", "b1", "b2")
    specs = tuple(
        spec(n, "auto" if n[0] == "a" else "b15", baseline=n[0] == "a", output_tokens=int(n[1]))
        for n in names
    )
    run: dict[str, Any] = {"run_id": "r", "name": "x", "mode": "sweep"}
    return [
        ev.RunStarted(**clock(), **run, segment=0),
        ev.CellsPlanned(**clock(), cells=specs, baseline="auto"),
        ev.GpuSampled(**clock(), gpus=(GPU,)),
        *restart(clock, "auto", "at-1"),
        ev.LogRead(**clock(), unit="s.service", lines=(ev.LogLine(text="before the cell"),)),
        *measured(clock, "a1", 26.0)[:3],
        ev.LogRead(**clock(), unit="s.service", lines=(ev.LogLine(text="\x1b[31mDecode </pre><script>"),)),
        ev.GpuSampled(**clock(), gpus=(GPU,)),
        *measured(clock, "a1", 26.0)[3:],
        ev.HostLost(**clock(), what="timed out"),
        ev.HostConnected(**clock(40), agent="a", python="3", uid=0, user="root"),
        ev.HostRebooted(**clock(), boot_before="1", boot_now="2"),
        ev.RunStarted(**clock(3600), **run, segment=1),
        *restart(clock, "b15", "at-2", ready=False),
        ev.CellStateSet(**clock(), cell_id="b1", state="running", attempt=1),
        ev.CellStarted(**clock(), cell_id="b1", attempt=1),
        ev.CellStateSet(
            **clock(20), cell_id="b1", state="failed", reason='<img src=x onerror="alert(1)">', attempt=1
        ),
        ev.KernelFault(**clock(), kind="xid", text="Xid 79"),
        ev.RunEnded(**clock(), outcome="some-failed", exit_code=10),
    ]


def test_the_timeline_names_what_was_when() -> None:
    words = titles(drawn(fold(events())))
    for said in (
        "auto tp1: ready (",
        "auto fib@1 tp1 c1: done (",
        'b15 fib@1 tp1 c1: failed: <img src=x onerror="alert(1)">',
        "link lost",
        "the host rebooted",
        "kernel: Xid 79",
        "no runner for 1h00m: drawn short",
        "NOT STARTING?: ct200: s.service failed 2 s after restart",
    ):
        assert any(said in one for one in words), said


def test_an_hour_without_a_runner_takes_little_room() -> None:
    tree = drawn(fold(events()))
    (gap,) = (e for e in tree.iter("rect") if e.get("class") == "absent")
    assert float(gap.get("width", "0")) < 60


def test_states_do_not_rest_on_colour_alone() -> None:
    tree = drawn(fold(events()))
    glyphs = {e.text for e in tree.iter("text")}
    assert {"✗", "▲", "↻", "✕"} <= glyphs


def traced(run: list[ev.Event], folder: Path) -> Trace:
    """The trace of a run that was recorded."""
    with JournalWriter.open(folder / "traced.ddtop") as journal:
        journal.extend(run)
    return load(folder / "traced.ddtop").trace


def test_power_is_drawn_and_read_by_the_pointer(tmp_path: Path) -> None:
    trace = traced(events(), tmp_path)
    tree = drawn(fold(events()), trace)
    assert any("400 W mean, 400 W largest" in one for one in titles(tree))
    assert {"700 W limit", "400 W largest"} <= {e.text for e in tree.iter("text")}
    empty = drawn(fold(events()))
    assert "not measured" in {e.text for e in empty.iter("text")}


def test_power_of_a_long_run_stays_bounded_and_true() -> None:
    trace = Trace()
    for n in range(20_000):
        watts = 100.0 + n % 7
        trace.sample(float(n), watts)
    assert len(trace.power) <= 2 * MOST and sum(w.n for w in trace.power) == 20_000
    assert sum(w.total for w in trace.power) == pytest.approx(sum(100.0 + n % 7 for n in range(20_000)))
    assert trace.power[0].begin_s == 0.0 and trace.power[-1].end_s == 19_999.0 and trace.limit_w is None


def test_a_sample_without_one_gpus_power_is_no_sum(tmp_path: Path) -> None:
    lost = ev.GpuReading(index=1, error="lost")
    run: list[ev.Event] = [ev.GpuSampled(at_s=1.0, mono_s=1.0, gpus=gpus) for gpus in ((GPU, lost), (lost,))]
    assert traced(run, tmp_path).power == []
    limited = traced([ev.GpuSampled(at_s=1.0, mono_s=1.0, gpus=(GPU, GPU))], tmp_path)
    assert (limited.power[-1].total, limited.limit_w) == (800.0, 1400.0)


def test_a_gap_in_the_power_stays_a_gap() -> None:
    state = fold(events())
    begin = state.track.begin_s or 0.0
    spans = [Watts(begin + n, begin + n, 100.0, 1, 100.0) for n in (*range(20), *range(200, 220))]
    tree = drawn(state, Trace(spans))
    assert len([e for e in tree.iter("path") if e.get("class") == "line"]) == 2


@pytest.mark.parametrize("at_s", [0.0, -1e9, 1e18])
def test_a_clock_that_is_wrong_by_ages_is_drawn_all_the_same(at_s: float) -> None:
    state = fold([*events(), ev.HostLost(at_s=at_s, mono_s=1.0, what="x")])
    drawn(state)


def test_the_log_of_a_cell_is_what_came_while_it_ran(tmp_path: Path) -> None:
    trace = traced(events(), tmp_path)
    assert trace.logs[("a1", 1)] == ["[31mDecode </pre><script>"]
    text = report_html([Recording("x", fold(events()), trace=trace)])
    page = read_html(text)
    assert "script" not in page.tags and "img" not in page.tags and "\x1b" not in text
    assert "Decode </pre><script>" in " ".join(page.text)


def test_a_recording_brings_its_log_and_power(tmp_path: Path) -> None:
    with JournalWriter.open(tmp_path / "a.ddtop") as journal:
        journal.extend(events())
    recording = load(tmp_path / "a.ddtop")
    assert recording.trace.power[0].mean == 400.0 and ("a1", 1) in recording.trace.logs


def test_reading_in_brief_loses_nothing_that_a_report_shows(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    with JournalWriter.open(path) as journal:
        journal.extend(events())
    brief, whole = load(path), State()
    with JournalReader(path) as reader:
        for seq, event in reader.since():
            apply(whole, event, seq)
    assert report_json([brief])["cells"] == report_json([whole])["cells"]
    assert brief.state.gpus[0].reading == whole.gpus[0].reading


def test_every_cell_has_details_that_its_field_leads_to() -> None:
    state = full()
    page = read_html(report_html([Recording("one", state), Recording("two", full())]))
    for run in ("r1-", "r2-"):
        assert {run + cells.anchor(c.id) for c in state.plan_cells} <= set(page.ids)
    shown = " ".join(page.text)
    assert "a GPU slowed down because it was hot" in shown and "check cooling; run again" in shown
    assert doctest.testmod(cells).failed == 0


def test_a_bound_is_no_percentile() -> None:
    (detail,) = (
        d
        for _, some in cells.details(_with_bound(), Trace(), [])
        for d in some
        if d.title.startswith("b15 fib@256 tp1 c8 #1")
    )
    assert detail.latencies[0] == ("TTFT", "12.0", "≤ 40.0", "n/a", "50.0", "20")


def _with_bound() -> State:
    state = full()
    stats = {"n": 20, "p50": 12.0, "p90": 30.0, "p90_bound": 40.0, "max": 50.0}
    state.cells["b15-8-1"].metrics = {"output_tok_s": 1.0, "ttft_ms": stats}
    return state


def wide(configs: int = 9, workloads: int = 4, contexts: int = 3, loads: int = 4) -> State:
    clock = Clock()
    specs = tuple(
        spec(
            f"c{c}-{w}-{k}-{n}",
            f"c{c}",
            workload=f"w{w}",
            context=1024 * k,
            concurrency=2**n,
            baseline=c == 0,
        )
        for c in range(configs)
        for w in range(workloads)
        for k in range(contexts)
        for n in range(loads)
    )
    run: list[ev.Event] = [
        ev.RunStarted(**clock(), run_id="r", name="wide", mode="sweep", segment=0),
        ev.CellsPlanned(**clock(), cells=specs, baseline="c0"),
    ]
    for n, one in enumerate(specs):
        run += measured(clock, one.id, 100.0 + n)
    return fold([*run, ev.RunEnded(**clock(), outcome="done", exit_code=0)])


def test_a_wide_matrix_is_cut_by_workload_and_context() -> None:
    state = wide()
    view = matrix(state)
    found = grid.grids(view, view.columns)
    assert len(found) == 12 and {len(one.head) for one in found} == {4}
    assert found[0].caption == "tp1 · w0@256 · 0 ctx" and found[0].head == ("c1", "c2", "c4", "c8")
    narrow = matrix(wide(2, 1, 2, 4))
    (whole,) = grid.grids(narrow, narrow.columns)
    assert whole.caption == "tp1" and whole.head[0] == "w0@256 0 ctx c1"


def test_432_cells_fit_in_a_file_that_can_be_mailed() -> None:
    state = wide()
    one = report_html([Recording("wide", state)])
    read_html(one)
    assert len(one.encode()) < 1_500_000
    two = report_html([Recording("wide", state), Recording("again", state)])
    assert len(two.encode()) < 3_000_000 and "432 cells (1.00× to 1.00×)" in two


def test_what_is_said_of_a_field_is_in_words() -> None:
    state = full()
    view = matrix(state)
    row = next(r for r in grid.grids(view, view.columns)[0].rows if r[0] == "b15")
    field = row[2][1]
    assert view.bests[1] is not None and field.best == (
        view.bests[1].star if view.bests[1].config == "b15" else ""
    )
    assert field.mark == "? SUSPECT" and field.kind == "up3"
    assert "thermal-cap: a GPU slowed down because it was hot" in field.words
    assert "95% interval" in field.words and field.small.startswith(re.match(r"[\d.]+×", field.small)[0])  # type: ignore[index]


def test_a_cell_that_was_tried_again_lists_its_tries() -> None:
    state = fold(events())
    (failed,) = (d for _, some in cells.details(state, Trace(), []) for d in some if d.glyph == "✗")
    assert failed.attempts[0][3] == "failed" and failed.facts[0] == ("why", '<img src=x onerror="alert(1)">')


def test_a_server_load_is_drawn_over_its_cell() -> None:
    state = fold(events()[:-1])
    attempt = state.cells["a1"].attempts[0]
    apply(state, ev.CellStarted(at_s=1.0, mono_s=1.0, cell_id="a2", attempt=1))
    for n in range(100):
        apply(
            state,
            ev.ServerFigures(at_s=float(n), mono_s=float(n), unit="s", running=float(n % 8), kv_pct=50.0),
        )
    assert not attempt.figures
    detail = next(d for _, some in cells.details(state, Trace(), []) for d in some if d.id == "c-a2")
    running = next(line for line in detail.lines if line.name == "running")
    assert running.words == "mean 3.42, largest 7 requests" and ET.fromstring(str(running.svg)) is not None
    assert running.svg.count("L") < cells.POINTS


def test_a_cell_without_server_figures_shows_the_power_of_all_gpus(tmp_path: Path) -> None:
    clock = Clock()
    run: list[ev.Event] = [
        ev.CellsPlanned(**clock(), cells=(spec("a1"),), baseline="auto"),
        *measured(clock, "a1", 1.0),
    ]
    for n in range(40):
        run.insert(3, ev.GpuSampled(at_s=1_700_000_010.0 + n / 2, mono_s=1.0, gpus=(GPU,)))
    ((_, (detail,)),) = cells.details(fold(run), traced(run, tmp_path), [])
    assert [(line.name, line.words) for line in detail.lines] == [
        ("power, all GPUs", "mean 400, largest 400 W")
    ]


def test_what_to_run_says_each_load_once() -> None:
    rows = advice_table(advice_of(wide(3, 2, 1, 3)))
    assert [bool(row[0]) for row in rows] == [True, True, False, True, False]
    assert [row[2] for row in rows[1:]] == ["c1", "c2", "c1", "c2"]


def test_markdown_of_432_cells_fits_in_an_issue() -> None:
    text = report_markdown([Recording("wide", wide())])
    assert len(text) < 65_536
    tables = [part for part in text.split("\n\n") if part.startswith("| tp1")]
    assert len(tables) == 12 and all(part.splitlines()[0].count("|") == 6 for part in tables)
    page = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text)
    assert read_html(page).tags["details"] == text.count("<details>") >= 1
