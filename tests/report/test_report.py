"""Reports: the stable JSON, CSV, Markdown, one HTML file, and a table for terminals."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ddtop import events as ev
from ddtop.errors import JournalError
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.state import State
from ddtop.journal.write.writer import JournalWriter
from ddtop.report import (
    Recording,
    load,
    render_table,
    report_csv,
    report_html,
    report_json,
    report_markdown,
    report_text,
)
from ddtop.report.charts import charts
from ddtop.report.markdown import escape
from ddtop.report.svg import Bar, bars
from ddtop.report.text import aligned, field
from tests.journal.made import NEW, Clock, any_event, measured, restart, spec, sweep
from tests.report.test_against import made as made_of

HOSTILE = '<script>alert("x")</script> | `=cmd`'


def full() -> State:
    """The small sweep with more in it: concurrency, energy, a suspect and a broken cell, steps, an end."""
    clock = Clock()
    cells = tuple(
        spec(f"{config}-{c}-{r}", config, concurrency=c, repeat=r, baseline=config == "auto")
        for config in ("auto", "b8", "b15")
        for c in (1, 8)
        for r in (0, 1)
    )
    events: list[ev.Event] = [
        ev.RunStarted(**clock(), run_id="r1", name="demo", mode="sweep", segment=0, plan_path="demo.toml"),
        ev.CellsPlanned(**clock(), cells=cells, baseline="auto"),
        ev.GpuSampled(
            **clock(), gpus=(ev.GpuReading(index=0, name="H200", uuid="GPU-1", mem_total_mib=1.0),)
        ),
        *restart(clock, "auto", "at-1"),
    ]
    for index, cell in enumerate(cells):
        if cell.config == "b8":
            continue
        events += measured(clock, cell.id, 26.0 * (1 + index) + cell.repeat)
    events += [
        *restart(clock, "b15", "at-2", ready=False),
        ev.StepTaken(
            **clock(),
            plan_id="p",
            step_id="1",
            action="restart",
            title="restart b15",
            reason="it failed",
            by="policy",
            state="done",
        ),
        ev.AlertResolved(**clock(), alert_id="al-1", how="retry", by="policy"),
    ]
    for cell in cells:
        if cell.config == "b8":
            events.append(
                ev.CellStateSet(
                    **clock(), cell_id=cell.id, state="broken", reason="0 tok/s twice", cause="zero-tokens"
                )
            )
    events.append(
        ev.CellMeasured(
            **clock(),
            cell_id="b15-8-1",
            attempt=2,
            validity="SUSPECT",
            reasons=("thermal-cap",),
            metrics={
                "output_tok_s": 300.5,
                "j_per_token": 2.5,
                "acceptance_length": 4.1,
                "ttft_ms": {"p50": 12.0},
            },
            engine="sglang",
            engine_version="0.5.9",
            driver="580.1",
            generation=NEW,
        )
    )
    events.append(ev.RunEnded(**clock(), outcome="some-failed", exit_code=10, left_behind=("an override",)))
    return fold(events)


def test_json_is_as_the_design_says() -> None:
    report = report_json([full()])
    again = json.loads(msgspec.json.encode(report))
    assert list(report)[:6] == ["schema", "run", "cells", "restarts", "alerts", "steps"]
    run = again["run"]
    assert {"name", "plan", "host", "started", "ended", "engine", "engine_version", "driver", "gpus"} <= set(
        run
    )
    assert (run["name"], run["plan"], run["host"], run["driver"]) == ("demo", "demo.toml", "ct200", "580.1")
    assert re.fullmatch(r"2023-11-14T22:13:21\.000Z", run["started"]) and run["outcome"] == "some-failed"
    assert run["gpus"] == [
        {"index": 0, "name": "H200", "uuid": "GPU-1", "power_limit_w": None, "mem_total_mib": 1.0}
    ]
    cell = next(c for c in again["cells"] if c["id"] == "b15-8-1")
    assert {
        "id",
        "config",
        "tp",
        "workload",
        "concurrency",
        "context",
        "output_tokens",
        "repeat",
        "state",
        "validity",
        "reasons",
        "metrics",
        "attempts",
    } <= set(cell)
    assert cell["metrics"]["ttft_ms"] == {"p50": 12.0} and cell["reasons"] == ["thermal-cap"]
    assert [a["attempt"] for a in cell["attempts"]] == [1, 2] and cell["attempts"][0]["seconds"] == 30.0
    first, failed = again["restarts"]
    assert (
        first["phases"][1] == {"name": "loading", "seconds": 51.0, "state": "done"}
        and first["ready_s"] == 55.0
    )
    assert (
        first["generation"]["id"] == "inv-2" and failed["verdict"] == "failed" and failed["ready_s"] is None
    )
    (alert,) = again["alerts"]
    assert {
        "kind",
        "verdict",
        "cause",
        "advice",
        "fault_seen_s",
        "raised_s",
        "resolved_s",
        "resolved_by",
        "evidence",
    } <= set(alert)
    assert alert["kind"] == "transient" and alert["fault_seen_s"] == 0.4 and alert["resolved_by"] == "policy"
    assert 0 < alert["raised_s"] < alert["resolved_s"] and alert["evidence"][0]["cursor"] == "s=1"
    (step,) = again["steps"]
    assert {"at", "action", "reason", "by"} <= set(step) and step["by"] == "policy"


def test_json_of_files_of_one_and_of_several(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    with JournalWriter.open(path) as journal:
        journal.extend(sweep())
    one = report_json([path])
    assert one["run"]["file"] == str(path) and len(one["cells"]) == 5 and one["run"]["ended"] is None
    two = report_json([load(path), full()])
    assert two["schema"] == 1 and [r["run"]["name"] for r in two["reports"]] == ["demo", "demo"]
    with pytest.raises(JournalError, match="is not there"):
        report_json([tmp_path / "none"])


def test_csv_has_one_row_for_each_cell() -> None:
    rows = list(csv.DictReader(io.StringIO(report_csv([Recording("one", full())]))))
    assert len(rows) == 12
    row = next(r for r in rows if r["id"] == "b15-8-1")
    assert (row["output_tok_s"], row["ttft_ms.p50"], row["validity"], row["reasons"]) == (
        "300.5",
        "12",
        "SUSPECT",
        "thermal-cap",
    )
    broken = next(r for r in rows if r["config"] == "b8")
    assert broken["output_tok_s"] == "" and broken["state"] == "broken" and broken["speedup"] == ""
    base = [float(r["output_tok_s"]) for r in rows if r["config"] == "auto" and r["concurrency"] == "1"]
    fast = [float(r["output_tok_s"]) for r in rows if r["config"] == "b15" and r["concurrency"] == "1"]
    speedup = float(next(r["speedup"] for r in rows if r["id"] == "b15-1-0"))
    assert speedup == pytest.approx((sum(fast) / 2) / (sum(base) / 2))
    other = csv.DictReader(io.StringIO(report_csv([Recording("one", full())], baseline="b15")))
    assert float(next(r["speedup"] for r in other if r["id"] == "b15-1-0")) == 1.0


def test_csv_never_holds_a_formula() -> None:
    state = full()
    state.cells["b8-1-0"].reason = '=HYPERLINK("x")'
    rows = csv.DictReader(io.StringIO(report_csv([Recording("one", state)])))
    assert next(r["reason"] for r in rows if r["id"] == "b8-1-0").startswith("'=")


def test_terminal_table_shows_numbers_speedups_states_and_marks() -> None:
    text = render_table(full())
    assert "tp1 · output_tok_s" not in text and text.startswith("output_tok_s · tp1, × auto\n")
    lines_ = text.splitlines()
    assert lines_[1].split() == ["tp1", "fib@256", "c1", "fib@256", "c8"]
    assert "auto (baseline)" in text and "✗ broken: 0 tok/s twice" in text
    assert "? SUSPECT: thermal-cap" in text and "×)" in text
    assert render_table(State()) == "no cells: nothing was planned in this run"
    assert all(len(line) <= 40 for line in render_table(full(), width=40).splitlines()[:5])


def test_columns_stand_under_each_other_with_wide_characters() -> None:
    assert aligned([["a", "b"], ["日本", "c"]]) == ["a     b", "日本  c"]
    assert field(None) == ""


def test_markdown_has_tables_that_hostile_text_cannot_break() -> None:
    state = full()
    state.cells["b8-1-0"].reason = HOSTILE
    text = report_markdown([Recording("one", state), Recording("two", full())])
    assert text.count("\n# demo") + text.startswith("# demo") == 2
    assert "<script>" not in text and "\\<script\\>" in text
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    for rows in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1, rows
    assert "# Side by side" in text and "(1.00×)" in text and "## Alerts" in text


class Reader(HTMLParser):
    """Collects what a browser would see, and that every element is closed."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: dict[str, int] = {}
        self.text: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        assert not any(name.startswith("on") for name, _ in attrs), (tag, attrs)
        assert tag not in ("div", "table", "details", "figure", "section", "h2") or "p" not in self.stack, tag
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack[-1] == tag, (tag, self.stack[-3:])
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read_html(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.stack == []
    return reader


def test_html_is_one_whole_file_without_script_or_network() -> None:
    state = full()
    state.cells["b8-1-0"].reason = HOSTILE
    state.run.name = HOSTILE
    text = report_html([Recording("one", state), Recording("two", full())])
    page = read_html(text)
    assert "script" not in page.tags and all(link.startswith("#") for link in page.links)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(|src=|data:", text)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    shown = " ".join(page.text)
    assert HOSTILE in shown and "0.4 s after the fault" in shown and "restart b15" in shown
    assert "Side by side" in shown and "Acceptance length" in shown and "SIMULATED" not in shown
    assert page.tags["svg"] >= 6
    for drawing in re.findall(r"<svg.*?</svg>", text, re.S):
        assert ET.fromstring(drawing).tag.endswith("svg")


def test_a_simulated_run_says_so_everywhere() -> None:
    state = full()
    state.run.simulated = True
    recording = Recording("one", state)
    assert "SIMULATED" in report_html([recording]) and "SIMULATED" in report_markdown([recording])
    assert report_json([recording])["run"]["simulated"] is True


def test_a_run_that_only_watched_has_a_report_too() -> None:
    clock = Clock()
    state = fold([ev.RunStarted(**clock(), run_id="m", name="", mode="monitor", segment=0)])
    recording = Recording("watch", state)
    assert "watch" in report_html([recording]) and report_markdown([recording]).startswith("# watch")
    assert report_csv([recording]).count("\n") == 1
    assert report_json([recording])["cells"] == []


_numbers = st.floats(-1e6, 1e6) | st.sampled_from([float("nan"), float("inf"), 0.0, 5e-324, 1e-12, 1e300])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=5), _numbers, _numbers), max_size=6))
def test_bars_of_any_numbers_are_well_formed(items: list[tuple[str, float, float]]) -> None:
    drawing = bars("t", "u", [Bar(n, v, n, low=v, high=w) for n, v, w in items])
    if drawing:
        ET.fromstring(drawing)
        assert "nan" not in re.sub(r"<t(ext|itle).*?</t(ext|itle)>", "", drawing)


def test_the_legend_names_whose_reasons_they_are() -> None:
    assert "? SUSPECT: thermal-cap (b15)" in render_table(full())


def test_bars_of_the_smallest_numbers() -> None:
    assert "nan" not in bars("t", "u", [Bar("x", 0.0, "x", low=0.0, high=2.2e-313)])


def test_the_charts_of_a_run_and_their_order() -> None:
    """Each has a drawing with a point for each value; a curve of one load is none."""
    made = charts(full())
    assert [chart.title for chart in made] == [
        "Throughput · tp1 · fib@256 c1",
        "Throughput by concurrency · tp1 · fib@256",
        "Speed-up by concurrency · tp1 · fib@256",
        "Time to first token by concurrency · tp1 · fib@256",
        "Server starts",
    ]
    assert all(
        ET.fromstring(chart.svg) is not None and chart.note for chart in made if "token" not in chart.title
    )
    pictures = {chart.title.split(" · ")[0]: chart.svg for chart in made}
    assert pictures["Throughput by concurrency"].count("dd-dot dd") == 4
    assert "b15: 8 streams" in pictures["Speed-up by concurrency"]


@settings(max_examples=40, deadline=None)
@given(st.lists(any_event(), max_size=10))
def test_any_state_has_a_report(events: list[ev.Event]) -> None:
    state = fold(sweep())
    for event in events:
        apply(state, event)
    recording = Recording("x", state)
    msgspec.json.encode(report_json([recording]))
    read_html(report_html([recording]))
    report_csv([recording])
    report_markdown([recording])
    render_table(state)


def test_the_same_cells_of_two_recordings_are_compared() -> None:
    fast = full()
    for cell in fast.cells.values():
        if "output_tok_s" in cell.metrics:
            cell.metrics = {"output_tok_s": cell.metrics["output_tok_s"] * 2}
    text = report_markdown([Recording("before", full()), Recording("after", fast)])
    row: Any = next(line for line in text.splitlines() if line.startswith("| auto · tp1"))
    assert "(2.00×)" in row


def test_text_in_a_terminals_width_keeps_every_field_whole() -> None:
    whole = report_text([Recording("one", full())])
    for width in (60, 80, 100):
        text = report_text([Recording("one", full())], width=width)
        assert all(len(line) <= width for line in text.splitlines()), width
        assert sorted(re.findall(r"\d+ \[.*?\] \(.*?\)", text)) == sorted(
            re.findall(r"\d+ \[.*?\] \(.*?\)", whole)
        )
        assert not re.search(r"\d…|…\d", text.replace("[…]", ""))


def test_colour_adds_nothing_to_the_words() -> None:
    plain_text = report_text([Recording("one", full())])
    coloured = report_text([Recording("one", full())], colour=True)
    assert "\x1b[" in coloured and re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain_text


def test_no_colour_runs_on_into_the_next_line() -> None:
    state = made_of({"auto": [200.0], "b15": [100.0]})  # the best stands at the end of a line
    coloured = report_text([Recording("one", state)], colour=True)
    assert "\x1b[1;32m☆ 200\x1b[0m\n" in coloured


def test_hostile_names_reach_no_terminal() -> None:
    state = full()
    state.run.name = "a\x1b[2Jb"
    state.cells["b8-1-0"].reason = "\x1b]0;owned\x07 bad"
    text = report_text([Recording("one", state)])
    assert "\x1b" not in text and "\x07" not in text


def test_loads_of_which_nothing_was_measured_fold_away() -> None:
    clock = Clock()
    cells = (
        spec("a1", "auto", baseline=True),
        spec("a2", "auto", concurrency=8, skip_reason="time", baseline=True),
        spec("b1", "b15"),
        spec("b2", "b15", concurrency=8, skip_reason="time"),
        spec("c1", "b16", skip_reason="no draft"),
        spec("c2", "b16", concurrency=8, skip_reason="time"),
    )
    state = fold([ev.CellsPlanned(**clock(), cells=cells, baseline="auto"), *measured(clock, "a1", 10.0)])
    text = render_table(state)
    assert text.splitlines()[1].split() == ["tp1", "fib@256", "c1"]
    assert "Nothing measured (skipped: time): fib@256 c8" in text
    assert "Nothing measured (skipped: no draft, skipped: time): b16" in text
    assert "b15" in text  # not run yet


@pytest.mark.parametrize(
    "name", ["a|b", "`x`", "[a](http://x)", "<b>", "$x$", "a_b_c", "@team", "&lt;", "#1", "~~x~~"]
)
def test_markdown_shows_any_name_as_it_is(name: str) -> None:
    page = MarkdownIt("gfm-like", {"linkify": False}).render(
        f"x {escape(name)} x\n\n| a |\n|---|\n| {escape(name)} |"
    )
    reader = read_html(page)
    assert reader.tags.keys() <= {"p", "table", "thead", "tbody", "tr", "th", "td"}
    assert "".join(reader.text).replace("\u200b", "").count(name) == 2
