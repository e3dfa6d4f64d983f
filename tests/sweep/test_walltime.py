"""Which cells can end before their Slurm allocation does."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop import events as ev
from ddtop.events import CellSpec
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.sweep.host.walltime import MARGIN_S, cell_need, cut, fit

BASE: dict[str, Any] = {"at_s": 0.0, "mono_s": 0.0, "host": "h"}
LIMIT = "[bench]\ntime_limit_s = 60\n"
LIMIT_S = 95.0
"""What a cell may take by that limit: a third more for its warm-up, and 15 s."""


def spec(ident: str, concurrency: int = 1) -> CellSpec:
    return CellSpec(
        id=ident,
        config="a",
        tp=1,
        workload="w",
        output_tokens=16,
        context=0,
        concurrency=concurrency,
        repeat=0,
        restart_key="k",
    )


CELLS = [spec(f"c{n}") for n in range(4)]


def state(*events: Any, measured_s: float | None = None) -> State:
    """A run of four cells; with `measured_s` one more like them was measured, and took so long."""
    cells = (*CELLS, spec("done")) if measured_s is not None else tuple(CELLS)
    listed: list[Any] = [
        ev.RunStarted(
            **BASE, run_id="r", segment=0, ddtop_version="0", pid=1, name="n", mode="sweep", plan_toml=LIMIT
        ),
        ev.CellsPlanned(**BASE, cells=cells, baseline=None),
    ]
    if measured_s is not None:
        listed += [
            ev.CellStarted(**BASE, cell_id="done", attempt=1, job="j"),
            ev.CellMeasured(
                **{**BASE, "at_s": measured_s, "mono_s": measured_s},
                cell_id="done",
                attempt=1,
                validity="VALID",
            ),
        ]
    return fold([*listed, *events])


def test_what_was_measured_is_needed_and_some_more() -> None:
    need = cell_need(state(measured_s=20.0), CELLS[0])
    assert need.measured and need.seconds is not None and 20.0 < need.seconds < 40.0


def test_of_what_was_not_measured_the_limit_is_needed() -> None:
    assert cell_need(state(), CELLS[0]) == (LIMIT_S, False)


def test_as_many_as_can_end_are_begun() -> None:
    found = fit(state(measured_s=20.0), CELLS, ready=True, left_s=MARGIN_S + 50, fresh=False)
    assert found.act == "begin" and [c.id for c in found.cells] == ["c0", "c1"]


@pytest.mark.parametrize("left_s", [0.0, -10.0, MARGIN_S, MARGIN_S + 20.0])
def test_none_that_cannot_end_is_begun(left_s: float) -> None:
    assert fit(state(measured_s=20.0), CELLS, ready=True, left_s=left_s, fresh=False).act == "renew"


def test_an_allocation_without_an_end_takes_all() -> None:
    assert fit(state(), CELLS, ready=False, left_s=None, fresh=False).cells == tuple(CELLS)


def test_a_start_takes_its_time_too() -> None:
    known = state(
        ev.RestartStarted(**BASE, attempt_id="s", config="a", tp=1, unit="u", cell_ids=("c0",)),
        ev.RestartReady(**{**BASE, "at_s": 100.0, "mono_s": 100.0}, attempt_id="s", engine="sglang", ready_s=100.0,
                        generation=ev.Generation(id="g", boot="b")),
        measured_s=20.0,
    )  # fmt: skip
    left_s = MARGIN_S + 60.0
    assert fit(known, CELLS, ready=True, left_s=left_s, fresh=False).act == "begin"
    assert fit(known, CELLS, ready=False, left_s=left_s, fresh=False).act == "renew"
    assert fit(known, CELLS, ready=False, left_s=left_s, fresh=False).need_s > 100.0


def test_longer_than_a_whole_allocation_fails() -> None:
    assert fit(state(measured_s=90.0), CELLS, ready=True, left_s=60.0, fresh=True).act == "fail"


def test_an_unknown_cell_is_tried_in_a_fresh_allocation_and_no_more_than_twice() -> None:
    """One at a time, as there is no room by the limit; a third time would be the same."""
    assert fit(state(), CELLS, ready=True, left_s=60.0, fresh=True).cells == (CELLS[0],)
    assert fit(state(), CELLS, ready=True, left_s=60.0, fresh=False).act == "renew"

    def trial(number: int) -> list[Any]:
        at = {**BASE, "at_s": number * 100.0, "mono_s": number * 100.0}
        end = {**BASE, "at_s": number * 100.0 + 60, "mono_s": number * 100.0 + 60}
        return [
            ev.AllocationSeen(**at, job=str(number), state="RUNNING"),
            ev.CellStarted(**{**at, "at_s": at["at_s"] + 5}, cell_id="c0", attempt=number, job=f"j{number}"),
            ev.AllocationSeen(**end, job=str(number), state="TIMEOUT"),
            ev.CellStateSet(**end, cell_id="c0", state="interrupted", attempt=number),
        ]

    once, twice = state(*trial(1)), state(*trial(1), *trial(2))
    assert (cut(once, once.cells["c0"]), cut(twice, twice.cells["c0"])) == (1, 2)
    assert fit(once, CELLS, ready=True, left_s=60.0, fresh=True).act == "begin"
    assert fit(twice, CELLS, ready=True, left_s=60.0, fresh=True).act == "fail"
