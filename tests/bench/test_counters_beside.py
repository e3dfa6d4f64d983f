"""The counters of a server that hangs are asked for without leaving the GPU readings unread meanwhile."""

from __future__ import annotations

import time
from typing import Any

from ddtop.agent.loadgen.engine_calls import read_counters
from ddtop.agent.loadgen.machine.gpu import GpuSampler
from ddtop.agent.loadgen.measure import beside


class Sampler(GpuSampler):
    """Notes when it is read."""

    def __init__(self) -> None:
        super().__init__("none")
        self.read_at: list[float] = []

    def readable(self) -> None:
        self.read_at.append(time.monotonic())


def test_readings_are_taken_while_a_server_does_not_answer() -> None:
    sampler = Sampler()

    def slow() -> dict[str, Any]:
        time.sleep(0.6)
        return {"error": "no whole response in 5 s"}

    assert beside(slow, sampler) == {"error": "no whole response in 5 s"}
    gaps = [b - a for a, b in zip(sampler.read_at, sampler.read_at[1:], strict=False)]
    assert len(sampler.read_at) >= 4 and max(gaps) < 0.5, gaps


def test_a_question_that_fails_is_an_error_and_no_crash(free_port: int) -> None:
    base = f"http://127.0.0.1:{free_port}"
    assert "error" in beside(lambda: read_counters(base, "/metrics", {}, True), Sampler())
