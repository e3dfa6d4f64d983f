"""What the dashboard shows of repeats over starts and of a race."""

from __future__ import annotations

from ddtop import events as ev
from ddtop.dashboard.draw.fields import FORMS, LEAST, Form, columns_of
from ddtop.dashboard.draw.grid import Cursor
from ddtop.dashboard.draw.paint import plain
from ddtop.dashboard.draw.verdict import detail
from ddtop.dashboard.panels.cell.title import cell_title
from ddtop.dashboard.panels.plan import plan_head, plan_items
from ddtop.dashboard.panels.results import Sort, results_items
from ddtop.dashboard.watched import Watched
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.results.field import Matrix
from ddtop.journal.results.matrix import matrix
from tests.dashboard.memory import MemorySession
from tests.journal.test_matrix import made


def state() -> State:
    return made(
        ("auto", 0, 100.0, {}),
        ("b15", 0, 150.0, {}),
        ("auto", 1, 101.0, {}),
        ("auto", 1, 101.5, {"sentinel": True}),
        planned=("b15",),
    )


def words(view: Matrix, row: int) -> str:
    return " · ".join(text for text, _ in detail(view, Cursor(row, 0)))


def test_the_field_says_by_how_many_starts_it_is_known() -> None:
    shown = words(matrix(state()), 0)
    assert "±" in shown and "2 starts" in shown
    inside = made(("auto", 0, 100.0, {"repeat": 0}), ("auto", 0, 101.0, {"repeat": 1}))
    assert "2 repeats, one start only" in words(matrix(inside), 0)


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


def shown(state: State, row: int, form: Form) -> str:
    (column,) = columns_of(matrix(state), form, False)
    return plain(column.line(row, column.width, "")).rstrip()


def test_a_value_stays_where_another_start_has_gone_wrong() -> None:
    one = made(("auto", 0, 528.3, {}), ("auto", 1, 500.0, {"state": "interrupted"}))
    assert [shown(one, 0, form) for form in (FORMS[0], LEAST)] == ["528.3 ‖", "528 ‖"]


def test_no_number_is_cut_where_a_field_is_narrow() -> None:
    two = made(("auto", 0, 500.0, {}), ("b15", 0, 550.6, {"validity": "SUSPECT"}))
    want = ["550.6? △1.10×", "550.6? △1.10×", "551? △1.10×", "551? △1.1×", "551? △"]
    assert [shown(two, 1, form) for form in (*FORMS, LEAST)] == want


def test_a_row_keeps_its_name_and_its_workload_apart() -> None:
    long = made(("plain-aa-with-a-long-name", 0, 100.0, {}))
    (row,) = (plain(item.line) for item in results_items(long, Sort(), "auto", 80))
    assert "… fib@" in row


def test_enter_opens_the_last_result_rather_than_what_is_still_planned() -> None:
    watched = Watched(MemorySession([]))
    watched.state = state()
    watched.put_cursor(Cursor(0, 0))
    cell, (first, _, second, *_) = watched.cell_to_open(), state().plan_cells
    assert first.spec.config == second.spec.config == "auto" and cell is not None
    assert cell.spec.id == second.spec.id  # not its sentinel
    watched.put_cursor(Cursor(1, 0))
    cell = watched.cell_to_open()
    assert cell is not None and (cell.spec.config, cell.state) == ("b15", "done")


def test_the_list_tells_repeats_apart() -> None:
    twice = made(("auto", 0, 100.0, {"repeat": 0}), ("auto", 0, 101.0, {"repeat": 1}))
    first, second = (plain(item.line) for item in results_items(twice, Sort(), "auto", 120))
    assert "auto tp1 #1 " in second and " #1" not in first
