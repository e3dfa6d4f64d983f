"""Pages of `/metrics` of a real vLLM 0.32.0 and SGLang 0.5.23 under load: tests/data/engines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ddtop.engines import ENGINES
from ddtop.engines.metrics_page import metric_sums

DATA = Path(__file__).parent.parent / "data/engines"
SGL, VLLM = ENGINES["sglang"], ENGINES["vllm"]


def page(name: str) -> str:
    return gzip.decompress((DATA / f"{name}.metrics.gz").read_bytes()).decode()


def value(name: str, series: str) -> float:
    return metric_sums(page(name), (series,))[series]


@pytest.mark.parametrize("spec", ("", "-ngram"))
def test_what_vllm_says_of_itself_under_load(spec: str) -> None:
    """Four or fewer run, the others wait, the KV cache is more than half full; idle and after: nothing of it."""
    for moment, busy in (("idle", False), ("load", True), ("after", False)):
        name = f"vllm-0.32.0{spec}-{moment}"
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            assert (value(name, gauge) > 0) is busy, (name, gauge)
        assert (value(name, "vllm:kv_cache_usage_perc") > 0.5) is busy
    assert value(f"vllm-0.32.0{spec}-after", "vllm:num_preemptions_total") == 3
    moving = [
        value(f"vllm-0.32.0{spec}-{m}", "vllm:generation_tokens_total") for m in ("idle", "load", "after")
    ]
    assert moving[0] == 4 and moving[0] < moving[1] < moving[2] == 8004, "with each step"


@pytest.mark.parametrize("spec", ("", "-ngram"))
def test_what_sglang_says_of_itself_under_load(spec: str) -> None:
    """Four run and others wait. Tokens are counted when their request ends: not before."""
    for moment, running in (("idle", 0), ("load", 4), ("after", 0)):
        name = f"sglang-0.5.23{spec}-{moment}"
        assert value(name, "sglang:num_running_reqs") == running
        assert (value(name, "sglang:num_queue_reqs") > 0) is (running > 0)
        assert (value(name, "sglang:token_usage") > 0) is (running > 0)
    counted = [
        value(f"sglang-0.5.23{spec}-{m}", "sglang:generation_tokens_total") for m in ("idle", "load", "after")
    ]
    assert counted[0] == 4 and (counted[1] - 4) % 800 == 0, "whole requests of 800 tokens"
    assert counted[2] in (8004, 8012)


def test_acceptance_from_the_counters_of_both() -> None:
    """Tokens per verification step over the load, from counters alone; none where nothing is drafted."""
    assert VLLM.acceptance_counters(page("vllm-0.32.0-after")) is None
    assert SGL.acceptance_counters(page("sglang-0.5.23-after")) is None
    before, after = (VLLM.acceptance_counters(page(f"vllm-0.32.0-ngram-{m}")) for m in ("idle", "after"))
    assert before is not None and after is not None and after.accepted is not None
    assert (before.steps, after.steps, after.accepted, after.drafted) == (0, 1600, 6018, 6400)
    before, after = (SGL.acceptance_counters(page(f"sglang-0.5.23-ngram-{m}")) for m in ("idle", "after"))
    assert before is not None and after is not None
    assert after.steps - before.steps == 2158
