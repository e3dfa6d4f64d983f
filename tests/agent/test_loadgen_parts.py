"""The load generator's specs, requests, context, records and readings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtop.agent.loadgen.context_text import corpus, fit_context, passage
from ddtop.agent.loadgen.engine_calls import parse_prometheus
from ddtop.agent.loadgen.machine import pressure
from ddtop.agent.loadgen.machine.gpu import FIELD_SETS, parse_line
from ddtop.agent.loadgen.records import pack, pack_value, token_bins, unpack, unpack_value
from ddtop.agent.loadgen.request_builder import NONCE_LENGTH, RequestBuilder, arrival_times, nonce_for
from ddtop.agent.loadgen.spec import LoadSpec, SpecError, load_spec
from ddtop.agent.loadgen.window.shards import process_count


def spec(**more: Any) -> LoadSpec:
    return load_spec({"url": "http://127.0.0.1:30000", **more})


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"url": "ftp://x"}, "url"),
        ({"url": "http://x:99999"}, "port"),
        ({"concurency": 3}, "concurency: no such key"),
        ({"concurrency": 0}, "at least 1"),
        ({"concurrency": "8"}, "whole number"),
        ({"concurrency": True}, "whole number"),
        ({"endpoint": "chats"}, "chat, completions, generate"),
        ({"mode": "open"}, "rate"),
        ({"usage": "yes"}, "each, final, none"),
        ({"prompts": [3]}, "prompts[0]"),
        ({"schema": 9}, "schema"),
        ({"time_limit_s": 0}, "above 0"),
    ],
)
def test_wrong_specs_name_the_key(change: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(**change)
    assert word in str(caught.value)


def request(builder: RequestBuilder, index: int) -> tuple[str, dict[str, Any]]:
    head, body = b"".join(builder.build(index)).split(b"\r\n\r\n", 1)
    length = int(next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))[15:])
    assert length == len(body)
    return head.decode(), json.loads(body)


def test_the_request_as_sent() -> None:
    builder = RequestBuilder(
        spec(model="m", nonce="seed", prompts=["α", "β"], output_tokens=7), "context ", "key"
    )
    head, body = request(builder, 3)
    assert "Authorization: Bearer key" in head and head.startswith("POST /v1/chat/completions HTTP/1.1")
    text = body["messages"][0]["content"]
    assert text == nonce_for("seed", 3) + "context β" and len(nonce_for("seed", 3)) == NONCE_LENGTH
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["ignore_eos"] is True and body["max_tokens"] == 7 and body["temperature"] == 0
    assert request(builder, 3) == request(RequestBuilder(builder.spec, "context ", "key"), 3)
    assert request(builder, 5)[1]["messages"] != body["messages"]  # the same prompt, another nonce


def test_the_native_form_and_a_base_path() -> None:
    head, body = request(RequestBuilder(spec(endpoint="generate", prompts=["p"])), 0)
    assert head.startswith("POST /generate ") and body["text"] == "p"
    assert body["sampling_params"] == {"max_new_tokens": 128, "temperature": 0.0, "ignore_eos": True}
    assert spec(url="https://h/v1").path == "/v1/chat/completions" and spec(url="https://h/v1").port == 443
    assert spec(url="http://h/api").path == "/api/v1/chat/completions"


def test_extra_body_wins_and_merges_one_level() -> None:
    body = request(RequestBuilder(spec(extra_body={"top_p": 0.5, "stream_options": {"x": 1}})), 0)[1]
    assert (
        body["top_p"] == 0.5 and body["stream_options"]["x"] == 1 and body["stream_options"]["include_usage"]
    )


def test_arrivals() -> None:
    assert arrival_times(3, 10, "constant", 0) == [0, 100_000_000, 200_000_000]
    poisson = arrival_times(4000, 10, "poisson", 1)
    assert poisson == arrival_times(4000, 10, "poisson", 1) != arrival_times(4000, 10, "poisson", 2)
    assert 95e6 < poisson[-1] / 4000 < 105e6


def test_context_is_cut_to_one_percent() -> None:
    text = corpus()
    assert len(text) > 30_000

    def count(piece: str) -> int:
        return len(piece.split()) + piece.count(",")

    for tokens in (10, 500, 8192, 60_000):
        piece, about = fit_context(tokens, count, text)
        assert about["ok"] and abs(count(piece) - tokens) <= max(1, tokens * 0.01), about
    piece, about = fit_context(100, lambda _: None, text)
    assert not about["ok"] and "tokens" not in about and piece
    assert fit_context(0, count, text)[0] == ""


def test_a_long_passage_does_not_just_repeat() -> None:
    text = corpus()
    long = passage(3 * len(text), text)
    assert len(long) == 3 * len(text) and long[: len(text)] == text
    assert long[len(text) : len(text) + 2000] not in long[:2000] and long.count(text) < 3


def test_packing() -> None:
    value = {"a": [1, 2.5, "é", None]}
    assert unpack_value(pack_value(value)) == value
    small = {"requests": [{"i": 0}], "bins": {}, "other": 1}
    assert pack(small) == small
    big = {"requests": [{"i": i, "why": "x" * 100} for i in range(1000)]}
    assert set(pack(big)) == {"requests_z"} and unpack(pack(big)) == big
    with pytest.raises(ValueError, match=r"damaged|padding|decode"):
        unpack({"requests_z": "AAAA"})


def test_bins() -> None:
    records = [
        {"t": [5_000_000, 10_000_000, 10_000_000], "k": [1, 4, 4]},
        {"t": [6_000_000], "k": 2},
        {"t": [7]},
    ]
    assert token_bins(records) == {"bin_ns": 10_000_000, "start": 0, "tokens": [3, 4, 4], "left_out": 1}


def test_prometheus() -> None:
    text = """# HELP x
sglang:generation_tokens_total{model_name="a b",tp="0"} 12345.0
sglang:ttft_bucket{le="1"} 4
vllm:num_preemptions_total 3
vllm:gauge NaN
llamacpp:tokens_predicted_total 9e2 1700000000
python_gc_total 5
broken
"""
    assert parse_prometheus(text) == {
        'sglang:generation_tokens_total{model_name="a b",tp="0"}': 12345.0,
        "vllm:num_preemptions_total": 3.0,
        "llamacpp:tokens_predicted_total": 900.0,
    }


def test_gpu_lines() -> None:
    fields = FIELD_SETS[0].split(",")
    line = "0, 699.62, 690.1, 100, 45, 61234, 65, 1980, 2619, 0x0000000000000004, 700.00"
    assert parse_line(line, fields) == {
        "gpu": 0,
        "power_instant_w": 699.62,
        "power_w": 690.1,
        "util_gpu_pct": 100,
        "util_mem_pct": 45,
        "mem_used_mib": 61234,
        "temp_c": 65,
        "sm_mhz": 1980,
        "mem_mhz": 2619,
        "event_reasons": 4,
        "power_limit_w": 700.0,
    }
    odd = "3, [N/A], [Unknown Error], [GPU requires reset], 0, [Not Supported], 1, 2, 3, 0x0, nan"
    assert parse_line(odd, fields) == {
        "gpu": 3,
        "util_mem_pct": 0,
        "temp_c": 1,
        "sm_mhz": 2,
        "mem_mhz": 3,
        "event_reasons": 0,
    }
    assert parse_line("No devices were found", fields) is None and parse_line("", fields) is None


def test_pressure_readings() -> None:
    psi = pressure.parse_psi(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\nfull avg10=0 avg60=0 avg300=0 total=0\n"
    )
    assert psi == {"some_us": 1500, "full_us": 0} and pressure.parse_psi("") == {}
    assert pressure.parse_schedstat("100 200 3\n") == (100, 200) and pressure.parse_schedstat("x") is None
    assert pressure.parse_steal("cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1\n") == (8, 36)
    before = {"psi": {"some_us": 0}, "steal": (0, 100), "server": {1: (0, 0), 2: (0, 0)}, "server_pids": [1]}
    after = {
        "psi": {"some_us": 50_000},
        "steal": (5, 200),
        "server": {1: (10**9, 2 * 10**7), 2: (0, 10**7), 3: (1, 1)},
        "server_pids": [1],
    }
    assert pressure.difference(before, after, 1.0) == {
        "psi_cpu_some_share": 0.05,
        "steal_share": 0.05,
        "server_wait_share": 0.02,
        "server_cpu_s": 1.0,
        "server_threads": 2,
    }


def test_processes() -> None:
    assert process_count(spec(concurrency=256, requests=999), 64) == 1
    assert process_count(spec(concurrency=2048, requests=9999), 64) == 4
    assert process_count(spec(concurrency=2048, requests=9999), 2) == 1
    assert process_count(spec(processes=3, requests=9), 2) == 3
