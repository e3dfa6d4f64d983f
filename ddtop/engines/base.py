"""What ddtop needs to know of an inference engine, as one protocol of pure functions.

The sweep, the gate and the load generator speak to any engine through this; nothing here touches a network. HTTP
bodies are handed in as text or decoded JSON, requests are handed out as path and body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

from ddtop.engines.log.grammar import LogFact


@dataclass(frozen=True, slots=True)
class ArgMismatch:
    """One argument that is not in effect as wanted.

    kind  ``different``, ``missing`` (the running server says nothing of it), ``unwanted`` (the running server has a
          speculative setting that was not asked for) or ``overridden`` (the engine silently forces another value,
          so cells that differ only here are duplicates)
    """

    name: str
    wanted: Any
    running: Any
    kind: str = "different"
    why: str = ""

    def __str__(self) -> str:
        text = f"{self.name}: wanted {self.wanted!r}, running {self.running!r}"
        return f"{text} ({self.why})" if self.why else text


@dataclass(frozen=True, slots=True)
class AcceptanceCounters:
    """Exact counters of speculative decoding, summed over engines and ranks; differences of two readings count.

    accepted  draft tokens accepted (vLLM, llama.cpp); None where the engine has no such counter
    steps     verify steps or drafts: the denominator of the acceptance length
    emitted   tokens generated (SGLang: numerator, bonus token included)
    """

    steps: float
    accepted: float | None = None
    emitted: float | None = None
    drafted: float | None = None

    def length_since(self, before: AcceptanceCounters) -> float | None:
        """Mean acceptance length (bonus token included) between two readings; None without a step in between."""
        steps = self.steps - before.steps
        if steps <= 0:
            return None
        if self.accepted is not None and before.accepted is not None:
            return 1 + (self.accepted - before.accepted) / steps
        if self.emitted is not None and before.emitted is not None:
            return (self.emitted - before.emitted) / steps
        return None


class Engine(Protocol):
    """One inference engine. All members are pure."""

    name: str
    health_path: str
    info_path: str | None
    metrics_path: str
    models_path: str
    version_path: str | None
    logs_ready_mark: bool
    """The ready mark is a line of the log; else `/health` turning from 503 to 200 is it."""

    port_opens_first: bool
    """The port is open before the model is loaded: an open port says nothing of how far the start is."""

    def ready_mark(self, fact: LogFact) -> bool:
        """Whether this fact of the log is the engine's ready mark."""
        ...

    def health_ready(self, before: int | None, now: int | None) -> bool:
        """Whether two HTTP statuses of the health path (None: refused) show that the engine became ready."""
        ...

    def is_engine_cmdline(self, argv: Sequence[str]) -> bool:
        """Whether a process's argv starts this engine's server."""
        ...

    def resolved_args(
        self, server_info: str | bytes | Mapping[str, Any] | None, argv: Sequence[str]
    ) -> dict[str, Any]:
        """The arguments in effect: the server's own account where it gives one, else those of its command line."""
        ...

    def compare_args(
        self, wanted_argv: Sequence[str], resolved: Mapping[str, Any], cmdline: Sequence[str] = ()
    ) -> tuple[ArgMismatch, ...]:
        """What of `wanted_argv` is not in effect. Empty = the running server is the wanted one."""
        ...

    def one_token_request(self, endpoint: str, model: str, prompt: str = "Hi") -> tuple[str, dict[str, Any]]:
        """Path and JSON body of a request for one token. endpoint: ``chat``, ``completions`` or ``generate``."""
        ...

    def tokens_of_answer(self, body: str | bytes | Mapping[str, Any]) -> int | None:
        """Tokens generated according to an answer; 0 is a broken server, None an answer that does not say."""
        ...

    def acceptance_counters(self, metrics_text: str) -> AcceptanceCounters | None:
        """Counters of speculative decoding from a /metrics page; None when it has none."""
        ...

    def served_model(self, models_body: str | bytes | Mapping[str, Any]) -> str | None:
        """The first served model's name from `/v1/models`."""
        ...

    def version(self, info: str | bytes | Mapping[str, Any] | None) -> str | None:
        """The engine's version from its info or version body."""
        ...


def as_json(body: str | bytes | Mapping[str, Any] | None) -> Any:
    """A decoded JSON body; None when it is none."""
    if body is None or isinstance(body, Mapping):
        return body
    try:
        return json.loads(body)
    except (ValueError, RecursionError, UnicodeDecodeError):
        return None


def base_name(path: str) -> str:
    """The last part of a path, without a version suffix of python (`python3.12` → `python`)."""
    return re.sub(r"^python[\d.]*$", "python", PurePosixPath(path).name)


def openai_request(endpoint: str, model: str, prompt: str) -> tuple[str, dict[str, Any]]:
    """Path and body of a one-token request over the OpenAI-compatible API (not streamed, greedy)."""
    common = {"model": model, "max_tokens": 1, "temperature": 0, "stream": False}
    if endpoint == "completions":
        return "/v1/completions", {**common, "prompt": prompt}
    return "/v1/chat/completions", {**common, "messages": [{"role": "user", "content": prompt}]}


def openai_tokens(body: str | bytes | Mapping[str, Any]) -> int | None:
    """Tokens generated by an OpenAI-compatible answer: its usage, else 1 where there is any text. None: an error."""
    answer = as_json(body)
    if not isinstance(answer, Mapping) or answer.get("error"):
        return None
    usage = answer.get("usage")
    if isinstance(usage, Mapping) and isinstance(usage.get("completion_tokens"), int):
        return int(usage["completion_tokens"])
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return None
    for choice in choices:
        if not isinstance(choice, Mapping):
            continue
        message = choice.get("message")
        texts = [choice.get("text")]
        if isinstance(message, Mapping):
            texts += [message.get("content"), message.get("reasoning_content"), message.get("reasoning")]
            if message.get("tool_calls"):
                return 1
        if any(isinstance(t, str) and t for t in texts):
            return 1
    return 0


def first_model(body: str | bytes | Mapping[str, Any]) -> str | None:
    """`data[0].id` of an OpenAI-compatible model list."""
    answer = as_json(body)
    data = answer.get("data") if isinstance(answer, Mapping) else None
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        name = data[0].get("id")
        return name if isinstance(name, str) and name else None
    return None
