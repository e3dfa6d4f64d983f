"""A cell against the baseline's over their repeats, by hand-computed numbers."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.state import State
from ddtop.report.baseline import against_baseline
from ddtop.report.html import report_html
from ddtop.report.json_form import report_json
from ddtop.report.markdown import report_markdown
from ddtop.report.recording import Recording
from ddtop.report.rows import report_csv
from ddtop.report.text import render_table
from tests.journal.made import Clock, spec


def made(values: dict[str, list[float]], **of_last: Any) -> State:
    """One cell for each value: configuration → tok/s of its repeats; `of_last` changes the last cell's result."""
    clock = Clock()
    cells = tuple(
        spec(f"{config}-{i}", config, repeat=i, baseline=config == "auto")
        for config, numbers in values.items()
        for i in range(len(numbers))
    )
    events: list[ev.Event] = [ev.CellsPlanned(**clock(), cells=cells, baseline="auto")]
    numbers = [n for each in values.values() for n in each]
    for cell, number in zip(cells, numbers, strict=True):
        fields = {"validity": "VALID", **(of_last if cell is cells[-1] else {})}
        events += [
            ev.CellMeasured(
                **clock(), cell_id=cell.id, attempt=1, metrics={"output_tok_s": number}, **fields
            ),
            ev.CellStateSet(**clock(), cell_id=cell.id, state="done", attempt=1),
        ]
    return fold(events)


def test_clearly_different() -> None:
    found = against_baseline(made({"auto": [25.0, 26.0, 27.0], "b15": [140.0, 143.0, 146.0]}))
    assert set(found) == {"b15-0", "b15-1", "b15-2"}
    one = found["b15-1"]
    assert (
        one["different"] is True
        and one["ratio"] == pytest.approx(5.5)
        and (one["n"], one["baseline_n"]) == (3, 3)
    )
    # logs of 25, 26, 27 and of 140, 143, 146: sum of squares 0.00384 over 4 degrees of freedom, sd 0.0310,
    # error of the ratio 0.0310 × sqrt(2/3) = 0.0253, t 2.776: a factor of exp(0.0702)
    assert (one["low"], one["high"]) == pytest.approx((5.5 / 1.0727, 5.5 * 1.0727), abs=0.003)
    assert one["spread"] == "inside" and (one["starts"], one["baseline_starts"]) == (1, 1)


def test_not_different() -> None:
    one = against_baseline(made({"auto": [100.0, 110.0], "b15": [104.0, 109.0]}))["b15-0"]
    assert one["different"] is False and one["low"] < 1 < one["high"] and "includes 1" in one["why"]


def test_one_run_cannot_tell() -> None:
    one = against_baseline(made({"auto": [100.0], "b15": [200.0]}))["b15-0"]
    assert one["different"] is None and one["ratio"] == 2.0 and one["low"] is None


def test_what_is_invalid_is_not_compared() -> None:
    assert against_baseline(made({"auto": [100.0], "b15": [200.0]}, validity="INVALID")) == {}


def test_it_is_in_the_report() -> None:
    report = report_json([made({"auto": [100.0, 101.0], "b15": [200.0, 201.0]})])
    by_id = {c["id"]: c["against_baseline"] for c in report["cells"]}
    assert by_id["auto-0"] is None and by_id["b15-0"]["different"] is True


def test_what_followed_each_round_is_in_every_report() -> None:
    state = made({"auto": [100.0, 101.0], "b15": [50.0, 51.0]})
    race = ev.RaceRound(
        at_s=0.0,
        mono_s=0.0,
        start=0,
        tp=1,
        rule="race",
        left={"b15": "49.8% below auto"},
        ended="auto leads",
        leaders={"w": "auto"},
    )
    apply(state, race)
    (one,) = report_json([state])["rounds"]
    assert one["left"] == {"b15": "49.8% below auto"} and one["ended"] == "auto leads"
    recording = Recording("r", state)
    for text in (report_markdown([recording]), report_html([recording])):
        assert "Which configurations were started again" in text
        assert "49.8% below auto" in text and "none: auto leads" in text


def test_a_table_without_repeats_says_that_the_spread_is_not_known() -> None:
    assert "the spread is not known" in render_table(made({"auto": [100.0], "b15": [50.0]}))
    assert "the spread is not known" not in render_table(made({"auto": [100.0, 101.0]}))


def test_a_csv_row_has_its_interval_and_whether_it_differs() -> None:
    state = made({"auto": [100.0, 101.0], "b15": [200.0, 201.0], "b16": [100.5, 100.6]})
    rows = {r["id"]: r for r in csv.DictReader(io.StringIO(report_csv([Recording("r", state)])))}
    b15, b16, auto = rows["b15-0"], rows["b16-0"], rows["auto-0"]
    assert float(b15["speedup_low"]) < float(b15["speedup"]) < float(b15["speedup_high"])
    assert (b15["different"], b16["different"], auto["different"]) == ("1", "0", "")
    assert b15["start"] == "0" and b15["sentinel"] == "False"


def test_a_configuration_that_failed_once_keeps_the_value_of_its_other_starts() -> None:
    state = made({"auto": [100.0, 101.0], "b15": [200.0, 201.0]})
    apply(state, ev.CellStateSet(at_s=0.0, mono_s=0.0, cell_id="b15-1", state="failed", reason="it hung"))
    assert "200 [" in render_table(state) or "200 (2.0×) ✗ failed once" in render_table(state)
    assert "✗ failed once" in render_table(state)
