"""The search for the knee: its decisions alone, on simulated servers with noise, and against a server whose knee is known."""

from __future__ import annotations

import math
import random
import sys
from functools import cache

import pytest

from ddtop.agent.loadgen.spec import LIMITS
from ddtop.agent.loadgen.window.slo import FIRST_LOOK, LOOK_AGAIN, verdict_of
from ddtop.bench import render
from ddtop.bench.figures.metrics import Slo
from ddtop.bench.render import bench_text
from ddtop.bench.search import (
    Point,
    PointVerdict,
    Tried,
    as_tried,
    bracket,
    growth,
    measured_at,
    next_point,
    point_load,
    verdict_on,
)
from ddtop.bench.url_bench import BenchOptions, run_bench
from ddtop.events import LATENCIES, Search
from tests.bench.conftest import start
from tests.waiting import HANG_S

SLO = {"ttft_ms": 500.0}
STREAMS = Search(by="concurrency", slo=SLO, confirm_s=0)
RATE = Search(by="rate", slo=SLO, confirm_s=0)


def walk(search: Search, knee: float) -> list[Tried]:
    """The loads tried on a server that meets the levels up to `knee`, without noise."""
    steps: list[Tried] = []
    while (point := next_point(steps, search)) is not None:
        steps.append(Tried(point.load, "met" if point.load <= knee else "missed", confirm=point.confirm))
        assert len(steps) < 40
    return steps


@pytest.mark.parametrize(
    ("search", "knee", "loads"),
    [
        (STREAMS, 5, [1, 2, 4, 8, 6, 5]),
        (STREAMS, 27, [1, 2, 4, 8, 16, 32, 24, 28, 26]),
        (STREAMS, 0, [1]),
        (RATE, 5.3, [1, 2, 4, 8, 6, 5, 5.5]),
        (RATE, 0.7, [1, 0.5, 0.75, 0.625, 0.6875]),
        (Search(by="concurrency", slo=SLO, start=8, most=12, confirm_s=0), 99, [8, 12]),
        (Search(by="concurrency", slo=SLO, start=8, confirm_s=0), 3, [8, 4, 2, 3]),
        (Search(by="concurrency", slo=SLO, confirm_s=60, most=4), 2, [1, 2, 4, 3, 2]),
    ],
)
def test_doubled_then_halved_to_an_eighth(search: Search, knee: float, loads: list[float]) -> None:
    assert [tried.load for tried in walk(search, knee)] == loads


def test_without_noise_the_knee_is_found_to_an_eighth() -> None:
    for knee in range(1, 257):
        low = bracket(walk(STREAMS, knee), STREAMS).low
        assert low is not None and low <= knee <= low + max(1, low / 8)
        low = bracket(walk(RATE, knee + 0.4), RATE).low
        assert low is not None and (low <= knee + 0.4 < low * 1.1251 or low == 256)


def test_a_rate_is_given_up_after_six_halvings_and_a_lone_stream_at_once() -> None:
    long = Search(by="rate", slo=SLO, confirm_s=0, point_s=600)
    assert [t.load for t in walk(long, 0)] == [1, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]
    assert [t.load for t in walk(RATE, 0)] == [1, 0.5, 0.25, 0.125], "five requests in 60 s at least"
    assert bracket(walk(RATE, 0), RATE).low is None


def test_a_rate_at_which_no_two_requests_meet_is_the_lowest_that_can_matter() -> None:
    """Seen with a real llama.cpp on a busy machine: alone a request took too long, and lower rates only took time."""
    steps = [Tried(1, "missed", 0.0), Tried(0.5, "missed", 0.0, overlapped=False)]
    assert next_point(steps[:1], RATE) == Point(0.5) and next_point(steps, RATE) is None
    alone = {"in_flight_max": 1, "output_tok_s": 3.0}
    assert not as_tried(Point(0.5), "missed", alone, {}).overlapped
    assert as_tried(Point(0.5), "missed", {"in_flight_max": 2}, {}).overlapped


def test_where_the_confirmation_misses_the_next_lower_load_is_confirmed() -> None:
    search = Search(by="concurrency", slo=SLO)
    steps = [Tried(n, "met") for n in (1, 2, 4, 8)] + [Tried(16, "missed"), Tried(12, "missed")]
    steps += [Tried(10, "missed"), Tried(9, "met")]
    assert next_point(steps, search) == Point(9, confirm=True)
    steps.append(Tried(9, "missed", 0.93, confirm=True))
    assert next_point(steps, search) == Point(8, confirm=True)
    steps.append(Tried(8, "met", 0.97, confirm=True))
    assert next_point(steps, search) is None
    known = bracket(steps, search)
    assert (known.low, known.high, known.confirmed) == (8, 9, True)


def test_an_undecided_load_is_taken_as_its_requests_say() -> None:
    def after(verdict: PointVerdict, attained: float | None) -> float | None:
        point = next_point([Tried(1, "met"), Tried(2, verdict, attained)], STREAMS)
        return point.load if point else None

    assert after("undecided", 0.96) == 4 and after("undecided", 0.94) is None
    assert after("undecided", None) is None, "no request ended: nothing says that it was met"
    assert after("over-saturated", 0.99) is None


def test_without_limits_the_throughput_decides() -> None:
    search, steps = Search(by="concurrency"), list[Tried]()
    while (point := next_point(steps, search)) is not None:
        tok_s = 10.0 * min(point.load, 40)
        steps.append(Tried(point.load, growth(steps, point.load, tok_s, search), output_tok_s=tok_s))
    assert [t.load for t in steps] == [1, 2, 4, 8, 16, 32, 64, 128] and steps[-1].verdict == "flat"
    assert bracket(steps, search).low == 64
    assert growth([], 1, None, search) == "failed" and next_point([Tried(1, "failed")], search) is None


def test_a_load_that_overwhelms_the_server_is_missed_and_one_that_gives_nothing_is_spoiled() -> None:
    below = [Tried(4, "met")]

    def of(reason: str, load: float, *, confirm: bool = False) -> PointVerdict | None:
        return verdict_on("INVALID", (reason,), {}, Point(load, confirm), below, STREAMS)

    assert of("most-failed", 8) == of("no-tokens", 8) == of("most-failed", 4, confirm=True) == "failed"
    assert of("most-failed", 2) is None, "less than what was met"
    cut = {"slo": {"verdict": "over-saturated"}}
    assert verdict_on("INVALID", ("no-tokens",), cut, Point(1), [], RATE) == "over-saturated"
    assert of("client-bound", 8) is None and of("garbage-output", 8) is None


def test_what_a_load_asks_of_the_generator() -> None:
    search = Search(by="concurrency", slo=SLO)
    load = point_load(search, Point(8), [], "n")
    assert load == {
        "mode": "closed",
        "concurrency": 8,
        "requests": 10_000,
        "min_window_s": 0.0,
        "slo": SLO,
        "share": 0.95,
        "time_limit_s": 60.0,
        "nonce": "n-8",
    }
    assert measured_at(search, load) == Point(8)
    confirm = point_load(search, Point(8, confirm=True), [Tried(8, "met", requests_s=12.5)], "n")
    assert confirm == {
        "mode": "closed",
        "concurrency": 8,
        "requests": 750,
        "min_window_s": 60.0,
        "nonce": "n-8-confirm",
    }
    assert measured_at(search, confirm) == Point(8, confirm=True)
    rate = Search(by="rate", slo=SLO, point_s=30)
    assert point_load(rate, Point(0.5), [])["requests"] == 15
    assert point_load(rate, Point(0.5), [])["time_limit_s"] == 60.0
    confirm = point_load(rate, Point(0.5, confirm=True), [])
    assert (confirm["mode"], confirm["requests"], confirm["min_window_s"]) == ("open", 30, 60.0)


def test_limits_have_the_same_names_everywhere() -> None:
    assert LATENCIES == LIMITS == tuple(Slo.__dataclass_fields__)


# --------------------------------------------------------------------------- SIMULATED servers with noise

CAP = 1000
"""Requests of one load, at most."""
SHARE = 0.95


@cache
def decided(attained: int, n: int) -> str:
    return verdict_of(attained, n, SHARE)


class Noisy:
    """A server whose share of requests in time falls off around its knee, more or less steeply; each load is as if it were
    3% (one standard deviation) more or less, and each request is a throw."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.knee = math.exp(self.source.uniform(math.log(2), math.log(180)))
        self.steep = self.source.uniform(4, 30)
        """At 4, one eighth above the knee 91% are in time; at 30, 10%."""
        self.requests = 0

    def measure(self, load: float, fixed: int = 0) -> Tried:
        """By the generator's own rule; with `fixed` by so many requests."""
        off = math.log2(load / self.knee) + self.source.gauss(0, 0.03)
        chance = 1 / (1 + math.exp(min(500.0, self.steep * off - math.log(SHARE / (1 - SHARE)))))
        n = good = 0
        verdict, look = "undecided", FIRST_LOOK
        while n < (fixed or CAP) and verdict == "undecided":
            n += 1
            good += self.source.random() < chance
            if not fixed and n >= look:
                look = max(n + 1, int(n * LOOK_AGAIN))
                verdict = decided(good, n)
        self.requests += n
        return Tried(load, verdict, good / n)  # type: ignore[arg-type]


def place(load: float) -> int:
    """On the grid of the search: eighths of each doubling."""
    octave = math.floor(math.log2(load) + 1e-12)
    return octave * 8 + math.floor((load / 2**octave - 1) * 8 + 1e-9)


def simulate(fixed: int = 0) -> tuple[float, float, float]:
    """(share within one grid step of the true knee, share in its very step, requests a search) of 1,000 servers."""
    near = exact = requests = 0
    for seed in range(1000):
        server, steps = Noisy(seed), list[Tried]()
        while (point := next_point(steps, RATE)) is not None:
            steps.append(server.measure(point.load, fixed))
        low = bracket(steps, RATE).low
        off = abs(place(low) - place(server.knee)) if low is not None else 99
        near, exact, requests = near + (off <= 1), exact + (off == 0), requests + server.requests
    return near / 1000, exact / 1000, requests / 1000


def test_the_knee_of_a_thousand_noisy_servers() -> None:
    """Compared with a bisect of fixed lengths that finds the very step as often: half of its requests are enough."""
    near, exact, requests = simulate()
    assert near >= 0.95
    _, fixed_exact, fixed_requests = simulate(fixed=400)
    assert exact >= fixed_exact - 0.01, (exact, fixed_exact)
    assert requests <= fixed_requests / 2, (requests, fixed_requests)


# --------------------------------------------------------------------------- a real search


@pytest.mark.process
def test_against_a_server_whose_knee_is_known() -> None:
    """Up to 6 requests at once are answered, whatever the machine does meanwhile; the seventh is refused."""
    child, url = start([sys.executable, "-m", "tests.bench.servers.slots", "--slots", "6"])
    try:
        options = BenchOptions(
            url,
            concurrency=64,
            output_tokens=4,
            slo=Slo(e2e_ms=60_000.0),
            ramp=True,
            confirm_s=1.0,
        )
        result = run_bench(options)
    finally:
        child.terminate()
        child.wait(HANG_S)
    tried = [(step["concurrency"], step["confirm"]) for step in result["steps"]]
    assert tried == [(1, False), (2, False), (4, False), (8, False), (6, False), (7, False), (6, True)]
    assert (result["knee"], result["knee_above"], result["search"]["confirmed"]) == (6, False, True)
    verdicts = [step["verdict"] for step in result["steps"]]
    assert verdicts[:3] == ["met"] * 3 and set(verdicts[3::2]) <= {"missed", "failed"}
    assert max(step["n"] for step in result["steps"][:4]) <= 130, "a load ends when it is decided"
    assert all(step["n"] == step["attained"] > 0 for step in result["steps"] if step["verdict"] == "met")
    assert result["requests"] != 10_000 and "slo" not in result["metrics"], (
        "the figures are the confirmation's"
    )
    text = bench_text(result)
    assert (
        "knee            6 streams (95% with E2E ≤ 60000 ms)" in text and "6 streams  confirmed: met" in text
    )


def test_a_ladder_in_words() -> None:
    step = {"concurrency": 1, "rate": None, "confirm": False, "output_tok_s": 25.0, "n": 0, "attained": 0}
    result = {
        "search": {"by": "concurrency", "objective": "95% with TTFT ≤ 500 ms"},
        "knee": None,
        "knee_above": False,
    }

    def said(verdict: str, **more: object) -> list[str]:
        return render._search_lines({**result, "steps": [{**step, "verdict": verdict}], **more})

    assert said("undecided")[-1].startswith("knee            not known: no load was decided")
    assert said("missed")[-1] == "knee            none: no load held 95% with TTFT ≤ 500 ms"
    assert said("met", knee=1)[-1] == "knee            1 stream (95% with TTFT ≤ 500 ms)"
    assert said("met", knee=1)[0].startswith("      1 stream   met ")
