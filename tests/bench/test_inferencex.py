"""Rows of InferenceX: the keys of real rows, values by hand, and our own importer."""

from __future__ import annotations

import doctest
import json
from typing import Any

import pytest

from ddtop.bench import inferencex
from ddtop.bench.importers import diagnose_results
from ddtop.bench.inferencex import ServerFacts, precision, spec_decoding, to_inferencex

REAL_KEYS = [
    "hw",
    "conc",
    "image",
    "model",
    "infmax_model_prefix",
    "framework",
    "precision",
    "spec_decoding",
    "disagg",
    "isl",
    "osl",
    "is_multinode",
    "tp",
    "ep",
    "dp_attention",
    "tput_per_gpu",
    "output_tput_per_gpu",
    "input_tput_per_gpu",
    "mean_ttft",
    "median_ttft",
    "std_ttft",
    "p99_ttft",
    "mean_tpot",
    "median_tpot",
    "std_tpot",
    "p99_tpot",
    "mean_itl",
    "median_itl",
    "std_itl",
    "p99_itl",
    "mean_e2el",
    "median_e2el",
    "std_e2el",
    "p99_e2el",
    "mean_intvty",
    "median_intvty",
    "p99_intvty",
    "avg_power_w",
    "joules_per_output_token",
    "joules_per_total_token",
]
"""Of a row of one node, as utils/process_result.py and aggregate_power.py of SemiAnalysisAI/InferenceX write it (2026-03),
less std_intvty."""


def stats(p50: float) -> dict[str, float]:
    return {
        "n": 700,
        "mean": p50 * 1.1,
        "sd": p50 / 10,
        "p50": p50,
        "p90": p50 * 1.5,
        "p99": p50 * 2,
        "max": p50 * 3,
    }


RAW: dict[str, Any] = {
    "model": "deepseek-ai/DeepSeek-R1-0528",
    "spec": {"mode": "closed", "concurrency": 64, "output_tokens": 1024},
}
METRICS: dict[str, Any] = {
    "requests_ok": 640,
    "output_tokens": 655_360,
    "input_tokens": 655_360,
    "output_tok_s": 2000.0,
    "input_tok_s": 2000.0,
    "total_tok_s": 4000.0,
    "ttft_ms": stats(150.0),
    "tpot_ms": stats(20.0),
    "itl_ms": stats(21.0),
    "e2e_ms": stats(20_000.0),
    "energy_j": 1_310_720.0,
    "power_mean_w": 4000.0,
}
FACTS = ServerFacts(
    engine="sglang",
    version="0.5.23",
    tp=8,
    args={
        "quantization": "fp8",
        "speculative_algorithm": "EAGLE3",
        "ep_size": 1,
        "enable_dp_attention": False,
    },
    gpu_name="NVIDIA H200",
    gpus=8,
    image="lmsysorg/sglang@sha256:abc",
)


def test_a_row_has_the_keys_of_the_public_ones_and_the_values_by_hand() -> None:
    row = to_inferencex(RAW, METRICS, FACTS)
    assert set(REAL_KEYS) <= set(row), set(REAL_KEYS) - set(row)
    wanted = {
        "hw": "h200",
        "conc": 64,
        "framework": "sglang",
        "precision": "fp8",
        "spec_decoding": "eagle3",
        "isl": 1024,
        "osl": 1024,
        "tp": 8,
        "ep": 1,
        "dp_attention": "false",
        "tput_per_gpu": 500.0,
        "output_tput_per_gpu": 250.0,
        "median_ttft": 0.15,
        "p99_tpot": 0.04,
        "median_intvty": 50.0,
        "p99_intvty": 25.0,
        "avg_power_w": 500.0,
        "joules_per_output_token": 2.0,
        "joules_per_total_token": 1.0,
        "infmax_model_prefix": "deepseek-r1-0528",
    }
    assert {key: row[key] for key in wanted} == pytest.approx(wanted)


def test_our_importer_reads_it_back() -> None:
    got = diagnose_results(json.dumps(to_inferencex(RAW, METRICS, FACTS), allow_nan=False).encode())
    assert (got["verdict"], got["tool"]) == ("ok", "inferencex")
    assert got["ttft_p50_ms"] == pytest.approx(150.0)
    assert got["output_tps"] == pytest.approx(2000.0)


def test_unknown_gpus_give_no_rate_per_gpu() -> None:
    row = to_inferencex(RAW, METRICS, ServerFacts(engine="vllm", gpus_unknown="nvidia-smi hangs"))
    assert not [key for key in row if key.endswith("per_gpu")] and "avg_power_w" not in row
    assert row["ddtop_gpus_unknown"] == "nvidia-smi hangs"
    assert "hw" not in row and row["image"] is None


def test_percentiles_that_were_not_measured_are_absent() -> None:
    few = {**METRICS, "ttft_ms": {"n": 5, "mean": 1.0, "p50": 1.0}}
    row = to_inferencex(RAW, few, FACTS)
    assert "p99_ttft" not in row and row["median_ttft"] == 0.001


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (ServerFacts("vllm", args={"quantization": "modelopt_fp4"}), "fp4"),
        (ServerFacts("sglang", args={"quantization": "awq_marlin"}), "int4"),
        (ServerFacts("sglang", model_path="/models/Qwen3-32B-FP8"), "fp8"),
        (ServerFacts("sglang", model_path="/models/Qwen3-32B", args={"dtype": "torch.bfloat16"}), "bf16"),
        (ServerFacts("llamacpp", model_path="/m/Qwen3-8B-Q4_K_M.gguf"), "q4_k_m"),
        (ServerFacts("vllm", model_path="/models/x", args={"dtype": "auto"}), None),
    ],
)
def test_precision(facts: ServerFacts, wanted: str | None) -> None:
    assert precision(facts) == wanted


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (ServerFacts("sglang"), "none"),
        (ServerFacts("sglang", args={"speculative_algorithm": "NEXTN"}), "mtp"),
        (ServerFacts("vllm", args={"speculative_config": {"method": "ngram"}}), "ngram"),
        (ServerFacts("vllm", args={"speculative_config": '{"method": "eagle3", "model": "x"}'}), "eagle3"),
        (ServerFacts("llamacpp", argv=("llama-server", "-md", "draft.gguf")), "draft"),
    ],
)
def test_spec_decoding(facts: ServerFacts, wanted: str) -> None:
    assert spec_decoding(facts) == wanted


def test_doctests() -> None:
    assert doctest.testmod(inferencex).failed == 0
