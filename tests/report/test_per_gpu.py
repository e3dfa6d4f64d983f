"""Per GPU and per user in every form of report."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from ddtop.dashboard.panels.cell.page import cell_lines
from ddtop.dashboard.panels.results import front_line
from ddtop.journal.fold.state import State
from ddtop.journal.results.matrix import matrix
from ddtop.journal.results.per_gpu import per_gpu
from ddtop.report import Recording, report_csv, report_html, report_json, report_markdown
from ddtop.report.recording import planned_price
from ddtop.report.tables.per_gpu import gpu_charts
from tests.journal.test_per_gpu import swept

PLAN = "name = 'x'\n[report]\nusd_per_gpu_hour = 3.6\n"


@pytest.fixture
def recording() -> Recording:
    state = swept(
        {"auto": (0,), "b15": (0, 1), "b8": None},
        {
            ("auto", 1): (100.0, 10.0),
            ("auto", 8): (600.0, 20.0),
            ("b15", 1): (160.0, 5.0),
            ("b15", 8): (700.0, 25.0),
            ("b8", 1): (90.0, 11.0),
        },
    )
    state.run.plan_toml = PLAN
    return Recording("demo", state)


def test_every_form_has_it(recording: Recording) -> None:
    found = report_json([recording])["per_gpu"]
    assert found["usd_per_gpu_hour"] == 3.6
    assert found["unknown"] == {"b8 tp1": "nvidia-smi names processes of another namespace"}
    assert [(p["config"], p["load"], p["front"], p["dominated_by"]) for p in found["points"]] == [
        ("auto", "c1", True, None),
        ("auto", "c8", True, None),
        ("b15", "c1", True, None),
        ("b15", "c8", False, "auto tp1 c8"),
    ]
    text = report_markdown([recording])
    rows = [
        [field.strip() for field in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("| b15")
    ]
    assert ["b15 tp1", "fib@256 c8", "2", "350", "40.0", "2.86", "dominated by auto tp1 c8"] in rows
    assert "3.6 \\$ for an hour of a GPU" in text
    assert "b8 tp1 is not in it: nvidia-smi names processes of another namespace" in text
    rows = {(r["config"], r["concurrency"]): r for r in csv.DictReader(io.StringIO(report_csv([recording])))}
    assert (rows["b15", "8"]["gpus"], rows["b15", "8"]["tok_s_gpu"], rows["b15", "8"]["pareto_front"]) == (
        "2",
        "350",
        "0",
    )
    assert rows["b8", "1"]["tok_s_gpu"] == ""
    assert "dominated by auto tp1 c8" in report_html([recording])


def test_the_chart_joins_the_front_and_draws_the_others_hollow(recording: Recording) -> None:
    ((title, _note, svg),) = gpu_charts(recording.state)
    assert title == "Per GPU and per user · fib@256"
    tree = ET.fromstring(svg)
    (front,) = [e for e in tree.iter() if e.get("class") == "dd-ref"]
    assert front.get("d", "").count("L") == 2
    hollow = [e for e in tree.iter() if "dd-paper" in e.get("style", "") and len(e)]
    assert [e[0].text for e in hollow] == ["b15 c8: 40.0 tok/s/user, 350 tok/s/GPU"]


def test_a_price_asked_for_goes_before_the_plans(recording: Recording) -> None:
    assert report_json([replace(recording, usd=1.0)])["per_gpu"]["usd_per_gpu_hour"] == 1.0


@pytest.mark.parametrize(
    ("text", "price"),
    [
        (PLAN, 3.6),
        ("", None),
        (None, None),
        ("[report]\nusd_per_gpu_hour = true", None),
        ("not = [toml", None),
    ],
)
def test_a_plans_price(text: str | None, price: float | None) -> None:
    assert planned_price(text) == price


def test_without_known_gpus_there_is_no_section() -> None:
    state: State = swept({}, {("auto", 1): (100.0, 10.0)})
    recording = Recording("demo", state)
    assert "Per GPU" not in report_markdown([recording])
    assert report_json([recording])["per_gpu"]["points"] == []
    assert gpu_charts(state) == []


def test_screens_show_the_front(recording: Recording) -> None:
    state = recording.state
    points = per_gpu(state)
    (line,) = front_line(points, 120)
    assert "".join(span[0] for span in line).rstrip() == (
        "  front auto tp1 c8 600 | 50 · auto tp1 c1 100 | 100 · b15 tp1 c1 80 | 200   (tok/s per GPU | per user)"
    )
    assert front_line(points[:1], 120) == []
    rows = cell_lines(state, state.cells["b15-8"], matrix(state), 100, points)
    text = ["".join(span[0] for span in row).split() for row in rows]
    assert ["per", "GPU", "350", "tok/s", "on", "2", "GPUs"] in text
    assert ["per", "user", "40", "tok/s,", "dominated", "by", "auto", "tp1", "c8"] in text
