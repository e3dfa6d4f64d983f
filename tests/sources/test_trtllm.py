"""TensorRT-LLM's iteration log: real requests over the time of a pass, never the padding of CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.inspect import inspect_files
from ddtop.sources.figures.diagnosis import log_metrics

STAMP = "[04/28/2025-09:56:44] [TRT-LLM] "
HEAD = "iter = 198, global_rank = 0, rank = 0, currank_total_requests = 0/0, "
STATES = "states = {{'num_ctx_requests': {ctx}, 'num_ctx_tokens': {tokens}, 'num_generation_tokens': {gen}}}"


def line(
    middle: str, *, ctx: int = 0, tokens: int = 0, gen: int = 16, tail: str = "", head: str = HEAD
) -> str:
    return f"{STAMP}[I] {head}{middle}, {STATES.format(ctx=ctx, tokens=tokens, gen=gen)}{tail}\n"


TEN = "elapsed_time = 0.005s, timestamp = 2025-04-28 09:56:44, num_scheduled_requests: 10"
STEP = "host_step_time = 5.0ms, prev_device_step_time = 4.1ms, timestamp = 2025-12-01 09:56:44"


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (line(TEN), {"gen_tps": [2000.0], "running": 10, "padded_tokens": 6}),
        (line(TEN) * 2, {"gen_tps": [2000.0, 2000.0], "lines": 2}),
        (line(f"{STEP}, num_scheduled_requests: 10"), {"gen_tps": [2000.0], "running": 10}),
        (line(f"{STEP.replace('4.1ms', 'N/A')}, num_scheduled_requests: 10"), {"gen_tps": [2000.0]}),
        (line(f"{STEP}, kv_cache_util = 0.53, num_scheduled_requests = 10"), {"gen_tps": [2000.0]}),
        (line(f"{STEP}, num_scheduled_requests: 14", tail=", num_active = 14, num_fetched = 0, num_dummy = 4, num_unscheduled = 0"), {"gen_tps": [2000.0], "running": 10}),
        (line(TEN) + line(TEN, head=HEAD.replace("rank = 0", "rank = 1")), {"lines": 1, "gen_tps": [2000.0]}),
        (line(TEN, ctx=2, tokens=4096, gen=8), {"gen_tps": None, "prompt_tokens": 4096, "running": 8}),
        (line("elapsed_time = 0.005s, timestamp = 2025-04-01 09:56:44"), {"gen_tps": None, "running": None, "lines": 1}),
        (line(f"{STEP}, num_scheduled_requests: 5", gen=512), {"gen_tps": None, "running": 5}),
        (line(f"{STEP}, num_scheduled_requests: 0", gen=0), {"gen_tps": None, "running": 0}),
        (line("elapsed_time = 0.0s, timestamp = x, num_scheduled_requests: 10"), {"gen_tps": None}),
        (line(TEN).replace("[TRT-LLM] [I]", "[TRT-LLM] [RANK 0] [I]"), {"gen_tps": [2000.0]}),
        ("".join(f"trtllm-1  | {one}" for one in (line(TEN), line(TEN))), {"gen_tps": [2000.0, 2000.0]}),
    ],
)  # fmt: skip
def test_figures(text: str, figures: dict[str, Any]) -> None:
    got = log_metrics(text.encode())
    assert (got["verdict"], got["cause"], got["engine"]) == ("ok", "no-speculation", "trtllm")
    for name, value in figures.items():
        assert got.get(name) == value, name
    assert got["evidence"][0]["line"] == 1


def test_what_only_speaks_of_iterations_is_no_iteration_log() -> None:
    got = log_metrics(b"training: iter = 5, loss = 0.3\n")
    assert got.get("engine") is None


def test_the_figures_stand_beside_the_logs_own_answer() -> None:
    got = inspect_files("log", {"input.log": (line(TEN) * 3).encode()})
    assert got["metrics"]["gen_tps_mean"] == 2000.0
