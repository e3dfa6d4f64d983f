"""Taking the messages of a streamed response into its `Account`. Pure; the events' times are arguments.

Understands OpenAI chat and completions chunks, SGLang `/generate` (cumulative or incremental text), llama.cpp's own
`/completion`, text-generation-inference's stream, and a plain JSON body from a server that ignored `stream`.
"""

from __future__ import annotations

import json
from typing import Any

from ..http.sse import SseEvent
from .account import Account
from .choice import TEXT_KEYS, Choice, whole


def take_event(account: Account, event: SseEvent, at_ns: int) -> None:
    """Take one event."""
    data = event.data.strip()
    if data == b"[DONE]":
        account.done_seen = True
        return
    if not data:
        return
    index = account.events
    account.events += 1
    account.last_event_ns = at_ns
    try:
        message = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        account.bad_events += 1
        account.event_tokens.append(0)
        if event.name == "error" and account.error is None:
            account.error = data.decode("utf-8", "replace")[:2000]
        return
    if not isinstance(message, dict):
        account.event_tokens.append(0)
        return
    take_message(account, message, index, at_ns, event.name)


def take_message(account: Account, message: dict[str, Any], index: int, at_ns: int, name: str = "") -> None:
    """Take one decoded message, the `index`-th of the stream."""
    before = account.running_total()
    if _error(account, message, name):
        account.event_tokens.append(0)
        return
    content = reasoning = False
    choices = message.get("choices")
    if isinstance(choices, list):
        for item in choices:
            if isinstance(item, dict):
                one, other = _choice(account, item)
                content, reasoning = content or one, reasoning or other
        _usage(account, message, choices)
    elif "meta_info" in message or ("text" in message and "output_ids" in message):
        content = _native(account, message)
    elif "content" in message and "stop" in message:
        content = _llamacpp(account, message)
    elif isinstance(message.get("token"), dict):
        content = _tgi(account, message, message["token"])
    else:
        _usage(account, message, [])
    _extras(account, message)
    gained = max(0, account.running_total() - before)
    account.event_tokens.append(gained)
    if content and account.first_content_event is None:
        account.first_content_event, account.first_content_ns = index, at_ns
    account.add_chunk(content or reasoning, gained, index, at_ns)


def take_body(account: Account, raw: bytes, at_ns: int) -> None:
    """Take a whole JSON body: an error document, or a response from a server that ignored `stream`."""
    try:
        message = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, list) and len(message) == 1:
        message = message[0]
    if not isinstance(message, dict):
        account.bad_events += 1
        return
    account.not_streamed = True
    account.events += 1
    account.last_event_ns = at_ns
    take_message(account, message, 0, at_ns)


def _error(account: Account, message: dict[str, Any], name: str) -> bool:
    error = message.get("error")
    if not error and (message.get("object") == "error" or name == "error"):
        error = message  # vLLM before 0.10 sends {"object": "error", "message": ...} without a wrapper
    if not error and "detail" in message and "choices" not in message:
        error = {"message": message["detail"]}
    if not error:
        return False
    if account.error is None:
        if isinstance(error, dict):
            text = error.get("message") or error.get("detail") or error.get("type") or json.dumps(error)
            account.error = text if isinstance(text, str) else json.dumps(text)
            code = error.get("code", error.get("status"))
            account.error_code = code if isinstance(code, (int, str)) and not isinstance(code, bool) else None
        else:
            account.error = str(error)
        account.error = account.error[:2000]
    return True


def _choice(account: Account, item: dict[str, Any]) -> tuple[bool, bool]:
    number = item.get("index", 0)
    choice = account.choice_at(number if isinstance(number, int) else 0)
    delta = item.get("delta")
    if not isinstance(delta, dict):
        whole = item.get("message")
        delta = whole if isinstance(whole, dict) else item
    content = reasoning = False
    for key in TEXT_KEYS:
        piece = delta.get(key)
        if isinstance(piece, list):  # content parts
            piece = "".join(str(part.get("text", "")) for part in piece if isinstance(part, dict))
        if not isinstance(piece, str) or not piece:
            continue
        if key in ("reasoning", "reasoning_content"):
            if reasoning:
                continue  # some servers send both names with the same text
            reasoning = True
            if account.keep_text:
                choice.reasoning.append(piece)
        else:
            content = True
            account.content_chars += len(piece)
            if account.keep_text:
                choice.text.append(piece)
    content = _tool_calls(account, delta, choice) or content
    ids = item.get("token_ids")
    if isinstance(ids, list) and ids and account.source in ("none", "token_ids"):
        account.running_known, account.source = True, "token_ids"
        choice.counted += len(ids)
    _end(account, choice, item.get("finish_reason"))
    return content, reasoning


def _tool_calls(account: Account, delta: dict[str, Any], choice: Choice) -> bool:
    calls = delta.get("tool_calls")
    calls = list(calls) if isinstance(calls, list) else []
    if isinstance(delta.get("function_call"), dict):
        calls.append({"function": delta["function_call"]})
    found = False
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        piece = str(function.get("name") or "") + str(function.get("arguments") or "")
        if piece:
            found = True
            account.tool_calls += 1
            if account.keep_text:
                choice.tools.append(piece)
    return found


def _end(account: Account, choice: Choice, reason: Any) -> None:
    if isinstance(
        reason, dict
    ):  # SGLang: {"type": "length", "length": 16} / {"type": "abort", "message": ...}
        if reason.get("type") == "abort":
            account.abort_text = str(reason.get("message") or "aborted")[:2000]
        reason = reason.get("type")
    if isinstance(reason, str) and reason:
        choice.finish = reason


def _usage(account: Account, message: dict[str, Any], choices: list[Any]) -> None:
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return
    _prompt_side(account, usage)
    count = whole(usage.get("completion_tokens"))
    if count is None:
        return
    details = usage.get("completion_tokens_details")
    reasoning = usage.get("reasoning_tokens")
    if reasoning is None and isinstance(details, dict):
        reasoning = details.get("reasoning_tokens")
    account.reasoning_tokens = whole(reasoning) if reasoning is not None else account.reasoning_tokens
    indices = [item.get("index", 0) for item in choices if isinstance(item, dict)]
    finished = bool(account.choices) and all(choice.finish for choice in account.choices.values())
    if not indices or (finished and not account.running_known):
        account.final_tokens = count
        if account.source == "none":
            account.source = "usage"
        return
    # A count with every chunk; for n > 1 each choice has its own.
    if not account.running_known or account.source == "usage-each":
        account.running_known, account.source = True, "usage-each"
        for number in indices:
            choice = account.choice_at(number if isinstance(number, int) else 0)
            choice.counted = max(choice.counted, count)


def _prompt_side(account: Account, usage: dict[str, Any]) -> None:
    prompt = whole(usage.get("prompt_tokens"))
    if prompt is not None:
        account.prompt_tokens = prompt
    details = usage.get("prompt_tokens_details")
    cached = usage.get("cached_tokens")
    if cached is None and isinstance(details, dict):
        cached = details.get("cached_tokens")
    if whole(cached) is not None:
        account.cached_tokens = whole(cached)


def _native(account: Account, message: dict[str, Any]) -> bool:
    """SGLang /generate: `text` is all of it so far (or the increment, as a server option), the count always is."""
    number = message.get("index", 0)
    choice = account.choice_at(number if isinstance(number, int) else 0)
    meta = message.get("meta_info")
    meta = meta if isinstance(meta, dict) else {}
    text = message.get("text")
    count = whole(meta.get("completion_tokens"))
    grew = False
    if isinstance(text, str) and text:
        gained = choice.take_native(text, count is not None and count > choice.counted)
        grew = gained > 0
        account.content_chars += gained
    _prompt_side(account, meta)
    if count is not None:
        account.running_known, account.source = True, "meta_info"
        choice.counted = max(choice.counted, count)
    _end(account, choice, meta.get("finish_reason"))
    for key in meta:
        if key.startswith("spec_"):
            account.spec[key] = meta[key]
    return grew


def _llamacpp(account: Account, message: dict[str, Any]) -> bool:
    choice = account.choice_at(0)
    piece = message.get("content")
    has = isinstance(piece, str) and bool(piece) and not (message.get("stop") and account.events > 1)
    if has and isinstance(piece, str):
        account.content_chars += len(piece)
        if account.keep_text:
            choice.text.append(piece)
    count = whole(message.get("tokens_predicted"))
    if count:
        account.running_known, account.source = True, "timings"
        choice.counted = max(choice.counted, count)
    prompt = whole(message.get("tokens_evaluated"))
    account.prompt_tokens = prompt if prompt is not None else account.prompt_tokens
    if message.get("stop"):
        kind = message.get("stop_type") or ("limit" if message.get("stopped_limit") else "stop")
        _end(account, choice, {"limit": "length", "eos": "stop", "word": "stop"}.get(str(kind), "stop"))
    return has


def _tgi(account: Account, message: dict[str, Any], token: dict[str, Any]) -> bool:
    """text-generation-inference's own /generate_stream: one token an event, the count with the last one."""
    choice = account.choice_at(0)
    piece = token.get("text")
    has = isinstance(piece, str) and bool(piece) and not token.get("special")
    if has and isinstance(piece, str):
        account.content_chars += len(piece)
        if account.keep_text:
            choice.text.append(piece)
    details = message.get("details")
    if isinstance(details, dict):
        count = whole(details.get("generated_tokens"))
        if count is not None:
            account.source = "usage"
            account.final_tokens = count
        kind = str(details.get("finish_reason"))
        _end(
            account,
            choice,
            {"length": "length", "eos_token": "stop", "stop_sequence": "stop"}.get(kind, "stop"),
        )
    return has


def _extras(account: Account, message: dict[str, Any]) -> None:
    timings = message.get("timings")
    if isinstance(timings, dict):
        account.timings = timings
        count = whole(timings.get("predicted_n"))
        if count is not None and account.source in ("none", "timings", "usage") and account.choices:
            if account.final_tokens is None or account.running_known:
                account.running_known, account.source = True, "timings"
            choice = account.choices[min(account.choices)]
            choice.counted = max(choice.counted, count)
    extension = message.get("sglext")
    if isinstance(extension, dict) and isinstance(extension.get("spec_tokens_details"), dict):
        account.spec.update(extension["spec_tokens_details"])
    metrics = message.get("metrics")
    if isinstance(metrics, dict) and isinstance(metrics.get("speculative_decoding"), dict):
        account.spec.update(metrics["speculative_decoding"])
