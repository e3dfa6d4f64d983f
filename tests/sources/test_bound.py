"""The bound diagnosis, on real readings of an H200 and on the situations the users met."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.sources.bound.diagnosis import DEFAULT, Bound, Thresholds, combine_bounds, diagnose_bound
from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.dmon import parse_dmon
from ddtop.sources.gpu.smi.query_stream import parse_loop_line
from ddtop.sources.gpu.smi.value import reason_names
from tests.sources.case_files import QUERY_FIELDS

PHASES = Path(__file__).parents[1] / "data" / "nvidia-h200" / "phases.csv"
WINDOW = 10  # 2 s at 5 Hz
SETTLE = 5  # the first second of a phase is not steady: averages lag
WORDS = {"memory": "memory-bound", "compute": "compute-bound", "balanced": "balanced", "idle": "idle"}
# Two halves of the phases, each with memory-bound and compute-bound ones; balanced is never used to choose.
HALVES = (
    ("idle", "copy", "decode_b8", "decode_b32", "decode_b1024"),
    ("idle2", "decode_b1", "decode_b16", "decode_b64", "decode_b128", "decode_b256", "matmul"),
)


def number(text: str) -> float | None:
    value = float(text)
    return None if math.isnan(value) else value


def sample(row: dict[str, str]) -> GpuSample:
    return GpuSample(
        index=0,
        power_w=number(row["power_w"]),
        power_limit_w=number(row["limit_w"]),
        util_gpu_pct=number(row["util_gpu_pct"]),
        util_mem_pct=number(row["util_mem_pct"]),
        mem_used_mib=number(row["mem_used_mib"]),
        sm_clock_mhz=number(row["sm_mhz"]),
        sm_clock_max_mhz=1980,
        throttle_reasons=reason_names(int(row["event_reasons"], 16)),
        sm_active_pct=number(row["gpm_sm_pct"]),
        tensor_active_pct=number(row["gpm_tensor_pct"]),
        dram_active_pct=number(row["gpm_dram_pct"]),
    )


def phases() -> dict[str, tuple[str, list[GpuSample]]]:
    out: dict[str, tuple[str, list[GpuSample]]] = {}
    with PHASES.open() as file:
        for row in csv.DictReader(file):
            if row["phase"] != "gap":
                out.setdefault(row["phase"], (row["truth"], []))[1].append(sample(row))
    return out


def windows(samples: list[GpuSample]) -> list[list[GpuSample]]:
    """All 2 s windows of the steady part."""
    steady = samples[SETTLE:]
    return [steady[at : at + WINDOW] for at in range(len(steady) - WINDOW + 1)] or [steady]


def misses(names: tuple[str, ...], limits: Thresholds, change: Callable[[GpuSample], GpuSample]) -> list[str]:
    wrong = []
    for name in names:
        truth, samples = phases()[name]
        for window in windows([change(s) for s in samples]):
            found = diagnose_bound(window, limits=limits)
            if found.verdict != WORDS[truth]:
                wrong.append(f"{name}: {found.verdict} ({found.why}), is {truth}")
    return wrong


def chosen_on(names: tuple[str, ...]) -> Thresholds:
    """The rule by which the thresholds are chosen: midway between memory-bound and compute-bound phases."""

    def mean_of(truth: str, attribute: str, pick: Callable[[list[float]], float]) -> float:
        values = [
            sum(getattr(s, attribute) or 0.0 for s in window) / len(window)
            for name in names
            if phases()[name][0] == truth
            for window in windows(phases()[name][1])
        ]
        return pick(values)

    tensor = (mean_of("memory", "tensor_active_pct", max) + mean_of("compute", "tensor_active_pct", min)) / 2
    dram = (mean_of("compute", "dram_active_pct", max) + mean_of("memory", "dram_active_pct", min)) / 2
    return DEFAULT._replace(dram_pct=dram, tensor_pct=tensor)


@pytest.mark.parametrize("name", [n for half in HALVES for n in half])
def test_every_phase_is_right_in_its_steady_part(name: str) -> None:
    assert misses((name,), DEFAULT, lambda s: s) == []


def test_halves_cover_all_phases() -> None:
    assert sorted(n for half in HALVES for n in half) == sorted(phases())


@pytest.mark.parametrize("train", [0, 1])
def test_thresholds_chosen_on_one_half_are_right_on_the_other(train: int) -> None:
    limits = chosen_on(HALVES[train])
    assert misses(HALVES[1 - train], limits, lambda s: s) == []


def test_the_shipped_thresholds_are_those_chosen_on_the_first_half() -> None:
    limits = chosen_on(HALVES[0])
    assert abs(limits.dram_pct - DEFAULT.dram_pct) < 3
    assert abs(limits.tensor_pct - DEFAULT.tensor_pct) < 3


def without_gpm(s: GpuSample) -> GpuSample:
    return GpuSample(
        index=0,
        power_w=s.power_w,
        power_limit_w=s.power_limit_w,
        util_gpu_pct=s.util_gpu_pct,
        util_mem_pct=s.util_mem_pct,
        mem_used_mib=s.mem_used_mib,
        throttle_reasons=s.throttle_reasons,
    )


def only_power(s: GpuSample) -> GpuSample:
    return GpuSample(index=0, power_w=s.power_w, power_limit_w=s.power_limit_w, util_gpu_pct=s.util_gpu_pct)


@pytest.mark.parametrize("change", [without_gpm, only_power])
def test_without_gpm_it_is_never_confidently_wrong(change: Callable[[GpuSample], GpuSample]) -> None:
    for name, (truth, samples) in phases().items():
        for window in windows([change(s) for s in samples]):
            found = diagnose_bound(window)
            right = found.verdict in {WORDS[truth], "unknown"}
            modest = found.strength == "weak" or found.verdict == "power-capped"
            assert right or modest, f"{name}: {found}"
            if truth == "compute":
                assert found.verdict != "memory-bound", name


def test_without_gpm_memory_utilisation_tells_the_ends() -> None:
    for name, verdict in (("decode_b1", "memory-bound"), ("matmul", "compute-bound"), ("idle", "idle")):
        window = windows([without_gpm(s) for s in phases()[name][1]])[0]
        assert diagnose_bound(window).verdict == verdict


def gpu(**fields: Any) -> GpuSample:
    return GpuSample(**{"index": 0, "power_limit_w": 600.0, **fields})


def test_b300_at_450_of_1100_w_is_weak_evidence() -> None:
    found = diagnose_bound([gpu(power_w=450.0, power_limit_w=1100.0, util_gpu_pct=100)] * 10)
    assert (found.verdict, found.strength) == ("memory-bound", "weak")
    assert "latency" in found.why


@pytest.mark.parametrize("moving", [False, None, True])
def test_a_wedged_collective_is_never_memory_bound(moving: bool | None) -> None:
    """RTX PRO 6000: NCCL hangs at 100 %, 130 of 600 W, memory flat."""
    for more in (
        {},
        {"util_mem_pct": 0},
        {"util_mem_pct": 0, "dram_active_pct": 1.0, "tensor_active_pct": 0.0},
    ):
        found = diagnose_bound(
            [gpu(power_w=130.0, util_gpu_pct=100, mem_used_mib=612, **more)] * 10, moving=moving
        )
        assert found.verdict != "memory-bound" or moving
        if moving is False:
            assert (found.verdict, found.strength) == ("wedged-collective", "strong")
        elif moving is None:
            assert found.verdict == ("wedged-collective" if more else "unknown")
            assert found.strength != "strong"
        else:
            assert found.verdict != "wedged-collective"


def test_a_load_that_grows_memory_is_not_wedged() -> None:
    rising = [
        gpu(power_w=130.0, util_gpu_pct=100, util_mem_pct=2, mem_used_mib=600 + 500 * i) for i in range(10)
    ]
    assert diagnose_bound(rising).verdict != "wedged-collective"


@pytest.mark.parametrize(
    ("reasons", "reason"),
    [
        (("hw_slowdown", "hw_thermal_slowdown"), "hw_thermal_slowdown"),
        (("sw_thermal_slowdown",), "sw_thermal_slowdown"),
        (("hw_slowdown", "hw_power_brake_slowdown"), "hw_power_brake_slowdown"),
    ],
)
def test_throttled_names_its_reason(reasons: tuple[str, ...], reason: str) -> None:
    window = [
        gpu(
            power_w=400.0,
            util_gpu_pct=99,
            dram_active_pct=80.0,
            tensor_active_pct=5.0,
            throttle_reasons=reasons,
        )
    ]
    found = diagnose_bound(window * 10)
    assert (found.verdict, found.reason) == ("throttled", reason)
    assert reason in found.meaning


def test_one_throttled_reading_in_a_window_is_not_throttled() -> None:
    calm = gpu(
        power_w=400.0, util_gpu_pct=99, dram_active_pct=80.0, tensor_active_pct=5.0, throttle_reasons=()
    )
    hot = gpu(
        power_w=400.0,
        util_gpu_pct=99,
        dram_active_pct=80.0,
        tensor_active_pct=5.0,
        throttle_reasons=("sw_thermal_slowdown",),
    )
    assert diagnose_bound([calm] * 8 + [hot] * 2).verdict == "memory-bound"


def test_power_cap_beside_a_bound_is_said_and_does_not_hide_it() -> None:
    window = windows(phases()["matmul"][1])[0]
    found = diagnose_bound(window)
    assert found.verdict == "compute-bound" and found.capped


def test_power_capped_where_nothing_else_tells() -> None:
    found = diagnose_bound([gpu(power_w=598.0, util_gpu_pct=99, throttle_reasons=("sw_power_cap",))] * 5)
    assert (found.verdict, found.strength) == ("power-capped", "strong")


def test_latency_bound_is_low_everything() -> None:
    found = diagnose_bound(
        [gpu(power_w=200.0, util_gpu_pct=97, dram_active_pct=12.0, tensor_active_pct=3.0)] * 5
    )
    assert (found.verdict, found.strength) == ("latency-bound", "strong")


def test_meaning_is_said_for_the_sweep() -> None:
    window = windows(phases()["decode_b1"][1])[0]
    assert "tree budget" in diagnose_bound(window).meaning
    assert "tensor cores at 4%" in diagnose_bound(window).meaning


def test_power_alone_near_the_limit_is_unknown() -> None:
    """Batch-1 decode draws 91 % of an H200's limit: high power says nothing."""
    assert diagnose_bound([gpu(power_w=546.0, util_gpu_pct=99)] * 5).verdict == "unknown"


def test_nothing_known_is_unknown() -> None:
    assert diagnose_bound([]).verdict == "unknown"
    assert diagnose_bound([GpuSample(index=0)]).verdict == "unknown"
    assert diagnose_bound([gpu(power_w=300.0)] * 3).verdict == "unknown"


def test_combining_gpus() -> None:
    def one(verdict: Any) -> Bound:
        return Bound(verdict=verdict, strength="strong", why="x", meaning="y")

    assert combine_bounds([one("memory-bound")] * 7 + [one("throttled")]).verdict == "throttled"
    assert combine_bounds([one("memory-bound")] * 2 + [one("idle")] * 6).verdict == "memory-bound"
    assert combine_bounds([one("idle")] * 8).verdict == "idle"
    assert combine_bounds([]).verdict == "unknown"
    assert combine_bounds([one("memory-bound")] * 5 + [one("compute-bound")] * 3).why.startswith("5 of 8")


pct = st.none() | st.floats(0, 100) | st.just(float("nan"))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            GpuSample,
            index=st.just(0),
            power_w=st.none() | st.floats(0, 1500),
            power_limit_w=st.none() | st.floats(0, 1200),
            util_gpu_pct=st.none() | st.integers(0, 100),
            util_mem_pct=st.none() | st.integers(0, 100),
            dram_active_pct=pct,
            tensor_active_pct=pct,
            sm_active_pct=pct,
            mem_used_mib=st.none() | st.integers(0, 200_000),
            throttle_reasons=st.none()
            | st.lists(st.sampled_from(["gpu_idle", "sw_power_cap", "hw_slowdown"])).map(tuple),
        ),
        max_size=12,
    ),
    st.none() | st.booleans(),
)
def test_any_readings_get_a_verdict_with_its_meaning(samples: list[GpuSample], moving: bool | None) -> None:
    found = diagnose_bound(samples, moving=moving)
    assert found.meaning and found.why
    assert (found.strength == "none") == (found.verdict == "unknown")


LOADS = Path(__file__).parents[1] / "data" / "h200-loads"
TRUTH = {
    "idle": "idle",
    "copy": "memory-bound",
    "gemv": "memory-bound",
    "gemm128": "balanced",
    "matmul": "compute-bound",
    "launch": "latency-bound",
}


def load(name: str) -> list[GpuSample]:
    rows = json.loads((LOADS / "nvml.json").read_text())["phases"][name]
    known = set(GpuSample.__struct_fields__)
    return [
        GpuSample(**{k: tuple(v) if isinstance(v, list) else v for k, v in r.items() if k in known})
        for r in rows
    ]


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_loads_read_by_nvml_on_a_real_gpu(name: str) -> None:
    found = diagnose_bound(load(name)[2:])
    assert (found.verdict, found.strength) == (TRUTH[name], "strong")


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_the_same_loads_by_the_plain_query_stream(name: str) -> None:
    """No GPM there: the ends are told weakly, and nothing is confidently wrong."""
    lines = (LOADS / f"loop_{name}.csv").read_text().splitlines()
    samples = [s for line in lines if isinstance(s := parse_loop_line(QUERY_FIELDS, line), GpuSample)]
    assert len(samples) >= 8
    found = diagnose_bound(samples)
    assert (
        found.verdict in {TRUTH[name], "unknown"}
        or found.strength == "weak"
        or found.verdict == "power-capped"
    )


@pytest.mark.parametrize("name", ["copy", "matmul"])
def test_the_same_loads_by_dmon(name: str) -> None:
    rows = [s for _, s in parse_dmon((LOADS / f"dmon_{name}.txt").read_text())]
    assert diagnose_bound(rows).verdict == TRUTH[name]


def test_a_kernel_that_spins_at_full_utilisation_is_no_memory_bound_load() -> None:
    """Real: one waiting block shows 100 % utilisation at 124 of 700 W."""
    assert diagnose_bound(load("spin")[2:], moving=False).verdict == "wedged-collective"
    assert diagnose_bound(load("spin")[2:], moving=False).strength == "strong"
    assert diagnose_bound(load("spin")[2:]).strength == "weak"
    assert diagnose_bound(load("spin")[2:], moving=True).verdict == "latency-bound"


def test_windows_are_two_seconds() -> None:
    with PHASES.open() as file:
        stamps = [float(r["t_s"]) for r in csv.DictReader(file) if r["phase"] == "matmul"]
    assert all(0.15 < b - a < 0.3 for a, b in pairwise(stamps))
    assert 1.7 < stamps[WINDOW - 1] - stamps[0] < 2.3
