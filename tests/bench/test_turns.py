"""Conversations: which turn is which, what is sent back, what the prefix cache gives, and what is measured of it."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from ddtop.agent.loadgen.asked.conversation import Conversations, first_of, place
from ddtop.agent.loadgen.fitting import longest, too_long
from ddtop.agent.loadgen.measure import run_cell
from ddtop.agent.loadgen.request_builder import RequestBuilder, nonce_for
from ddtop.agent.loadgen.spec import SpecError, load_spec
from ddtop.bench.figures.requests import read_request
from ddtop.bench.figures.turns import by_turn, early_hits, prefix_cache
from ddtop.bench.judge.cell import judge_cell
from ddtop.bench.render import cache_words, turn_rows
from ddtop.dashboard.panels.cell.result import turn_lines
from tests.waiting import HANG_S

from .conftest import start

CACHE = {"cache-hits", "cache-not-flushed", "wrong-spec", "foreign-load"}
"""What would be said if hits were a fault; a busy machine may add other doubts."""


@pytest.fixture
def caching() -> Iterator[str]:
    child, url = start([sys.executable, "-m", "tests.bench.servers.caching", "--max-len", "4000"])
    yield url
    child.terminate()
    child.wait(HANG_S)


def cell(url: str, **more: Any) -> dict[str, Any]:
    spec = {"url": url, "engine": "vllm", "gpus": "none", "output_tokens": 20, "turns": 3, "nonce": "n"}
    return run_cell({**spec, "prompts": ["one", "two", "three", "four", "five"], **more})


def asked(url: str) -> list[list[dict[str, str]]]:
    with urllib.request.urlopen(f"{url}/asked", timeout=HANG_S) as answer:
        found: list[list[dict[str, str]]] = json.load(answer)
    return found


# ---- which request is which turn


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_every_request_is_one_turn_of_one_conversation(turns: int) -> None:
    places = [place(index, turns) for index in range(-3 * turns, 3 * turns)]
    assert Counter(places) == {(c, t): 1 for c in range(-3, 3) for t in range(turns)}
    assert all(place(first_of(c, turns), turns) == (c, 0) for c in range(-3, 3))


def test_one_turn_is_what_it_was() -> None:
    assert [place(index, 1) for index in (-2, -1, 0, 7)] == [(-2, 0), (-1, 0), (0, 0), (7, 0)]


def test_turns_follow_until_the_conversation_is_over() -> None:
    said = Conversations(["a", "b", "c"], 2)
    assert [said.prompt(0, 0), said.prompt(0, 1), said.prompt(1, 0)] == ["a", "b", "c"]
    assert said.goes_on(2, "A") == 3 and said.before(3) == [("c", "A")]
    assert said.goes_on(3, "B") is None and said.before(3) == []
    assert said.goes_on(-1, "A") == -2 and said.goes_on(-2, "B") is None
    assert said.goes_on(4, None) is None, "an answer that did not come cannot be sent back"


def test_prompts_that_are_whole_conversations() -> None:
    spec = load_spec(
        {"url": "http://h:1", "prompts": [{"turns": ["a", "b"], "output_tokens": 7}, {"turns": ["c"]}]}
    )
    said = Conversations(spec.prompts, spec.turns)
    assert spec.turns == 2 and [said.length(n) for n in (0, 1, 2)] == [2, 1, 2]
    assert said.prompt(0, 1) == {"prompt": "b", "output_tokens": 7} and said.prompt(1, 0) == {"prompt": "c"}
    opened = {"messages": [{"role": "user", "content": "q"}], "turns": ["r"], "group": "code"}
    spec = load_spec({"url": "http://h:1", "prompts": [opened, {"prompt": "p", "turns": ["s", "t"]}]})
    assert spec.turns == 3
    builder = RequestBuilder(spec)
    builder.conversations.goes_on(0, "A")
    assert [one["content"] for one in body(builder, 1)["messages"]] == ["q", "A", "r"]
    assert builder.prompt(1) == {"prompt": "r", "group": "code"} and builder.prompt(3) == {"prompt": "p"}
    assert said.goes_on(2, "x") is None, "the second conversation has one turn"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("turns", -1, "turns"),
        ("turns", True, "turns"),
        ("think_ms", -1.0, "think_ms"),
        ("shared_prefix_tokens", -1, "shared_prefix_tokens"),
        ("prompts", [{"turns": []}], "prompts"),
        ("prompts", [{"turns": ["a", 1]}], "prompts"),
    ],
)
def test_what_cannot_be_is_refused(key: str, value: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        load_spec({"url": "http://h:1", key: value})


# ---- what is sent


def body(builder: RequestBuilder, index: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(b"".join(builder.build(index)).partition(b"\r\n\r\n")[2])
    return found


def test_its_own_answers_are_sent_back() -> None:
    spec = load_spec({"url": "http://h:1", "turns": 3, "nonce": "s", "prompts": ["a", "b", "c"]})
    builder = RequestBuilder(spec, "CONTEXT ", shared="SHARED ")
    lead = f"SHARED {nonce_for('s', 0)}CONTEXT "
    assert body(builder, 0)["messages"] == [{"role": "user", "content": lead + "a"}]
    assert builder.conversations.goes_on(0, "A") == 1
    assert body(builder, 1)["messages"] == [
        {"role": "user", "content": lead + "a"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "b"},
    ]
    assert body(builder, 3)["messages"] == [
        {"role": "user", "content": lead.replace(nonce_for("s", 0), nonce_for("s", 1)) + "a"}
    ]


def test_plain_text_endpoints_get_the_conversation_as_text() -> None:
    for endpoint, key in (("completions", "prompt"), ("generate", "text")):
        spec = load_spec({"url": "http://h:1", "turns": 2, "endpoint": endpoint, "prompts": ["a", "b"]})
        builder = RequestBuilder(spec)
        builder.conversations.goes_on(0, "A")
        assert body(builder, 1)[key] == "a\n\nA\n\nb"


def test_llamacpp_may_use_its_cache_where_that_is_measured() -> None:
    spec = {"url": "http://h:1", "engine": "llamacpp", "nonce": "s"}
    assert body(RequestBuilder(load_spec(spec)), 0)["cache_prompt"] is False
    assert body(RequestBuilder(load_spec({**spec, "turns": 2})), 0)["cache_prompt"] is True


# ---- real streams


@pytest.mark.parametrize("warmup", ["handover", 0])
def test_a_conversation_is_held_in_one_slot(caching: str, warmup: Any) -> None:
    result = cell(caching, concurrency=2, requests=12, warmup=warmup, keep_texts=True)
    assert not result.get("error"), result["error"]
    records = {one["i"]: one for one in result["requests"]}
    assert {one["class"] for one in records.values()} == {"ok"}
    if not warmup:
        assert sorted(records) == list(range(12))
    for index, record in records.items():
        _, turn = place(index, 3)
        if turn:  # it begins when the one before has ended
            assert record["start"] >= records[index - 1]["end"]
    texts = {index: parts[0] for index, parts in result["texts"].items()}
    sent = {
        messages[0]["content"]: messages for messages in asked(caching)
    }  # the last turn's are the longest
    for messages in sent.values():
        for own, answer in zip(messages[1::2], range(len(messages) // 2), strict=True):
            assert own["role"] == "assistant" and own["content"].startswith(f"so{2 * answer + 1} ")
    # the stream that found no more work has ended a conversation
    first = next(index for index in range(0, 12, 3) if index + 2 in records)
    prompts = ["one", "two", "three", "four", "five"]
    whole = sent[nonce_for("n", first // 3) + prompts[first % 5]]
    own = [one["content"] for one in whole if one["role"] == "assistant"]
    assert own == [texts[str(first)], texts[str(first + 1)]]
    assert result["turns"] == 3


def test_hits_are_a_result_and_match_the_servers_counters(caching: str) -> None:
    result = cell(caching, concurrency=2, requests=18, warmup="handover", flush_cache=True, context=100)
    judged = judge_cell(result)
    assert not CACHE & set(judged.reasons), judged.details
    cache = judged.metrics["prefix_cache"]
    assert cache["hit_tokens"] == cache["responses_hit_tokens"] > 0
    assert cache["rate"] == cache["responses_rate"] and cache["source"] == "vllm counters"
    turns = judged.metrics["by_turn"]
    assert list(turns) == ["1", "2", "3"]
    assert turns["1"]["cached_share"] == 0 and min(turns[n]["cached_share"] for n in "23") > 0.5
    assert all(one["ttft_ms"]["n"] == one["n"] for one in turns.values())
    assert turns["3"]["prompt_tokens"]["mean"] > turns["1"]["prompt_tokens"]["mean"] + 30


def test_a_shared_prefix_is_found_by_all_but_the_first(caching: str) -> None:
    result = cell(caching, turns=1, concurrency=1, requests=6, shared_prefix_tokens=160, flush_cache=True)
    judged = judge_cell(result)
    assert result["shared_prefix"]["tokens"] == 160
    assert not CACHE & set(judged.reasons), judged.details
    cached = [one["cached_tokens"] for one in result["requests"]]
    assert cached[0] == 0 and set(cached[1:]) == {160}
    assert "by_turn" not in judged.metrics and judged.metrics["prefix_cache"]["hit_tokens"] == 5 * 160


def test_texts_that_were_there_before_the_cell_are_no_result(caching: str) -> None:
    cell(caching, concurrency=1, requests=6, context=200)
    again = judge_cell(cell(caching, concurrency=1, requests=6, context=200))
    assert "cache-hits" in again.reasons and "first turns" in again.details["cache-hits"]


def test_thinking_is_between_the_turns(caching: str) -> None:
    result = cell(caching, concurrency=2, requests=12, think_ms=30.0, warmup="handover")
    judged = judge_cell(result)
    assert "under-delivery" not in judged.reasons or "after their time" in judged.details["under-delivery"]
    records = {one["i"]: one for one in result["requests"]}
    later = [index for index in records if index % 3 and index - 1 in records]
    assert later
    for index in later:
        assert records[index]["start"] - records[index - 1]["end"] >= 29e6
        assert records[index]["sched"] - records[index - 1]["end"] == pytest.approx(30e6, abs=1e3)


def test_an_open_loop_begins_conversations(caching: str) -> None:
    result = cell(caching, mode="open", rate=40.0, requests=24, warmup="handover")
    records = {one["i"]: one for one in result["requests"]}
    firsts = [one for index, one in records.items() if index % 3 == 0]
    assert len(firsts) == 8, "24 requests are 8 conversations"
    assert {one["class"] for one in records.values()} == {"ok"}
    whole = cell(caching, mode="open", rate=40.0, requests=24)
    assert sorted(one["i"] for one in whole["requests"]) == list(range(24))


def test_a_failed_turn_ends_its_conversation(caching: str) -> None:
    """The fourth turn no longer fits: the server refuses it, and no fifth is asked."""
    long = ["word " * 1000] * 3
    result = cell(
        caching, turns=5, prompts=long, concurrency=1, requests=10, output_tokens=1, engine="llamacpp"
    )  # whose /props say no length here
    assert [one["i"] for one in result["requests"]] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert Counter(one["class"] for one in result["requests"]) == {"ok": 6, "http 400": 2}


def test_several_processes_share_the_conversations(caching: str) -> None:
    for warmup in ("handover", 0):
        result = cell(caching, concurrency=4, requests=24, processes=2, warmup=warmup, min_window_s=0.2)
        assert not result.get("error"), result["error"]
        indices = [one["i"] for one in result["requests"]]
        assert len(set(indices)) == len(indices)
        if not warmup:
            assert set(range(24)) <= set(indices)


# ---- a conversation that does not fit


def test_a_conversation_that_is_longer_than_the_context_is_named_before_the_cell(caching: str) -> None:
    result = cell(caching, turns=4, output_tokens=900, context=1000, concurrency=1, requests=4)
    assert result["error_kind"] == "spec" and "requests" not in result
    assert (
        "a conversation of 4 turns takes at least 4,6" in result["error"] and "holds 4,000" in result["error"]
    )
    assert judge_cell(result).reasons == ("wrong-spec",)
    assert not asked(caching) or all(len(one) == 1 for one in asked(caching))


def test_what_may_end_early_is_not_refused_beforehand() -> None:
    spec = load_spec(
        {"url": "http://h:1", "turns": 3, "output_tokens": 500, "exact_tokens": False, "prompts": ["a b"]}
    )
    assert longest(spec, Conversations(spec.prompts, spec.turns)) == ("a b\n\na b\n\na b", 500)
    spec.exact_tokens = True
    assert longest(spec, Conversations(spec.prompts, spec.turns))[1] == 1500
    assert too_long(spec, 6, 1500, 1506) == "" and "1,507 tokens" in too_long(spec, 7, 1500, 1506)


# ---- figures


def record(index: int, ttft_ms: float, prompt: int, cached: int | None, cls: str = "ok") -> dict[str, Any]:
    out = {"i": index, "class": cls, "start": 0, "end": 2_000_000_000, "tokens": 2, "prompt_tokens": prompt}
    out |= {"t": [round(ttft_ms * 1e6), 1_000_000_000], "k": 1}
    return out if cached is None else out | {"cached_tokens": cached}


def test_figures_by_turn() -> None:
    records = [record(0, 100, 50, 0), record(1, 20, 80, 48), record(2, 120, 50, 0), record(3, 30, 80, 64)]
    records.append(record(5, 9, 80, 64, "reset"))
    first, second = by_turn([read_request(one) for one in records], 2).values()
    assert first["ttft_ms"]["mean"] == 110 and second["ttft_ms"]["mean"] == 25
    assert (first["cached_share"], second["cached_share"]) == (0, 0.7)
    assert (first["failed"], second["failed"], second["n"]) == (0, 1, 2)
    unknown = by_turn([read_request(record(0, 1, 50, None))], 1)["1"]
    assert "cached_share" not in unknown


def test_llamacpp_counts_what_it_worked_on() -> None:
    records = [record(0, 1, 50, 0), record(1, 1, 80, 48)]
    counters = {"before": {"values": {"llamacpp:prompt_tokens_total": 10.0}}}
    counters["after"] = {"values": {"llamacpp:prompt_tokens_total": 92.0}}
    found = prefix_cache(counters, "llamacpp", records)
    assert (found["hit_tokens"], found["prompt_tokens"], found["responses_hit_tokens"]) == (48, 130, 48)
    records[1]["class"] = "reset"  # what it was asked is not known
    assert "rate" not in prefix_cache(counters, "llamacpp", records)
    assert prefix_cache(None, "vllm", []) == {}


def test_hits_of_first_turns_beyond_what_is_shared() -> None:
    requests = [read_request(record(n, 1, 1000, 900)) for n in (0, 2)]
    assert early_hits(requests, 2, 900) == "" and "90.0%" not in early_hits(requests, 2, 0) != ""
    assert early_hits([read_request(record(1, 1, 1000, 900))], 2, 0) == ""


def test_turns_are_shown_one_a_line() -> None:
    records = [record(0, 100, 50, 0), record(1, 20, 80, 40)]
    metrics = {"by_turn": by_turn([read_request(one) for one in records], 2)}
    rows = turn_rows(metrics)
    assert [row[:4] for row in rows] == [("turn 1", "1", "50", "0%"), ("turn 2", "1", "80", "50%")]
    assert rows[0][4] == "100.0" and turn_rows({}) == []
    shown = ["".join(span[0] for span in one) for one in turn_lines(metrics)]
    assert "Turns of a conversation" in shown[1] and shown[3].split()[:4] == ["turn", "1", "1", "50"]
    cache = {"rate": 0.5, "prompt_tokens": 1300, "source": "vllm counters", "responses_rate": 0.49}
    assert cache_words(cache) == "50.0% of 1,300 prompt tokens (vllm counters); 49.0% by its responses"
