"""What servers say of their load: real pages of vLLM, SGLang and llama.cpp, ranks, counters that begin anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop.agent.host.metrics import rows_of, series
from ddtop.engines import ENGINES
from ddtop.engines.server_load import LOAD_SERIES, ServerLoad, server_load

PAGES = Path(__file__).parents[1] / "data" / "engines"
LLAMA = Path(__file__).parents[1] / "sources" / "data" / "llama-server-metrics.txt"


def load_of(engine: str, page: str) -> ServerLoad | None:
    return server_load(engine, rows_of(page, series(LOAD_SERIES[engine].names)))


@pytest.mark.parametrize(
    ("engine", "path", "wanted"),
    [
        ("vllm", PAGES / "vllm-idle.metrics", ServerLoad(0.0, 0.0, 0.0, 0.0, 55.0)),
        (
            "sglang",
            PAGES / "sglang-0.5.23-ngram-idle.metrics",
            ServerLoad(0.0, 0.0, 0.0, 45.0, 409.0, 267.0, 696.0),
        ),
        ("llamacpp", LLAMA, ServerLoad(0.0, 0.0, None, 0.0, 39.0, 16.0, 77.0)),
    ],
)
def test_real_pages(engine: str, path: Path, wanted: ServerLoad) -> None:
    """Checked by hand against the lines of the pages; this llama.cpp says nothing of its KV cache."""
    assert load_of(engine, path.read_text()) == wanted


def test_every_engine_has_series() -> None:
    assert set(LOAD_SERIES) == set(ENGINES)


def test_ranks_of_one_batch_count_once_and_data_parallel_ranks_add_up() -> None:
    labels = 'model_name="m",dp_rank="{}",moe_ep_rank="{}",pp_rank="0",tp_rank="{}"'
    page = "\n".join(
        f"sglang:num_running_reqs{{{labels.format(dp, tp, tp)}}} {4 + dp}\n"
        f"sglang:token_usage{{{labels.format(dp, tp, tp)}}} {0.25 + dp / 2}"
        for dp in (0, 1)
        for tp in (0, 1)
    )
    load = load_of("sglang", page)
    assert load is not None
    assert (load.running, load.queued, load.kv_pct) == (9.0, None, 75.0)


def test_an_older_name_is_read_where_the_new_one_is_not_there() -> None:
    both = 'vllm:gpu_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    old = both.splitlines()[0]
    assert [load.kv_pct for page in (both, old) if (load := load_of("vllm", page))] == [25.0, 50.0]


def test_a_page_of_another_program_says_nothing() -> None:
    assert load_of("vllm", "python_info 1\nsglang:num_running_reqs 3\n") is None
    assert server_load("trtllm", [["x", "", 1.0]]) is None


@pytest.mark.parametrize(
    ("before", "now", "wanted"),
    [
        (
            ServerLoad(hit_tokens=10, prompt_tokens=100),
            ServerLoad(hit_tokens=40, prompt_tokens=160),
            (50.0, 60),
        ),
        (
            ServerLoad(hit_tokens=10, prompt_tokens=100),
            ServerLoad(hit_tokens=10, prompt_tokens=100),
            (None, 0),
        ),
        (
            ServerLoad(hit_tokens=10, prompt_tokens=100),
            ServerLoad(hit_tokens=0, prompt_tokens=20),
            (None, None),
        ),
        (ServerLoad(prompt_tokens=100), ServerLoad(prompt_tokens=130), (None, 30)),
        (None, ServerLoad(hit_tokens=1, prompt_tokens=2), (None, None)),
    ],
    ids=["half", "nothing-asked", "began-anew", "no-counter", "first"],
)
def test_prefix_hits_are_of_the_time_since_the_last_reading(
    before: ServerLoad | None, now: ServerLoad, wanted: tuple[float | None, float | None]
) -> None:
    assert now.hits_since(before) == wanted


def test_acceptance_since_an_earlier_reading() -> None:
    """vLLM and llama.cpp count the accepted drafts apart from the token that each step gives in any case."""
    page = "vllm:spec_decode_num_drafts_total {}\nvllm:spec_decode_num_accepted_tokens_total {}\n"
    before, after = load_of("vllm", page.format(100, 150)), load_of("vllm", page.format(110, 170))
    assert before is not None and after is not None
    assert after.accepted_since(before) == (30.0, 10.0)
    assert after.accepted_since(after) is None and before.accepted_since(after) is None
    assert after.accepted_since(None) is None and after.accepted_since(ServerLoad()) is None
