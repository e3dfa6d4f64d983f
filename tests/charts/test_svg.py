"""Charts as SVG: well-formed whatever the names and numbers, each point with its values, nothing from a network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.charts.kinds import PICTURES
from ddtop.charts.make import Choice, chart
from ddtop.charts.model import Axis, Chart, Dot, Level, Mark, Series
from ddtop.charts.svg import chart_svg
from tests.charts.made import HOSTILE, few, real, searching

SVG = "{http://www.w3.org/2000/svg}"


def dots(text: str) -> list[str]:
    """What each point says on hover."""
    return [
        e[0].text or ""
        for e in ET.fromstring(text).iter(f"{SVG}path")
        if "dd-dot" in e.get("class", "") and len(e)
    ]


@pytest.mark.parametrize("what", PICTURES)
@pytest.mark.parametrize("state", [real, searching])
def test_every_point_is_drawn_and_says_its_values(state, what: str) -> None:
    made = chart(state(), Choice(what))
    text = chart_svg(made)
    if not made.series:
        assert text == ""
        return
    assert len(dots(text)) == len(made.dots)
    for series in made.series:
        assert sum(said.startswith(series.name) for said in dots(text)) >= len(series.dots)
    if what == "throughput" and state is real:
        assert "draft2: 8 streams, 522 tok/s; SUSPECT: answers-differ" in dots(text)
    if what == "speedup" and state is searching:
        assert re.fullmatch(r"t4k1: 1 streams, 3\.04 × \[[\d.]+ ×, [\d.]+ ×\]", dots(text)[0])


def test_nothing_stands_outside_the_drawing() -> None:
    for what in PICTURES:
        for width, height in ((640, 360), (300, 200), (1600, 900)):
            text = chart_svg(chart(searching(), Choice(what)), width=width, height=height, file=True)
            for x, y in re.findall(r'<text x="([-\d.]+)" y="([-\d.]+)"', text):
                assert 0 <= float(x) <= width and 0 <= float(y) <= height, (what, width)


def test_points_in_one_place_stand_side_by_side() -> None:
    made = chart(few({(name, c): {"output_tok_s": 10.0 * c} for name in ("a", "b", "c") for c in (1, 2)}))
    places = re.findall(r'<path d="M([\d.]+) ([\d.]+)m[^"]*" class="dd-dot', chart_svg(made))
    assert len(set(places)) == len(places) == 6 + 0


def test_a_file_has_title_note_and_ground_and_needs_no_network() -> None:
    text = chart_svg(chart(real()), file=True)
    assert text.startswith('<svg width="640" height="360"') and "dd-paper" in text
    assert "Throughput by concurrency" in text and "?: SUSPECT" in text
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"(href|src|url\(|@import|https?://(?!www\.w3\.org/2000/svg))", text)
    assert "not shown: 2k ctx" not in chart_svg(chart(real()))
    empty = chart_svg(chart(real(), Choice("search")), file=True)
    ET.fromstring(empty)
    assert "no search has tried a load" in empty


def test_hostile_names_are_text() -> None:
    state = few(
        {(HOSTILE, 1): {"output_tok_s": 10.0}, (HOSTILE, 2): {"output_tok_s": 20.0, "validity": "SUSPECT"}},
        workload=HOSTILE,
    )
    for what in PICTURES:
        text = chart_svg(chart(state, Choice(what)), file=True)
        ET.fromstring(text)
        assert "<script" not in text and "\x1b" not in text and "\x00" not in text
    assert "&lt;script&gt;" in chart_svg(chart(state))


_numbers = st.floats(-1e6, 1e6) | st.sampled_from([float("nan"), float("inf"), 0.0, 5e-324, 1e-12, 1e300])
_dots = st.builds(Dot, _numbers, _numbers, st.none() | _numbers, st.none() | _numbers, st.text(max_size=4))
_scales = st.sampled_from(["linear", "log2", "log10"])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(_dots, min_size=1, max_size=5), max_size=6),
    _scales,
    _scales,
    _numbers,
    st.text(max_size=6),
)
def test_any_numbers_and_names_give_a_drawing(rows, x_scale, y_scale, value: float, name: str) -> None:
    made = Chart(
        "k",
        name,
        Axis("x", "u", x_scale),
        Axis("y", "u", y_scale, zero=True),
        tuple(Series(f"{name}{n}", tuple(row), n, joined=n % 2 == 0) for n, row in enumerate(rows)),
        (Level(name, value),),
        (Mark(name, value),),
        ((value, value), (1.0, 2.0)),
        note=name,
    )
    for text in (chart_svg(made, file=True), chart_svg(replace(made, levels=(), marks=()))):
        if text:
            ET.fromstring(text)
            assert not re.search(
                r'="[^"]*\b(nan|inf)\b',
                re.sub(r"<t(ext|itle).*?</t(ext|itle)>|aria-label=\"[^\"]*\"", "", text),
            )
