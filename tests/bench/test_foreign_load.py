"""Requests that are not ours during a cell: by counters in the engines' own forms, and against servers that count."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ddtop.agent.loadgen.engine_calls import parse_prometheus
from ddtop.agent.loadgen.measure import run_cell
from ddtop.bench.judge.cell import judge_cell
from ddtop.bench.judge.foreign import foreign_load
from tests.waiting import HANG_S

from .conftest import start
from .test_judge import made

VLLM = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
vllm:prompt_tokens_total{engine="0",model_name="tiny"} %(prompt)s
vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_compute"} %(prompt)s
vllm:generation_tokens_total{engine="0",model_name="tiny"} %(tokens)s
vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 0.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} %(requests)s
vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} %(aborted)s
vllm:num_preemptions_total{engine="0",model_name="tiny"} %(again)s
"""
SGLANG = """sglang:num_running_reqs{engine_type="unified",model_name="tiny"} 0.0
sglang:prompt_tokens_total{engine_type="unified",is_streaming="false",model_name="tiny"} 37.0
sglang:prompt_tokens_total{engine_type="unified",is_streaming="true",model_name="tiny"} %(prompt)s
sglang:generation_tokens_total{engine_type="unified",is_streaming="false",model_name="tiny"} 248.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="true",model_name="tiny"} %(tokens)s
sglang:num_requests_total{engine_type="unified",is_streaming="true",model_name="tiny"} %(requests)s
sglang:num_retractions_total{engine_type="unified",model_name="tiny"} %(again)s
"""
LLAMACPP = """llamacpp:prompt_tokens_total %(prompt)s
llamacpp:tokens_predicted_total %(tokens)s
llamacpp:n_decode_total %(tokens)s
"""
FORMS = {"vllm": VLLM, "sglang": SGLANG, "llamacpp": LLAMACPP}
OURS = 8 * 60
"""Tokens of the eight requests of `made`."""


def counted(form: str, **more: float) -> dict[str, Any]:
    """Eight requests of 60 tokens over ours' prompts of 10, over a start that has already served."""
    before = {"prompt": 500.0, "tokens": 9000.0, "requests": 17.0, "aborted": 2.0, "again": 0.0}
    ours = {"prompt": 80.0, "tokens": float(OURS), "requests": 8.0}
    after = {name: before[name] + ours.get(name, 0.0) + more.get(name, 0.0) for name in before}
    one, two = (parse_prometheus(FORMS[form] % values) for values in (before, after))
    return {"before": {"at_ns": 1, "values": one}, "after": {"at_ns": 2, "values": two}}


def result(counters: dict[str, Any], **more: Any) -> dict[str, Any]:
    raw = made(counters=counters, **more)
    raw["spec"] = {**raw["spec"], "output_tokens": 60}
    for one in raw["requests"]:
        one.setdefault("prompt_tokens", 10)
    return raw


def test_the_measured_requests_are_as_counted_here() -> None:
    assert sum(one["tokens"] for one in made()["requests"]) == OURS
    assert all(one.get("prompt_tokens", 10) == 10 for one in result({})["requests"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("what", "more", "foreign"),
    [
        ("only ours", {}, False),
        ("one request of others", {"requests": 1, "prompt": 9, "tokens": 40}, True),
        ("one that still runs", {"prompt": 9, "tokens": 40}, True),
        ("one that waits for its first token", {"prompt": 9}, True),
        ("as many as ours", {"requests": 8, "prompt": 80, "tokens": 480}, True),
        ("a token for each answer that was not given", {"tokens": 8}, False),
        ("fewer than ours: counted late", {"requests": -1, "tokens": -60, "prompt": -10}, False),
    ],
)
def test_what_the_counters_say(form: str, what: str, more: dict[str, float], foreign: bool) -> None:
    assert bool(foreign_load(result(counted(form, **more)))) is foreign, what


@pytest.mark.parametrize("form", ["vllm", "sglang"])
def test_requests_begun_anew_count_their_prompts_twice(form: str) -> None:
    assert foreign_load(result(counted(form, prompt=30, again=3))) == ""


def test_what_failed_of_ours_may_have_run_to_its_end() -> None:
    raw = result(counted("vllm", aborted=0))
    for one in raw["requests"][:3]:
        one.update({"class": "timeout", "tokens": 2})
        del one["prompt_tokens"]
    assert foreign_load(raw) == ""
    raw["counters"] = counted("vllm", requests=1, tokens=60, prompt=10)
    assert "9 requests (ours: 8 at most)" in foreign_load(raw)


@pytest.mark.parametrize("form", FORMS)
def test_a_warm_up_that_was_cut_may_still_run(form: str) -> None:
    counters = counted(form, requests=2, tokens=120, prompt=20)
    assert foreign_load(result(counters))
    assert foreign_load(result(counters, warmup={"requests": 4, "classes": {"ok": 2, "timeout": 2}})) == ""


def test_two_choices_are_two_answers() -> None:
    raw = result(counted("vllm", requests=8))
    raw["spec"]["extra_body"] = {"n": 2}
    assert foreign_load(raw) == ""


@pytest.mark.parametrize(
    "counters",
    [
        None,
        {},
        {"before": {"error": "HTTP 404"}, "after": {"error": "HTTP 404"}},
        {"before": {"values": {}}, "after": {"values": {}}},
        {
            "before": {"values": {"vllm:generation_tokens_total": 9e9}},
            "after": {"values": {"vllm:generation_tokens_total": 5.0}},
        },
        {"before": {"values": {"x": 1.0}}, "after": {"values": {"x": 9e9}}},
    ],
)
def test_an_engine_that_does_not_count_is_not_judged(counters: Any) -> None:
    assert foreign_load(result(counters)) == ""


def test_it_is_a_doubt_with_the_numbers() -> None:
    judged = judge_cell(result(counted("sglang", requests=4, tokens=240, prompt=40)))
    assert judged.validity == "SUSPECT" and "foreign-load" in judged.reasons
    assert judged.details["foreign-load"] == (
        "the server counted 12 requests (ours: 8 at most), 120 prompt tokens (ours: 80 at most), "
        "720 output tokens (ours: 480 at most)"
    )
    assert "server-disagrees" not in judged.reasons, "one finding, one reason"


# ---- over real sockets


@contextmanager
def counting(engine: str, *options: str) -> Iterator[str]:
    child, url = start([sys.executable, "-m", "tests.bench.servers.counting", "--engine", engine, *options])
    try:
        yield url
    finally:
        child.kill()
        child.wait(HANG_S)


def measured(url: str, engine: str, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "url": url,
        "engine": engine,
        "model": "tiny",
        "concurrency": 3,
        "requests": 9,
        "output_tokens": 24,
        "warmup": 3,
        "nonce": "x",
        "gpus": "none",
    }
    return run_cell({**spec, **more})


def ask(url: str, tokens: int) -> None:
    """One request of somebody else."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": tokens}
    asked = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(asked, timeout=HANG_S) as answer:
        answer.read()


@pytest.mark.process
@pytest.mark.parametrize("engine", FORMS)
def test_a_server_for_us_alone_and_one_that_is_shared(engine: str) -> None:
    with counting(engine, "--step", "0.004") as url:
        alone = measured(url, engine)
        assert foreign_load(alone) == "", alone["counters"]
        other = threading.Timer(0.05, ask, (url, 24))
        shared = run_with(other, url, engine)
        assert "foreign-load" in judge_cell(shared).reasons, shared["counters"]


def run_with(other: threading.Timer, url: str, engine: str) -> dict[str, Any]:
    """A cell during whose window `other` acts."""

    def tell(item: dict[str, Any]) -> None:
        if item.get("phase") == "running":
            other.start()

    spec: dict[str, Any] = {
        "url": url,
        "engine": engine,
        "model": "tiny",
        "concurrency": 3,
        "requests": 9,
        "output_tokens": 24,
        "gpus": "none",
        "nonce": "x",
    }
    return run_cell(spec, lambda item: tell(item) if "in_flight" not in item else None)


@pytest.mark.process
@pytest.mark.parametrize("engine", FORMS)
def test_cancelled_requests_and_a_cut_warm_up_raise_nothing(engine: str) -> None:
    with counting(engine, "--step", "0.1") as url:
        cut = measured(url, engine, request_timeout_s=0.4)
    assert cut["warmup"]["classes"] == {"timeout": 3}
    assert {one["class"] for one in cut["requests"]} == {"timeout"}
    assert foreign_load(cut) == "", cut["counters"]
