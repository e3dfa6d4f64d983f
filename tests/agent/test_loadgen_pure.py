"""The pure parts of the load generator: events, framing, bodies, specs, context, readings."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.agent.loadgen.context_text import corpus, fit_context, passage
from ddtop.agent.loadgen.engine_calls import parse_prometheus
from ddtop.agent.loadgen.http.http1 import HttpError, ResponseReader
from ddtop.agent.loadgen.http.sse import SseEvent, SseParser
from ddtop.agent.loadgen.machine import pressure
from ddtop.agent.loadgen.machine.gpu import FIELD_SETS, parse_line
from ddtop.agent.loadgen.records import pack, pack_value, token_bins, unpack, unpack_value
from ddtop.agent.loadgen.request_builder import NONCE_LENGTH, RequestBuilder, arrival_times, nonce_for
from ddtop.agent.loadgen.response.account import Account
from ddtop.agent.loadgen.response.messages import take_body, take_event
from ddtop.agent.loadgen.spec import LoadSpec, SpecError, load_spec
from ddtop.agent.loadgen.window.shards import process_count


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
