"""Prebuilt request bytes: the same ordered prompts for every configuration, with a leading nonce where asked. Pure.

A prompt may carry a hundred thousand tokens of context, the same for every request of a cell. So a request is kept as
(head, tail): the head has the HTTP header and the nonce and differs from request to request, the tail is shared.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from .asked.conversation import Conversations, flat, place
from .asked.lengths import Draws
from .asked.trace import BlockTexts, trace_times
from .context_text import CHARS_PER_TOKEN, corpus, passage
from .spec import LoadSpec

_MARK = "@@ddtop-nonce@@"  # stands where the nonce goes while the JSON is built; plain ASCII, so JSON keeps it as it is
NONCE_LENGTH = 18


def nonce_for(seed: str, index: int) -> str:
    """The nonce of request `index`: always NONCE_LENGTH characters, the same for every configuration."""
    digest = hashlib.sha256(("%s/%d" % (seed, index)).encode()).hexdigest()
    return "[run %s]\n" % digest[: NONCE_LENGTH - 7]


class RequestBuilder:
    """Builds the two buffers of request `index`; `usage` is how much of the token count is asked for. `shared`: what every
    prompt of the cell begins with, before the nonce."""

    def __init__(
        self, spec: LoadSpec, context_text: str = "", api_key: str = "", usage: str = "", shared: str = ""
    ) -> None:
        self.spec = spec
        self.context = context_text
        self.shared = shared
        self.usage = usage or spec.usage
        self.conversations = Conversations(spec.prompts, spec.turns)
        seed = "%d/%%s" % spec.seed
        self.outputs = Draws(spec.output_lengths, seed % "output", 1) if spec.output_lengths else None
        self.contexts = Draws(spec.context_lengths, seed % "context", 0) if spec.context_lengths else None
        self.source, self.chars_per_token = "", CHARS_PER_TOKEN
        self.blocks = BlockTexts(spec.block_tokens, spec.nonce, corpus()) if spec.replays else None
        self._api_key = api_key
        self._cache: dict[int, tuple[bytes, bytes]] = {}

    @property
    def turns(self) -> int:
        """Requests of a conversation, at most."""
        return self.conversations.turns

    def like(self, spec: LoadSpec, usage: str = "") -> RequestBuilder:
        """A builder of another load with the same texts before its prompts."""
        other = RequestBuilder(spec, self.context, self._api_key, usage or self.usage, self.shared)
        other.source, other.chars_per_token = self.source, self.chars_per_token
        if self.blocks is not None and other.blocks is not None:
            other.blocks.chars = self.blocks.chars
        return other

    def body(self, index: int) -> dict[str, Any]:
        """The JSON body of request `index`, with the mark in place of the nonce."""
        spec = self.spec
        nonce = _MARK if spec.nonce and self.blocks is None else ""  # a trace's blocks have their own
        lead = self.shared + nonce + self._context(index)
        body: dict[str, Any] = {}
        tokens = self.asked(index)
        if spec.kind == "generate":
            sampling: dict[str, Any] = {"max_new_tokens": tokens, "temperature": spec.temperature}
            if spec.exact_tokens:
                sampling["ignore_eos"] = True
            body = {"text": lead + self._text(index), "sampling_params": sampling, "stream": True}
        else:
            if spec.model:
                body["model"] = spec.model
            if spec.kind == "chat":
                body["messages"] = self._dialogue(index, lead)
            else:
                body["prompt"] = lead + self._text(index)
            body[spec.max_tokens_key] = tokens
            body.update(temperature=spec.temperature, stream=True)
            if spec.exact_tokens:
                body["ignore_eos"] = True
            if self.usage != "none":
                options = {"include_usage": True}
                if self.usage == "each":
                    options["continuous_usage_stats"] = True
                body["stream_options"] = options
            if spec.engine == "sglang":
                body["return_spec_tokens_details"] = True
            if spec.engine == "llamacpp":
                body.update(timings_per_token=True, cache_prompt=spec.shares or not spec.nonce)
        for key, value in spec.extra_body.items():
            if isinstance(value, dict) and isinstance(body.get(key), dict):
                body[key] = {**body[key], **value}
            else:
                body[key] = value
        return body

    def asked(self, index: int) -> int:
        """Output tokens asked for by request `index`."""
        prompt = self.prompt(index)
        if isinstance(prompt, dict) and prompt.get("output_tokens"):
            return int(prompt["output_tokens"])
        return self.outputs.of(index) if self.outputs is not None else self.spec.output_tokens

    def drawn(self, index: int) -> dict[str, int]:
        """What was asked of request `index` where that differs from request to request: `want` output tokens, `want_context`,
        `want_prompt`. Empty where the spec says it for all."""
        out: dict[str, int] = {}
        if self.outputs is not None or self.blocks is not None:
            out["want"] = self.asked(index)
        if self.contexts is not None:
            out["want_context"] = self.contexts.of(place(index, self.turns)[0])
        if self.blocks is not None:
            out["want_prompt"] = int(self.prompt(index)["input_tokens"])
        return out

    def _context(self, index: int) -> str:
        """The text before a request's own, of its conversation's length."""
        if self.contexts is None:
            return self.context
        tokens = self.contexts.of(place(index, self.turns)[0])
        return passage(int(tokens * self.chars_per_token), self.source) + "\n\n" if tokens else ""

    def _said(self, index: int) -> Any:
        """The prompt of request `index` with its text."""
        prompt = self.prompt(index)
        return prompt if self.blocks is None else self.blocks.prompt(prompt, index)

    def prompt(self, index: int) -> Any:
        """The prompt of request `index` alone, without what its conversation said before."""
        return self.conversations.prompt(*place(index, self.turns))

    def build(self, index: int) -> tuple[bytes, bytes]:
        """(head, tail) of request `index`; sent one after the other they are the whole request."""
        conversation, turn = place(index, self.turns)
        key = conversation * self.turns % len(self.spec.prompts)
        own = turn or self.conversations.scripts or self.outputs or self.contexts or self.blocks
        parts = None if own else self._cache.get(key)
        if parts is None:
            text = json.dumps(self.body(index)).encode()
            before, mark, after = text.partition(_MARK.encode())
            parts = (before, after) if mark else (b"", text)
            if not own:
                self._cache[key] = parts
        before, after = parts
        # json.dumps wrote the newline of the nonce nowhere yet: encode it the same way here
        nonce = b""
        if self.spec.nonce and self.blocks is None:
            nonce = json.dumps(nonce_for(self.spec.nonce, conversation))[1:-1].encode()
        head = self._header(len(before) + len(nonce) + len(after), index)
        return head + before + nonce, after

    def _header(self, length: int, index: int) -> bytes:
        spec = self.spec
        host = "[%s]" % spec.host if ":" in spec.host else spec.host
        default_port = 443 if spec.tls else 80
        lines = [
            "POST %s HTTP/1.1" % spec.path,
            "Host: %s" % (host if spec.port == default_port else "%s:%d" % (host, spec.port)),
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "Accept-Encoding: identity",
            "X-Request-Id: %s-%d" % (spec.id, index),
            "Content-Length: %d" % length,
        ]
        if spec.connections in ("fresh", "cold"):
            lines.append("Connection: close")
        if self._api_key:
            lines.append("Authorization: Bearer %s" % self._api_key)
        lines += ["%s: %s" % item for item in spec.headers.items()]
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"

    def _dialogue(self, index: int, lead: str) -> list[Any]:
        """The messages of a request: the conversation so far, its own answers in it, and the prompt."""
        out: list[Any] = []
        for prompt, answer in self.conversations.before(index):
            out += self._messages(prompt, "" if out else lead)
            out.append({"role": "assistant", "content": answer})
        return out + self._messages(self._said(index), "" if out else lead)

    def _text(self, index: int) -> str:
        """The same as plain text, for endpoints that know no messages."""
        said = [
            text for prompt, answer in self.conversations.before(index) for text in (flat(prompt), answer)
        ]
        return "\n\n".join([*said, flat(self._said(index))])

    def _messages(self, prompt: Any, lead: str) -> list[Any]:
        if isinstance(prompt, dict) and isinstance(prompt.get("messages"), list):
            messages = [dict(message) for message in prompt["messages"]]
            if lead and messages and isinstance(messages[0].get("content"), str):
                messages[0]["content"] = lead + messages[0]["content"]
            return messages
        return [{"role": "user", "content": lead + flat(prompt)}]


def window_times(spec: LoadSpec, count: int) -> list[int]:
    """When the requests of an open loop are due, in ns after the start; a trace says it by itself."""
    if spec.replays:
        return trace_times(spec.prompts[:count], spec.speed)
    return arrival_times(count, spec.rate, spec.arrival, spec.seed)


def arrival_times(count: int, rate: float, arrival: str, seed: int) -> list[int]:
    """Scheduled send times of an open loop in ns after the start: constant gaps, or exponential ones (Poisson)."""
    times: list[int] = []
    at = 0.0
    source = random.Random(seed)
    for _ in range(count):
        times.append(int(at * 1e9))
        at += source.expovariate(rate) if arrival == "poisson" else 1.0 / rate
    return times
