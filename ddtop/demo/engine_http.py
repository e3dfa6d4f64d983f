"""SIMULATED: the HTTP half of the demo's engine: SGLang's endpoints, streams with usage, and its counters."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

from ddtop.demo.speed import Speed

WORDS = """
def fibonacci ( n ) : a , b = 0 , 1 for _ in range ( n ) : yield a a , b = b , a + b print ( * fibonacci ( 50 ) )
# each number is the sum of the two before it ; the ratio of neighbours tends to the golden ratio phi , about 1.618 .
"""
TEXT = WORDS.split()
KV_TOKENS = 16_384
"""Room of the stand-in's KV cache."""


class GpuSink(Protocol):
    def say(
        self, phase: str, mib: float, activity: float = 0.0, busy: tuple[float, float] = (0.0, 0.0)
    ) -> None: ...


class Model:
    """What all requests share: counters, speed and the GPU's look."""

    version = "0.5.23+SIMULATED"

    def __init__(
        self,
        *,
        args: dict[str, Any],
        speed: Speed,
        gpu: GpuSink,
        log: Callable[[str], None],
    ) -> None:
        self.args, self.speed, self.gpu, self.log = args, speed, gpu, log
        self.acceptance = speed.acceptance
        self.ready = threading.Event()
        self.lock = threading.Lock()
        self.running = 0
        self.generated = 0
        self.prompted = 0
        self.held = 0
        """Tokens of the requests that run: what the KV cache holds."""
        self.verified = 0

    def enter(self, tokens: int) -> None:
        with self.lock:
            self.running += 1
            self.prompted += tokens
            self.held += tokens
            self.log(
                f"Prefill batch, #new-seq: 1, #new-token: {tokens}, #cached-token: 0, token usage: 0.00, #running-req: {self.running - 1}, #queue-req: 0, "
                "#pending-token: 0, cuda graph: False, input throughput (token/s): 812.40"
            )
            speed = self.speed
            self.gpu.say("decode", 84_000, speed.power_share(self.running), speed.busy(self.running))

    def leave(self, tokens: int) -> None:
        with self.lock:
            self.running -= 1
            self.held -= tokens
            if not self.running:
                self.gpu.say("idle", 84_000)

    def steps(self, prompt: str, limit: int) -> Iterator[tuple[int, str]]:
        """Tokens and text of each verify step of one request, in real time. Same prompt, same text."""
        tokens = max(1, len(prompt.split()))
        self.enter(tokens)
        sent = 0
        try:
            chance = random.Random(prompt)
            began, carry = time.monotonic(), 0.0
            steps = 0
            time.sleep(0.03)
            while sent < limit:
                time.sleep(self.speed.step_s(self.running))
                carry += self.acceptance + chance.uniform(-0.4, 0.4) * (self.acceptance > 1)
                got = max(1, min(int(carry), limit - sent))
                carry = max(0.0, carry - got)
                text = "".join(" " + TEXT[(sent + i) % len(TEXT)] for i in range(got))
                sent, steps = sent + got, steps + 1
                with self.lock:
                    self.generated += got
                    self.held += got
                    self.verified += 1
                    if self.verified % 40 == 0:
                        speed = sent / (time.monotonic() - began) * self.running
                        spec = self.accepted(sent / steps)
                        self.log(
                            f"Decode batch, #running-req: {self.running}, #token: {tokens + sent}, token usage: 0.01, "
                            f"{spec}cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: 0"
                        )
                yield got, text
        finally:
            self.leave(tokens + sent)

    def accepted(self, length: float) -> str:
        """What a decode line says of speculation."""
        if self.acceptance <= 1:
            return ""
        rate = min(1.0, (length - 1) / max(1, self.speed.nodes - 1))
        return f"accept len: {length:.2f}, accept rate: {rate:.2f}, "

    def metrics(self) -> str:
        """The counters of 0.5.23 that matter here, with its labels: by streaming or not, gauges by rank."""
        every = 'engine_type="unified",model_name="sim"'
        rank = f'{every},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        streaming = 'engine_type="unified",is_streaming="true",model_name="sim"'
        lines = [
            f"sglang:generation_tokens_total{{{streaming}}} {float(self.generated)}",
            f"sglang:prompt_tokens_total{{{streaming}}} {float(self.prompted)}",
            f"sglang:num_running_reqs{{{rank}}} {float(self.running)}",
            f"sglang:num_queue_reqs{{{rank}}} 0.0",
            f"sglang:token_usage{{{rank}}} {self.held / KV_TOKENS}",
            f'sglang:cached_tokens_total{{cache_source="device",{every}}} 0.0',
        ]
        if self.acceptance > 1:
            lines.append(f"sglang:spec_verify_calls_total{{{every}}} {float(self.verified)}")
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """One connection. Answers as SGLang 0.5.23 does, where the demo asks."""

    protocol_version = "HTTP/1.1"
    server_version = "sglang-SIMULATED"

    @property
    def model(self) -> Model:
        model: Model = self.server.model  # type: ignore[attr-defined]
        return model

    def log_message(self, format: str, *args: Any) -> None:  # the name is http.server's
        """Uvicorn's access log would drown the demo's log pane."""

    def answer(self, body: Any, status: int = 200, kind: str = "application/json") -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        ready = self.model.ready.is_set()
        if self.path in ("/health", "/health_generate", "/ready"):
            self.answer("", 200 if ready else 503, "text/plain")
        elif self.path == "/v1/models":
            self.answer(
                {
                    "object": "list",
                    "data": [{"id": self.model.args["model_path"], "object": "model", "owned_by": "sglang"}],
                }
            )
        elif self.path in ("/server_info", "/get_server_info"):
            status = "ready" if ready else "starting"
            self.answer(
                {**self.model.args, "version": self.model.version, "status": status, "internal_states": [{}]}
            )
        elif self.path in ("/model_info", "/get_model_info"):
            self.answer({"model_path": self.model.args["model_path"], "is_generation": True})
        elif self.path == "/metrics":
            self.answer(self.model.metrics(), kind="text/plain")
        else:
            self.answer({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return self.answer({"error": {"message": "the body is not JSON", "code": 400}}, 400)
        if self.path.startswith("/flush_cache"):
            return self.answer("Cache flushed.\n", kind="text/plain")
        if self.path == "/tokenize":
            words = str(body.get("prompt", "")).split()
            return self.answer({"tokens": list(range(len(words))), "count": len(words)})
        if self.path not in ("/v1/chat/completions", "/v1/completions", "/generate"):
            return self.answer({"detail": "Not Found"}, 404)
        return self.generate(body)

    def generate(self, body: dict[str, Any]) -> None:
        chat, native = self.path.startswith("/v1/chat"), self.path == "/generate"
        if chat:
            prompt = " ".join(str(m.get("content")) for m in body.get("messages", []))
        else:
            prompt = str(body.get("text") if native else body.get("prompt"))
        sampling = body.get("sampling_params") or {}
        wanted = (
            sampling.get("max_new_tokens")
            if native
            else body.get("max_completion_tokens") or body.get("max_tokens")
        )
        steps = self.model.steps(prompt, int(wanted or 128))
        usage = {"prompt_tokens": max(1, len(prompt.split())), "completion_tokens": 0}
        shape = native_event if native else openai_event
        head = {"id": uuid.uuid4().hex, "model": body.get("model") or "sim", "chat": chat}
        if not body.get("stream"):
            text, calls = "", 0
            for got, piece in steps:
                usage["completion_tokens"] += got
                text, calls = text + piece, calls + 1
            return self.answer(shape(head, text, "length", usage, calls, whole=True))
        options = body.get("stream_options") or {}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            text, calls = "", 0
            for got, piece in steps:
                usage["completion_tokens"] += got
                text, calls = text + piece, calls + 1
                running = usage if native or options.get("continuous_usage_stats") else None
                self.event(shape(head, text if native else piece, None, running, calls))
            end = shape(head, text if native else "", "length", usage if native else None, calls)
            if body.get("return_spec_tokens_details") and self.model.acceptance > 1:
                end["sglext"] = {"spec_tokens_details": {"spec_verify_ct": calls}}
            self.event(end)
            if options.get("include_usage") and not native:
                self.event({**openai_event(head, "", None, usage, calls), "choices": []})
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            steps.close()  # type: ignore[attr-defined]  # the client went away: end the generator, free its slot
        return None

    def event(self, data: Any) -> None:
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))


def openai_event(
    head: dict[str, Any],
    text: str,
    finish: str | None,
    usage: dict[str, int] | None,
    calls: int,
    whole: bool = False,
) -> dict[str, Any]:
    """One event of the OpenAI endpoints, or the whole answer."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if head["chat"]:
        choice["message" if whole else "delta"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    kind = "chat.completion" if head["chat"] else "text_completion"
    kind += ".chunk" if head["chat"] and not whole else ""
    return {
        "id": head["id"],
        "object": kind,
        "model": head["model"],
        "choices": [choice],
        "usage": usage and dict(usage),
    }


def native_event(
    head: dict[str, Any],
    text: str,
    finish: str | None,
    usage: dict[str, int] | None,
    calls: int,
    whole: bool = False,
) -> dict[str, Any]:
    """One event of /generate (its text is cumulative), or the whole answer."""
    meta: dict[str, Any] = {
        "id": head["id"],
        "finish_reason": finish and {"type": finish},
        "spec_verify_ct": calls,
    }
    return {"text": text, "meta_info": {**meta, **(usage or {})}}
