"""How the load generator parses a response: events, framing, bodies, and the account of what they said."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.agent.loadgen.http.http1 import HttpError, ResponseReader
from ddtop.agent.loadgen.http.sse import SseEvent, SseParser
from ddtop.agent.loadgen.response.account import Account
from ddtop.agent.loadgen.response.messages import take_body, take_event


def events(pieces: list[bytes]) -> tuple[list[SseEvent], int, bytes]:
    parser = SseParser()
    out = [event for piece in pieces for event in parser.feed(piece)]
    out += parser.close()
    return out, parser.comments, parser.tail


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


STREAMS = [
    'data: {"a": 1}\n\ndata: {"é漢": "x"}\n\n: ping\n\ndata: [DONE]\n\n',
    'data:{"a": 1}\r\n\r\nevent: error\r\ndata: {"b": 2}\r\n\r\n:\r\n\r\ndata:[DONE]\r\n\r\n',
    'data: {"a": 1}\r\rdata: {"b": 2}\r\rdata: [DONE]\r\r',
    '\ufeffdata: {"a":\ndata: 1}\n\ndata: {"cut',
    'data: {"a": 1}\ndata: {"b": 2}\n\ndata: [DONE]',
]


@pytest.mark.parametrize("text", STREAMS)
@settings(max_examples=25, deadline=None)
@given(places=st.lists(st.integers(0, 200), max_size=12))
def test_any_cut_gives_the_same_events(text: str, places: list[int]) -> None:
    data = text.encode()
    assert events(cut(data, places)) == events([data])


def test_events_of_each_stream() -> None:
    got = [[event.data.decode() for event in events([text.encode()])[0]] for text in STREAMS]
    assert got[0] == ['{"a": 1}', '{"é漢": "x"}', "[DONE]"]
    assert got[1] == ['{"a": 1}', '{"b": 2}', "[DONE]"] and got[2] == got[1]
    assert got[3] == ['{"a":\n1}']
    assert got[4] == ['{"a": 1}', '{"b": 2}', "[DONE]"]
    assert events([STREAMS[3].encode()])[2] == b'data: {"cut'
    assert events([STREAMS[1].encode()])[0][1].name == "error"


def test_one_event_of_a_megabyte_is_linear() -> None:
    piece = b"x" * 1000
    parser = SseParser()
    assert parser.feed(b'data: {"a": "') == []
    for _ in range(1000):
        assert parser.feed(piece) == []
    assert len(parser.feed(b'"}\n\n')[0].data) == 1_000_009


BODY = b"hello, this is the body " * 20


def chunked(body: bytes, size: int, extra: bytes = b"") -> bytes:
    out = b""
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        out += b"%X%s\r\n" % (len(piece), extra) + piece + b"\r\n"
    return out + b"0\r\nX-Trailer: 1\r\n\r\n"


RESPONSES = {
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BODY, 37, b";a=b"),
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY,
    "close": b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:%d\r\n\r\n" % len(BODY)
    + BODY,
    "gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    + chunked(gzip.compress(BODY), 11),
}


@pytest.mark.parametrize("name", RESPONSES)
@settings(max_examples=25, deadline=None)
@given(places=st.lists(st.integers(0, 1000), max_size=15))
def test_any_cut_gives_the_same_body(name: str, places: list[int]) -> None:
    reader = ResponseReader()
    body = b"".join(reader.feed(piece) for piece in cut(RESPONSES[name], places)) + reader.eof()
    assert body == BODY and reader.complete and reader.status == 200 and not reader.excess
    assert reader.keep_alive == (name != "close")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
    ],
)
def test_what_is_not_http_is_said(data: bytes) -> None:
    with pytest.raises(HttpError):
        ResponseReader().feed(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_garbage_never_escapes(data: bytes) -> None:
    reader = ResponseReader()
    try:
        reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    except HttpError:
        pass
    account = Account()
    for event in events([data])[0]:
        take_event(account, event, 1)
    take_body(account, data, 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "usage",
                    "completion_tokens",
                    "error",
                    "meta_info",
                    "text",
                    "index",
                    "timings",
                    "finish_reason",
                    "tool_calls",
                    "function",
                    "predicted_n",
                    "prompt_tokens_details",
                    "stop",
                    "sglext",
                    "message",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None)
@given(st.lists(JSON, max_size=4))
def test_any_json_is_survived(values: list[Any]) -> None:
    account = Account()
    for value in values:
        take_event(account, SseEvent(json.dumps(value).encode(), ""), 1)
    assert account.events == len(values) == len(account.event_tokens)


def test_no_event_of_choices_can_be_counted_twice() -> None:
    account = Account()
    for count in (1, 5, 5, 9):
        message = {
            "choices": [{"index": 0, "delta": {"content": "x"}}],
            "usage": {"completion_tokens": count},
        }
        take_event(account, SseEvent(json.dumps(message).encode(), ""), count)
    assert account.tokens == 9 and account.chunk_tokens == [1, 4, 0, 4] and account.trusted_chunks()
