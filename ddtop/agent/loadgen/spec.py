"""What a cell asks of the load generator: `LoadSpec`, built from JSON with exact complaints. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import urlsplit

from .asked import lengths, trace
from .asked.conversation import script_of

SCHEMA = 1
ENDPOINTS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "generate": "/generate"}
CONNECTIONS = ("keep-alive", "fresh", "cold", "cold-start")


class SpecError(ValueError):
    """The spec is wrong; the text names the key, what was found and what is allowed."""


@dataclasses.dataclass
class LoadSpec:
    """One cell's load. Times in seconds, lengths in tokens. See docs/measuring.md for every field's meaning.

    Where it goes: `url` (base, http or https), `endpoint` (chat, completions, generate, or a path beginning
    with /), `path_kind` (which of the three a path speaks), `api_key_env` (NAME of an environment variable),
    `headers`. What is asked: `prompts` (the ordered set; request i uses prompt i mod n; a string, or
    {"prompt"|"messages"|"turns", "output_tokens"}, "turns" being a whole conversation), `output_tokens`, `exact_tokens` (ignore_eos: fewer tokens is class
    "short"), `temperature`, `extra_body`, `nonce` (seed of a leading nonce, equal for the same request index;
    "" = none), `context` (tokens of text before each prompt), `context_kind` natural (shipped prose) or random
    (words in random order: they destroy what speculative decoding accepts), `shared_prefix_tokens` of text that every
    prompt of the cell begins with, before the nonce. `turns`: requests of a conversation (0 = as many as the prompts say,
    else 1); its own answers are sent back, the nonce is the conversation's, and each turn but the first is sent `think_ms`
    after the answer before it. `output_lengths` and `context_lengths`: a distribution (`lengths`) of which each request, or
    conversation, has its own length, in place of `output_tokens` and `context`. How: `mode` closed (`concurrency`
    streams, `requests` in all, rounded up to whole conversations) or open (`rate` conversations per second, `arrival` poisson, constant, or trace: the prompts are requests of a trace (`trace`), whose clock runs `speed` times as
    fast, a hash id standing for `block_tokens`; `seed`);
    `connections` keep-alive, fresh (a new one each, opened before the clock), cold (a new one each, connect
    inside TTFT) or cold-start (so for the first request of a stream, then keep-alive); `request_timeout_s`,
    `time_limit_s` of the window and its warm-up, `give_up_after` requests that all gave 0 tokens (0 = `concurrency`),
    `warmup` requests before (apart), or "handover": the load runs before the window and is handed over to it when it has
    settled (`settle_pct` % between two blocks of requests); `min_window_s`: more requests are sent where `requests` take
    less; `processes` (0 = by the load). Around it: `engine`, `flush_cache`, `metrics_url`
    ("auto" = /metrics where the engine is known, "" = none), `server_pids`, `gpus` ("auto", "none" or a list of
    indices), `keep_texts`, `usage` (each, final, none), `again` (with keep_texts: after the window so many of
    its first requests are asked once more, apart from the result: how far the server agrees with itself). `slo` with
    `share`: limits in ms (ttft_ms, tpot_ms, e2e_ms, icl_ms) that this share of the requests must meet; the window ends as
    soon as that is decided, so `requests` is the most that are sent.
    """

    url: str
    id: str = "cell"
    endpoint: str = "chat"
    path_kind: str = "chat"
    model: str = ""
    engine: str = ""
    api_key_env: str = ""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    tls_verify: bool = True
    prompts: list[Any] = dataclasses.field(default_factory=list)
    nonce: str = ""
    context: int = 0
    context_kind: str = "natural"
    shared_prefix_tokens: int = 0
    context_lengths: dict[str, Any] = dataclasses.field(default_factory=dict)
    turns: int = 0
    think_ms: float = 0.0
    output_tokens: int = 128
    output_lengths: dict[str, Any] = dataclasses.field(default_factory=dict)
    exact_tokens: bool = True
    temperature: float = 0.0
    extra_body: dict[str, Any] = dataclasses.field(default_factory=dict)
    usage: str = "each"
    max_tokens_key: str = "max_tokens"
    mode: str = "closed"
    concurrency: int = 1
    requests: int = 1
    rate: float = 0.0
    arrival: str = "poisson"
    speed: float = 1.0
    block_tokens: int = 512
    seed: int = 0
    max_in_flight: int = 4096
    connections: str = "keep-alive"
    request_timeout_s: float = 600.0
    time_limit_s: float = 600.0
    give_up_after: int = 0
    warmup: Any = 0
    min_window_s: float = 0.0
    settle_pct: float = 5.0
    processes: int = 0
    flush_cache: bool = False
    metrics_url: str = "auto"
    server_pids: list[int] = dataclasses.field(default_factory=list)
    gpus: Any = "auto"
    gpu_ms: int = 200
    keep_texts: bool = False
    again: int = 0
    raw_mib: int = 16
    slo: dict[str, float] = dataclasses.field(default_factory=dict)
    share: float = 0.0

    # ---- derived

    @property
    def kind(self) -> str:
        """Which request form is spoken: chat, completions or generate."""
        return self.endpoint if self.endpoint in ENDPOINTS else self.path_kind

    @property
    def path(self) -> str:
        """The request path, with the base URL's own path before it."""
        base = urlsplit(self.url).path.rstrip("/")
        if self.endpoint not in ENDPOINTS:
            return base + self.endpoint
        path = ENDPOINTS[self.endpoint]
        if base.endswith("/v1") and path.startswith("/v1/"):
            return base + path[3:]
        return base + path

    @property
    def tls(self) -> bool:
        """True for https."""
        return urlsplit(self.url).scheme == "https"

    @property
    def host(self) -> str:
        """Host name or address, without brackets."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """TCP port."""
        return urlsplit(self.url).port or (443 if self.tls else 80)

    @property
    def loopback(self) -> bool:
        """True if the load never leaves this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def shares(self) -> bool:
        """True if prompts have a beginning in common by design: then hits of the prefix cache are a result."""
        return self.turns > 1 or self.shared_prefix_tokens > 0 or self.replays

    @property
    def replays(self) -> bool:
        """True if the prompts are requests of a trace."""
        return self.arrival == "trace"

    @property
    def conversations(self) -> int:
        """Conversations of the window; with one turn a request is one."""
        return -(-self.requests // max(1, self.turns))

    @property
    def streams(self) -> int:
        """Connections to open before the clock starts."""
        if self.mode == "open":
            return max(1, min(self.requests, 16, self.max_in_flight))
        return max(1, min(self.concurrency, self.conversations))


LIMITS = ("ttft_ms", "tpot_ms", "e2e_ms", "icl_ms")
_ONE_OF = {
    "path_kind": tuple(ENDPOINTS),
    "context_kind": ("natural", "random"),
    "mode": ("closed", "open"),
    "arrival": ("poisson", "constant", "trace"),
    "connections": CONNECTIONS,
    "usage": ("each", "final", "none"),
}
_AT_LEAST = {
    "concurrency": 1,
    "requests": 1,
    "output_tokens": 1,
    "context": 0,
    "shared_prefix_tokens": 0,
    "turns": 0,
    "think_ms": 0,
    "min_window_s": 0,
    "processes": 0,
    "give_up_after": 0,
    "again": 0,
    "max_in_flight": 1,
    "block_tokens": 16,
    "gpu_ms": 20,
    "raw_mib": 1,
}


def load_spec(data: dict[str, Any]) -> LoadSpec:
    """A LoadSpec from decoded JSON. Raises SpecError naming the key on anything unknown or out of range."""
    if not isinstance(data, dict):
        raise SpecError("a load spec is a JSON object, found %s" % type(data).__name__)
    fields = {field.name: field for field in dataclasses.fields(LoadSpec)}
    for key in data:
        if key not in fields and key != "schema":
            raise SpecError("%s: no such key in a load spec; known are %s" % (key, ", ".join(sorted(fields))))
    if data.get("schema", SCHEMA) != SCHEMA:
        raise SpecError("schema: %r, this generator speaks %d" % (data.get("schema"), SCHEMA))
    if "url" not in data:
        raise SpecError("url: missing; the base URL of the server, such as http://127.0.0.1:30000")
    spec = LoadSpec(**{key: value for key, value in data.items() if key != "schema"})
    _types(spec, fields)
    parts = urlsplit(spec.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError("url: %r; wanted http://HOST:PORT or https://HOST:PORT" % spec.url)
    try:
        _ = parts.port
    except ValueError:
        raise SpecError("url: %r has no valid port" % spec.url) from None
    if spec.endpoint not in ENDPOINTS and not spec.endpoint.startswith("/"):
        raise SpecError(
            "endpoint: %r; wanted %s, or a path beginning with /" % (spec.endpoint, ", ".join(ENDPOINTS))
        )
    for key, allowed in _ONE_OF.items():
        if getattr(spec, key) not in allowed:
            raise SpecError("%s: %r; allowed are %s" % (key, getattr(spec, key), ", ".join(allowed)))
    for key, least in _AT_LEAST.items():
        if getattr(spec, key) < least:
            raise SpecError("%s: %r; must be at least %d" % (key, getattr(spec, key), least))
    if spec.mode == "open" and not spec.rate > 0 and not spec.replays:
        raise SpecError("rate: %r; an open loop needs requests per second above 0" % spec.rate)
    if not spec.request_timeout_s > 0 or not spec.time_limit_s > 0:
        raise SpecError("request_timeout_s and time_limit_s must be above 0")
    whole = isinstance(spec.warmup, int) and not isinstance(spec.warmup, bool)
    if spec.warmup != "handover" and not (whole and spec.warmup >= 0):
        raise SpecError('warmup: %r; wanted "handover", or a number of requests' % (spec.warmup,))
    if not 0 < spec.settle_pct <= 100:
        raise SpecError("settle_pct: %r; wanted above 0, at most 100" % spec.settle_pct)
    _slo(spec)
    if not spec.prompts:
        spec.prompts = ["Write a Python program that prints the first 50 Fibonacci numbers."]
    for key, least in (("output_lengths", 1), ("context_lengths", 0)):
        problem = lengths.problem_of(getattr(spec, key), least) if getattr(spec, key) else ""
        if problem:
            raise SpecError("%s: %s" % (key, problem))
    if spec.replays:
        return _trace(spec)
    for place, prompt in enumerate(spec.prompts):
        good = isinstance(prompt, dict) and ("prompt" in prompt or "messages" in prompt or script_of(prompt))
        if not isinstance(prompt, str) and not good:
            raise SpecError(
                'prompts[%d]: wanted text, or an object with "prompt", "messages" or "turns"' % place
            )
    spec.turns = spec.turns or max([1, *(len(script_of(prompt)) for prompt in spec.prompts)])
    return spec


def _trace(spec: LoadSpec) -> LoadSpec:
    """A trace has its own lengths and its own clock, so that nothing else may ask for others."""
    problem = trace.problem_of(spec.prompts)
    if problem:
        raise SpecError(problem)
    if not 0 < spec.speed:
        raise SpecError("speed: %r; wanted above 0" % spec.speed)
    for key in ("context", "context_lengths", "output_lengths", "shared_prefix_tokens"):
        if getattr(spec, key):
            raise SpecError("%s: a trace says the lengths of its requests by itself" % key)
    if spec.turns > 1:
        raise SpecError("turns: a trace is of single requests")
    spec.turns, spec.mode = 1, "open"
    spec.requests = min(spec.requests, len(spec.prompts)) if spec.requests > 1 else len(spec.prompts)
    span_s = (spec.prompts[spec.requests - 1]["at_ms"] - spec.prompts[0]["at_ms"]) / 1e3 / spec.speed
    spec.rate = spec.rate or spec.requests / max(span_s, 1.0)
    return spec


def _slo(spec: LoadSpec) -> None:
    for key, limit in spec.slo.items():
        if key not in LIMITS:
            raise SpecError("slo.%s: no such limit; known are %s" % (key, ", ".join(LIMITS)))
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
            raise SpecError("slo.%s: %r; wanted milliseconds above 0" % (key, limit))
    if bool(spec.slo) != bool(spec.share):
        raise SpecError(
            "slo and share belong together: limits, and the share of the requests that must meet them"
        )
    if spec.slo and not 0 < spec.share < 1:
        raise SpecError(
            "share: %r; wanted above 0 and below 1, such as 0.95 (1 can never be shown)" % spec.share
        )


def _types(spec: LoadSpec, fields: dict[str, Any]) -> None:
    for name, field in fields.items():
        default = _default_of(field)
        value = getattr(spec, name)
        if name == "url":
            default = ""
        if default is None or name in ("gpus", "warmup"):
            continue
        good = isinstance(value, type(default))
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            setattr(spec, name, float(value))
            good = True
        if isinstance(default, int) and not isinstance(default, bool) and isinstance(value, bool):
            good = False
        if not good:
            wanted = {
                dict: "an object",
                list: "a list",
                str: "text",
                bool: "true or false",
                int: "a whole number",
            }
            raise SpecError("%s: %r; wanted %s" % (name, value, wanted.get(type(default), "a number")))


def _default_of(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None
