"""The three engines: command lines, comparison of arguments, requests, answers, counters."""

from __future__ import annotations

import json

import pytest

from ddtop.engines import ENGINES
from ddtop.engines.base import AcceptanceCounters
from ddtop.engines.log.grammar import parse_line

SGL, VLLM, LLAMA = ENGINES["sglang"], ENGINES["vllm"], ENGINES["llamacpp"]
BED = [
    "/usr/bin/python3",
    "-m",
    "sglang.launch_server",
    "--model-path",
    "/dev/shm/models/m",
    "--served-model-name",
    "fake",
    "--tp-size",
    "8",
    "--host",
    "0.0.0.0",
    "--port",
    "30000",
]


@pytest.mark.parametrize(
    ("argv", "engine"),
    [
        (BED, "sglang"),
        (["python", "/opt/sglang/sglang/launch_server.py", "--model", "m"], "sglang"),
        (["/usr/local/bin/sglang", "serve", "--model-path", "m"], "sglang"),
        (["/usr/bin/python3.12", "/opt/venv/bin/vllm", "serve", "m", "--port", "5000"], "vllm"),
        (["vllm", "serve", "Qwen/Qwen3-8B"], "vllm"),
        (["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], "vllm"),
        (["./llama-server", "-m", "m.gguf"], "llamacpp"),
        (["python3", "/opt/real/server.py", "--model", "/dev/shm/m.gguf", "--port", "30000"], "llamacpp"),
        (["sglang::scheduler_TP0"], None),
        (["python", "-m", "sglang.bench_serving"], None),
        (["vllm", "bench", "serve"], None),
        (["vim", "launch_server.py.txt"], None),
        ([], None),
    ],
)
def test_servers_are_known_by_their_command_line(argv: list[str], engine: str | None) -> None:
    found = [name for name, one in ENGINES.items() if one.is_engine_cmdline(argv)]
    assert found == ([engine] if engine else [])


def test_arguments_of_a_command_line_under_their_canonical_names() -> None:
    args = SGL.resolved_args(None, BED)
    assert [args[key] for key in ("port", "model_path", "served_model_name", "tp_size", "host")] == [
        "30000",
        "/dev/shm/models/m",
        "fake",
        "8",
        "0.0.0.0",
    ]
    assert VLLM.resolved_args(None, ["vllm", "serve", "Qwen/Q", "-tp", "2"])["model"] == "Qwen/Q"
    words = ["vllm", "serve", "m", "--port=5000", "--tensor_parallel_size=4"]
    assert VLLM.resolved_args(None, words) == {"model": "m", "port": "5000", "tensor_parallel_size": "4"}
    assert LLAMA.resolved_args(None, ["llama-server", "-m", "x.gguf"]) == {"model": "x.gguf"}


INFO = {
    "model_path": "/dev/shm/models/m",
    "tp_size": 8,
    "port": 30000,
    "host": "0.0.0.0",
    "served_model_name": "fake",
    "mem_fraction_static": 0.9,
    "speculative_algorithm": None,
    "trust_remote_code": True,
    "cuda_graph_bs": [1, 2, 4],
    "version": "0.5.23",
    "internal_states": [{"x": 1}],
}


def names(found: tuple) -> dict[str, str]:
    return {m.name: m.kind for m in found}


def test_equal_arguments_in_any_spelling() -> None:
    resolved = SGL.resolved_args(json.dumps(INFO), BED)
    assert "internal_states" not in resolved
    for argv in (
        BED,
        [
            "--tensor-parallel-size=8",
            "--model",
            "/dev/shm/models/m/",
            "--mem_fraction_static",
            "0.90",
            "--trust-remote-code",
        ],
        ["--tp", "8", "--cuda-graph-bs", "1", "2", "4"],
    ):
        assert SGL.compare_args(argv, resolved, BED) == ()


def test_an_old_server_with_other_arguments() -> None:
    resolved = SGL.resolved_args(INFO, BED)
    wanted = [
        "--tp",
        "4",
        "--speculative-algorithm",
        "DFLASH",
        "--disable-radix-cache",
        "--mem-fraction-static",
        "0.8",
    ]
    found = SGL.compare_args(wanted, resolved, BED)
    assert names(found) == {
        "tp_size": "different",
        "speculative_algorithm": "different",
        "disable_radix_cache": "missing",
        "mem_fraction_static": "different",
    }
    assert "wanted '4', running 8" in str(found[0])


def test_a_value_the_engine_forces_is_overridden_not_different() -> None:
    wanted = [
        *BED,
        "--speculative-algorithm",
        "DFLASH",
        "--speculative-eagle-topk",
        "4",
        "--context-length",
        "4096",
    ]
    resolved = {
        **INFO,
        "speculative_algorithm": "DFLASH",
        "speculative_eagle_topk": 1,
        "context_length": 8192,
    }
    found = {m.name: m for m in SGL.compare_args(wanted, resolved, wanted)}
    assert (found["speculative_eagle_topk"].kind, found["context_length"].kind) == (
        "overridden",
        "overridden",
    )
    assert "DFLASH" in found["speculative_eagle_topk"].why
    assert names(SGL.compare_args(wanted, resolved, BED))["context_length"] == "different"


def test_speculation_that_was_not_asked_for_is_unwanted() -> None:
    assert names(SGL.compare_args(BED, {**INFO, "speculative_algorithm": "EAGLE3"}, BED)) == {
        "speculative_algorithm": "unwanted"
    }
    running = [*BED, "--speculative-ddtree-budget", "8"]
    assert names(SGL.compare_args(BED, {}, running)) == {"speculative_ddtree_budget": "unwanted"}
    assert names(
        VLLM.compare_args(["vllm", "serve", "m"], {}, ["vllm", "serve", "m", "--speculative-config", "{}"])
    ) in (
        {"speculative_config": "unwanted"},
        {},
    )


def test_private_flags_are_compared_without_being_known() -> None:
    wanted = [*BED, "--speculative-ddtree-budget", "16"]
    assert names(SGL.compare_args(wanted, {**INFO, "speculative_ddtree_budget": 8}, [])) == {
        "speculative_ddtree_budget": "different"
    }
    assert SGL.compare_args(wanted, INFO, wanted) == ()


def test_the_launch_command_over_http_stands_for_the_command_line() -> None:
    wanted = [*BED, "--context-length", "4096"]
    resolved = {**INFO, "context_length": 8192, "launch_command": " ".join(wanted)}
    assert names(SGL.compare_args(wanted, resolved)) == {"context_length": "overridden"}


def test_vllm_compares_by_content() -> None:
    running = [
        "vllm",
        "serve",
        "m",
        "-tp",
        "2",
        "--speculative-config",
        '{"model": "d", "method":"dflash"}',
        "--no-enable-prefix-caching",
    ]
    wanted = [
        "vllm",
        "serve",
        "m",
        "--tensor-parallel-size",
        "2",
        "-sc",
        '{"method": "dflash", "model": "d"}',
        "--no-enable-prefix-caching",
    ]
    assert VLLM.compare_args(wanted, VLLM.resolved_args(None, running), running) == ()
    assert names(VLLM.compare_args([*wanted, "--enforce-eager"], {}, running)) == {"enforce_eager": "missing"}
    assert names(VLLM.compare_args([*wanted[:-1], "--enable-prefix-caching"], {}, running)) == {
        "enable_prefix_caching": "different"
    }


def test_llamacpp_takes_the_path_from_props() -> None:
    argv = ["llama-server", "-m", "/a.gguf", "-np", "4"]
    resolved = LLAMA.resolved_args({"model_path": "/b.gguf", "total_slots": 4}, argv)
    assert names(LLAMA.compare_args(argv, resolved, [])) == {"model": "different"}


def test_one_token_requests() -> None:
    path, body = SGL.one_token_request("chat", "m", "Hi")
    assert path == "/v1/chat/completions" and body["max_tokens"] == 1 and body["stream"] is False
    assert SGL.one_token_request("generate", "m")[1]["sampling_params"]["max_new_tokens"] == 1
    assert VLLM.one_token_request("completions", "m", "x") == (
        "/v1/completions",
        {"model": "m", "max_tokens": 1, "temperature": 0, "stream": False, "prompt": "x"},
    )
    assert LLAMA.one_token_request("generate", "m")[0] == "/completion"
    for engine in ENGINES.values():
        for endpoint in ("chat", "completions", "generate"):
            json.dumps(engine.one_token_request(endpoint, "m", "x")[1])


@pytest.mark.parametrize(
    ("engine", "body", "tokens"),
    [
        (SGL, {"usage": {"completion_tokens": 1}, "choices": []}, 1),
        (SGL, {"usage": {"completion_tokens": 0}, "choices": [{"message": {"content": ""}}]}, 0),
        (SGL, {"text": "x", "meta_info": {"completion_tokens": 1}}, 1),
        (SGL, [{"text": "", "meta_info": {"completion_tokens": 0}}], 0),
        (SGL, {"error": {"message": "no"}}, None),
        (SGL, "<html>", None),
        (VLLM, {"choices": [{"message": {"content": None, "reasoning_content": "a"}}]}, 1),
        (VLLM, {"choices": [{"text": ""}]}, 0),
        (VLLM, b'{"choices": [{"text": "a"}]}', 1),
        (LLAMA, {"content": "x", "tokens_predicted": 1}, 1),
        (LLAMA, {"timings": {"predicted_n": 1}, "choices": []}, 1),
        (LLAMA, {"error": {"code": 503, "message": "Loading model"}}, None),
    ],
)
def test_tokens_of_answers(engine, body, tokens: int | None) -> None:
    assert engine.tokens_of_answer(body if not isinstance(body, list) else json.dumps(body)) == tokens


def test_acceptance_from_counters() -> None:
    vllm = '# HELP x\nvllm:spec_decode_num_drafts_total{engine="0"} 471.0\nvllm:spec_decode_num_drafts_total{engine="1"} 469.0\nvllm:spec_decode_num_accepted_tokens_total{engine="0"} 768\nvllm:spec_decode_num_accepted_tokens_total{engine="1"} 777\n'
    now = VLLM.acceptance_counters(vllm)
    assert now is not None and now.length_since(AcceptanceCounters(0, accepted=0)) == pytest.approx(
        2.6436, abs=1e-4
    )
    sgl = 'sglang:spec_verify_calls_total{a="b"} 100\nsglang:generation_tokens_total{a="b"} 410\n'
    after = SGL.acceptance_counters(sgl)
    assert after is not None and after.length_since(AcceptanceCounters(50, emitted=200)) == pytest.approx(4.2)
    assert after.length_since(after) is None
    assert SGL.acceptance_counters("sglang:generation_tokens_total 410\n") is None
    llama = LLAMA.acceptance_counters(
        "llamacpp:spec_decode_num_drafts_total 87\nllamacpp:spec_decode_num_accepted_tokens_total 167\n"
    )
    assert llama is not None and llama.length_since(AcceptanceCounters(0, accepted=0)) == pytest.approx(
        2.92, abs=5e-3
    )
    assert VLLM.acceptance_counters("garbage {") is None


def test_ready_marks() -> None:
    def fact(line: str):
        return parse_line(None, line)[-1]

    complete, fired = (
        fact("INFO:     Application startup complete."),
        fact("[x] The server is fired up and ready to roll!"),
    )
    assert not SGL.ready_mark(complete) and SGL.ready_mark(fired)
    assert VLLM.ready_mark(complete) and not VLLM.ready_mark(
        fact("INFO Starting vLLM server on http://0.0.0.0:8000")
    )
    assert (
        LLAMA.health_ready(503, 200) and not LLAMA.health_ready(200, 200) and not LLAMA.health_ready(503, 503)
    )
    assert not SGL.health_ready(503, 200) and VLLM.health_ready(None, 200)


def test_bodies_that_are_no_json() -> None:
    for engine in ENGINES.values():
        assert (
            engine.served_model("<html>") is None
            and engine.version(None) is None
            and engine.version("[1]") is None
        )
    assert SGL.served_model({"data": [{"id": "fake"}]}) == "fake"
    assert (
        SGL.version('{"version": "0.5.23"}') == "0.5.23" and LLAMA.version({"build_info": "b6512"}) == "b6512"
    )


def test_auto_is_satisfied_by_whatever_the_engine_chose() -> None:
    wanted = [*BED, "--dtype", "auto", "--kv-cache-dtype", "fp8_e5m2"]
    resolved = {**INFO, "dtype": "bfloat16", "kv_cache_dtype": "auto"}
    assert names(SGL.compare_args(wanted, resolved, wanted)) == {"kv_cache_dtype": "overridden"}
