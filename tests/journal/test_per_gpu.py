"""Results per GPU and per user: by the GPUs that were held, with the front; and what a token costs."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import Column
from ddtop.journal.results import per_gpu as module
from ddtop.journal.results.per_gpu import GpuPoint, held_by, per_gpu, unknown_configs, with_fronts
from tests.journal.made import NEW, Clock, restart, spec

LOAD = Column("fib", 256, 0, 1)


def swept(
    gpus: dict[str, tuple[int, ...] | None], results: dict[tuple[str, int], tuple[float, float]]
) -> State:
    """Configuration → the GPUs that it held; (configuration, concurrency) → (tok/s, median TPOT in ms)."""
    clock = Clock()
    cells = {
        key: spec(f"{key[0]}-{key[1]}", key[0], concurrency=key[1], aa=key[0].endswith("-aa"))
        for key in results
    }
    events: list[ev.Event] = [
        ev.RunStarted(**clock(), run_id="r", name="demo", mode="sweep", segment=0),
        ev.CellsPlanned(**clock(), cells=tuple(cells.values()), baseline=None),
    ]
    for config, held in gpus.items():
        events += restart(clock, config, f"at-{config}")
        events.append(
            ev.StartProvenance(
                **clock(),
                attempt_id=f"at-{config}",
                gpus=held,
                unknown={"held": "nvidia-smi names processes of another namespace"} if held is None else {},
            )
        )
    for key, (tok_s, tpot) in results.items():
        metrics = {"output_tok_s": tok_s, "tpot_ms": {"p50": tpot, "n": 8}}
        events += [
            ev.CellStarted(**clock(), cell_id=cells[key].id, attempt=1, generation=NEW),
            ev.CellMeasured(
                **clock(), cell_id=cells[key].id, attempt=1, validity="VALID", metrics=metrics, generation=NEW
            ),
            ev.CellStateSet(**clock(), cell_id=cells[key].id, state="done", attempt=1),
        ]
    return fold(events)


def test_rates_are_by_the_gpus_that_were_held() -> None:
    """b15 was planned with TP 1 and held two GPUs: its rate per GPU is half of its throughput."""
    state = swept(
        {"auto": (0,), "b15": (0, 1)},
        {
            ("auto", 1): (100.0, 10.0),
            ("auto", 8): (600.0, 20.0),
            ("b15", 1): (160.0, 5.0),
            ("b15", 8): (700.0, 25.0),
        },
    )
    points = {p.label: p for p in per_gpu(state, usd_per_gpu_hour=3.6)}
    assert {k: (p.gpus, p.tok_s_gpu, p.tok_s_user) for k, p in points.items()} == {
        "auto tp1 c1": (1, 100.0, 100.0),
        "auto tp1 c8": (1, 600.0, 50.0),
        "b15 tp1 c1": (2, 80.0, 200.0),
        "b15 tp1 c8": (2, 350.0, 40.0),
    }
    assert {k for k, p in points.items() if p.front} == {"auto tp1 c1", "auto tp1 c8", "b15 tp1 c1"}
    assert points["b15 tp1 c8"].dominated_by == "auto tp1 c8"
    assert points["auto tp1 c8"].usd_per_mtok == pytest.approx(3.6 / 3600 / 600 * 1e6)
    assert points["b15 tp1 c8"].usd_per_mtok == pytest.approx(3.6 * 2 / 3600 / 700 * 1e6)


def test_unknown_gpus_give_no_figure_and_the_reason() -> None:
    results = {
        ("auto", 1): (100.0, 10.0),
        ("b15", 1): (160.0, 5.0),
        ("b8", 1): (90.0, 9.0),
        ("b4", 1): (80.0, 9.0),
    }
    state = swept({"auto": (3,), "b15": None, "b8": ()}, results)
    assert [p.config for p in per_gpu(state)] == ["auto"]
    assert unknown_configs(state) == {
        "b15 tp1": "nvidia-smi names processes of another namespace",
        "b8 tp1": "its processes held no GPU",
        "b4 tp1": "no start of it recorded which GPUs it held",
    }


POINT = st.tuples(st.integers(1, 6), st.integers(1, 6))


@given(st.lists(POINT, max_size=12))
def test_the_front_is_what_nobody_beats(pairs: list[tuple[int, int]]) -> None:
    points = [GpuPoint(str(i), 1, LOAD, 1, float(y), float(x)) for i, (x, y) in enumerate(pairs)]
    for point, (x, y) in zip(with_fronts(points), pairs, strict=True):
        beaten = any(a >= x and b >= y and (a, b) != (x, y) for a, b in pairs)
        assert point.front is not beaten
        assert bool(point.dominated_by) is beaten


def test_workloads_have_fronts_of_their_own_and_a_point_without_tpot_is_on_none() -> None:
    other = LOAD._replace(workload="essay")
    points = [
        GpuPoint("a", 1, LOAD, 1, 10.0, 10.0),
        GpuPoint("b", 1, other, 1, 5.0, 5.0),
        GpuPoint("c", 1, LOAD, 1, 99.0, None),
    ]
    assert [p.front for p in with_fronts(points)] == [True, True, False]


def test_doctests() -> None:
    assert doctest.testmod(module).failed == 0


def test_the_gpus_of_a_start_are_found_by_its_generation() -> None:
    state = swept({"auto": (2, 3), "b15": None}, {("auto", 1): (100.0, 10.0)})
    assert held_by(state, NEW) == (2, 3)
    assert held_by(state, ev.Generation(boot="boot-1", id="another")) is None
    assert held_by(state, None) is None


def test_the_baseline_measured_again_dominates_nothing() -> None:
    state = swept({"auto": (0,), "auto-aa": (0,)}, {("auto", 1): (100.0, 10.0), ("auto-aa", 1): (101.0, 9.9)})
    assert [(p.config, p.front) for p in per_gpu(state)] == [("auto", True)]
    assert unknown_configs(state) == {}
