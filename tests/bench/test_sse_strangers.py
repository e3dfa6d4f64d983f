"""Responses as people save them: curl -v and -i, httpx, scripts, and streams of servers that are no cases.

Each was written with its right verdict before ddtop was asked.
"""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.bench.judge.response import diagnose_sse
from ddtop.inspect.file_kind import guess_text


def chunk(text: str, finish: str | None = None) -> str:
    end = f'"{finish}"' if finish else "null"
    return f'data: {{"id":"c","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{end}}}]}}\n\n'


GOOD = chunk("Hel") + chunk("lo") + chunk("", "stop") + "data: [DONE]\n\n"
CUT = chunk("Hel") + chunk("lo")
USAGE = 'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n'
ASKED = "* Connected to h (10.0.0.1) port 8000\n> POST /v1/chat/completions HTTP/1.1\n> Host: h\n> \n"


def answered(status: str, kind: str = "text/event-stream") -> str:
    return ASKED + f"< HTTP/1.1 {status}\n< content-type: {kind}\n< Transfer-Encoding: chunked\n< \n"


LEFT = "* Connection #0 to host h left intact\n"
ROWS: list[tuple[str, str, str, str, dict[str, Any]]] = [
    (
        "curl -v, good",
        answered("200 OK") + GOOD + LEFT,
        "success",
        "complete",
        {"http_status": 200, "data_events": 3},
    ),
    (
        "curl -v, CRLF",
        (answered("200 OK") + GOOD + LEFT).replace("\n", "\r\n"),
        "success",
        "complete",
        {"http_status": 200},
    ),
    (
        "curl -v over HTTP/2",
        ASKED + "< HTTP/2 200 \n< \n" + GOOD + LEFT,
        "success",
        "complete",
        {"http_status": 200},
    ),
    (
        "curl -v of an error document",
        answered("404 Not Found", "application/json") + '{"detail":"Not Found"}' + LEFT,
        "failed",
        "http-404",
        {"http_status": 404},
    ),
    (
        "curl -v, pretty JSON in a 400",
        answered("400 Bad Request", "application/json")
        + '{\n  "error": {\n    "message": "too long",\n    "code": 400\n  }\n}\n'
        + LEFT,
        "failed",
        "http-400",
        {"error_code": 400},
    ),
    (
        "curl -v through a proxy's 502",
        answered("502 Bad Gateway", "text/html") + "<html><h1>502</h1></html>\n" + LEFT,
        "failed",
        "http-502",
        {"http_status": 502},
    ),
    (
        "curl -v, the server died",
        answered("200 OK")
        + CUT
        + "* transfer closed with outstanding read data remaining\ncurl: (18) transfer closed with outstanding read data remaining\n",
        "truncated",
        "stream-ended-without-finish",
        {"http_status": 200, "content_chunks": 2},
    ),
    (
        "curl -N, reset",
        CUT + "curl: (56) Recv failure: Connection reset by peer\n",
        "truncated",
        "stream-ended-without-finish",
        {"content_chunks": 2},
    ),
    (
        "curl -v, time-out",
        answered("200 OK")
        + CUT
        + "* Operation timed out after 30001 milliseconds\ncurl: (28) Operation timed out after 30001 milliseconds with 800 bytes received\n",
        "failed",
        "timeout",
        {},
    ),
    (
        "curl: nothing listens",
        "curl: (7) Failed to connect to localhost port 30000 after 0 ms: Couldn't connect to server\n",
        "failed",
        "refused",
        {},
    ),
    (
        "curl: empty reply",
        "*   Trying 127.0.0.1:8000...\n* Connected to localhost (127.0.0.1) port 8000\n> GET /v1/models HTTP/1.1\n> \n* Empty reply from server\ncurl: (52) Empty reply from server\n",
        "failed",
        "no-answer",
        {},
    ),
    (
        "curl -f",
        "curl: (22) The requested URL returned error: 503\n",
        "failed",
        "http-503",
        {"http_status": 503},
    ),
    (
        "100 Continue first",
        ASKED + "< HTTP/1.1 100 Continue\n< \n< HTTP/1.1 200 OK\n< \n" + GOOD + LEFT,
        "success",
        "complete",
        {"http_status": 200},
    ),
    (
        "curl -i, no longer chunked",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n" + GOOD,
        "success",
        "complete",
        {"http_status": 200, "data_events": 3},
    ),
    (
        "curl -i, HTTP/2",
        "HTTP/2 200 \r\ncontent-type: text/event-stream\r\n\r\n" + GOOD,
        "success",
        "complete",
        {"http_status": 200},
    ),
    (
        "curl -i, redirected",
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: /v1/\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        + GOOD,
        "success",
        "complete",
        {"http_status": 200},
    ),
    (
        "curl -i, error inside",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        + 'data: {"error":{"message":"x","code":500}}\n\ndata: [DONE]\n\n',
        "failed",
        "in-band-error",
        {"error_code": 500},
    ),
    (
        "httpx",
        '2025-10-01 10:00:00,1 - INFO - HTTP Request: POST http://h/v1/chat/completions "HTTP/1.1 200 OK"\n'
        + GOOD,
        "success",
        "complete",
        {"http_status": 200},
    ),
    (
        "httpx, 429",
        'INFO:httpx:HTTP Request: POST http://h/v1/completions "HTTP/1.1 429 Too Many Requests"\n{"error":{"message":"slow down"}}\n',
        "failed",
        "http-429",
        {"http_status": 429},
    ),
    (
        "bytes as Python shows them",
        "".join(f"{line.encode()!r}\n" for line in GOOD.split("\n")),
        "success",
        "complete",
        {"data_events": 3},
    ),
    (
        "with a time before each line",
        "".join(f"10:00:0{i}.123 {line}\n" if line else "\n" for i, line in enumerate(GOOD.split("\n"))),
        "success",
        "complete",
        {"data_events": 3},
    ),
    (
        "llama.cpp's error in the stream",
        chunk("a")
        + 'data: {"error":{"code":500,"message":"context shift is disabled","type":"server_error"}}\n\n',
        "failed",
        "in-band-error",
        {"error_code": 500},
    ),
    (
        "TGI's error event",
        'event: error\ndata: {"error":"Request failed during generation: Server error: CUDA out of memory","error_type":"generation"}\n\n',
        "failed",
        "in-band-error",
        {},
    ),
    (
        "OpenRouter: processing, then good",
        ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n"
        + GOOD.replace("data: [DONE]", USAGE + "data: [DONE]"),
        "success",
        "complete",
        {"comments": 2, "completion_tokens": 2},
    ),
    (
        "only keep-alives, then nothing",
        ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
        "failed",
        "no-tokens",
        {"comments": 2},
    ),
    (
        "vLLM: the core died, and [DONE] all the same",
        chunk("a")
        + 'data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","param":null,"code":500}}\n\ndata: [DONE]\n\n',
        "failed",
        "in-band-error",
        {"done_seen": True},
    ),
    (
        "SGLang aborts",
        chunk("a") + chunk("", "abort") + "data: [DONE]\n\n",
        "failed",
        "aborted",
        {"finish_reason": "abort"},
    ),
]


OLLAMA = '{"model":"l","message":{"role":"assistant","content":"Hi"},"done":false}\n'
MESSAGE = (
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":3}}}\n\n'
)
DELTA = 'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}\n\n'
ROWS += [
    (
        "curl -v, nothing listens",
        "*   Trying 127.0.0.1:8000...\n* connect to 127.0.0.1 port 8000 failed: Connection refused\n* Closing connection 0\ncurl: (7) Failed to connect to localhost port 8000: Connection refused\n",
        "failed",
        "refused",
        {},
    ),
    (
        "ollama",
        OLLAMA
        + '{"model":"l","message":{"role":"assistant","content":""},"done_reason":"stop","done":true,"eval_count":2,"prompt_eval_count":5}\n',
        "success",
        "complete",
        {"completion_tokens": 2, "prompt_tokens": 5, "text": "Hi"},
    ),
    ("ollama, cut", OLLAMA + OLLAMA, "truncated", "stream-ended-without-finish", {"content_chunks": 2}),
    (
        "ollama, an error inside",
        OLLAMA + '{"error":"an error was encountered while running the model: CUDA error"}\n',
        "failed",
        "in-band-error",
        {},
    ),
    (
        "Anthropic's events",
        MESSAGE
        + DELTA
        + 'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}\n\ndata: {"type":"message_stop"}\n\n',
        "success",
        "complete",
        {"completion_tokens": 2},
    ),
    (
        "Anthropic's events, overloaded",
        MESSAGE
        + 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
        "failed",
        "in-band-error",
        {"error_message": "Overloaded"},
    ),
    ("Anthropic's events, cut", MESSAGE + DELTA, "truncated", "stream-ended-without-finish", {}),
    (
        "OpenAI's responses",
        'data: {"type":"response.created","response":{"id":"r"}}\n\ndata: {"type":"response.output_text.delta","delta":"hi"}\n\ndata: {"type":"response.completed","response":{"usage":{"output_tokens":1,"input_tokens":3}}}\n\n',
        "success",
        "complete",
        {"completion_tokens": 1},
    ),
    (
        "llama.cpp still loads",
        'HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
        "failed",
        "http-503",
        {"error_code": 503},
    ),
]


@pytest.mark.parametrize(
    ("text", "verdict", "cause", "fields"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_responses_nobody_here_has_seen(text: str, verdict: str, cause: str, fields: dict[str, Any]) -> None:
    got = diagnose_sse(text.encode())
    assert (got["verdict"], got["cause"]) == (verdict, cause)
    assert {key: got.get(key) for key in fields} == fields
    assert got["advice"]


def test_a_transcript_is_guessed_to_be_a_response() -> None:
    assert guess_text(ROWS[0][1].encode()) == "sse"
    assert guess_text(b"curl: (7) Failed to connect to localhost port 30000\n") == "sse"


@pytest.mark.parametrize("text", ["* one\n* two\n", "> quoted mail\n> more\n", "b'x'\n"])
def test_other_texts_are_no_responses(text: str) -> None:
    assert diagnose_sse(text.encode())["verdict"] == "failed"
