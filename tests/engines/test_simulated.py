"""Simulated acceptance, by real spellings: launch, shell, container, JSON options, the server's account, its log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtop.engines.log.server_args import parse_server_args
from ddtop.engines.simulated import simulated_by_argv, simulated_by_env, simulated_by_settings

SYNTHETIC = {"method": "mtp", "num_speculative_tokens": 3, "rejection_sample_method": "synthetic"}


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({"SGLANG_SIMULATE_ACC_LEN": "3.61"}, "SGLANG_SIMULATE_ACC_LEN=3.61"),
        ({"SIMULATE_ACC_LEN": "4"}, "SIMULATE_ACC_LEN=4"),
        ({"SGLANG_SIMULATE_ACC_LEN": "-1"}, ""),
        ({"SGLANG_SIMULATE_ACC_LEN": "0"}, ""),
        ({"SGLANG_SIMULATE_ACC_LEN": ""}, ""),
        ({"SGLANG_SIMULATE_ACC_METHOD": "multinomial"}, ""),  # alone it does nothing
        ({}, ""),
    ],
)
def test_environment(env: dict[str, str], found: str) -> None:
    assert simulated_by_env(env) == found


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (
            ["env", "SGLANG_SIMULATE_ACC_LEN=2.49", "python3", "-m", "sglang.launch_server"],
            "SGLANG_SIMULATE_ACC_LEN=2.49",
        ),
        (
            ["bash", "-c", 'export SGLANG_SIMULATE_ACC_LEN="3"; python3 -m sglang.launch_server'],
            "SGLANG_SIMULATE_ACC_LEN=3",
        ),
        (
            ["docker", "run", "-e", "SGLANG_SIMULATE_ACC_LEN=3", "lmsysorg/sglang"],
            "SGLANG_SIMULATE_ACC_LEN=3",
        ),
        (["bash", "-c", "SGLANG_SIMULATE_ACC_LEN=-1 python3 -m sglang.launch_server"], ""),
        (
            ["vllm", "serve", "/m", "--speculative-config", json.dumps(SYNTHETIC)],
            "rejection_sample_method=synthetic",
        ),
        (
            ["vllm", "serve", "/m", f"--speculative_config={json.dumps(SYNTHETIC)}"],
            "rejection_sample_method=synthetic",
        ),
        (["vllm", "serve", "/m", "-sc", json.dumps(SYNTHETIC)], "rejection_sample_method=synthetic"),
        (
            ["vllm", "serve", "/m", "--speculative-config.rejection_sample_method", "synthetic"],
            "rejection_sample_method=synthetic",
        ),
        (
            [
                "vllm",
                "serve",
                "/m",
                "--speculative-config",
                '{"method": "mtp", "synthetic_acceptance_length": 2.5}',
            ],
            "synthetic_acceptance_length=2.5",
        ),
        (
            [
                "vllm",
                "serve",
                "/m",
                "--speculative-config",
                '{"method": "mtp", "rejection_sample_method": "standard"}',
            ],
            "",
        ),
        (["llama-server", "-m", "/m.gguf", "--spec-synth-len", "3"], "spec_synth_len=3"),
        (["python3", "-m", "sglang.launch_server", "--speculative-algorithm", "EAGLE3"], ""),
        (["vllm", "serve", "/m", "--speculative-config", "{broken"], ""),
        ([], ""),
    ],
)
def test_command_lines(argv: list[str], found: str) -> None:
    assert simulated_by_argv(argv) == found


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"vllm_config": {"speculative_config": SYNTHETIC}}, "rejection_sample_method=synthetic"),
        (
            {
                "speculative_config": {
                    "rejection_sample_method": "standard",
                    "synthetic_acceptance_rates": None,
                }
            },
            "",
        ),
        (
            {"speculative_config": "{'synthetic_acceptance_rates': [0.9, 0.8]}"},
            "synthetic_acceptance_rates=[0.9, 0.8]",
        ),
        (None, ""),
        ("no settings", ""),
    ],
)
def test_settings(settings: Any, found: str) -> None:
    assert simulated_by_settings(settings) == found


def test_the_arguments_in_vllms_log() -> None:
    line = f"INFO 11-30 10:00:00 [utils.py:253] non-default args: {{'model': '/m', 'speculative_config': {SYNTHETIC}}}"
    assert simulated_by_settings(parse_server_args(line)) == "rejection_sample_method=synthetic"
