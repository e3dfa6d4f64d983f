"""What one streamed answer said: tokens, texts, finish reasons, errors. Pure; the events' times are arguments.

Understands OpenAI chat and completions chunks, SGLang `/generate` (cumulative or incremental text), llama.cpp's own
`/completion`, and a plain JSON body from a server that ignored `stream`. Tokens come from the server's own counts
(continuous usage, `meta_info`, llama.cpp `timings`, vLLM `token_ids`), never from counting chunks.
"""

from __future__ import annotations

import json
from typing import Any

from ..http.sse import SseEvent
from .choice import GOOD_FINISH, TEXT_KEYS, Choice, whole


class Account:
    """The running account of one response; feed it every event with the time it arrived at.

    `chunk_ns` / `chunk_tokens`: the events that brought text (or, after the first text, a higher count), with the
    tokens each brought; `chunk_tokens` holds None where the server gave no running count. Indices are 0-based over
    `data:` events without [DONE].
    """

    def __init__(self, keep_text: bool = True) -> None:
        self.keep_text = keep_text
        self.events = 0
        self.bad_events = 0  # data that is neither JSON nor [DONE]
        self.done_seen = False
        self.not_streamed = False
        self.error: str | None = None
        self.error_code: int | str | None = None
        self.choices: dict[int, Choice] = {}
        self.abort_text: str | None = None
        self.first_event: int | None = None
        self.first_content_event: int | None = None
        self.first_content_ns: int | None = None
        self.text_chunks = 0
        self.chunk_ns: list[int] = []
        self.chunk_tokens: list[int | None] = []
        self.last_event_ns: int | None = None
        self.event_tokens: list[int] = []  # the running count's step at every event
        self.source = "none"
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.final_tokens: int | None = None
        self.spec: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}
        self.content_chars = 0
        self.tool_calls = 0
        self._running_known = False
        self._pending_tokens = 0  # counted, but no text of theirs has come yet

    # ---- what came of it

    @property
    def tokens(self) -> int | None:
        """Output tokens by the server's own word; None if it never said (0 if it is certain that none came)."""
        if self.final_tokens is not None:
            return self.final_tokens
        if self._running_known:
            return sum(choice.counted for choice in self.choices.values())
        return None

    @property
    def finish(self) -> str | None:
        """The finish reason of the answer (of the first unfinished-looking choice for n > 1); None if one is missing."""
        if not self.choices:
            return None
        reasons = [self.choices[index].finish for index in sorted(self.choices)]
        if any(reason is None for reason in reasons):
            return None
        for reason in reasons:
            if reason not in GOOD_FINISH:
                return reason
        return "length" if "length" in reasons and reasons[0] != "length" else reasons[0]

    def trusted_chunks(self) -> bool:
        """True if every chunk's tokens are known and add up to the total the server gave at the end."""
        if not self.chunk_tokens or any(count is None for count in self.chunk_tokens):
            return False
        total = sum(count or 0 for count in self.chunk_tokens)
        return self.tokens is not None and total <= self.tokens

    def texts(self) -> list[str]:
        """The answers' texts in order of their index, reasoning first."""
        out = []
        for index in sorted(self.choices):
            choice = self.choices[index]
            content = "".join(choice.text) or choice.native_text
            out.append("".join(choice.reasoning) + content + "".join(choice.tools))
        return out

    # ---- feeding

    def event(self, event: SseEvent, at_ns: int) -> None:
        """Take one event."""
        data = event.data.strip()
        if data == b"[DONE]":
            self.done_seen = True
            return
        if not data:
            return
        index = self.events
        self.events += 1
        self.last_event_ns = at_ns
        try:
            message = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            self.bad_events += 1
            self.event_tokens.append(0)
            if event.name == "error" and self.error is None:
                self.error = data.decode("utf-8", "replace")[:2000]
            return
        if not isinstance(message, dict):
            self.event_tokens.append(0)
            return
        self.message(message, index, at_ns, event.name)

    def message(self, message: dict[str, Any], index: int, at_ns: int, name: str = "") -> None:
        """Take one decoded message, the `index`-th of the stream."""
        before = self._running_total()
        if self._error(message, name):
            self.event_tokens.append(0)
            return
        content = reasoning = False
        choices = message.get("choices")
        if isinstance(choices, list):
            for item in choices:
                if isinstance(item, dict):
                    one, other = self._choice(item)
                    content, reasoning = content or one, reasoning or other
            self._usage(message, choices)
        elif "meta_info" in message or ("text" in message and "output_ids" in message):
            content = self._native(message)
        elif "content" in message and "stop" in message:
            content = self._llamacpp(message)
        elif isinstance(message.get("token"), dict):
            content = self._tgi(message, message["token"])
        else:
            self._usage(message, [])
        self._extras(message)
        gained = max(0, self._running_total() - before)
        self.event_tokens.append(gained)
        if content and self.first_content_event is None:
            self.first_content_event, self.first_content_ns = index, at_ns
        self._chunk(content or reasoning, gained, index, at_ns)

    def plain_chunk(self, text: str, at_ns: int, prompt: int | None, count: int | None) -> bool:
        """What `event` does, for the plainest of all: text of choice 0, no finish, and the running count or none.
        False (nothing changed) where that is not all there is to it."""
        if not text or len(self.choices) > 1 or (self.choices and 0 not in self.choices):
            return False
        choice = self.choices.get(0)
        if count is not None and (
            self.source != "usage-each"
            if self._running_known
            else self.source != "none" or choice is None or choice.finish
        ):
            return False
        index = self.events
        self.events += 1
        self.last_event_ns = at_ns
        if choice is None:
            choice = self._choice_at(0)
        if self.keep_text:
            choice.text.append(text)
        self.content_chars += len(text)
        gained = 0
        if count is not None:
            self.prompt_tokens = prompt
            self._running_known, self.source = True, "usage-each"
            if count > choice.counted:
                gained = count - choice.counted
                choice.counted = count
        self.event_tokens.append(gained)
        if self.first_content_event is None:
            self.first_content_event, self.first_content_ns = index, at_ns
        self._chunk(True, gained, index, at_ns)
        return True

    def body(self, raw: bytes, at_ns: int) -> None:
        """Take a whole JSON body: an error document, or an answer from a server that ignored `stream`."""
        try:
            message = json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, list) and len(message) == 1:
            message = message[0]
        if not isinstance(message, dict):
            self.bad_events += 1
            return
        self.not_streamed = True
        self.events += 1
        self.last_event_ns = at_ns
        self.message(message, 0, at_ns)

    # ---- parts of a message

    def _running_total(self) -> int:
        return sum(choice.counted for choice in self.choices.values())

    def _chunk(self, has_text: bool, gained: int, index: int, at_ns: int) -> None:
        if not has_text and not (gained and self.chunk_ns):
            self._pending_tokens += (
                gained  # a token whose text is held back belongs to the chunk that shows it
            )
            return
        if has_text:
            self.text_chunks += 1
            if self.first_event is None:
                self.first_event = index
        self.chunk_ns.append(at_ns)
        self.chunk_tokens.append(gained + self._pending_tokens if self._running_known else None)
        self._pending_tokens = 0

    def _error(self, message: dict[str, Any], name: str) -> bool:
        error = message.get("error")
        if not error and (message.get("object") == "error" or name == "error"):
            error = message  # vLLM before 0.10 sends {"object": "error", "message": ...} without a wrapper
        if not error and "detail" in message and "choices" not in message:
            error = {"message": message["detail"]}
        if not error:
            return False
        if self.error is None:
            if isinstance(error, dict):
                text = error.get("message") or error.get("detail") or error.get("type") or json.dumps(error)
                self.error = text if isinstance(text, str) else json.dumps(text)
                code = error.get("code", error.get("status"))
                self.error_code = (
                    code if isinstance(code, (int, str)) and not isinstance(code, bool) else None
                )
            else:
                self.error = str(error)
            self.error = self.error[:2000]
        return True

    def _choice(self, item: dict[str, Any]) -> tuple[bool, bool]:
        number = item.get("index", 0)
        choice = self._choice_at(number if isinstance(number, int) else 0)
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
                if self.keep_text:
                    choice.reasoning.append(piece)
            else:
                content = True
                self.content_chars += len(piece)
                if self.keep_text:
                    choice.text.append(piece)
        content = self._tool_calls(delta, choice) or content
        ids = item.get("token_ids")
        if isinstance(ids, list) and ids and self.source in ("none", "token_ids"):
            self._running_known, self.source = True, "token_ids"
            choice.counted += len(ids)
        self._finish(choice, item.get("finish_reason"))
        return content, reasoning

    def _tool_calls(self, delta: dict[str, Any], choice: Choice) -> bool:
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
                self.tool_calls += 1
                if self.keep_text:
                    choice.tools.append(piece)
        return found

    def _choice_at(self, index: int) -> Choice:
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = Choice()
        return choice

    def _finish(self, choice: Choice, reason: Any) -> None:
        if isinstance(
            reason, dict
        ):  # SGLang: {"type": "length", "length": 16} / {"type": "abort", "message": ...}
            if reason.get("type") == "abort":
                self.abort_text = str(reason.get("message") or "aborted")[:2000]
            reason = reason.get("type")
        if isinstance(reason, str) and reason:
            choice.finish = reason

    def _usage(self, message: dict[str, Any], choices: list[Any]) -> None:
        usage = message.get("usage")
        if not isinstance(usage, dict):
            return
        self._prompt_side(usage)
        count = whole(usage.get("completion_tokens"))
        if count is None:
            return
        details = usage.get("completion_tokens_details")
        reasoning = usage.get("reasoning_tokens")
        if reasoning is None and isinstance(details, dict):
            reasoning = details.get("reasoning_tokens")
        self.reasoning_tokens = whole(reasoning) if reasoning is not None else self.reasoning_tokens
        indices = [item.get("index", 0) for item in choices if isinstance(item, dict)]
        finished = bool(self.choices) and all(choice.finish for choice in self.choices.values())
        if not indices or (finished and not self._running_known):
            self.final_tokens = count
            if self.source == "none":
                self.source = "usage"
            return
        # A count with every chunk; for n > 1 each choice has its own.
        if not self._running_known or self.source == "usage-each":
            self._running_known, self.source = True, "usage-each"
            for number in indices:
                choice = self._choice_at(number if isinstance(number, int) else 0)
                choice.counted = max(choice.counted, count)

    def _prompt_side(self, usage: dict[str, Any]) -> None:
        prompt = whole(usage.get("prompt_tokens"))
        if prompt is not None:
            self.prompt_tokens = prompt
        details = usage.get("prompt_tokens_details")
        cached = usage.get("cached_tokens")
        if cached is None and isinstance(details, dict):
            cached = details.get("cached_tokens")
        if whole(cached) is not None:
            self.cached_tokens = whole(cached)

    def _native(self, message: dict[str, Any]) -> bool:
        """SGLang /generate: `text` is all of it so far (or the increment, as a server option), the count always is."""
        number = message.get("index", 0)
        choice = self._choice_at(number if isinstance(number, int) else 0)
        meta = message.get("meta_info")
        meta = meta if isinstance(meta, dict) else {}
        text = message.get("text")
        count = whole(meta.get("completion_tokens"))
        grew = False
        if isinstance(text, str) and text:
            gained = choice.take_native(text, count is not None and count > choice.counted)
            grew = gained > 0
            self.content_chars += gained
        self._prompt_side(meta)
        if count is not None:
            self._running_known, self.source = True, "meta_info"
            choice.counted = max(choice.counted, count)
        self._finish(choice, meta.get("finish_reason"))
        for key in meta:
            if key.startswith("spec_"):
                self.spec[key] = meta[key]
        return grew

    def _llamacpp(self, message: dict[str, Any]) -> bool:
        choice = self._choice_at(0)
        piece = message.get("content")
        has = isinstance(piece, str) and bool(piece) and not (message.get("stop") and self.events > 1)
        if has and isinstance(piece, str):
            self.content_chars += len(piece)
            if self.keep_text:
                choice.text.append(piece)
        count = whole(message.get("tokens_predicted"))
        if count:
            self._running_known, self.source = True, "timings"
            choice.counted = max(choice.counted, count)
        prompt = whole(message.get("tokens_evaluated"))
        self.prompt_tokens = prompt if prompt is not None else self.prompt_tokens
        if message.get("stop"):
            kind = message.get("stop_type") or ("limit" if message.get("stopped_limit") else "stop")
            self._finish(choice, {"limit": "length", "eos": "stop", "word": "stop"}.get(str(kind), "stop"))
        return has

    def _tgi(self, message: dict[str, Any], token: dict[str, Any]) -> bool:
        """text-generation-inference's own /generate_stream: one token an event, the count with the last one."""
        choice = self._choice_at(0)
        piece = token.get("text")
        has = isinstance(piece, str) and bool(piece) and not token.get("special")
        if has and isinstance(piece, str):
            self.content_chars += len(piece)
            if self.keep_text:
                choice.text.append(piece)
        details = message.get("details")
        if isinstance(details, dict):
            count = whole(details.get("generated_tokens"))
            if count is not None:
                self.source = "usage"
                self.final_tokens = count
            kind = str(details.get("finish_reason"))
            self._finish(
                choice, {"length": "length", "eos_token": "stop", "stop_sequence": "stop"}.get(kind, "stop")
            )
        return has

    def _extras(self, message: dict[str, Any]) -> None:
        timings = message.get("timings")
        if isinstance(timings, dict):
            self.timings = timings
            count = whole(timings.get("predicted_n"))
            if count is not None and self.source in ("none", "timings", "usage") and self.choices:
                if self.final_tokens is None or self._running_known:
                    self._running_known, self.source = True, "timings"
                choice = self.choices[min(self.choices)]
                choice.counted = max(choice.counted, count)
        extension = message.get("sglext")
        if isinstance(extension, dict) and isinstance(extension.get("spec_tokens_details"), dict):
            self.spec.update(extension["spec_tokens_details"])
        metrics = message.get("metrics")
        if isinstance(metrics, dict) and isinstance(metrics.get("speculative_decoding"), dict):
            self.spec.update(metrics["speculative_decoding"])
