"""The hand-over warm-up: when a load has settled, on values and on real streams; what the burst is and is not part of."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from ddtop.agent.loadgen.measure import run_cell
from ddtop.agent.loadgen.records import pack, served, token_bins, unpack
from ddtop.agent.loadgen.spec import SpecError, load_spec
from ddtop.agent.loadgen.window.settling import ClosedLoop, OpenLoop, agree
from ddtop.bench.figures.metrics import cell_metrics
from ddtop.bench.figures.requests import read_request
from ddtop.bench.judge.cell import judge_cell
from ddtop.bench.judge.foreign import counted, ours_at_most
from ddtop.bench.judge.steadiness import moved, not_settled
from ddtop.bench.judge.validity import TABLE
from tests.waiting import HANG_S

from .conftest import start

BUSY = {
    *("generator-waited", "server-waited", "cpu-stolen", "cpu-pressure", "not-settled", "host-paused"),
    "under-delivery",
}
"""What a busy machine may add; nothing else may be said of these cells."""


@pytest.fixture(scope="module")
def prefill() -> Iterator[str]:
    argv = [sys.executable, "-m", "tests.bench.servers.prefill", "--prefill-ms", "5", "--step-ms", "2"]
    child, url = start(argv)
    yield url
    child.terminate()
    child.wait(HANG_S)


def cell(url: str, **more: Any) -> dict[str, Any]:
    spec = {"url": url, "engine": "vllm", "gpus": "none", "output_tokens": 20, "warmup": "handover"}
    return run_cell({**spec, "concurrency": 8, "requests": 32, "prompts": ["a", "b"], **more})


# ---- the decision


def closed(
    streams: int, samples: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, bool]:
    """(requests after which the window began, settled) for (TTFT, rate) in order of ending."""
    monkeypatch.setattr("ddtop.agent.loadgen.window.settling.figures", lambda one: one)
    load = ClosedLoop(streams, 5.0)
    for number, sample in enumerate(samples, 1):
        if load.add(number <= streams, True, sample):  # type: ignore[arg-type]
            return number, load.settled
    return 0, False


def test_a_burst_is_over_after_one_more_request_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIMULATED: the first requests queue behind one another (20, 40, … ms), later ones need 22 to 24 ms."""
    rng = random.Random(1)
    later = [(rng.uniform(22, 24), rng.uniform(95, 96)) for _ in range(400)]
    for streams in (8, 32, 128):
        herd = [(20.0 * (k + 1), 1e3 / (10 + k)) for k in range(streams)]
        assert closed(streams, herd + later, monkeypatch) == (2 * streams, True)
    assert closed(1, [(23.0, 95.0)] * 9, monkeypatch) == (2, True)
    assert closed(1, [(900.0, 20.0), (23.0, 95.0), (23.1, 95.0)], monkeypatch) == (3, True)


def test_waves_that_come_again_are_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIMULATED: all streams end together, so that the same queue forms in every round."""
    wave = [(20.0 * (k + 1), 1e3 / (10 + k)) for k in range(32)]
    assert closed(32, wave * 4, monkeypatch) == (64, True)


def test_what_never_settles_begins_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert closed(16, [(10.0 * 1.05**k, 50.0) for k in range(200)], monkeypatch) == (48, False)


@pytest.mark.parametrize("streams", [2, 4, 8, 32])
def test_noise_rarely_costs_more_than_one_request_a_stream(
    streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIMULATED: a steady server whose TTFT scatters by 10 %."""
    begun = []
    for seed in range(200):
        rng = random.Random(seed)
        samples = [(rng.gauss(100, 10), rng.gauss(50, 1)) for _ in range(4 * streams)]
        begun.append(closed(streams, samples, monkeypatch)[0])
    assert sorted(begun)[100] <= 2.5 * streams


def test_agreement_is_wider_for_few_samples() -> None:
    assert agree([100.0], [119.0], 5, noise=False) and not agree([100.0], [130.0], 5, noise=False)
    assert agree([100.0] * 16, [104.9] * 16, 5, noise=False)
    assert not agree([100.0] * 16, [106.0] * 16, 5, noise=True)
    assert agree([80.0, 100.0, 120.0] * 5, [90.0, 110.0, 130.0] * 5, 5, noise=True)


def test_an_open_loop_settles_when_as_many_leave_as_come() -> None:
    load = OpenLoop(1000, 5.0)
    load.ended = 1
    ramp = [min(n, 20) for n in range(1, 400)]
    at = next(n for n, flight in enumerate(ramp, 1) if load.arrived(flight))
    assert load.settled and 36 <= at <= 80
    growing = OpenLoop(1000, 5.0)
    growing.ended = 1
    at = next(n for n in range(1, 2000) if growing.arrived(n // 2))
    assert not growing.settled and at < 1000
    slow = OpenLoop(6, 5.0)  # six requests, one in ten seconds: never two at a time
    slow.ended = 1
    assert next(n for n in range(1, 99) if slow.arrived(1)) == 4 and slow.settled


# ---- real streams


def test_the_window_is_apart_from_the_burst(prefill: str) -> None:
    result = cell(prefill)
    window, records = result["window"], result["requests"]
    assert [one["i"] for one in records] == list(range(32)), "the same requests, however long the burst was"
    assert {one["class"] for one in (*records, *result["burst"])} == {"ok"}
    ended = [one for one in result["burst"] if one["end"] <= 0]
    assert result["handover"]["requests"] == len(result["burst"]) <= 24 + 7, (
        "all other streams were under way"
    )
    assert len(ended) >= 16 and len(result["burst"]) >= 16 + 7, "each stream went on: nothing drained"
    assert all(one["start"] >= 0 for one in records) and all(one["start"] < 0 for one in result["burst"])
    assert {one["i"] for one in result["burst"]} == set(range(-len(result["burst"]), 0))
    ends = sorted(one["end"] for one in records)
    assert 0 < window["wall_s"] <= window["drained_s"] and ends[-1] <= window["drained_s"] * 1e9
    under_way = [one for one in records if one["end"] > window["wall_s"] * 1e9]
    assert len(under_way) <= 8, "it closed when the first stream had nothing left to do"
    judged = judge_cell(result)
    assert set(judged.reasons) <= BUSY, judged.details
    figures = judged.metrics
    assert figures["requests_ok"] == 32 and figures["ttft_ms"]["n"] == 32
    assert figures["output_tok_s"] == pytest.approx(window["tokens"] / window["wall_s"])
    assert figures["wall_s"] == window["wall_s"] and figures["steady_tok_s"] == figures["output_tok_s"]
    assert 1 < figures["in_flight_mean"] <= 8
    assert figures["burst"]["requests"] == len(result["burst"]) and figures["burst"]["requests_failed"] == 0
    assert figures["burst"]["ttft_ms"]["max"] > 7 * 5, "the last of the herd waits for the prompts of all"
    again = unpack(pack(result))
    assert again["burst"] == result["burst"]


def test_counters_of_the_window_and_of_the_whole(prefill: str) -> None:
    """At the zero requests are under way; around all of it none is, and the server's count is exactly ours."""
    result = cell(prefill)
    counters = result["counters"]
    assert set(counters) == {"start", "before", "after"}
    whole = len(result["burst"]) + len(result["requests"])
    assert counted(result).requests == whole == ours_at_most(result).requests
    assert counted(result).output_tokens == 20 * whole
    assert counters["start"]["at_ns"] < counters["before"]["at_ns"] <= counters["after"]["at_ns"]
    assert counters["before"]["values"] != counters["start"]["values"]
    assert judge_cell(result).metrics["server_output_tokens"] == 20 * whole


def test_the_window_lasts_as_long_as_asked(prefill: str) -> None:
    """More requests than asked for, numbered on: 2 requests a stream need a tenth of the time."""
    result = cell(prefill, requests=16, min_window_s=1.0)
    assert result["window"]["wall_s"] >= 1.0
    assert [one["i"] for one in result["requests"]] == list(range(len(result["requests"])))
    assert len(result["requests"]) > 16
    plain = cell(prefill, requests=16, min_window_s=1.0, warmup=0)
    assert len(plain["requests"]) > 16 and "handover" not in plain and "burst" not in plain


def test_processes_agree_on_one_zero(prefill: str) -> None:
    result = cell(prefill, processes=2)
    assert result.get("error") is None, result
    assert sorted(one["i"] for one in result["requests"]) == list(range(32))
    assert {one["proc"] for one in result["requests"]} == {0, 1} == {one["proc"] for one in result["burst"]}
    assert min(one["start"] for one in result["requests"]) >= 0
    late = sum(one["start"] >= 0 for one in result["burst"])
    assert late <= 8, "a process that comes to the common zero late has at most begun one more a stream"
    under_way = [one for one in result["burst"] if one["end"] > 0]
    assert len(under_way) <= 8 + late and {one["proc"] for one in under_way} == {0, 1}
    assert set(judge_cell(result).reasons) <= BUSY


@pytest.mark.parametrize("connections", ["fresh", "cold", "cold-start"])
def test_every_kind_of_connection_is_handed_over(prefill: str, connections: str) -> None:
    result = cell(prefill, connections=connections, requests=16)
    assert [one["i"] for one in result["requests"]] == list(range(16))
    assert {one["class"] for one in (*result["requests"], *result["burst"])} == {"ok"}
    assert result["handover"]["by"] in ("settled", "requests")


@pytest.mark.parametrize("arrival", ["poisson", "constant"])
def test_an_open_loop_is_handed_over(prefill: str, arrival: str) -> None:
    """60 requests a second of about 45 ms: 3 under way on average. The window's arrivals are those of its seed."""
    result = cell(prefill, mode="open", rate=60.0, arrival=arrival, requests=60, concurrency=1)
    assert [one["i"] for one in result["requests"]] == list(range(60))
    assert result["handover"]["by"] in ("settled", "requests") and len(result["burst"]) >= 14
    times = [one["sched"] for one in result["requests"]]
    if arrival == "constant":
        assert {round((b - a) / 1e6) for a, b in pairwise(times)} == {17}
    assert times == sorted(times) and times[0] >= 0
    assert 0 < result["window"]["wall_s"] <= result["window"]["drained_s"]
    assert set(judge_cell(result).reasons) <= BUSY | {"under-delivery"}


def test_a_window_of_an_open_loop_holds_those_that_had_to_wait(prefill: str) -> None:
    """More arrive than may be under way: it closed as the schedule was empty, with requests that had not begun."""
    result = cell(
        prefill, mode="open", rate=200.0, arrival="constant", requests=40, concurrency=1, max_in_flight=2
    )
    assert sorted(one["i"] for one in result["requests"]) == list(range(40))
    starts = sorted(one["start"] for one in result["requests"])
    assert starts[-2] <= result["window"]["wall_s"] * 1e9, "it closes as the last one begins"


def test_a_window_of_an_open_loop_has_as_many_gaps_as_requests(prefill: str) -> None:
    """It ends with its last arrival: begun with its first one, that of one request would have no length and no token."""
    result = cell(prefill, mode="open", rate=4.0, arrival="constant", requests=2, concurrency=1)
    assert [round(one["sched"] / 1e6) for one in result["requests"]] == [250, 500]
    one = cell(prefill, mode="open", rate=4.0, arrival="constant", requests=1, concurrency=1)
    assert one["window"]["wall_s"] >= 0.25


def test_a_server_that_gives_no_token_is_judged_by_its_burst(lying: str) -> None:
    """The window never began: what came is all there is."""
    result = cell(lying + "/b/empty", engine="")
    assert result["handover"]["by"] == "" and result["window"]["stopped"] == "no-tokens"
    assert [one["i"] for one in result["requests"]] == list(range(len(result["requests"])))
    judged = judge_cell(result)
    assert judged.validity == "INVALID" and judged.cause == "no-tokens"


def test_a_dead_server_is_no_traceback(free_port: int) -> None:
    judged = judge_cell(cell(f"http://127.0.0.1:{free_port}", model="m", concurrency=2, requests=4))
    assert judged.validity == "INVALID" and judged.metrics["failures"].keys() == {"refused"}


def test_the_time_limit_ends_the_burst(lying: str) -> None:
    """A server that hangs in the burst is judged by it; one whose requests take longer than a quarter of the limit
    begins its window in the burst, and is named."""
    hung = cell(lying + "/b/stall-50", engine="", concurrency=2, output_tokens=64, time_limit_s=2.0)
    assert hung["handover"]["by"] == "time" and hung["window"]["stopped"] == "time-limit"
    assert [one["class"] for one in hung["requests"]] == ["unfinished"] * 2
    assert hung["window"]["wall_s"] >= 2.0 and not judge_cell(hung).metrics["requests_ok"]
    slow = {**hung, "handover": {"by": "time", "requests": 8, "seconds": 150.0}}
    found = not_settled(slow, [])
    assert found == "a quarter of the time limit (150 s) was over before the load had settled"


# ---- what is made of it


def test_tokens_of_a_window_by_their_arrival() -> None:
    counts = {"i": 0, "class": "ok", "tokens": 10, "start": -50, "end": 100}
    each = {**counts, "t": [-20, 30, 30, 40], "k": [4, 2, 2, 2]}  # at -20, 10, 40, 80
    assert served([each], 60) == {"ended": 0, "tokens": 4}
    assert served([each], 100) == {"ended": 1, "tokens": 6}
    assert served([{**each, "k": 2}], 100) == {"ended": 1, "tokens": 8}, "2 more were counted than shown"
    even = {**counts, "t": [-20, 30, 30, 40]}
    assert served([even], 60)["tokens"] == 5
    assert served([counts], 100)["tokens"] == 10 and served([counts], 99)["tokens"] == 0
    assert served([{**counts, "class": "short"}], 100) == {"ended": 0, "tokens": 0}
    assert served([{"i": 0, "class": "ok", "start": 0, "end": 5}], 100) == {"ended": 1}
    assert token_bins([each]) | {"bin_ns": 0} == {"bin_ns": 0, "start": 0, "tokens": [6], "left_out": 0}


def test_metrics_of_a_window_need_no_drain() -> None:
    """Two streams, one request of each in the window; it closes at 2 s, and the other one ends at 3 s."""
    first = {"i": 0, "class": "ok", "start": 0, "end": 2 * 10**9, "tokens": 20, "last_event": 2 * 10**9}
    other = {**first, "i": 1, "start": 10**9, "end": 3 * 10**9, "last_event": 3 * 10**9}
    burst = {**first, "i": -1, "start": -(10**9), "end": 10**9, "last_event": 10**9}
    figures = cell_metrics(
        [read_request(first), read_request(other)],
        concurrency=2,
        burst=[read_request(burst)],
        window={"wall_s": 2.0, "tokens": 40, "ended": 2},
    )
    assert figures["output_tok_s"] == 20 and figures["requests_s"] == 1 and figures["in_flight_mean"] == 2
    assert figures["e2e_ms"]["n"] == 2 and figures["wall_s"] == 2


def steady(seed: int, n: int = 64, drift: float = 0.0, prompts: int = 1) -> list[tuple[int, float]]:
    rng = random.Random(seed)
    return [(i % prompts, (100 + 40 * (i % prompts)) * rng.gauss(1 + drift * i / n, 0.1)) for i in range(n)]


def test_a_drift_is_found_and_noise_is_not() -> None:
    assert not any(moved(steady(seed), 5.0) for seed in range(300))
    assert not any(moved(steady(seed, prompts=7), 5.0) for seed in range(300))
    assert not any(moved(steady(seed, n=1000), 5.0) for seed in range(50))
    assert all(moved(steady(seed, drift=1.0), 5.0) for seed in range(50))
    low, high = moved(steady(1, drift=1.0), 5.0) or (0, 0)
    assert high > 1.3 * low
    assert moved(steady(1, n=31, drift=1.0), 5.0) is None, "too few to tell"
    assert moved([(i, 100.0 + i) for i in range(64)], 5.0) is None, "prompts that never come again"


@pytest.mark.process
def test_a_server_that_never_settles_is_named() -> None:
    argv = [sys.executable, "-m", "tests.bench.servers.prefill", "--prefill-ms", "5", "--step-ms", "2"]
    child, url = start([*argv, "--slower-pct", "4"])
    try:
        judged = judge_cell(cell(url, requests=64))
    finally:
        child.terminate()
        child.wait(HANG_S)
    assert "not-settled" in judged.reasons and TABLE["not-settled"].verdict == "SUSPECT"
    assert "TTFT moved from" in judged.details["not-settled"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"warmup": "hand-over"}, 'wanted "handover", or a number'),
        ({"warmup": -1}, "warmup: -1"),
        ({"warmup": True}, "warmup: True"),
        ({"min_window_s": -1}, "min_window_s"),
        ({"settle_pct": 0}, "settle_pct: 0"),
    ],
)
def test_wrong_keys_are_named(change: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec({"url": "http://h", **change})
    assert word in str(caught.value)
