"""Ticks are 1-2-5, hold the values, and are few; on log axes too."""

from __future__ import annotations

import doctest
import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ddtop.charts import layout
from ddtop.charts import ticks as module
from ddtop.charts.layout import near, spread_out
from ddtop.charts.model import Axis, Chart, Dot, Series
from ddtop.charts.svg import chart_svg
from ddtop.charts.ticks import Scale, place, tick_text, ticks

_sizes = st.floats(1e-9, 1e12)
_values = st.floats(-1e12, 1e12).filter(lambda v: v == 0 or abs(v) > 1e-9)


def test_the_examples() -> None:
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(layout).failed == 0


@given(_values, _values, st.integers(3, 12))
def test_linear_ticks_are_steps_of_1_2_5(a: float, b: float, most: int) -> None:
    low, high = min(a, b), max(a, b)
    found = ticks(low, high, most)
    slack = 2e-9 * (found[1] - found[0])
    assert found[0] - slack <= low and high <= found[-1] + slack and 2 <= len(found) <= most
    assert found == sorted(set(found))
    if high - low > 1e-9 * max(abs(low), abs(high)):
        step = (found[-1] - found[0]) / (len(found) - 1)
        lead = step / 10 ** math.floor(math.log10(step) + 1e-6)
        assert min(abs(lead - whole) for whole in (1, 2, 5, 10)) < 1e-3
        for n, tick in enumerate(found):
            assert tick == pytest.approx(found[0] + n * step, abs=1e-3 * step)
            assert round(tick / step) == pytest.approx(tick / step, abs=1e-3)


@example(999999999999.998, 1e12, 3, "log10")
@given(_sizes, _sizes, st.integers(3, 12), st.sampled_from(["log2", "log10"]))
def test_log_ticks_are_powers_or_1_2_5_of_a_decade(a: float, b: float, most: int, scale: Scale) -> None:
    low, high = min(a, b), max(a, b)
    found = ticks(low, high, most, scale)
    assert found[0] <= low and high <= found[-1] and 2 <= len(found) <= most
    assert found == sorted(set(found))
    for tick in found:
        if scale == "log2":
            assert math.log2(tick).is_integer()
        else:
            lead = tick / 10 ** math.floor(math.log10(tick) + 1e-9)
            assert min(abs(lead - whole) for whole in (1, 2, 5)) < 1e-6


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 5e-324), (0.0, 1e-320), (1.0, 1.0 + 2e-16), (1e300, 1e300), (-1e6, -1e6), (0.0, 1e-12)],
)
def test_an_axis_of_hardly_any_length_has_ticks(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) < 20 and all(math.isfinite(tick) for tick in found) and found[0] < found[-1]


def test_ticks_that_were_seen_uneven() -> None:
    assert ticks(0, 1994.2) == [0, 500, 1000, 1500, 2000]
    assert ticks(0, 332.4) == [0, 100, 200, 300, 400]
    assert ticks(0, 122.3, 8) == [0, 20, 40, 60, 80, 100, 120, 140]
    assert ticks(0.1, 0.7, 8) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert ticks(8, 8, scale="log2") == [4, 8, 16]
    assert ticks(0, 0.1 + 0.2, 5) == [0, 0.1, 0.2, 0.3], "0.1 + 0.2 is 0.30000000000000004"


def test_one_value_alone_has_a_tick_of_its_own_in_the_middle() -> None:
    """A sweep at c 2 alone had an axis from 2 to 4."""
    one = Chart("k", "t", Axis("concurrency", "streams", whole=True), Axis("throughput", "tok/s", zero=True))
    one = replace(one, series=(Series("auto", (Dot(2.0, 300.0),)), Series("b15", (Dot(2.0, 250.0),))))
    assert one.x_ticks(6) == [2.0] and place(2.0, [2.0], "log2") == 0.5 and tick_text(2.0, [2.0]) == "2"
    drawing = chart_svg(one)
    assert drawing.count(">2</text>") == 1 and ">4</text>" not in drawing


def test_counts_have_no_halves() -> None:
    assert ticks(2, 4, 11, whole=True) == [2, 3, 4]
    assert ticks(1, 3, 12, whole=True) == [1, 2, 3]
    assert ticks(2, 4, 11) == [2, 2.2, 2.4, 2.6, 2.8, 3, 3.2, 3.4, 3.6, 3.8, 4]


def test_texts_of_ticks() -> None:
    assert [tick_text(v, [0, 500, 1000]) for v in (0, 500, 1000)] == ["0", "500", "1,000"]
    assert [tick_text(v, [0, 0.05, 0.1]) for v in (0, 0.05)] == ["0.00", "0.05"]
    assert [tick_text(v, [1, 2, 4, 1024]) for v in (1, 1024)] == ["1", "1,024"]
    assert [tick_text(v, [0.01, 0.1, 1, 10]) for v in (0.01, 10)] == ["0.01", "10"]
    assert tick_text(4e6, [0, 2e6, 4e6]) == "4M"


@given(st.lists(st.floats(0.1, 1000), min_size=1), st.sampled_from(["linear", "log2", "log10"]))
def test_every_value_has_a_place_between_the_ticks(values: list[float], scale: Scale) -> None:
    found = ticks(min(values), max(values), 6, scale)
    assert all(-1e-8 <= place(v, found, scale) <= 1 + 1e-8 for v in values)
    assert (place(found[0], found, scale), place(found[-1], found, scale)) == (0.0, pytest.approx(1.0))


@given(st.lists(st.floats(-5, 25), max_size=12))
def test_names_keep_their_distance_and_their_order(wanted: list[float]) -> None:
    found = spread_out(wanted, 1.5, 0, 20)
    if found is None:
        assert (len(wanted) - 1) * 1.5 > 20
        return
    inside = sorted(found)
    assert all(-1e-9 <= place <= 20 + 1e-9 for place in inside)
    assert all(b - a >= 1.5 - 1e-9 for a, b in itertools.pairwise(inside))
    assert [place for _, place in sorted(zip(wanted, found, strict=True))] == inside


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_every_point_is_in_one_group(places: list[tuple[float, float]]) -> None:
    assert sorted(index for group in near(places, 2) for index in group) == list(range(len(places)))
