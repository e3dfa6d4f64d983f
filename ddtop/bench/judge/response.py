"""Judges one recorded response by its own events. Pure.

`ddtop inspect sse FILE` and the conformance tests use it; the load generator uses the same account of the events.
A field that the recording does not determine is absent from the result, never zero.
"""

from __future__ import annotations

import re
from typing import Any

from ddtop.agent.loadgen.http.http1 import HttpError, ResponseReader
from ddtop.agent.loadgen.http.sse import SseParser
from ddtop.agent.loadgen.response.account import Account
from ddtop.agent.loadgen.response.messages import take_body, take_event
from ddtop.agent.loadgen.response.request_class import request_class
from ddtop.bench.judge.other_forms import as_chunks
from ddtop.bench.judge.transcript import plain_head, untangle

ADVICE = {
    "complete": "nothing to do",
    "complete-without-done": "nothing to do: the finish reason came; a client that waits for [DONE] would hang",
    "complete-no-usage": "set stream_options.include_usage; without it this server gives no usable token rate",
    "length-limit": "nothing to do: the token limit is the normal end of a benchmark request",
    "not-streamed": "the server ignored `stream`: no first-token or decode time can be measured",
    "stream-ended-without-finish": "read the server's log at this second; if many responses end at once, the server died or the link dropped",
    "in-band-error": "read the error: it came inside an HTTP 200 and must not count as success",
    "no-tokens": "the server responded without a token: read its log, do not compare its throughput",
    "aborted": "the engine aborted the request: check its log for memory pressure or retractions",
    "short": "the server stopped before the requested length: it ignored ignore_eos",
    "not-http": "the port does not speak HTTP: check the port, and whether it needs https://",
    "refused": "nothing listens on that address and port: check both, and whether the server is still starting",
    "timeout": "the response did not end within the client's time limit: look whether the server hangs, else raise the limit",
    "no-answer": "the connection closed before a response: the server is down or restarting",
}

HTTP_ADVICE = {
    "http-400": "correct the request: the body says which field; a prompt longer than the context is refused like this",
    "http-401": "send the API key that the server was started with (Authorization: Bearer …)",
    "http-403": "the key or the proxy does not allow this: check both",
    "http-404": "check the path and the model's name (`GET /v1/models` lists it)",
    "http-405": "check the path and the method: the endpoint takes POST",
    "http-413": "a proxy refuses a body of this size: raise its limit, or ask the server directly",
    "http-422": "correct the request: the body says which field",
    "http-429": "the server or its proxy limits requests: lower the concurrency or raise the limit",
    "http-502": "the proxy got no response from the server: look whether the server runs, and on which port",
    "http-503": "the server is loading or overloaded: wait until /health gives 200, then ask again",
    "http-504": "the proxy's time limit is shorter than the response takes: raise it, or ask the server directly",
}


_SPEAKS = re.compile(
    rb'"(?:choices|content|text|tokens?|response|message|output|output_ids|meta_info|usage|delta|timings|generated_text|error|detail)"'
)
"""A key of a part of a generation, in any of the interfaces that are read."""


def diagnose_sse(
    raw: bytes,
    *,
    status: int | None = None,
    times: list[float] | None = None,
    usage_requested: bool | None = None,
    requested_tokens: int | None = None,
) -> dict[str, Any]:
    """Verdict, cause, severity and all that one response determines.

    `raw`: the bytes of the body, or of the whole response with its head. `status`: the HTTP status if the head is
    not in `raw`. `times`: arrival of every `data:` event in ms after the request ([DONE] not counted).
    `usage_requested`: whether the request asked for usage (None: not known). `requested_tokens`: the exact length
    asked for with ignore_eos.
    """
    out: dict[str, Any] = {}
    told = untangle(raw)
    if told is not None:
        raw, status = told.body, told.status if told.status is not None else status
    reader, body, broken = _body(raw)
    plain = plain_head(raw)
    if plain is not None and (broken or plain.heads > 1 or (reader is not None and not body)):
        reader, body, broken, status = None, plain.body, "", plain.status
    if reader is not None and reader.status:
        status = reader.status
        out["http_version"] = reader.version
        if reader.headers.get("retry-after"):
            out["retry_after"] = reader.headers["retry-after"]
        if reader.headers.get("content-encoding"):
            out["content_encoding"] = reader.headers["content-encoding"]
    if status is not None:
        out["http_status"] = status
    body = as_chunks(body) or body
    account = Account()
    parser = SseParser()
    _feed(account, parser, body, times, is_json=_is_json(reader, body), status=status)
    ended = "closed"
    if broken:
        ended = "not-http"
        account.error = broken
    elif reader is not None and reader.complete and reader.framing in ("chunked", "length"):
        ended = "complete"
    if (
        told is not None
        and told.ended is not None
        and (told.ended not in ("closed", "reset") or account.finish is None)
    ):
        ended = told.ended
        if ended in ("refused", "timeout", "no-answer"):
            account.error = told.error or account.error
    known_status = (
        200 if status is None and (account.events or account.done_seen or parser.comments) else status
    )
    if (
        body.strip()
        and (told is None or told.ended is None)
        and not broken
        and status is None
        and not account.events
        and not account.done_seen
        and not parser.comments
    ):
        account.error = "these bytes are neither HTTP nor an event stream"
    if (
        parser.comments == 0
        and account.events
        and not account.done_seen
        and not account.error
        and not _SPEAKS.search(body)
    ):
        raise ValueError("its events are of another interface: none of them is a part of a generation")
    name, why = request_class(account, status=known_status, ended=ended, asked=requested_tokens)
    told_ended = told.ended if told is not None else None
    verdict, cause, severity = _verdict(
        name, account, usage_requested, requested_tokens, bool(times), told_ended
    )
    out.update(verdict=verdict, cause=cause, severity=severity, request_class=name, why=why)
    advice = ADVICE.get(cause) or HTTP_ADVICE.get(cause) or "read the server's log"
    if cause == "in-band-error" and status is None and account.not_streamed:
        advice = (
            HTTP_ADVICE.get(f"http-{account.error_code}") or "read the error: the body holds nothing else"
        )
    out["advice"] = advice
    _fields(out, account, parser, name)
    if times:
        _timing(out, account)
    if account.timings:
        out["timings"] = account.timings
    if account.spec:
        out["spec"] = account.spec
    return out


def _body(raw: bytes) -> tuple[ResponseReader | None, bytes, str]:
    """(reader or None, the decoded body, why it is not HTTP)."""
    if not raw.startswith(b"HTTP/"):
        return None, raw, ""
    reader = ResponseReader()
    try:
        body = reader.feed(raw)
        body += reader.eof()
    except HttpError as error:
        return reader, b"", str(error)
    return reader, body, ""


def _is_json(reader: ResponseReader | None, body: bytes) -> bool:
    kind = reader.headers.get("content-type", "") if reader is not None else ""
    return "event-stream" not in kind and body.lstrip()[:1] in (b"{", b"[")


def _feed(
    account: Account,
    parser: SseParser,
    body: bytes,
    times: list[float] | None,
    *,
    is_json: bool,
    status: int | None,
) -> None:
    """All events of the body into the account; an event's time is `times[i]` in ms, else its index."""
    if is_json or (status not in (None, 200) and b"data:" not in body):
        take_body(account, body, int(times[0] * 1e6) if times else 0)
        if account.error is None and status not in (None, 200) and body.strip():
            account.error = body.decode("utf-8", "replace").strip()[:500]
        return
    events = parser.feed(body) + parser.close()
    for event in events:
        index = account.events
        at_ns = int(times[min(index, len(times) - 1)] * 1e6) if times else index
        take_event(account, event, at_ns)


def _verdict(
    name: str,
    account: Account,
    usage_requested: bool | None,
    requested: int | None,
    timed: bool,
    told_ended: str | None = None,
) -> tuple[str, str, str]:
    if name == "ok":
        return _success(account, usage_requested, requested, timed)
    if name == "truncated":
        return "truncated", "stream-ended-without-finish", "error"
    if name == "in-band error":
        return "failed", "in-band-error", "error"
    if name == "empty":
        return "failed", "no-tokens", "error"
    if name.startswith("http "):
        return "failed", name.replace(" ", "-"), "error"
    if name == "short":
        return "failed", "short", "error"
    if name == "aborted":
        cause = "aborted"
        if told_ended == "no-answer":
            cause = "no-answer"
        elif not account.events:
            cause = "not-http" if account.error else "no-answer"
        return "failed", cause, "error"
    return "failed", name, "error"


def _success(
    account: Account, usage_requested: bool | None, requested: int | None, timed: bool
) -> tuple[str, str, str]:
    if account.not_streamed:
        return "success", "not-streamed", "warn"
    if account.tokens is None and _usage_was_due(account, usage_requested):
        return "success", "complete-no-usage", "warn"
    if not account.done_seen and account.source != "meta_info":
        return "success", "complete-without-done", "info"
    if account.finish == "length":
        # A running count is asked for by benchmarks only, and there the limit is the planned end.
        planned = (
            timed or account.source == "usage-each" or (requested is not None and account.tokens == requested)
        )
        return "success", "complete" if planned else "length-limit", "info"
    return "success", "complete", "info"


def _usage_was_due(account: Account, usage_requested: bool | None) -> bool:
    """Whether a missing count matters. If it is not known whether the request asked for usage, only a whole recording (with its
    opener) of several text chunks shows it: with one chunk nothing hangs on it, and an excerpt proves nothing."""
    if usage_requested is not None:
        return usage_requested
    return account.text_chunks >= 2 and account.first_event not in (None, 0)


def _fields(out: dict[str, Any], account: Account, parser: SseParser, name: str) -> None:
    out["data_events"] = account.events
    out["done_seen"] = account.done_seen
    out["comments"] = parser.comments
    out["content_chunks"] = account.text_chunks
    out["content_chars"] = account.content_chars
    out["token_source"] = {"usage-each": "usage"}.get(account.source, account.source)
    if account.tool_calls:
        out["tool_call_chunks"] = account.tool_calls
    if account.bad_events:
        out["bad_events"] = account.bad_events
    if parser.tail:
        out["incomplete_tail_bytes"] = len(parser.tail)
    if account.first_event is not None:
        out["ttft_event"] = account.first_event
    if account.first_content_event is not None:
        out["first_content_event"] = account.first_content_event
    tokens = account.tokens
    if tokens is None and name in ("in-band error", "empty") and account.text_chunks == 0:
        tokens = 0  # certain: nothing came
    optional = {
        "completion_tokens": tokens,
        "prompt_tokens": account.prompt_tokens,
        "cached_tokens": account.cached_tokens,
        "reasoning_tokens": account.reasoning_tokens,
        "finish_reason": account.finish,
        "error_message": account.error if name != "ok" else None,
        "error_code": account.error_code,
    }
    out.update({key: value for key, value in optional.items() if value is not None})
    texts = account.texts()
    if len(texts) > 1:
        out["choices"] = len(texts)
    content = "".join(account.choices[min(account.choices)].text) if account.choices else ""
    if not content and account.choices:
        content = account.choices[min(account.choices)].native_text
    out["text"] = content
    if any(account.event_tokens):
        out["tokens_per_event"] = account.event_tokens


def _timing(out: dict[str, Any], account: Account) -> None:
    if not account.chunk_ns:
        return
    first, last = account.chunk_ns[0] / 1e6, account.chunk_ns[-1] / 1e6
    out["ttft_ms"] = first
    if account.last_event_ns is not None:
        out["e2e_ms"] = account.last_event_ns / 1e6
    if last > first:
        out["decode_tps_wrong_chunks"] = (account.text_chunks - 1) * 1000 / (last - first)
        if account.trusted_chunks() and account.tokens is not None:
            out["decode_tps"] = (account.tokens - (account.chunk_tokens[0] or 0)) * 1000 / (last - first)
