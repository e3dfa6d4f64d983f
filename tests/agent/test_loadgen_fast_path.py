"""The fast way of taking a read says what the general way says, and is taken for what engines really send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.agent.loadgen.response import exchange as module
from ddtop.agent.loadgen.response.exchange import Exchange
from ddtop.agent.loadgen.response.fast_path import ONE_CHUNK

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(event: bytes) -> bytes:
    return b"%x\r\n" % len(event) + event + b"\r\n"


def taken(reads: list[bytes], fast: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    with monkeypatch.context() as patch:
        if not fast:
            patch.setattr(module, "take", lambda *_: False)
        exchange = Exchange(0, None)
        exchange.ended = "closed"
        for place, data in enumerate(reads):
            exchange.stamps.append(1000 * place)
            exchange.datas.append(data)
        record = exchange.record(0)
        return {**record, "texts": exchange.account.texts(), "steps": exchange.account.event_tokens}


PIECES = st.text(alphabet=st.characters(codec="utf-8"), max_size=6)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    chat = draw(st.booleans())
    choice: dict[str, Any] = {"index": draw(st.sampled_from([0, 0, 0, 1]))}
    if chat:
        delta: dict[str, Any] = {"role": None} if draw(st.booleans()) else {}
        delta["content"] = draw(PIECES)
        if draw(st.booleans()):
            delta.update(reasoning_content=None, tool_calls=None)
        choice["delta"] = delta
    else:
        choice["text"] = draw(PIECES)
    if draw(st.booleans()):
        choice["logprobs"] = None
    choice["finish_reason"] = draw(st.sampled_from([None, None, None, None, "length"]))
    if draw(st.booleans()):
        choice["matched_stop"] = None
    message = {
        "id": "x",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    if draw(st.booleans()):
        count = draw(st.integers(0, 30))
        message["usage"] = {"prompt_tokens": 5, "total_tokens": 5 + count, "completion_tokens": count}
    if draw(st.sampled_from([False] * 9 + [True])):
        message["error"] = {"message": "boom"}
    return message


@settings(max_examples=120, deadline=None)
@given(items=st.lists(messages(), max_size=6), ascii_only=st.booleans(), merge=st.booleans())
def test_both_ways_agree(items: list[dict[str, Any]], ascii_only: bool, merge: bool) -> None:
    events = [
        b"data: "
        + json.dumps(one, separators=(",", ":"), ensure_ascii=ascii_only).encode("utf-8", "replace")
        + b"\n\n"
        for one in items
    ]
    reads = [HEAD, *map(chunk, events), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]
    if merge:
        reads = [HEAD + b"".join(reads[1:3]), *reads[3:]]
    monkeypatch = pytest.MonkeyPatch()
    assert taken(reads, True, monkeypatch) == taken(reads, False, monkeypatch)


@pytest.mark.parametrize(
    "event",
    [
        # vLLM 0.11: --stream, continuous usage
        '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" a\\n"},'
        '"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}',
        # SGLang 0.5
        '{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":null,"content":"é",'
        '"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],'
        '"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":null}}',
        # vLLM completions
        '{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" b","logprobs":null,'
        '"finish_reason":null,"stop_reason":null}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}',
    ],
)
def test_what_engines_send_is_taken(event: str) -> None:
    data = chunk(f"data: {event}\n\n".encode())
    assert ONE_CHUNK.fullmatch(data)
    first = chunk(
        event.replace('"completion_tokens":3', '"completion_tokens":1').join(["data: ", "\n\n"]).encode()
    )
    exchange = Exchange(0, None)
    for place, one in enumerate(
        (HEAD + first, data, data.replace(b'"completion_tokens":3', b'"completion_tokens":7'))
    ):
        exchange.stamps.append(place)
        exchange.datas.append(one)
    exchange.consume()
    assert exchange.account.chunk_tokens == [1, 2, 4]


def test_a_wrong_chunk_size_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    event = b'data: {"id":"1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"b","finish_reason":null}]}\n\n'
    wrong = b"%x\r\n" % (len(event) - 1) + event + b"\r\n"
    assert ONE_CHUNK.fullmatch(wrong)
    reads = [HEAD + chunk(event), wrong]
    assert taken(reads, True, monkeypatch) == taken(reads, False, monkeypatch)
    assert taken(reads, True, monkeypatch)["class"] == "aborted"
