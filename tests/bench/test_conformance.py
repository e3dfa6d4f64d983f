"""Every behaviour of the conformance server, over real sockets: what the load generator reports against the truth."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ddtop.agent.loadgen.measure import run_cell
from tests.waiting import HANG_S

from .conftest import start
from .servers.lying import BEHAVIOURS


def cell(url: str, behaviour: str, **more: Any) -> dict[str, Any]:
    kind = (
        "completions"
        if behaviour == "completions"
        else "generate"
        if behaviour.startswith("generate")
        else "chat"
    )
    path = {"completions": "/v1/completions", "generate": "/generate", "chat": "/v1/chat/completions"}[kind]
    spec: dict[str, Any] = {
        "url": url,
        "endpoint": f"/b/{behaviour}{path}",
        "path_kind": kind,
        "model": "SIMULATED",
        "concurrency": 2,
        "requests": 4,
        "give_up_after": 100,
        "output_tokens": 64,
        "gpus": "none",
        "keep_texts": True,
        "request_timeout_s": 0.6 if behaviour in ("silent", "stall-50") else 30,
    }
    return run_cell({**spec, **more})


@pytest.mark.parametrize("behaviour", sorted(BEHAVIOURS))
def test_truth(lying: str, behaviour: str) -> None:
    truth = BEHAVIOURS[behaviour]
    extra = {"extra_body": {"n": 2}} if behaviour == "n2" else {}
    if behaviour == "no-stream-options":
        extra = {"warmup": 1}
    result = cell(lying, behaviour, **extra)
    assert not result.get("error"), result
    requests = result["requests"]
    assert [one["class"] for one in requests] == [truth.cls] * 4, requests[0]
    for one in requests:
        assert one.get("tokens") == truth.tokens, one
        if truth.cls == "ok" and behaviour not in ("plain-json",):
            assert one["t"][0] > one["start"]
            if truth.tokens is not None and behaviour not in ("final-usage",):
                k = one["k"]
                total = k * one["chunks"] if isinstance(k, int) else sum(k)
                assert total == truth.tokens
        if truth.cls != "ok":
            assert one["why"]


def test_first_token_is_not_the_opener_or_a_ping(lying: str) -> None:
    for behaviour in ("comments", "keepalive-events", "normal"):
        for one in cell(lying, behaviour)["requests"]:
            assert one["chunks"] == 17, (behaviour, one)  # 1 + 16 × 4 − 1 tokens: 1, 4 × 15, 3


def test_no_usage_gives_no_token_counts(lying: str) -> None:
    for one in cell(lying, "no-usage")["requests"]:
        assert "tokens" not in one and "k" not in one and one["chunks"] == 17


def test_stream_options_are_given_up_one_by_one(lying: str) -> None:
    result = cell(lying, "no-stream-options", warmup=2)
    assert result["warmup"]["given_up"] == ["continuous_usage_stats", "stream_options"]
    assert result["usage_asked"] == "none"


def test_retry_after_and_body_text_are_kept(lying: str) -> None:
    one = cell(lying, "503")["requests"][0]
    assert one["retry_after"] == "2" and "loading model" in one["why"]


def test_refused(free_port: int) -> None:
    result = cell(f"http://127.0.0.1:{free_port}", "normal", model="m")
    assert {one["class"] for one in result["requests"]} == {"refused"}


def test_texts_are_kept_whole(lying: str) -> None:
    assert cell(lying, "split-7")["texts"]["0"] == [" tok" * 64]
    assert cell(lying, "utf8")["texts"]["3"] == ["é漢" * 64]
    assert cell(lying, "generate")["texts"]["1"] == [" tok" * 64]
    assert cell(lying, "generate-inc")["texts"]["1"] == [" tok" * 64]
    assert cell(lying, "gzip")["texts"]["1"] == [" tok" * 64]


def test_zero_tokens_end_the_cell_early(lying: str) -> None:
    result = cell(lying, "empty", requests=60, concurrency=4, give_up_after=0)
    assert result["window"]["stopped"] == "no-tokens"
    assert len(result["requests"]) <= 12


def test_time_limit_leaves_unfinished_not_failed(lying: str) -> None:
    result = cell(lying, "silent", time_limit_s=0.6, request_timeout_s=30)
    assert result["window"]["stopped"] == "time-limit"
    assert {one["class"] for one in result["requests"]} == {"unfinished"}


@pytest.mark.parametrize("how", ["fresh", "cold", "cold-start"])
def test_connections(lying: str, how: str) -> None:
    requests = cell(lying, "normal", connections=how, requests=6)["requests"]
    assert [one["class"] for one in requests] == ["ok"] * 6
    if how == "fresh":
        assert all(one["connect_ns"] > 0 for one in requests)


def test_memory_limit_parses_in_the_window(lying: str) -> None:
    result = cell(lying, "big", raw_mib=1, requests=8)
    assert {one["class"] for one in result["requests"]} == {"ok"}
    assert {one["tokens"] for one in result["requests"]} == {64}


def test_open_loop_keeps_the_schedule(lying: str) -> None:
    result = cell(lying, "normal", mode="open", rate=40.0, arrival="constant", requests=20, concurrency=1)
    requests = result["requests"]
    assert [one["class"] for one in requests] == ["ok"] * 20
    scheduled = [one["sched"] for one in requests]
    assert scheduled == [round(i * 25e6) for i in range(20)] or all(
        abs(at - i * 25_000_000) < 10 for i, at in enumerate(scheduled)
    )
    assert all(one["start"] >= one["sched"] for one in requests)


def test_two_processes_share_one_clock(lying: str) -> None:
    result = cell(lying, "normal", processes=2, requests=8, concurrency=4)
    assert [one["i"] for one in result["requests"]] == list(range(8))
    assert {one["proc"] for one in result["requests"]} == {0, 1}
    assert len(result["clients"]) == 2


@pytest.mark.process
def test_kept_connections_that_all_ended_cost_no_request() -> None:
    """llama.cpp ends kept connections by count: a request whose connection ended is sent again on a new one, since the
    next idle one may have ended too."""
    child, url = start([sys.executable, "-m", "tests.bench.servers.slots", "--slots", "64", "--forgets"])
    try:
        asked = {"mode": "open", "rate": 200.0, "arrival": "constant", "requests": 60, "output_tokens": 4}
        result = run_cell({"url": url, "model": "tiny", "gpus": "none", "exact_tokens": False, **asked})
    finally:
        child.terminate()
        child.wait(HANG_S)
    assert {one["class"] for one in result["requests"]} == {"ok"}, result["requests"]
    assert any(one.get("retried") for one in result["requests"])
