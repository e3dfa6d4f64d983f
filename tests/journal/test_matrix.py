"""Whose value counts, the value of a field over starts and repeats, and the baseline against itself."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.state import State
from ddtop.journal.history.learn import spread_between_starts
from ddtop.journal.history.store import History
from ddtop.journal.read.eta import sweep_eta
from ddtop.journal.results.field import Matrix, MatrixCell
from ddtop.journal.results.matrix import matrix
from ddtop.report.text import render_table
from tests.journal.made import Clock, spec

Cell = tuple[str, int, float, dict[str, Any]]
"""(configuration, round, tok/s, what else is so of it)."""


def made(*cells: Cell, planned: tuple[str, ...] = ()) -> State:
    clock = Clock()
    of_spec = ("repeat", "sentinel", "aa", "concurrency")
    specs = [
        spec(
            f"{config}-{start}-{i}",
            config,
            start=start,
            restart_key=f"{config}+{start}",
            baseline=config == "auto",
            **{k: v for k, v in more.items() if k in of_spec},
        )
        for i, (config, start, _, more) in enumerate(cells)
    ]
    more_specs = [spec(f"{c}-planned", c, start=9) for c in planned]
    events: list[ev.Event] = [ev.CellsPlanned(**clock(), cells=(*specs, *more_specs), baseline="auto")]
    for one, (_, _, tok_s, more) in zip(specs, cells, strict=True):
        server = more.get("server", one.restart_key)
        events += [
            ev.CellMeasured(
                **clock(),
                cell_id=one.id,
                attempt=1,
                validity=more.get("validity", "VALID"),
                reasons=more.get("reasons", ()),
                metrics={"output_tok_s": tok_s},
                generation=ev.Generation(boot="b", id=server),
            ),
            ev.CellStateSet(**clock(), cell_id=one.id, state=more.get("state", "done"), attempt=1),
        ]
    return fold(events)


def field(view: Matrix, config: str) -> MatrixCell:
    (row,) = (r for r in view.rows if r.config == config)
    assert row.cells[0] is not None
    return row.cells[0]


def test_the_value_is_over_starts_and_its_interval_by_the_spread_between_them() -> None:
    e = math.exp(0.01)
    state = made(
        ("auto", 0, 100 * e, {}),
        ("auto", 1, 100 / e, {}),
        ("b15", 0, 150 * e, {"repeat": 0}),
        ("b15", 0, 152 * e, {"repeat": 1}),
        ("b15", 1, 151 / e, {}),
    )
    b15 = field(matrix(state), "b15")
    assert (b15.n, b15.starts, b15.basis) == (3, 2, "starts")
    assert b15.value == pytest.approx(151 * math.cosh(0.01))
    # two starts each 1 % off: squares 4 × 0.01² over 2 degrees of freedom, t 4.303, ÷ √2 starts
    assert b15.high == pytest.approx(b15.value * math.exp(4.3027 * math.sqrt(2e-4) / math.sqrt(2)), rel=1e-5)
    assert b15.differs is True and b15.speedup == pytest.approx(1.51)
    assert "[" in render_table(state) and "spread between starts" in render_table(state)


def test_one_start_says_that_it_is_one() -> None:
    text = render_table(made(("auto", 0, 100.0, {"repeat": 0}), ("auto", 0, 101.0, {"repeat": 1})))
    assert "inside one start only" in text


@pytest.mark.parametrize(
    "more",
    [
        {"sentinel": True},
        {"validity": "INVALID"},
        {"state": "broken"},
        {"state": "failed"},
        {"state": "interrupted"},
    ],
)
def test_what_does_not_count(more: dict[str, Any]) -> None:
    view = matrix(made(("auto", 0, 100.0, {}), ("auto", 1, 900.0, more), ("b15", 0, 100.0, {})))
    auto, b15 = field(view, "auto"), field(view, "b15")
    assert (auto.value, auto.n, auto.starts) == (100.0, 1, 1)
    assert b15.speedup == 1.0
    assert auto.validity == "VALID", "the value shown is that of a sound result"


def test_a_doubted_sentinel_is_seen_in_its_field() -> None:
    doubted = {"sentinel": True, "validity": "SUSPECT", "reasons": ("drift-in-start",)}
    auto = field(matrix(made(("auto", 0, 100.0, {}), ("auto", 0, 80.0, doubted))), "auto")
    assert auto.validity == "SUSPECT" and auto.reasons == ("drift-in-start",) and auto.value == 100.0


def test_a_value_that_counts_for_nothing_is_shown_with_its_mark() -> None:
    auto = field(matrix(made(("auto", 0, 90.0, {"validity": "INVALID"}))), "auto")
    assert (auto.value, auto.n, auto.validity) == (90.0, 0, "INVALID")


def test_a_server_started_again_within_a_round_is_another_start() -> None:
    cells: list[Cell] = [("auto", 0, 100.0, {"repeat": n, "server": f"g{n}"}) for n in range(2)]
    assert field(matrix(made(*cells)), "auto").starts == 2


def test_with_several_starts_columns_stand_by_size() -> None:
    loads = (8, 32, 1, 16)
    once = [("auto", 0, 100.0 * c, {"concurrency": c}) for c in loads]
    assert [c.concurrency for c in matrix(made(*once)).columns] == [8, 32, 1, 16]  # as the plan says
    view = matrix(made(*once, ("auto", 1, 100.0, {"concurrency": 1})))
    assert [c.concurrency for c in view.columns] == [1, 8, 16, 32]
    assert [c.value for c in view.rows[0].cells if c is not None] == [100.0, 800.0, 1600.0, 3200.0]


def test_rounds_that_are_still_planned_hide_no_value() -> None:
    auto = field(matrix(made(("auto", 0, 100.0, {}), planned=("auto",))), "auto")
    assert auto.state == "done" and auto.value == 100.0


def twice(aa: float, b15: float, noise: float = 0.0005) -> State:
    return made(
        *(("auto", n, 100 * (1 + noise * (-1) ** n), {}) for n in range(4)),
        *(("auto-aa", n, aa * (1 + noise * (-1) ** n), {"aa": True}) for n in range(4)),
        *(("b15", n, b15 * (1 + noise * (-1) ** n), {}) for n in range(4)),
    )


def test_what_the_baseline_differs_from_itself_by_is_no_difference() -> None:
    view = matrix(twice(aa=103.0, b15=102.5))
    assert view.aa is not None and view.aa.ratio == pytest.approx(1.03) and view.aa.different is True
    assert field(view, "b15").differs is False
    assert field(matrix(twice(aa=100.2, b15=102.5)), "b15").differs is True
    words = render_table(twice(aa=103.0, b15=102.5))
    assert "A/A: auto differs from itself by up to 3.0%" in words


def test_the_history_learns_the_spread_between_starts() -> None:
    """Of two loads of one plan: their starts are the same ones, so they count once."""
    e = math.exp(0.01)
    state = made(
        *((config, n, 100 * e ** (-1) ** n, {}) for config in ("auto", "b15") for n in range(2)),
        *(
            (config, n, 50 * e ** (-1) ** n, {"concurrency": 8})
            for config in ("auto", "b15")
            for n in range(2)
        ),
    )
    state.run.run_id, state.host.name = "r1", "h"
    found = spread_between_starts(state)
    assert (found.basis, found.freedom) == ("starts", 2) and found.sd == pytest.approx(0.01 * math.sqrt(2))
    with History() as history:
        history.learn(state)
        history.learn(state)
        seen = history.prior(host="h", model="", engine="").spread
        assert (seen.freedom, seen.sd) == (2, pytest.approx(found.sd))
        state.run.run_id = "r2"
        history.learn(state)
        assert history.spread(host="h", model="", engine="").freedom == 4
        assert history.spread(host="other", model="", engine="").basis is None


def test_the_time_left_of_a_race_is_at_most_that_until_it_is_over() -> None:
    state = made(("auto", 0, 100.0, {}), ("b15", 0, 90.0, {}), planned=("auto",))
    assert not sweep_eta(state, 0.0).at_most
    state.run.rule = "race"
    assert sweep_eta(state, 0.0).at_most
    apply(state, ev.RaceRound(at_s=0.0, mono_s=0.0, start=0, tp=1, rule="race", ended="auto leads"))
    assert not sweep_eta(state, 0.0).at_most
