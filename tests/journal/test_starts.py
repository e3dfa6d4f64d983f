"""Start times: what is cold and what is warm, by every kind of evidence, and how configurations compare."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop import events as ev
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.starts import StartClass, start_classes, start_times
from ddtop.report import Recording, report_html, report_json, report_markdown
from tests.journal.made import Clock

GIB = 2**30
MODEL = {"fs": "ext4", "tensor_bytes": 50 * GIB}


def started(*starts: dict[str, Any], model: dict[str, Any] | None = None) -> State:
    """One start each, by default of `auto` in one boot, ready in 60 s; `ready_s` None: it failed."""
    clock = Clock()
    events: list[ev.Event] = [
        ev.CellsPlanned(**clock(), cells=(), baseline="auto"),
        ev.ProbeTaken(**clock(), probe={"model": MODEL if model is None else model}),
    ]
    for n, given in enumerate(starts):
        one = {"config": "auto", "boot": "b1", "ready_s": 60.0, **given}
        name = f"a{n}"
        events += [
            ev.RestartStarted(**clock(), attempt_id=name, config=one.pop("config"), tp=1, unit="u"),
            ev.PhaseSeen(**clock(), attempt_id=name, phase="loading", state="done", elapsed_s=40.0 + n),
        ]
        generation = ev.Generation(boot=one.pop("boot"), id=name)
        if one["ready_s"] is None:
            failed = {"verdict": "failed", "cause": "oom", "kind": "config"}
            events.append(ev.RestartFailed(**clock(), attempt_id=name, **failed))  # type: ignore[arg-type]
        else:
            events.append(ev.RestartReady(**clock(), attempt_id=name, generation=generation, **one))
    return fold(events)


def classes(*starts: dict[str, Any], model: dict[str, Any] | None = None) -> list[StartClass]:
    return list(start_classes(started(*starts, model=model)).values())


@pytest.mark.parametrize(
    ("read_gib", "files"),
    [(51, "cold"), (25, "cold"), (24, "partly"), (6, "partly"), (5, "warm"), (0, "warm")],
)
def test_what_was_read_says_whether_the_files_were_cold(read_gib: float, files: str) -> None:
    assert classes({"read_mib": read_gib * 1024.0})[0].files == files


@pytest.mark.parametrize(
    "model",
    [
        {"fs": "zfs", "tensor_bytes": 50 * GIB},
        {"fs": "fuse.s3fs", "tensor_bytes": 50 * GIB},
        {"fs": "ext4"},
        {},
        {"fs": "ext4", "tensor_bytes": 10 * 2**20},
    ],
)
def test_where_reads_say_nothing_the_boot_does(model: dict[str, Any]) -> None:
    first, second, third = classes(
        {"read_mib": 0.0}, {"read_mib": 0.0}, {"boot": "b2", "read_mib": 0.0}, model=model
    )
    assert (first.files, second.files, third.files) == ("unknown", "warm", "cold")


def test_a_model_in_tmpfs_is_in_memory() -> None:
    assert classes({"read_mib": 9000.0}, model={"fs": "tmpfs", "tensor_bytes": GIB})[0].files == "in memory"


@pytest.mark.parametrize(
    ("starts", "last"),
    [
        ([{"compile_cache": "miss"}], "cold"),
        ([{"compile_cache": "hit"}], "warm"),
        ([{"compile_cache": "hit", "new_cache_files": 12}], "cold"),  # graphs were cached, kernels were not
        ([{"new_cache_files": 40}], "cold"),
        ([{"new_cache_files": 0}], "unknown"),  # its caches may be elsewhere
        ([{"new_cache_files": 40}, {"new_cache_files": 0}], "warm"),
        ([{}], "unknown"),
    ],
)
def test_the_compile_cache(starts: list[dict[str, Any]], last: str) -> None:
    assert classes(*starts)[-1].compiled == last


def test_only_starts_of_one_class_are_compared() -> None:
    warm, cold = {"read_mib": 0.0}, {"read_mib": 60_000.0}
    state = started(
        {**cold, "ready_s": 100.0},
        {**warm, "ready_s": 50.0},
        {**warm, "ready_s": 51.0},
        {**warm, "config": "b8", "ready_s": 80.0},
        {**warm, "config": "b8", "ready_s": 81.0},
        {**warm, "config": "b8", "ready_s": None},
    )
    cold_auto, warm_auto, warm_b8 = start_times(state)
    assert (cold_auto.kind.files, cold_auto.n, cold_auto.low) == ("cold", 1, None)
    assert (warm_auto.n, warm_auto.seconds, warm_auto.against) == (2, pytest.approx(50.5), None)
    assert warm_b8.against is not None and warm_b8.against.ratio == pytest.approx(80.5 / 50.5)
    assert warm_b8.against.different is True
    assert warm_b8.low is not None and warm_b8.low < 80.5 < (warm_b8.high or 0.0)
    assert warm_b8.phases == (("loading", 43.5),)


def test_one_start_each_cannot_tell() -> None:
    _, b8 = start_times(started({"ready_s": 50.0}, {"config": "b8", "ready_s": 90.0}))[:2]
    assert b8.against is None or b8.against.different is None


def test_reports_have_them() -> None:
    state = started({"read_mib": 0.0}, {"read_mib": 0.0, "config": "b8"})
    recording = Recording("r", state)
    assert "Start times" in report_markdown([recording]) and "cold and warm apart" in report_html([recording])
    data = report_json([recording])
    assert data["restarts"][0]["files"] == "warm" and data["start_times"][1]["ratio"] == pytest.approx(1.0)
    assert "Start times" not in report_markdown([Recording("r", State())])


def test_phases_stand_in_their_usual_order() -> None:
    clock = Clock()
    events: list[ev.Event] = [
        ev.CellsPlanned(**clock(), cells=(), baseline="auto"),
        ev.RestartStarted(**clock(), attempt_id="a", config="auto", tp=1, unit="u"),
    ]
    seen: tuple[ev.Phase, ...] = ("stopping", "loading", "stopped")  # that it had stopped was seen late
    events += [
        ev.PhaseSeen(**clock(), attempt_id="a", phase=phase, state="done", elapsed_s=1.0) for phase in seen
    ]
    generation = ev.Generation(boot="b", id="a")
    events.append(ev.RestartReady(**clock(), attempt_id="a", generation=generation, ready_s=3.0))
    (found,) = start_times(fold(events))
    assert [name for name, _ in found.phases] == ["stopping", "stopped", "loading"]
