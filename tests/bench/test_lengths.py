"""Lengths as distributions and traces: the same draws everywhere, texts of the asked length, times of a trace's clock."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.loadgen.asked.lengths import EXACT, Draws, draw, lognormal, problem_of, quantile
from ddtop.agent.loadgen.asked.trace import BlockTexts, trace_times
from ddtop.agent.loadgen.context_text import corpus
from ddtop.agent.loadgen.measure import run_cell
from ddtop.agent.loadgen.request_builder import RequestBuilder
from ddtop.agent.loadgen.spec import SpecError, load_spec
from ddtop.bench.figures.lengths import asked_and_got, lengths_off
from ddtop.bench.judge.cell import judge_cell
from ddtop.bench.render import length_words
from tests.agent.helpers import agent_pythons
from tests.waiting import HANG_S

from .conftest import start

ROOT = Path(__file__).parent.parent.parent
LOGNORMAL = {"dist": "lognormal", "mean": 300, "p99": 2000, "min": 1}
NORMAL = {"dist": "normal", "mean": 500, "sd": 100, "min": 1, "max": 600}
UNIFORM = {"dist": "uniform", "min": 10, "max": 19}
LIST = {"dist": "list", "values": [3, 5, 8]}
VECTORS = {"lognormal": LOGNORMAL, "normal": NORMAL, "uniform": UNIFORM, "list": LIST}


@pytest.fixture(scope="module")
def caching() -> Iterator[str]:
    child, url = start([sys.executable, "-m", "tests.bench.servers.caching", "--max-len", "9000"])
    yield url
    child.terminate()
    child.wait(HANG_S)


# ---- draws


def test_draws_are_those_of_every_other_machine() -> None:
    """Test vectors: what seed 7 draws for requests -2 to 7. A change of these changes what recorded plans measure."""
    drawn = {name: [draw(one, "7/output", n) for n in range(-2, 8)] for name, one in VECTORS.items()}
    assert drawn == {
        "lognormal": [620, 416, 156, 78, 207, 184, 142, 548, 112, 46],
        "normal": [600, 584, 490, 425, 518, 507, 482, 600, 460, 375],
        "uniform": [18, 17, 14, 12, 15, 15, 14, 18, 13, 11],
        "list": [8, 8, 5, 3, 5, 5, 5, 8, 5, 3],
    }


@pytest.mark.parametrize("python", agent_pythons())
def test_another_python_draws_the_same(python: str) -> None:
    code = (
        "import json, sys; sys.path.insert(0, %r)\nimport lengths\n"
        "print(json.dumps([[lengths.draw(one, '7/x', n) for n in range(64)] for one in json.loads(sys.argv[1])]))"
    )
    code = code % str(ROOT / "ddtop" / "agent" / "loadgen" / "asked")
    argv = [python, "-c", code, json.dumps(list(VECTORS.values()))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert json.loads(done.stdout) == [[draw(one, "7/x", n) for n in range(64)] for one in VECTORS.values()]


def test_quantiles_are_those_of_the_normal_distribution() -> None:
    known = statistics.NormalDist()
    with localcontext(EXACT):
        for chance in ("1e-15", "0.00001", "0.01", "0.0749", "0.0751", "0.5", "0.9", "0.99", "0.9999999"):
            assert float(quantile(Decimal(chance))) == pytest.approx(known.inv_cdf(float(chance)), abs=2e-6)


def test_a_lognormal_distribution_has_the_mean_and_percentile_it_is_given() -> None:
    with localcontext(EXACT):
        mu, sigma = lognormal(LOGNORMAL)
        assert float((mu + sigma * sigma / 2).exp()) == pytest.approx(300, rel=1e-9)
        assert float((mu + sigma * Decimal("2.3263478740408408")).exp()) == pytest.approx(2000, rel=1e-9)
    values = sorted(draw(LOGNORMAL, "1/output", n) for n in range(4000))
    assert statistics.fmean(values) == pytest.approx(300, rel=0.05)
    assert values[3960] == pytest.approx(2000, rel=0.15)


def test_bounds_hold() -> None:
    assert {draw(UNIFORM, "s", n) for n in range(500)} == set(range(10, 20))
    assert {draw(LIST, "s", n) for n in range(100)} == {3, 5, 8}
    normal = [draw(NORMAL, "s", n) for n in range(300)]
    assert max(normal) == 600 and 1 <= min(normal) < 400
    assert Draws({"dist": "normal", "mean": 0, "sd": 50}, "s", 1).of(3) >= 1
    assert draw({"dist": "fixed", "value": 9}, "s", 1) == 9


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ({"dist": "zipf"}, "wanted"),
        ({"dist": "lognormal", "mean": 300}, "p99 is missing"),
        ({"dist": "lognormal", "mean": 300, "p99": 300}, "above the mean"),
        ({"dist": "lognormal", "mean": 300, "p99": 4600}, "14.9 times"),
        ({"dist": "normal", "mean": 5, "sd": "1"}, "sd: '1'"),
        ({"dist": "uniform", "min": 5, "max": 4}, "max: 4"),
        ({"dist": "list", "values": []}, "values"),
        ({"dist": "list", "values": [0]}, "values"),
    ],
)
def test_what_is_no_distribution_is_refused(lengths: dict[str, Any], said: str) -> None:
    assert said in problem_of(lengths, 1)
    with pytest.raises(SpecError, match="output_lengths"):
        load_spec({"url": "http://h:1", "output_lengths": lengths})


# ---- drawn lengths on real streams


def cell(url: str, **more: Any) -> dict[str, Any]:
    spec = {"url": url, "engine": "vllm", "gpus": "none", "nonce": "n", "prompts": ["one", "two"]}
    return run_cell({**spec, **more})


def test_each_request_has_its_own_length(caching: str) -> None:
    asked = {"dist": "uniform", "min": 2, "max": 9}
    context = {"dist": "uniform", "min": 50, "max": 400}
    more = {"output_lengths": asked, "context_lengths": context, "concurrency": 4, "requests": 16}
    result = cell(caching, **more)
    records = result["requests"]
    assert [one["tokens"] for one in records] == [draw(asked, "0/output", n) for n in range(16)]
    assert [one["want"] for one in records] == [one["tokens"] for one in records]
    assert [one["want_context"] for one in records] == [draw(context, "0/context", n) for n in range(16)]
    for one in records:  # the role, two words of nonce and the prompt are four words more
        assert abs(one["prompt_tokens"] - one["want_context"] - 4) <= 0.02 * one["want_context"] + 4
    judged = judge_cell(result)
    lengths = judged.metrics["lengths"]
    assert lengths["output"]["asked"] == lengths["output"]["got"] and len(length_words(judged.metrics)) == 2
    assert {one["class"] for one in records} == {"ok"}
    again = cell(caching, **more, warmup="handover")
    assert {one["i"]: one["want"] for one in again["requests"]}.items() <= {
        one["i"]: one["want"] for one in records
    }.items()


# ---- traces


def trace(*rows: tuple[float, int, int, list[int]]) -> list[dict[str, Any]]:
    names = ("at_ms", "input_tokens", "output_tokens", "hash_ids")
    return [dict(zip(names, row, strict=True)) for row in rows]


SMALL = trace(
    (1000, 600, 3, [1, 2]), (1000, 1024, 4, [1, 3]), (1040, 1500, 2, [1, 3, 4]), (1100, 100, 5, [9])
)


def test_a_traces_clock_runs_at_its_speed() -> None:
    assert trace_times(SMALL, 1.0) == [0, 0, 40_000_000, 100_000_000]
    assert trace_times(SMALL, 4.0) == [0, 0, 10_000_000, 25_000_000]


def test_beginnings_are_shared_as_the_trace_says() -> None:
    texts = BlockTexts(512, "seed", corpus())
    first, second, third, last = (texts.prompt(one, place) for place, one in enumerate(SMALL))
    assert second[: texts.chars] == first[: texts.chars] and second[texts.chars :] != first[texts.chars :]
    assert third.startswith(second) and last[: texts.chars] not in first
    assert [len(one) for one in (second, third)] == [
        2 * texts.chars,
        2 * texts.chars + texts.chars * 476 // 512,
    ]
    assert BlockTexts(512, "other", corpus()).prompt(SMALL[0], 0)[:50] != first[:50], (
        "another cell, another text"
    )
    burst = texts.prompt(SMALL[0], -1)
    assert burst[: texts.chars] != first[: texts.chars], (
        "a burst must not fill the cache with the trace's texts"
    )
    unnamed = {"at_ms": 0, "input_tokens": 600, "output_tokens": 1}
    assert texts.prompt(unnamed, 1)[:50] != texts.prompt(unnamed, 2)[:50]


def test_a_trace_is_replayed(caching: str) -> None:
    result = cell(
        caching, prompts=SMALL, mode="open", arrival="trace", speed=2.0, block_tokens=512, flush_cache=True
    )
    assert not result.get("error"), result["error"]
    records = result["requests"]
    assert [one["tokens"] for one in records] == [3, 4, 2, 5]
    due = [one["sched"] - records[0]["sched"] for one in records]
    assert due == [0, 0, 20_000_000, 50_000_000]
    assert all(one["start"] >= one["sched"] for one in records)
    assert [one["want_prompt"] for one in records] == [600, 1024, 1500, 100]
    for one in records:
        assert abs(one["prompt_tokens"] - one["want_prompt"]) <= 0.05 * one["want_prompt"] + 8, one
    judged = judge_cell(result)
    assert "cache-hits" not in judged.reasons and "context-off" not in judged.reasons
    assert (
        judged.metrics["prefix_cache"]["hit_tokens"]
        == judged.metrics["prefix_cache"]["responses_hit_tokens"]
        > 0
    )
    # whichever comes first: two of three find block 1, one of two block 3
    assert sum(one["cached_tokens"] for one in records) == pytest.approx(3 * 512, rel=0.05)
    assert judged.metrics["start_lag_ms"]["n"] == 4


def test_a_request_that_cannot_fit_is_named_before_the_cell(caching: str) -> None:
    rows = [*SMALL, *trace((2000, 8999, 2, []))]
    result = cell(caching, prompts=rows, mode="open", arrival="trace")
    assert result["error_kind"] == "spec" and "1 of the trace's 5 requests" in result["error"]
    assert "the largest 9,001 of 9,000" in result["error"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"prompts": ["a"]}, "prompts[0]"),
        ({"prompts": trace((5, 1, 1, []), (4, 1, 1, []))}, "prompts[1]: at_ms is 4"),
        ({"prompts": trace((5, 0, 1, []))}, "from 1 on"),
        ({"prompts": [{**SMALL[0], "hash_ids": 5}]}, "hash_ids"),
        ({"prompts": SMALL, "turns": 2}, "single requests"),
        ({"prompts": SMALL, "context": 5}, "context"),
        ({"prompts": SMALL, "speed": 0.0}, "speed"),
    ],
)
def test_what_is_no_trace_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec({"url": "http://h:1", "arrival": "trace", **more})
    assert said in str(caught.value)


def test_a_builder_asks_for_the_traces_lengths() -> None:
    spec = load_spec({"url": "http://h:1", "arrival": "trace", "prompts": SMALL, "nonce": "n"})
    assert (spec.mode, spec.requests) == ("open", 4) and spec.rate == pytest.approx(4.0)
    builder = RequestBuilder(spec)
    found = json.loads(b"".join(builder.build(1)).partition(b"\r\n\r\n")[2])
    assert found["max_tokens"] == 4 and found["messages"][0]["content"].startswith("[")


# ---- figures


def test_asked_against_got() -> None:
    records = [
        {"i": n, "class": "ok", "want": 10, "tokens": 8 + n, "want_prompt": 100, "prompt_tokens": 104}
        for n in range(3)
    ]
    records.append({"i": 3, "class": "reset", "want": 900, "tokens": 1})
    found = asked_and_got(records)
    assert (found["output"]["asked"]["mean"], found["output"]["got"]["mean"]) == (10, 9)
    assert (
        lengths_off(found) == "" and "context" not in found and asked_and_got([{"i": 0, "class": "ok"}]) == {}
    )
    assert "1,000 prompt tokens on average, the server counted 1,100" in lengths_off(
        asked_and_got([{"i": 0, "class": "ok", "want_prompt": 1000, "prompt_tokens": 1100}])
    )
