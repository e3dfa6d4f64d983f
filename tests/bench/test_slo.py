"""Service levels decided by the generator: the arithmetic against exact sums, and real streams that it ends early."""

from __future__ import annotations

import math
import random
import sys
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from ddtop.agent.loadgen.chance import BLOCKS, at_most, beta_share, clopper_pearson, rises
from ddtop.agent.loadgen.measure import run_cell
from ddtop.agent.loadgen.spec import SpecError, load_spec
from ddtop.agent.loadgen.window.slo import (
    FIRST_LOOK,
    LOOK_AGAIN,
    SloWatch,
    meets,
    slo_result,
    verdict_of,
    with_bounds,
)
from ddtop.bench.figures.metrics import Slo
from ddtop.bench.figures.requests import read_request
from tests.waiting import HANG_S

from .conftest import start


def exact_at_most(k: int, n: int, p: Fraction) -> float:
    return float(sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1)))


@pytest.mark.parametrize(
    ("k", "n"), [(0, 1), (0, 44), (1, 64), (3, 10), (47, 50), (949, 1000), (2, 900), (50, 50)]
)
@pytest.mark.parametrize("p", [Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(19, 20)])
def test_the_binomial_tail_is_the_exact_sum(k: int, n: int, p: Fraction) -> None:
    assert at_most(k, n, float(p)) == pytest.approx(exact_at_most(k, n, p), rel=1e-9, abs=1e-12)


def test_the_incomplete_beta_function_at_known_points() -> None:
    assert beta_share(2, 3, 0.0) == 0 and beta_share(2, 3, 1.0) == 1
    assert beta_share(1, 1, 0.3) == pytest.approx(0.3)
    assert beta_share(2, 2, 0.25) == pytest.approx(3 * 0.25**2 - 2 * 0.25**3)


def test_clopper_pearson_has_its_tails() -> None:
    """Its ends are where the tails are half a percent; known values of 0 and n of n."""
    low, high = clopper_pearson(90, 100)
    assert 1 - exact_at_most(89, 100, Fraction(low)) == pytest.approx(0.005, rel=1e-6)
    assert exact_at_most(90, 100, Fraction(high)) == pytest.approx(0.005, rel=1e-6)
    assert clopper_pearson(0, 20) == (0.0, pytest.approx(1 - 0.005 ** (1 / 20)))
    assert clopper_pearson(20, 20) == (pytest.approx(0.005 ** (1 / 20)), 1.0)
    assert clopper_pearson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("attained", "n", "verdict"),
    [(0, 16, "missed"), (8, 16, "missed"), (16, 16, "undecided"), (104, 104, "met"), (103, 104, "undecided")],
)
def test_far_points_are_decided_early(attained: int, n: int, verdict: str) -> None:
    assert verdict_of(attained, n, 0.95) == verdict


def test_a_growing_queue_rises_and_a_noisy_one_does_not() -> None:
    """SIMULATED: M/M/1 queues, as requests in flight at every arrival."""

    def queue(load: float, seed: int) -> list[int]:
        source, free_at, ends, at, out = random.Random(seed), 0.0, [], 0.0, []
        for _ in range(800):
            at += source.expovariate(load)
            free_at = max(free_at, at) + source.expovariate(1.0)
            ends = [*(end for end in ends if end > at), free_at]
            out.append(len(ends))
        return out

    assert sum(rises(queue(1.5, seed)) for seed in range(50)) >= 48
    assert sum(rises(queue(0.5, seed)) for seed in range(200)) <= 4
    assert not rises([5.0] * (2 * BLOCKS)) and not rises([1.0, 2.0])


def queue_judged(load: float, seed: int, limit: float, arrivals: int = 1000) -> str:
    """SIMULATED: an M/D/1 queue that begins empty, at `load` times what it can serve, judged as often
    as the generator looks; `limit` of the time in it, in service times."""
    spec = load_spec({"url": "http://h", "mode": "open", "rate": 1, "slo": {"ttft_ms": limit}, "share": 0.95})
    watch, source, at, free_at = SloWatch(spec, 0), random.Random(seed), 0.0, 0.0
    look = FIRST_LOOK
    under_way: deque[tuple[float, float]] = deque()
    for _ in range(arrivals):
        at += source.expovariate(load)
        while under_way and under_way[0][0] <= at:
            _, took = under_way.popleft()
            watch.take(took <= limit, took)
            if watch.seen >= look:
                look = max(look + 1, int(look * LOOK_AGAIN))
                if watch.over_saturated():
                    return "over-saturated"
        free_at = max(free_at, at) + 1.0
        under_way.append((free_at, free_at - at))
        watch.started(len(under_way))
    return ""


def test_a_queue_that_only_fills_up_is_not_over_saturated() -> None:
    """A queue near its capacity grows at first, too: from nothing to its usual length."""

    def share(load: float, limit: float) -> float:
        return sum(queue_judged(load, seed, limit) != "" for seed in range(40)) / 40

    assert share(0.7, 1e9) == share(0.8, 1e9) == 0 and share(0.9, 1e9) <= 0.1
    assert share(0.8, 20) <= 0.05, "with a limit that 20 service times are"
    assert share(1.5, 1e9) == share(2.0, 1e9) == 1, "however lax the limit"
    assert share(1.1, 20) >= 0.95


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"slo": {"ttft": 5}, "share": 0.9}, "slo.ttft: no such limit"),
        ({"slo": {"ttft_ms": 0}, "share": 0.9}, "slo.ttft_ms: 0"),
        ({"slo": {"ttft_ms": "1"}, "share": 0.9}, "slo.ttft_ms: '1'"),
        ({"slo": {"ttft_ms": 5}}, "belong together"),
        ({"share": 0.9}, "belong together"),
        ({"slo": {"ttft_ms": 5}, "share": 1}, "share: 1.0; wanted above 0 and below 1"),
    ],
)
def test_impossible_service_levels_are_named(change: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec({"url": "http://h", **change})
    assert word in str(caught.value)


def point(url: str, behaviour: str = "normal", **more: Any) -> dict[str, Any]:
    return run_cell(
        {
            "url": f"{url}/b/{behaviour}",
            "output_tokens": 64,
            "usage": "each",
            "gpus": "none",
            "concurrency": 4,
        }
        | {"metrics_url": "", "requests": 2000, "share": 0.95, "time_limit_s": 120}
        | more
    )


def test_a_point_that_is_missed_ends_after_tens_of_requests(lying: str) -> None:
    """Its requests take over 50 ms; what was under way ended, and every figure is that of the records."""
    result = point(lying, slo={"e2e_ms": 5.0})
    assert result["slo"] | {"low": 0, "high": 0} == {
        "verdict": "missed",
        "attained": 0,
        "n": 16,
        "low": 0,
        "high": 0,
        "share": 0.95,
        "limits": {"e2e_ms": 5.0},
    }
    assert result["slo"]["high"] < 0.95 and result["window"]["stopped"] == "slo"
    assert 16 <= len(result["requests"]) <= 20
    assert {one["class"] for one in result["requests"]} == {"ok"}


def test_a_point_that_is_met_ends_when_it_is_shown(lying: str) -> None:
    limits = {"ttft_ms": 5_000.0, "tpot_ms": 5_000.0, "e2e_ms": 60_000.0, "icl_ms": 5_000.0}
    result = point(lying, concurrency=32, slo=limits)
    slo = result["slo"]
    assert slo["verdict"] == "met" and slo["attained"] == slo["n"] and 104 <= slo["n"] <= 130
    assert len(result["requests"]) < slo["n"] + 33
    judged = [read_request(one) for one in result["requests"]]
    assert all(Slo(**limits).met(one) for one in judged)


@pytest.mark.parametrize(
    "behaviour", ["normal", "final-usage", "no-usage", "n2", "tools", "err", "plain-json"]
)
def test_the_generator_and_the_report_judge_a_request_alike(lying: str, behaviour: str) -> None:
    """Limits in the middle of what came: each request is met or missed for both."""
    first = point(lying, behaviour, slo={"e2e_ms": 1e6}, requests=16)
    known = [read_request(one) for one in first["requests"]]
    middle = sorted(one.tpot_s * 1e3 if one.tpot_s else 1.0 for one in known)[len(known) // 2]
    limits = {"tpot_ms": middle, "ttft_ms": 1e6}
    result = point(lying, behaviour, slo=limits, requests=16, share=0.5)
    met = sum(Slo(**limits).met(read_request(one)) for one in result["requests"])
    assert result["slo"]["attained"] == met and result["slo"]["n"] == len(result["requests"])


@pytest.fixture(scope="module")
def prefill() -> Iterator[str]:
    """SIMULATED: one prompt at a time, 20 ms each: 50 requests a second at most."""
    child, url = start([sys.executable, "-m", "tests.bench.servers.prefill"])
    yield url
    child.terminate()
    child.wait(HANG_S)


@pytest.mark.parametrize("warmup", [0, "handover"])
def test_a_rate_above_what_the_server_can_is_ended_at_once(prefill: str, warmup: Any) -> None:
    """Every request meets its limit so far; but the queue grows without end. A hand-over does not wait for it to settle."""
    point = {
        "url": prefill,
        "model": "m",
        "mode": "open",
        "rate": 150.0,
        "output_tokens": 4,
        "warmup": warmup,
    }
    limits = {"slo": {"ttft_ms": 60_000.0}, "share": 0.95, "requests": 5000, "time_limit_s": 300}
    result = run_cell({**point, **limits, "gpus": "none", "metrics_url": ""})
    assert result["slo"]["verdict"] == "over-saturated" and result["window"]["stopped"] == "slo"
    assert len(result["requests"]) + len(result.get("burst", ())) < 1500
    assert result["window"]["wall_s"] < 60


def test_undecided_where_the_requests_end_first(lying: str) -> None:
    result = point(lying, slo={"e2e_ms": 60_000.0}, requests=8)
    assert result["slo"]["verdict"] == "undecided" and result["slo"]["n"] == 8
    assert result["window"]["stopped"] == ""


def test_an_unknown_figure_meets_no_limit() -> None:
    assert not meets({"tpot_ms": 5.0}, {}) and meets({}, {}) and meets({"e2e_ms": 5.0}, {"e2e_ms": 5.0})


@pytest.mark.parametrize(
    ("tokens", "limits", "met"),
    [
        (36, {"ttft_ms": 400.0, "tpot_ms": 40.0}, True),  # at most 46 ms / 35
        (36, {"tpot_ms": 1.3}, False),
        (1, {"tpot_ms": 0.1, "icl_ms": 0.1}, True),
        (36, {"icl_ms": 50.0}, True),
        (36, {"icl_ms": 40.0}, False),
        (None, {"tpot_ms": 40.0}, False),
    ],
)
def test_an_answer_that_came_in_one_moment_waited_no_longer_than_it_took(
    tokens: int | None, limits: dict[str, float], met: bool
) -> None:
    """A real vLLM on a busy machine: 8 of 17 answers of 36 tokens came in one read. Counted as misses, c1 was too much."""
    account = SimpleNamespace(
        chunk_ns=[46_000_000] * 3,
        chunk_tokens=[1, 1, 1],
        tokens=tokens,
        not_streamed=False,
        last_event_ns=46_000_000,
        trusted_chunks=lambda: True,
    )
    exchange: Any = SimpleNamespace(account=account, start_ns=0, end_ns=46_000_000)
    watch = SloWatch(load_spec({"url": "http://h", "slo": limits, "share": 0.9}), 1)
    watch.add(exchange, "ok")
    assert watch.attained == met
    record = {
        "i": 0,
        "class": "ok",
        "start": 0,
        "end": 46_000_000,
        "last_event": 46_000_000,
        "tokens": tokens,
    }
    read = read_request({**record, "t": [46_000_000, 0, 0], "k": 1})
    assert Slo(**limits).met(read) is met, "goodput by the same rule"


def test_what_is_known_goes_before_what_it_is_at_most() -> None:
    assert with_bounds({"e2e_ms": 46.0, "tpot_ms": 3.0}, 10, True)["tpot_ms"] == 3.0
    assert with_bounds({"e2e_ms": 46.0}, 10, False) == {"e2e_ms": 46.0}


def test_what_ended_the_window_stands() -> None:
    spec = load_spec({"url": "http://h", "slo": {"e2e_ms": 5}, "share": 0.9})
    assert slo_result(spec, 3, 40, "over-saturated")["verdict"] == "over-saturated"
    assert slo_result(spec, 0, 0, "") | {"limits": 0} == {
        "verdict": "undecided",
        "attained": 0,
        "n": 0,
        "low": 0.0,
        "high": 1.0,
        "share": 0.9,
        "limits": 0,
    }
