"""Whether bytes still come from a server that is measured, and how long it may be silent. Time is an argument."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.events import GpuReading
from ddtop.sweep.cell.life.server_watch import ChunkWatch
from ddtop.sweep.cell.life.signs import CounterWatch, CpuWatch
from ddtop.sweep.cell.life.silence import (
    Life,
    Silence,
    Silences,
    gpu_state,
    hang_limit_s,
    is_hung,
    kind_of_life,
    life_words,
)
from ddtop.sweep.shared.limits import NO_TOKEN_S

RUNNING = {"cell": "a", "phase": "running", "chunks": 7, "done": 1, "in_flight": 4}
DEAD = Life(cpu_still_s=20.0, gpu="idle", gpu_wanted=True, counters="still")


def silent(watch: ChunkWatch, seconds: float, *, begin: float = 10.0, **more: Any) -> float:
    """The job tells each second of the same chunks; returns the last moment."""
    for n in range(1, int(seconds) + 1):
        watch.take({**RUNNING, **more}, begin + n)
    return begin + int(seconds)


@pytest.mark.parametrize(
    ("what", "later", "hung"),
    [
        ("no chunk since", RUNNING, True),
        ("requests time out and others take their place", {**RUNNING, "done": 5}, True),
        ("a chunk more", {**RUNNING, "chunks": 8}, False),
        ("the next cell", {**RUNNING, "cell": "b"}, False),
        ("nothing in flight", {**RUNNING, "in_flight": 0}, False),
        ("between the windows", {**RUNNING, "phase": "preparing"}, False),
    ],
)
def test_a_server_hangs_when_no_byte_comes_while_requests_run(
    what: str, later: dict[str, object], hung: bool
) -> None:
    watch = ChunkWatch(0.0)
    watch.take(RUNNING, 10.0)
    silent(watch, 18)
    watch.take(later, 28.5)
    now = watch.silence(DEAD, 29.0)
    assert (now is not None and is_hung(now)) is hung, what
    early = ChunkWatch(0.0)
    early.take(RUNNING, 10.0)
    before = early.silence(DEAD, silent(early, 10))
    assert before is not None and not is_hung(before)


@pytest.mark.parametrize("phase", ["warming up", "context", "asking again", "running"])
def test_requests_beside_the_window_are_watched_too(phase: str) -> None:
    watch = ChunkWatch(0.0)
    watch.take({**RUNNING, "phase": phase, "chunks": 0}, 10.0)
    now = watch.silence(DEAD, silent(watch, 20, phase=phase, chunks=0))
    assert now is not None and is_hung(now)


def test_a_generator_that_tells_nothing_is_no_silence_of_the_server() -> None:
    watch = ChunkWatch(0.0)
    watch.take(RUNNING, 10.0)
    assert watch.quiet_s(100.0) == 5.0, "the whole host may stand still"


def test_a_silence_that_ended_by_itself_is_allowed_again() -> None:
    seen = Silences()
    watch = ChunkWatch(0.0, seen, size=lambda cell: 32_000.0 if cell == "long" else 500.0)
    watch.take({**RUNNING, "cell": "long", "chunks": 0}, 0.0)
    for n in range(1, 91):
        watch.take({**RUNNING, "cell": "long", "chunks": 0}, float(n))
        now = watch.silence(Life(cpu_still_s=0.0, gpu="works", gpu_wanted=True), float(n))
        assert now is not None and not is_hung(now)
    watch.take({**RUNNING, "cell": "long", "chunks": 1}, 91.0)
    assert seen.expected(first=False, prompt_tokens=32_000, streams=4) == (91.0, True)
    assert seen.expected(first=False, prompt_tokens=64_000, streams=4)[0] == 182.0, "twice the prompt"
    assert seen.expected(first=False, prompt_tokens=500, streams=4)[0] == 91.0, "never less than was seen"


def test_a_stop_that_ended_teaches_nothing() -> None:
    watch = ChunkWatch(0.0, seen := Silences())
    watch.take(RUNNING, 0.0)
    for n in range(1, 14):
        watch.take(RUNNING, float(n))
        watch.silence(DEAD, float(n))
    watch.take({**RUNNING, "chunks": 8}, 14.0)
    assert seen.expected(first=False, prompt_tokens=1, streams=4) == (0.0, False)


def test_a_warm_up_that_compiled_says_nothing_of_a_stream_that_runs() -> None:
    seen = Silences()
    seen.learn(80.0, warm=True, prompt_tokens=100, streams=1, alive=True)
    assert seen.expected(first=True, prompt_tokens=100, streams=1) == (80.0, True)
    assert seen.expected(first=False, prompt_tokens=100, streams=1) == (0.0, False)


WORKS = Life(cpu_still_s=0.0, gpu="works", gpu_wanted=True, counters="still")
KINDS = [
    # what is read, what it amounts to
    (Life(), "unknown"),
    (DEAD, "none"),
    (Life(cpu_still_s=9.0), "none"),
    (Life(cpu_still_s=9.0, gpu="idle", counters="mute"), "none"),
    (Life(gpu="idle", gpu_wanted=True), "none"),
    (Life(gpu="idle"), "unknown"),
    (Life(counters="mute"), "unknown"),
    (Life(counters="still"), "unknown"),
    (Life(cpu_still_s=20.0, counters="move"), "works"),
    (Life(cpu_still_s=20.0, gpu="idle", compiling=True), "works"),
    (WORKS, "works"),
    (Life(gpu="works"), "works"),
    (Life(cpu_still_s=20.0, gpu="works", gpu_wanted=True), "doubtful"),
    (Life(cpu_still_s=0.0, gpu="low", gpu_wanted=True), "doubtful"),
    (Life(cpu_still_s=0.0, gpu="idle", gpu_wanted=True), "doubtful"),
    (Life(cpu_still_s=0.0, gpu="idle"), "cpu-alone"),
    (Life(cpu_still_s=0.0), "cpu-alone"),
    (Life(cpu_still_s=0.0, counters="still"), "cpu-alone"),
]


@pytest.mark.parametrize(("life", "kind"), KINDS)
def test_what_the_signs_amount_to(life: Life, kind: str) -> None:
    assert kind_of_life(life) == kind
    assert life_words(life)


LIMITS = [
    # expected s, known, prompt tokens of all requests, signs → limit s
    (0.0, False, 100, DEAD, 15),
    (2.0, True, 100, DEAD, 17),
    (200.0, True, 32_000, DEAD, 45),
    (0.0, False, 100, Life(), 60),
    (10.0, True, 100, Life(), 80),
    (1.0, True, 100, Life(cpu_still_s=0.0, gpu="low", gpu_wanted=True), 63),
    (1.0, True, 100, Life(cpu_still_s=0.0), 120),
    (40.0, True, 32_000, Life(cpu_still_s=0.0), 260),
    (1.0, False, 100, Life(cpu_still_s=0.0), NO_TOKEN_S),
    (1.0, False, 32_000, Life(cpu_still_s=0.0), 1600),
    (1.0, True, 100, WORKS, NO_TOKEN_S),
    (60.0, True, 32_000, WORKS, 1600),
    (60.0, True, 8 * 32_000, WORKS, 12_800),
]


@pytest.mark.parametrize(("expected_s", "known", "tokens", "life", "limit"), LIMITS)
def test_how_long_a_server_may_be_silent(
    expected_s: float, known: bool, tokens: float, life: Life, limit: float
) -> None:
    now = Silence(quiet_s=limit, expected_s=expected_s, known=known, prompt_tokens=tokens, life=life)
    assert hang_limit_s(now) == limit and is_hung(now)


def gpu(util: float | None, power: float | None, limit: float | None = 700.0) -> GpuReading:
    return GpuReading(index=0, util_gpu_pct=util, power_w=power, power_limit_w=limit)


@pytest.mark.parametrize(
    ("gpus", "flow_w", "state"),
    [
        ((), None, None),
        ((gpu(None, 100.0),), 400.0, None),
        ((gpu(0.0, 118.0),), 400.0, "idle"),  # a real H200 under a stopped llama.cpp
        ((gpu(0.0, 118.0), gpu(98.0, 600.0)), None, "works"),
        ((gpu(89.0, 410.0),), 410.0, "works"),
        ((gpu(100.0, 140.0, 600.0),), None, "low"),  # a P2P hang on RTX PRO 6000
        ((gpu(100.0, 260.0),), 500.0, "low"),
        ((gpu(100.0, None, None),), None, "works"),
    ],
)
def test_what_the_gpus_do(gpus: tuple[GpuReading, ...], flow_w: float | None, state: str | None) -> None:
    assert gpu_state(gpus, flow_w) == state


def readings(*rates: float, first: float = 30.0, every: float = 4.0) -> tuple[CpuWatch, float]:
    """CPU time of the processes with these cores in use, looked at every 4 s; the last moment."""
    watch, at, cpu = CpuWatch(), 0.0, first
    watch.take({"cpu_s": cpu, "mono_s": at, "pids": 3}, at)
    for rate in rates:
        at, cpu = at + every, cpu + rate * every
        watch.take({"cpu_s": cpu, "mono_s": at, "pids": 3}, at, flowing=rate >= 0.015)
    return watch, at


@pytest.mark.parametrize(
    ("what", "rates", "first", "still_s"),
    [
        ("it computes", (0.9, 1.0), 30.0, 0.0),
        ("it is stopped", (0.9, 0.0, 0.0, 0.0), 30.0, 12.0),
        ("only its HTTP process lives", (2.0, 0.01, 0.02), 30.0, 8.0),
        ("a light server is stopped", (0.02, 0.02, 0.0, 0.0), 0.3, 8.0),
        ("a light server computes", (0.02, 0.02, 0.01), 0.3, 0.0),
        ("a client that started it elsewhere", (0.0, 0.0, 0.0), 0.3, None),
        ("not read twice yet", (), 30.0, None),
    ],
)
def test_since_when_cpu_time_stands_still(
    what: str, rates: tuple[float, ...], first: float, still_s: float | None
) -> None:
    watch, at = readings(*rates, first=first)
    assert watch.still_s(at) == still_s, what


def test_processes_that_cannot_be_read_any_more_say_nothing() -> None:
    watch, at = readings(0.9, 0.0, 0.0)
    watch.take({"cpu_s": 0.0, "mono_s": at + 4, "pids": 0}, at + 4)
    assert watch.still_s(at + 4) is None
    old, at = readings(0.9, 0.0, 0.0)
    assert old.still_s(at + 60) is None, "the stream ended"


VLLM = 'vllm:generation_tokens_total{engine="0"} %s\nvllm:num_requests_running{engine="0"} %s\n'


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ([VLLM % (5, 1)], None),
        ([VLLM % (5, 1), VLLM % (5, 1)], "still"),
        ([VLLM % (5, 1), VLLM % (5, 4)], "still"),  # a gauge is no work
        ([VLLM % (5, 1), VLLM % (6, 1)], "move"),
        ([VLLM % (5, 1), VLLM % (6, 1), VLLM % (6, 1)], "still"),
        ([VLLM % (5, 1), None], "mute"),
        ([None, None], None),  # it never had any: nothing is guessed
        (["# nothing of ours\nprocess_cpu_seconds_total 5\n"] * 2, None),
        (
            [
                'sglang:http_requests_total{endpoint="/metrics"} 1\nsglang:prompt_tokens_total 3\n',
                'sglang:http_requests_total{endpoint="/metrics"} 2\nsglang:prompt_tokens_total 3\n',
            ],
            "still",
        ),
        (["llamacpp:tokens_predicted_total 7\n", "llamacpp:tokens_predicted_total 9\n"], "move"),
    ],
)
def test_what_its_own_counters_do(bodies: list[str | None], said: str | None) -> None:
    watch = CounterWatch()
    for body in bodies:
        watch.take(body)
    assert watch.said == said


def test_a_long_prompt_of_which_nothing_can_be_read_is_waited_for() -> None:
    """Eight prompts of 128 k tokens on a host that shows no sign of life: a minute without a byte is no hang."""

    def limit(prompt_tokens: float) -> float:
        return hang_limit_s(
            Silence(quiet_s=0.0, expected_s=0.5, known=False, prompt_tokens=prompt_tokens, life=Life())
        )

    assert limit(8 * 128_000.0) == 1024.0
    assert limit(8 * 500.0) == 61.0
