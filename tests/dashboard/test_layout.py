"""Where the panes stand: in every size and for every want they cover the body, and none is too small to show anything."""

from __future__ import annotations

import itertools

import pytest

from ddtop.dashboard.draw.layout import HUGE, NARROW, SLIM, Places, Wants, frame, places

WIDTHS = (40, 59, 60, 80, 99, 100, 120, 159, 160, 200, 260)
HEIGHTS = (14, 17, 20, 22, 36, 38, 56)
"""Of the body: a screen of 24, 40 and 60 rows less header, bottom line and the alert."""
WANTS = [
    Wants(gpus=gpus, moment=moment, sweep=sweep, sweep_width=columns, text=text)
    for gpus, moment, sweep, columns, text in itertools.product(
        (1, 4, 18), (5, 20), (0, 6, 30), (40, 140), (False, True)
    )
]


def covered(found: Places, width: int, height: int) -> None:
    """Every cell of the body belongs to one pane; on a narrow screen one column divides two that stand side by side."""
    cells = [[0] * width for _ in range(height)]
    for place in found.values():
        for y in range(place.y, place.y + place.height):
            for x in range(place.x, place.x + place.width):
                cells[y][x] += 1
    for row in cells:
        assert max(row) <= 1
        assert row.count(0) <= (1 if width < NARROW else 0)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", HEIGHTS)
def test_the_panes_cover_the_body_and_each_has_room(width: int, height: int) -> None:
    for wants in WANTS:
        found = places(width, height, wants)
        covered(found, width, height)
        needed = {"gpus", "moment", "log-pane"} | ({"sweep"} if wants.sweep else set())
        if width < SLIM and height < 17:
            needed -= {"log-pane"}
        assert needed <= set(found), (wants, found)
        edge = frame(width)
        for name in needed:
            least = {"gpus": 1, "sweep": 2, "moment": 1, "log-pane": 2 if height > 14 else 1}[name]
            assert found[name].height - edge >= least, (name, wants, found)


@pytest.mark.parametrize(("width", "height"), [(120, 36), (200, 56), (160, 36), (200, 22)])
def test_the_matrix_gets_the_columns_it_needs_where_they_are_there(width: int, height: int) -> None:
    small = places(width, height, Wants(gpus=4, moment=14, sweep=11, sweep_width=40))
    large = places(width, height, Wants(gpus=4, moment=14, sweep=11, sweep_width=width))
    assert large["sweep"].width > small["sweep"].width
    assert large["moment"].width >= 46


def test_on_a_huge_screen_no_column_is_left_empty() -> None:
    """The log stands beside a moment that fills its column, and below one that would not."""
    full = places(HUGE, 36, Wants(gpus=4, moment=20, sweep=11, sweep_width=70))
    assert full["log-pane"].x == full["sweep"].x > full["moment"].x == 0
    assert full["moment"].y + full["moment"].height == 36
    evidence = places(200, 56, Wants(gpus=4, moment=20, sweep=11, sweep_width=70, text=True))
    assert evidence["log-pane"].x > 0
    short = places(200, 56, Wants(gpus=4, moment=18, sweep=11, sweep_width=70))
    assert short["log-pane"].width == 200
    assert short["moment"].height == 18 + 2


def test_evidence_has_the_whole_width_where_two_columns_would_cut_it() -> None:
    beside = places(120, 34, Wants(gpus=4, moment=14, sweep=11, sweep_width=70))
    below = places(120, 34, Wants(gpus=4, moment=20, sweep=11, sweep_width=70, text=True))
    assert beside["moment"].width < 70
    assert below["moment"].width == 120
    assert below["moment"].height >= 10
