"""What the dashboard shows of repeats over starts and of a race."""

from __future__ import annotations

from ddtop import events as ev
from ddtop.dashboard.draw.paint import plain
from ddtop.dashboard.panels.cell import cell_title
from ddtop.dashboard.panels.plan import plan_head, plan_items
from ddtop.dashboard.panels.results import Sort, results_items
from ddtop.dashboard.panels.sweep import Cursor, detail_line
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.read.matrix import matrix
from tests.journal.test_matrix import made


def state() -> State:
    return made(
        ("auto", 0, 100.0, {}),
        ("b15", 0, 150.0, {}),
        ("auto", 1, 101.0, {}),
        ("auto", 1, 101.5, {"sentinel": True}),
        planned=("b15",),
    )


def test_the_field_says_by_how_many_starts_it_is_known() -> None:
    shown = plain(detail_line(matrix(state()), Cursor(0, 0)))
    assert "±" in shown and "(2 starts)" in shown
    inside = made(("auto", 0, 100.0, {"repeat": 0}), ("auto", 0, 101.0, {"repeat": 1}))
    assert "(2 repeats, one start only)" in plain(detail_line(matrix(inside), Cursor(0, 0)))


def test_the_list_tells_starts_and_sentinels_apart() -> None:
    rows = [plain(item.line) for item in results_items(state(), Sort(), "auto", 120)]
    assert sum("auto tp1 s2 " in row for row in rows) == 2 and sum("s2 again" in row for row in rows) == 1
    assert rows[1].rstrip().endswith("1.5×") or "1.49×" in rows[1]
    assert "×" not in next(row for row in rows if "again" in row), "a sentinel is compared with nothing"


def test_the_plan_lists_each_start_and_what_follows_the_last_round() -> None:
    now = state()
    assert "start 2" in "\n".join(plain(item.line) for item in plan_items(now))
    race = ev.RaceRound(
        at_s=0.0, mono_s=0.0, start=0, tp=1, rule="race", go_on=("auto",), left={"b15": "slow"}
    )
    apply(now, race)
    head = "\n".join(plain(row) for row in plan_head(now, 0.0))
    assert "after start 1 at tp1: started again: auto" in head


def test_a_cells_title_says_its_start() -> None:
    cells = state().plan_cells
    assert "start 2" in cell_title(cells[2]) and cell_title(cells[3]).endswith("start 2 · sentinel")
