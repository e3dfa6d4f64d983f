"""The fake SGLang: what it answers, how it counts, and that its rates are those seen on the real machine."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.bed.config import ROOTFS
from tests.bed_tests.helpers import get, logged, post, stream, until

sys.path.insert(0, str(ROOTFS / "common/opt/sglang/src"))
sys.path.insert(0, str(ROOTFS / "common/usr/lib/python3/dist-packages"))
import itertools

from ddtop_bed.faults import select
from sglang import rates

FAST = ("SPEED=40", "LOAD_S=3")


def start(host, unit=None):
    host.stage()
    host.sh(f"systemctl start {unit or host.spec.unit}")
    return host.wait("ready")


def tok_s(tokens, algorithm=None, budget=None, draft_tokens=1, tp=1):
    step_s = rates.step_ms(52, tp, algorithm, budget) / 1000
    return tokens / (
        rates.prefill_s(30, tp) + tokens * step_s / rates.accept_len(algorithm, draft_tokens, budget)
    )


def test_rates_are_those_of_the_story():
    assert tok_s(256) == pytest.approx(26, rel=0.05)
    assert tok_s(256, "DDTREE", 15) == pytest.approx(143, rel=0.03)
    assert tok_s(1024, "DDTREE", 15) == pytest.approx(182.9, rel=0.03)
    assert rates.accept_len("DFLASH", 16) == pytest.approx(3.5, abs=0.1)
    b = {n: tok_s(1024, "DDTREE", n) for n in (8, 15, 16, 32, 64)}
    assert b[8] < b[15] <= b[16] * 1.01 and b[64] < b[32] and b[64] < b[16]


def test_faults_are_limited_by_command_line_and_start():
    text = "SPEED=2\nWHEN=--budget 32\nLOAD_FAULT=cuda\nWHEN=\nSTARTS=2,3\nWARM_S=9\nSTARTS=\nSTOP_S=1\n"
    assert select(text, ["x", "--budget", "32"], 1) == {"SPEED": "2", "LOAD_FAULT": "cuda", "STOP_S": "1"}
    assert select(text, ["x", "--budget", "320"], 2) == {"SPEED": "2", "WARM_S": "9", "STOP_S": "1"}


def test_a_start_gives_sglangs_lines_and_its_endpoints_tell_the_truth(ct200):
    ct200.fault(*FAST, WARM_S=20)
    ct200.stage()
    began = ct200.bed.now()
    ct200.sh("systemctl start sglang-bench")
    ip = ct200.spec.ip
    ct200.wait("listening")
    assert get(ip, "/v1/models")[0] == 200 and get(ip, "/health")[0] == 503  # open, and not ready
    ready = until(lambda: ct200.ledger("ready"))[0]
    log = logged(ct200, "sglang-bench", "The server is fired up", began)
    for mark in (
        "Init parallel begin.",
        "Load weight begin. avail mem=",
        "Load weight end. elapsed=",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens:",
        "Capture target decode CUDA graph begin.",
        "Uvicorn running on http://0.0.0.0:30000",
        "The server is fired up and ready to roll!",
    ):
        assert mark in log
    assert f"'random_seed': {ready['seed']}," in log
    entries = ct200.journal("_SYSTEMD_UNIT=sglang-bench.service", since_ns=began)
    assert any(
        isinstance(e["MESSAGE"], list) for e in entries
    )  # the bar's carriage returns: bytes, as journald gives them
    info = json.loads(get(ip, "/server_info")[1])
    assert (
        info["random_seed"] == ready["seed"]
        and info["tp_size"] == 1
        and info["speculative_algorithm"] is None
        and info["version"] == "0.5.23"
        and info["status"] == "ready"
    )
    assert {"speculative_num_draft_tokens", "speculative_dflash_block_size", "launch_command"} <= set(info)
    assert get(ip, "/health")[0] == 200
    assert post(ip, "/tokenize", {"prompt": "a b c"})["count"] == 3


def test_speculation_gives_several_tokens_a_chunk_and_exact_counters(ct200):
    ct200.fault("SPEED=4", "LOAD_S=0.5")
    start(ct200, "ddtree-qwen")
    ip = ct200.spec.ip
    events = stream(
        ip, {"max_tokens": 100, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    )
    counts = [e["usage"]["completion_tokens"] for e in events if e["choices"]]
    assert counts == sorted(counts) and counts[-1] == 100
    assert max(b - a for a, b in itertools.pairwise(counts)) >= 8
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 100
    meta = post(ip, "/generate", {"text": "count", "sampling_params": {"max_new_tokens": 200}})["meta_info"]
    assert meta["completion_tokens"] == 200 and 8 < 199 / meta["spec_verify_ct"] < 9.2
    metrics = get(ip, "/metrics")[1]
    value = {k: float(v) for k, v in re.findall(r"^(sglang:\w+)\{[^}]*\} (\S+)$", metrics, re.M)}
    assert value["sglang:generation_tokens_total"] == 300
    assert 8 < (300 - 2) / value["sglang:spec_verify_calls_total"] < 9.2
    served = ct200.requests()
    assert [r["tokens"] for r in served] == [100, 200] and all(r["start_ns"] < r["end_ns"] for r in served)
    smi = ct200.sh("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits").split()
    assert int(smi[0]) > 80000 and smi[1:] == ["0"] * 7


def test_wrong_arguments_are_refused_as_sglang_does(ct200):
    ct200.stage()
    run = "cd /; /opt/sglang/bin/python -m sglang.launch_server --model-path /dev/shm/Qwen3.6-27B"
    assert ct200.sh(f"{run} --speculative-ddtree-budget 8 2>&1; echo status $?").split()[-1] == "2"
    assert "Unknown speculative algorithm" in ct200.sh(f"{run} --speculative-algorithm DDTREE 2>&1; true")
    assert ct200.faults()[-1]["kind"] == "refused-arguments"


def test_zero_tokens_only_where_the_command_line_says_so(ct200):
    ct200.fault(*FAST, ZERO_TOKENS="--speculative-ddtree-budget 16")
    start(ct200, "ddtree-qwen")
    answer = post(ct200.spec.ip, "/v1/completions", {"prompt": "x", "max_tokens": 8})
    assert answer["usage"]["completion_tokens"] == 0
    assert ct200.faults()[0]["kind"] == "zero-tokens" and ct200.requests()[0]["outcome"] == "zero"
    ct200.sh("systemctl stop ddtree-qwen")
    ct200.sh("systemctl start sglang-bench")
    until(lambda: len(ct200.ledger("ready")) == 2)
    assert (
        post(ct200.spec.ip, "/v1/completions", {"prompt": "x", "max_tokens": 8})["usage"]["completion_tokens"]
        == 8
    )


def test_stall_and_crash_while_serving(ct200):
    ct200.fault(*FAST, STALL_AFTER=5)
    start(ct200)
    with pytest.raises(OSError):
        post(ct200.spec.ip, "/v1/completions", {"prompt": "x", "max_tokens": 50}, timeout_s=0.7)
    assert ct200.wait("fault", kind="stall")
    ct200.fault(*FAST, CRASH_AFTER_REQUESTS=1)
    ct200.sh("systemctl kill -s KILL sglang-bench; systemctl restart sglang-bench")
    until(lambda: len(ct200.ledger("ready")) == 2)
    post(ct200.spec.ip, "/v1/completions", {"prompt": "x", "max_tokens": 10})
    with pytest.raises((OSError, ValueError)):
        post(ct200.spec.ip, "/v1/completions", {"prompt": "y", "max_tokens": 100})
    assert ct200.wait("fault", kind="crash") and ct200.ledger("request", outcome="killed")
    assert until(lambda: ct200.failures("sglang-bench.service"))[-1].result == "signal"


def test_models_are_whole_and_damage_is_noticed():
    import tempfile

    from ddtop_bed import models
    from sglang.load import check_shard

    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "m"
        models.make(at, 2, 4096, 1, "X")
        shard = next(at.glob("*.safetensors"))
        assert check_shard(shard) == ""
        shard.write_bytes(shard.read_bytes()[:-8])
        assert "incomplete metadata" in check_shard(shard)
