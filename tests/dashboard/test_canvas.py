"""Charts in character cells: every point is on the canvas, axes have round ticks, names are words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.charts.kinds import PICTURES
from ddtop.charts.make import Choice, chart
from ddtop.charts.model import Axis, Chart, Dot, Series
from ddtop.dashboard.draw.canvas import HOLLOW, MARKERS, drawn
from ddtop.dashboard.draw.paint import ROLES, Line, plain, width_of
from tests.charts.made import HOSTILE, demo, few, real, searching

SIZES = [(78, 20), (118, 36), (98, 28), (40, 12)]


def seen(lines: list[Line]) -> int:
    """Points that can be seen: markers but those of a name, and what a cell says that holds several."""
    spans = [span for one in lines for span in one]
    counted = sum(int(digit) for span in spans if span.role == "value" for digit in span.text)
    marker = re.compile(f"(?<!\\()[{''.join((*MARKERS, *HOLLOW))}](?! \\w)")
    return counted + sum(len(marker.findall(span.text)) for span in spans)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("what", PICTURES)
def test_every_point_of_a_real_sweep_is_on_the_canvas(what: str, size: tuple[int, int]) -> None:
    made = chart(real(), Choice(what))
    lines = drawn(made, *size)
    assert len(lines) <= size[1] and all(width_of(one) <= size[0] for one in lines)
    assert {span.role for one in lines for span in one} <= set(ROLES)
    if made.series:
        assert seen(lines) == len(made.dots)
    else:
        assert plain(lines[0])[:30] == made.why_empty[:30]


@pytest.mark.parametrize("what", ["throughput", "speedup", "tpot", "budget", "pareto"])
def test_every_point_of_many_configurations_is_on_the_canvas(what: str) -> None:
    made = chart(searching(), Choice(what))
    lines = drawn(made, 118, 36)
    assert seen(lines) == len(made.dots)


def test_axes_have_units_and_round_ticks() -> None:
    rows = [plain(one) for one in drawn(chart(real()), 78, 20)]
    assert rows[0] == "throughput (tok/s)"
    ticks = [row.split("┤")[0].strip() for row in rows if "┤" in row]
    assert ticks == ["2,500", "2,000", "1,500", "1,000", "500", "0"]
    assert [row.split() for row in rows if re.fullmatch(r"[\d\s]+", row)] == [
        ["1", "2", "4", "8", "16", "32"]
    ]
    assert any("concurrency (streams)" in row for row in rows)


def test_names_stand_beside_their_curves_and_doubts_are_marked() -> None:
    rows = [plain(one) for one in drawn(chart(real()), 78, 20)]
    (plain_row,) = [row for row in rows if row.rstrip().endswith("(●) plain")]
    assert plain_row.count("●") == 2, "the name stands in the row of its last point"
    assert any("?" in row for row in rows) and "?: SUSPECT" in rows[-1]


def test_a_line_goes_through_its_markers() -> None:
    """A marker replaces a cell of the line: its neighbours to both sides are braille in the same row or the next."""
    made = Chart(
        "k", "t", Axis("x"), Axis("y"), (Series("a", tuple(Dot(x, x * x) for x in range(0, 11, 2))),)
    )
    rows = [plain(one) for one in drawn(made, 100, 30)]
    places = [
        (r, c)
        for r, row in enumerate(rows)
        for c, char in enumerate(row)
        if char == "●" and row[c + 1] != ")"
    ]
    assert len(places) == 6
    for r, c in places[1:-1]:
        for side in (-1, 1):
            near = [rows[r + d][c + side : c + side + 1] for d in (-1, 0, 1)]
            assert any("⠀" < char <= "⣿" for char in near), (r, c)


def test_the_same_picture_twice_is_the_same() -> None:
    assert drawn(chart(demo()), 78, 20) == drawn(chart(demo()), 78, 20)


def test_hostile_names_are_words() -> None:
    state = few(
        {(HOSTILE, c): {"output_tok_s": 10.0 * c, "j_per_token": 1.0 * c} for c in (1, 2)}, workload=HOSTILE
    )
    for what in PICTURES:
        text = "".join(plain(one) for one in drawn(chart(state, Choice(what)), 78, 24))
        assert text.isprintable(), what


def test_wide_characters_keep_the_columns() -> None:
    state = few({("b8", c): {"output_tok_s": 10.0 * c} for c in (1, 2, 4)}, workload="长文本问答")
    rows = drawn(chart(state, Choice(by="workload")), 78, 20)
    (named,) = [row for row in rows if "长文本问答@256" in plain(row)]
    assert width_of(named) == 78
    assert seen(rows) == 3


def test_a_legend_where_names_do_not_fit() -> None:
    state = few(
        {
            (f"a-long-name-of-a-configuration-{n}", c): {"output_tok_s": n + c}
            for n in range(3)
            for c in (1, 2)
        }
    )
    rows = [plain(one) for one in drawn(chart(state), 50, 16)]
    assert any(row.startswith("● a-long-name") for row in rows)
    assert seen(drawn(chart(state), 50, 16)) == 6


_numbers = st.floats(-1e6, 1e6) | st.sampled_from([float("nan"), float("inf"), 0.0, 1e-12, 1e300])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(st.builds(Dot, _numbers, _numbers, _numbers, _numbers), min_size=1, max_size=4), max_size=9
    ),
    st.sampled_from(["linear", "log2", "log10"]),
    st.integers(1, 130),
    st.integers(1, 40),
)
def test_any_numbers_fit_any_size(rows, scale, width: int, height: int) -> None:
    series = tuple(Series(f"s{n}", tuple(row), n, joined=bool(n % 2)) for n, row in enumerate(rows))
    lines = drawn(
        Chart("k", "t", Axis("x", "", scale), Axis("y", "", scale), series, note="n " * 40), width, height
    )
    assert len(lines) <= height
    assert all(width_of(one) <= width for one in lines)
