"""Streams of other interfaces as the events that ddtop reads: ollama's JSON lines, Anthropic's and OpenAI's named events.

Pure. Only a file that is judged comes here; the load generator asks for OpenAI's or SGLang's form.
"""

from __future__ import annotations

import json
import re
from typing import Any

_STOPS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
_TYPED = re.compile(rb'^data: ?\{.{0,80}?"type": ?"(?:message_start|content_block_|response\.)', re.M)


def as_chunks(body: bytes) -> bytes | None:
    """The stream in OpenAI's form; None where it is none of these."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    if _TYPED.search(body):
        messages = [_json(line[5:]) for line in lines if line.startswith(b"data:")]
        return _joined([_typed(m) for m in messages if m is not None])
    whole = _json(body) if body.lstrip()[:1] == b"{" else None
    if (
        whole is not None
        and {"model", "created_at"} <= whole.keys()
        and whole.keys() & {"message", "response"}
    ):
        if not whole.get("done"):
            return _joined([_ollama(whole)])
        ended = next(item for item in _ollama(whole) if isinstance(item, dict))
        if "error" not in ended:
            ended["choices"][0]["message"] = ended["choices"][0].pop("delta")
        return json.dumps(ended).encode()  # the answer to a request that asked for no stream
    if len(lines) > 1 and all(line.startswith(b"{") for line in lines):
        found = [_json(line) for line in lines]
        if any(m is not None and "done" in m and ("message" in m or "response" in m) for m in found):
            return _joined([_ollama(m) for m in found if m is not None])
    return None


def _json(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _joined(events: list[list[dict[str, Any] | str]]) -> bytes:
    rows = [item if isinstance(item, str) else json.dumps(item) for event in events for item in event]
    return "".join(f"data: {row}\n\n" for row in rows).encode()


def _chunk(text: str = "", finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more}


def _ollama(m: dict[str, Any]) -> list[dict[str, Any] | str]:
    if m.get("error"):
        return [{"error": m["error"]}]
    message = m.get("message")
    text = str((message.get("content") if isinstance(message, dict) else m.get("response")) or "")
    if not m.get("done"):
        return [_chunk(text)]
    usage = {"completion_tokens": m.get("eval_count"), "prompt_tokens": m.get("prompt_eval_count")}
    known = {k: v for k, v in usage.items() if isinstance(v, int)}
    more = {"usage": known} if known else {}
    return [_chunk(text, str(m.get("done_reason") or "stop"), **more), "[DONE]"]


def _typed(m: dict[str, Any]) -> list[dict[str, Any] | str]:
    kind = str(m.get("type") or "")
    delta = m.get("delta")
    if kind in ("error", "response.failed") or m.get("error"):
        response = m.get("response")
        inner = response.get("error") if isinstance(response, dict) else None
        return [{"error": inner or m.get("error") or m}]
    if kind == "content_block_delta" and isinstance(delta, dict):
        return [_chunk(str(delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""))]
    if kind in ("response.output_text.delta", "response.reasoning_text.delta") and isinstance(delta, str):
        return [_chunk(delta)]
    if kind == "message_delta" and isinstance(delta, dict) and delta.get("stop_reason"):
        reason = str(delta["stop_reason"])
        return [_chunk("", _STOPS.get(reason, reason), **_usage(m.get("usage")))]
    if kind in ("response.completed", "response.incomplete"):
        response = m.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        return [_chunk("", "stop" if kind.endswith("completed") else "length", **_usage(usage)), "[DONE]"]
    return ["[DONE]"] if kind == "message_stop" else []


def _usage(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, dict):
        return {}
    out = {"completion_tokens": usage.get("output_tokens"), "prompt_tokens": usage.get("input_tokens")}
    known = {k: v for k, v in out.items() if isinstance(v, int)}
    return {"usage": known} if known else {}
