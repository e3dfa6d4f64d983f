"""Acceptance length, energy and the accuracy guard against figures computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.bench.figures.acceptance import (
    acceptance,
    counter_deltas,
    drafted_share,
    duplicates,
    from_draft_counters,
    from_llamacpp_timings,
    from_log,
    from_requests,
    per_position,
)
from ddtop.bench.figures.energy import cell_energy, integrate
from ddtop.bench.judge.accuracy import compare_outputs, divergence, garbage
from ddtop.bench.judge.sanity import acceptance_problems


def counters(before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
    return {"before": {"values": before}, "after": {"values": after}}


def test_sglang_counters_come_first_and_sum_over_ranks() -> None:
    raw = {
        "counters": counters(
            {'sglang:generation_tokens_total{dp="0"}': 100, 'sglang:spec_verify_calls_total{dp="0"}': 10},
            {
                'sglang:generation_tokens_total{dp="0"}': 500,
                'sglang:generation_tokens_total{dp="1"}': 200,
                'sglang:spec_verify_calls_total{dp="0"}': 110,
                'sglang:spec_verify_calls_total{dp="1"}': 50,
            },
        ),
        "requests": [{"class": "ok", "tokens": 90, "spec": {"spec_verify_ct": 30}}],
    }
    got = acceptance(raw)
    assert got is not None and got.length == pytest.approx(600 / 150) and got.source == "sglang counters"
    assert (
        got.exact and acceptance_problems(got.length, 4) == () and got.others == {"sglang per request": 3.0}
    )


def test_a_counter_that_fell_is_no_delta() -> None:
    assert counter_deltas(counters({"vllm:x_total": 5}, {"vllm:x_total": 4})) == {}


def test_vllm_counters() -> None:
    """C09's three windows: 1882 accepted of 766 drafts → 3.4569."""
    got = from_draft_counters(
        {
            "vllm:spec_decode_num_drafts_total": 766,
            "vllm:spec_decode_num_accepted_tokens_total": 1882,
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"}': 383,
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"}': 700,
        },
        "vllm",
    )
    assert got is not None and got.length == pytest.approx(3.4569, abs=1e-4)
    assert got.per_position == pytest.approx((700 / 766, 0.5))


def test_per_request_with_histogram() -> None:
    records = [
        {
            "class": "ok",
            "tokens": 40,
            "spec": {"spec_verify_ct": 10, "spec_correct_drafts_histogram": [1, 2, 3, 4]},
        },
        {
            "class": "ok",
            "tokens": 20,
            "spec": {"spec_verify_ct": 10, "spec_correct_drafts_histogram": [5, 5]},
        },
        {"class": "truncated", "tokens": 99, "spec": {"spec_verify_ct": 1}},
    ]
    got = from_requests(records)
    assert got is not None and got.length == 3.0 and got.histogram == (6, 7, 3, 4)
    assert got.per_position == pytest.approx((14 / 20, 7 / 20, 4 / 20))
    assert per_position([]) == ()


def test_llamacpp_counters_come_before_its_timings() -> None:
    names = ("llamacpp:spec_decode_num_drafts_total", "llamacpp:spec_decode_num_accepted_tokens_total")
    raw = {
        "counters": counters(dict.fromkeys(names, 10.0), dict(zip(names, (97.0, 177.0), strict=True))),
        "requests": [
            {"class": "ok", "timings": {"predicted_n": 256, "draft_n": 259, "draft_n_accepted": 167}}
        ],
    }
    got = acceptance(raw)
    assert got is not None and got.source == "llamacpp counters" and got.length == pytest.approx(1 + 167 / 87)
    assert got.others == {"llama.cpp timings": pytest.approx(255 / 88)}


def test_llamacpp_timings() -> None:
    """C13: 256 tokens, the first from the prompt, 167 of them accepted of 259 drafted → 255 / 88."""
    record = {"class": "ok", "timings": {"predicted_n": 256, "draft_n": 259, "draft_n_accepted": 167}}
    got = from_llamacpp_timings([record])
    assert got is not None and got.length == pytest.approx(255 / 88)
    assert from_llamacpp_timings([{"class": "ok", "timings": {"predicted_n": 256}}]) is None


def test_log_is_weighted_and_marked() -> None:
    got = from_log([(3.45, 242), (3.49, 238), (3.44, 286), (float("nan"), 5), (9.9, 0)])
    assert got is not None and not got.exact and got.length == pytest.approx(3.4586, abs=1e-3)
    assert from_log([]) is None


def test_bounds() -> None:
    assert acceptance_problems(3.0, 4) == () and acceptance_problems(5.0, 4) == ()
    assert "above 4" in acceptance_problems(5.2, 4)[0] and "below 1" in acceptance_problems(0.9, None)[0]


def test_duplicates() -> None:
    effective = {"k1": {"topk": 1, "steps": 3}, "k8": {"steps": 3, "topk": 1}, "b8": {"topk": 8, "steps": 3}}
    assert duplicates(effective) == [("k1", "k8")]


def test_trapezoids_cut_at_the_window() -> None:
    ramp = [(float(t), 100.0 * t) for t in range(-1, 6)]  # power grows by 100 W a second
    assert integrate(ramp, 0.5, 3.5) == (pytest.approx(100 * (3.5**2 - 0.5**2) / 2), "")
    assert integrate([(0.0, 100.0), (4.0, 100.0)], 0, 4) == (0.0, "no power sample for 4.0 s")
    assert "cover" in integrate([(0.0, 1.0), (1.0, 1.0)], 0, 60)[1]
    assert "fewer" in integrate([(0.0, 1.0)], 0, 1)[1]


def gpu_result(**more: Any) -> dict[str, Any]:
    samples = [
        {
            "t": int(t * 0.5e9),
            "gpu": gpu,
            "power_instant_w": 300.0 + 100 * gpu,
            "event_reasons": 4 if t > 5 else 0,
        }
        for t in range(-1, 22)
        for gpu in (0, 1)
    ]
    return {"window": {"wall_s": 10.0}, "gpu_samples": samples, "gpu": {"gpus": []}, **more}


def test_energy_of_two_gpus() -> None:
    got = cell_energy(gpu_result())
    assert got.energy_j == pytest.approx(7000) and got.source == "integral of instantaneous power"
    assert got.power_mean_w == pytest.approx(700) and got.power_max_w == 700
    assert got.power_cap_share == pytest.approx(15 / 21) and got.thermal_share == 0
    metrics = got.as_metrics(1400, 140)
    assert metrics["j_per_token"] == pytest.approx(5) and metrics["tok_s_per_w"] == pytest.approx(0.2)
    assert cell_energy(gpu_result(), gpus=[1]).energy_j == pytest.approx(4000)


def with_util(*utils: float | None, step: float = 0.2) -> dict[str, Any]:
    """A window of 2.6 s as on an H200 whose server had been given the device 7: 80 W, the counter runs on."""
    samples = [
        {
            "t": int(n * step * 1e9),
            "gpu": 0,
            "power_instant_w": 80.0,
            **({} if u is None else {"util_gpu_pct": u}),
        }
        for n, u in enumerate(utils)
    ]
    counter = {"mj": {"0": 208_000}, "span_s": 2.6}
    return {"window": {"wall_s": 2.6}, "gpu_samples": samples, "gpu": {"gpus": [], "energy": counter}}


@pytest.mark.parametrize(
    ("what", "raw", "idle"),
    [
        ("the server runs on the CPU", with_util(*[0] * 13), True),
        ("it was warmed up on a GPU, then nothing", with_util(40, 12, *[0] * 11), True),
        ("one sample of work", with_util(*[0] * 9, 3, 0, 0, 0), False),
        ("utilisation is not offered", with_util(*[None] * 13), False),
        ("too few samples", with_util(*[0] * 4, step=0.6), False),
    ],
)
def test_an_idle_gpus_energy_is_not_the_servers(what: str, raw: dict[str, Any], idle: bool) -> None:
    got = cell_energy(raw)
    metrics = got.as_metrics(600, 250)
    assert bool(got.idle) is idle, what
    assert ("energy_j" in metrics) is not idle and ("j_per_token" in metrics) is not idle
    if idle:
        assert "idle" in metrics["energy_missing"] and not got.missing and metrics["gpus"]["0"]["samples"]


def test_a_pipe_that_was_read_late_costs_no_reading_of_the_window() -> None:
    """The counters of a hung server kept the generator for 5 s: its next reading is stamped long after the window."""
    raw = with_util(*[50] * 14)
    raw["gpu_samples"].append({**raw["gpu_samples"][-1], "t": int(7.7e9)})
    got = cell_energy(raw)
    assert got.missing == "" and got.energy_j == pytest.approx(208, rel=0.01)
    hole = with_util(*[50] * 14)
    hole["window"]["wall_s"] = 8.0
    hole["gpu_samples"].append({**hole["gpu_samples"][-1], "t": int(8e9)})
    assert "no power sample for" in cell_energy(hole).missing, "inside the window it is one"


def test_the_highest_power_is_of_one_moment() -> None:
    """One GPU has no sample of the second round, and both have one of 900 W after the window."""
    samples = [
        {"t": int(t * 1e9), "gpu": gpu, "power_instant_w": watts}
        for t, gpu, watts in (
            *((0.0, 0, 100.0), (0.01, 1, 300.0), (1.0, 0, 500.0), (2.0, 0, 200.0), (2.01, 1, 500.0)),
            *((3.0, 0, 150.0), (3.01, 1, 100.0), (9.0, 0, 900.0), (9.01, 1, 900.0)),
        )
    ]
    raw = gpu_result(gpu_samples=samples)
    raw["window"] = {**raw["window"], "wall_s": 3.5}
    assert cell_energy(raw).power_max_w == 700.0
    alone = [one for one in samples if one["gpu"] == 0 or one["t"] > 8e9]
    assert cell_energy({**raw, "gpu_samples": alone}).power_max_w is None, "never seen together"


def test_a_counter_that_fell_or_says_nan_is_no_figure() -> None:
    counter = {"energy": {"mj": {"0": -5_000, "1": 5_000_000}, "span_s": 10.0}}
    assert cell_energy(gpu_result(gpu=counter)).source != "energy counter"
    said = counters({"a_total": 1.0, "b_total": 1.0}, {"a_total": float("nan"), "b_total": 4.0})
    assert counter_deltas(said) == {"b_total": 3.0}


def test_the_counter_is_preferred() -> None:
    counter = {"gpus": [], "energy": {"mj": {"0": 3_030_000, "1": 4_040_000}, "span_s": 10.1}}
    got = cell_energy(gpu_result(gpu=counter))
    assert got.source == "energy counter" and got.energy_j == pytest.approx(7000)


def test_missing_telemetry_is_said() -> None:
    assert (
        "no nvidia-smi"
        in cell_energy(gpu_result(gpu_samples=[], gpu={"error": "no nvidia-smi here"})).missing
    )
    hole = gpu_result()
    hole["gpu_samples"] = [s for s in hole["gpu_samples"] if not 2e9 < s["t"] < 7e9]
    got = cell_energy(hole)
    assert got.energy_j is None and "no power sample for" in got.missing
    assert cell_energy(gpu_result(gpu={"error": "not asked"})).missing == ""
    assert "GPU [7]" in cell_energy(gpu_result(), gpus=[7]).missing


def test_outputs_are_compared() -> None:
    base = {str(i): [f"answer {i} is the same"] for i in range(10)}
    same = compare_outputs(base, base)
    assert same.equal_share == 1 and not same.suspect
    other = {**base, "3": ["answer 3 is else"], "4": ["answer 4 is the"]}
    report = compare_outputs(base, other, base)
    assert report.equal_share == 0.8 and report.suspect and report.expected_share == 1.0
    assert {one.index: one.at for one in report.differences} == {"3": 12, "4": 15}
    noisy = {**base, **{str(i): ["x"] for i in range(3)}}
    assert not compare_outputs(base, other, noisy).suspect
    assert compare_outputs(base, {}).compared == 0
    assert divergence("ab", "ab") is None


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        (" tok" * 64, True),
        ("!" * 300, True),
        ("\ufffd\ufffd a" * 60, True),
        ("the end is near " * 30, True),
        (
            "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        print(a)\n        a, b = b, a + b\n"
            * 1,
            False,
        ),
        ("short", False),
        (
            "A sound answer about bridges, birds, bread and clocks that goes on for a while. "
            + "So it is. " * 8,
            False,
        ),
    ],
)
def test_garbage(text: str, bad: bool) -> None:
    assert bool(garbage(text)) is bad


def told_after(**after: float) -> dict[str, Any]:
    values = {name.replace("vllm_", "vllm:"): value for name, value in after.items()}
    return {"counters": {"before": {"values": dict.fromkeys(values, 0.0)}, "after": {"values": values}}}


def test_a_drafter_that_rarely_drafts_says_of_how_many_tokens_it_speaks() -> None:
    """A real n-gram run: 68 steps with a draft gave 239 of 960 tokens, 171 of them accepted drafts."""
    raw = told_after(
        vllm_generation_tokens_total=960,
        vllm_spec_decode_num_drafts_total=68,
        vllm_spec_decode_num_accepted_tokens_total=171,
    )
    found = acceptance(raw)
    assert found is not None and found.length == pytest.approx(239 / 68)
    told = drafted_share(found, raw)
    assert told["drafted_share"] == pytest.approx(239 / 960)
    assert told["overall_length"] == pytest.approx(960 / (960 - 171))
    always = told_after(
        vllm_generation_tokens_total=960,
        vllm_spec_decode_num_drafts_total=270,
        vllm_spec_decode_num_accepted_tokens_total=682,
    )
    assert drafted_share(acceptance(always), always) == {}  # type: ignore[arg-type]


def texts(
    count: int, part_at: int | None, long: int = 1000
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Outputs of `long` characters, and the same parting at `part_at` (None: never)."""
    base = {str(i): [f"{i:02d}" + "x" * (long - 2)] for i in range(count)}
    other = {
        i: [t[0] if part_at is None else t[0][:part_at] + "y" * (long - part_at)] for i, t in base.items()
    }
    return base, other


@pytest.mark.parametrize(
    ("count", "part_at", "suspect"),
    [
        (48, None, False),
        (48, 700, False),
        (48, 400, False),
        (48, 60, True),
        (6, 20, True),
        (6, 700, False),
        (1, 5, False),
    ],
)
def test_outputs_are_judged_by_how_soon_they_part(count: int, part_at: int | None, suspect: bool) -> None:
    base, other = texts(count, part_at)
    assert compare_outputs(base, other, base).suspect is suspect


def test_a_noisy_baseline_excuses_as_much_noise() -> None:
    base, other = texts(48, 60)
    _, again = texts(48, 70)
    assert not compare_outputs(base, other, again).suspect
