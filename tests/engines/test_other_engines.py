"""Logs of engines that ddtop names and cannot run: TensorRT-LLM, ollama, TGI. Prefixes, phases, ready marks, rates."""

from __future__ import annotations

import pytest

from ddtop.engines import ENGINES
from ddtop.engines.log.grammar import LOGS, guess_engine, parse_line, speaks
from ddtop.engines.log.line_prefix import split_prefix
from ddtop.services.causes import load_causes
from ddtop.sources.figures.diagnosis import log_metrics
from ddtop.sources.log.diagnosis import diagnose_log
from tests.sources.healthy import LLAMA, OLLAMA, SGLANG, TGI, TRTLLM, VLLM

HEALTHY = {"sglang": SGLANG, "vllm": VLLM, "llamacpp": LLAMA, "trtllm": TRTLLM, "ollama": OLLAMA, "tgi": TGI}


def up_to(log: str, words: str) -> bytes:
    """The log up to the line with these words, that line included."""
    lines = log.splitlines(keepends=True)
    return "".join(lines[: next(i for i, line in enumerate(lines) if words in line) + 1]).encode()


@pytest.mark.parametrize("name", HEALTHY)
def test_the_engine_is_named_and_its_healthy_log_is_no_failure(name: str) -> None:
    assert guess_engine(HEALTHY[name]) == name
    found = diagnose_log(HEALTHY[name].encode())
    assert (found["engine"], found["verdict"]) == (name, "ready"), found


def test_engines_that_can_be_run_are_among_those_that_are_read() -> None:
    assert set(ENGINES) < set(LOGS)
    assert speaks("ollama", "llamacpp") and not speaks("llamacpp", "ollama") and speaks(None, "tgi")
    assert speaks("trtllm", "kernel") and not speaks("trtllm", "vllm")


@pytest.mark.parametrize(
    ("log", "words", "cause", "phase"),
    [
        (TRTLLM, "Using LLM with PyTorch", "just-launched", "launching"),
        (TRTLLM, "MpiPoolSession", "init-distributed", "init-distributed"),
        (TRTLLM, "Prefetching", "loading", "load-weights"),
        (TRTLLM, "Use 15.04 GB", "loading", "post-load"),
        (TRTLLM, "paged KV cache (", "kv-cache-allocation", "kv-cache"),
        (TRTLLM, "process starts", "deepgemm-jit", "jit-compile"),
        (TRTLLM, "Creating CUDA graph", "cuda-graph-capture", "cuda-graph-capture"),
        (TRTLLM, "Application startup complete", "ready", "ready"),
        (TRTLLM, "num_scheduled_requests", "serving", "serving"),
        (OLLAMA, "server config", "just-launched", "launching"),
        (OLLAMA, "Listening on", "ready", "ready"),
        (TGI, "Args {", "just-launched", "launching"),
        (TGI, "Starting shard", "init-distributed", "init-distributed"),
        (TGI, "Starting Webserver", "no-ready-marker-yet", "http-up"),
        (TGI, "Connected", "ready", "ready"),
    ],
)
def test_how_far_a_start_is(log: str, words: str, cause: str, phase: str) -> None:
    found = diagnose_log(up_to(log, words))
    assert (found["cause"], found["phase"]) == (cause, phase)


def test_uvicorn_is_the_ready_mark_of_trtllm_and_not_of_sglang() -> None:
    assert diagnose_log(up_to(SGLANG, "Application startup complete"))["verdict"] == "starting"


@pytest.mark.parametrize(
    ("line", "level", "rank", "message"),
    [
        ("[04/28/2025-09:56:44] [TRT-LLM] [I] hello", "INFO", "", "hello"),
        ("[11/20/2026-09:12:20] [TRT-LLM] [RANK 3] [E] hello", "ERROR", "rank3", "hello"),
        ("[07/07/2026-03:31:36] [TRT-LLM] [E] [executor] hello", "ERROR", "", "hello"),
        ("[TensorRT-LLM][WARNING] hello", "WARNING", "", "hello"),
        ("trt-1  | [11/20/2026-09:12:20] [TRT-LLM] [W] hello", "WARNING", "", "hello"),
        ('time=2026-11-20T10:00:00.001Z level=WARN source=a.go:1 msg="hello"', "WARNING", "", 'msg="hello"'),
        (
            'Nov 20 10:00:00 h ollama[12]: time=2026-11-20T10:00:00Z level=ERROR source=a.go:1 msg="x"',
            "ERROR",
            "",
            'msg="x"',
        ),
        ("2026-11-20T10:00:00.1Z ERROR shard-manager: text_generation_launcher: hello", "ERROR", "", "hello"),
        (
            "2026-11-20T10:00:00.1Z  INFO text_generation_router::server: router/src/server.rs:2: hello",
            "INFO",
            "",
            "hello",
        ),
    ],
)
def test_prefixes(line: str, level: str, rank: str, message: str) -> None:
    parsed = split_prefix(line)
    assert (parsed.level, parsed.rank, parsed.message) == (level, rank, message)


def test_iteration_log_counts_requests_and_not_padding() -> None:
    line = (
        "[04/28/2025-09:56:44] [TRT-LLM] [I] iter = 198, global_rank = 0, rank = 0, currank_total_requests = 0/0, elapsed_time = "
        "0.005s, timestamp = 2025-04-28 09:56:44, num_scheduled_requests: 10, states = {'num_ctx_requests': 0, "
        "'num_ctx_tokens': 0, 'num_generation_tokens': 16}"
    )
    (fact,) = parse_line(None, line)
    assert (fact.engine, fact.values["running"], fact.values["gen_tps"]) == ("trtllm", 10, 2000.0)
    prefill = line.replace("'num_ctx_requests': 0", "'num_ctx_requests': 10")
    assert "gen_tps" not in parse_line(None, prefill)[0].values
    found = log_metrics(f"{prefill}\n{line}\n".encode())
    assert (found["verdict"], found["cause"], found["lines"]) == ("ok", "no-speculation", 2)
    assert (found["gen_tps"], found["gen_tps_mean"], found["running"]) == ([2000.0], 2000.0, 10)


FOREIGN = {
    "sglang": ("VLLM_", "OLLAMA_", "--gpu-memory-utilization", "--max-model-len", "--enforce-eager"),
    "vllm": ("SGLANG_", "OLLAMA_", "--mem-fraction-static", "--context-length", "--hicache"),
    "llamacpp": (
        "VLLM_",
        "SGLANG_",
        "OLLAMA_",
        "--mem-fraction-static",
        "--gpu-memory-utilization",
        "--tp_size",
    ),
    "trtllm": ("VLLM_", "SGLANG_", "OLLAMA_", "--mem-fraction-static", "--gpu-memory-utilization"),
    "ollama": ("VLLM_", "SGLANG_", "--mem-fraction-static", "--gpu-memory-utilization", "--tp_size"),
    "tgi": ("VLLM_", "SGLANG_", "OLLAMA_", "--mem-fraction-static", "--gpu-memory-utilization"),
}


@pytest.mark.parametrize("engine", FOREIGN)
def test_advice_for_an_engine_names_no_other_engines_settings(engine: str) -> None:
    assert not [
        (cause.slug, word)
        for cause in load_causes().by_slug.values()
        for word in FOREIGN[engine]
        if word in cause.advice_by.get(engine, "")
    ]
    assert all(set(cause.advice_by) <= set(LOGS) for cause in load_causes().by_slug.values())
